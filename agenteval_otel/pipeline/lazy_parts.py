"""What a forked child needs before it evaluates on Python 3.11: lazily made parts without their parent's locks.

There `functools.cached_property` holds one lock for all objects of a class while it computes. A parent that forks while
another thread computes leaves it held in the child for ever, and the child would wait on it with its first answer.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from agenteval_otel.components import Component
from agenteval_otel.models import EvaluationInput

__all__ = ["free_lazy_parts"]


def free_lazy_parts() -> None:
    """Give every lazily made part of our classes, and of users' components, a free lock; for a forked child."""
    if sys.version_info >= (3, 12):
        return
    for kind in _kinds(Component, EvaluationInput):
        for part in vars(kind).values():
            if isinstance(part, cached_property):
                part.lock = threading.RLock()  # type: ignore[attr-defined]


def _kinds(*roots: type[Any]) -> Iterator[type[Any]]:
    """The classes and all their subclasses, those of users too."""
    for root in roots:
        yield root
        yield from _kinds(*root.__subclasses__())

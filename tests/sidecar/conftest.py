"""What the sidecar's tests have: a log in which no cause waits for its minute; sidecars and
applications.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.sidecar.applications import Application, Served


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Starts sidecars, which end with the test."""
    yield from _started(Served)


@pytest.fixture
def run() -> Iterator[Callable[..., Application]]:
    """Makes applications, which end with the test."""
    yield from _started(Application)


def _started(kind: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    made: list[Any] = []

    def start(*arguments: Any, **settings: Any) -> Any:
        made.append(kind(*arguments, **settings))
        return made[-1]

    yield start
    for each in made:
        each.stop()

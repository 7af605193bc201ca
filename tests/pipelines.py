"""Pipelines of tests."""

from __future__ import annotations

import inspect
from typing import Any, Final

from agenteval_otel.engine.handlers import Handlers
from agenteval_otel.engine.pipeline import Pipeline

_OF_HANDLERS: Final = frozenset(inspect.signature(Handlers).parameters)


def pipeline_with(**settings: Any) -> Pipeline:
    """A pipeline of these arguments, each for itself or for its handlers."""
    written = {name: settings.pop(name) for name in _OF_HANDLERS & settings.keys()}
    return Pipeline(Handlers(**written), **settings)

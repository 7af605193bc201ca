"""Instrumentation: how answers of the application's handlers reach the pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agenteval_otel.instrumentation.decorator import monitor

if TYPE_CHECKING:
    from agenteval_otel.instrumentation.wrappers import annotate, evaluation_reference

__all__ = ["annotate", "evaluation_reference", "monitor"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from agenteval_otel.instrumentation import wrappers  # imports the engine

    return getattr(wrappers, name)

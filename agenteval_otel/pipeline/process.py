"""The process's pipeline: the one that handlers use which bring none of their own."""

from __future__ import annotations

from collections.abc import Callable

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.pipeline.exit import living
from agenteval_otel.pipeline.route import Pipeline

__all__ = ["current_pipeline", "default_pipeline", "live_pipelines", "set_default_pipeline", "use_assembler"]

_default: dict[str, Pipeline] = {}
_assembler: dict[str, Callable[[], Pipeline]] = {}


def use_assembler(assemble: Callable[[], Pipeline]) -> None:
    """Say how the process's pipeline is built when nobody configured one."""
    _assembler["assemble"] = assemble


def default_pipeline() -> Pipeline:
    """The process's pipeline: the configured one, else one by the assembler's defaults.

    Raises:
        ConfigurationError: Neither is there; import from ``agenteval_otel``, which brings the assembler along.
    """
    found = _default.get("pipeline")
    if found is not None:
        return found
    if "assemble" not in _assembler:
        raise ConfigurationError("no pipeline is configured: import monitor from agenteval_otel, or pass pipeline=")
    # setdefault is atomic: of two threads that build one, both use the first.
    return _default.setdefault("pipeline", _assembler["assemble"]())


def current_pipeline() -> Pipeline | None:
    """The process's pipeline, if there is one already."""
    return _default.get("pipeline")


def set_default_pipeline(pipeline: Pipeline | None) -> Pipeline | None:
    """Replace the process's pipeline (None: built anew when asked for); gives the one before."""
    if pipeline is None:
        return _default.pop("pipeline", None)
    before = _default.get("pipeline")
    _default["pipeline"] = pipeline  # at no moment there is none: who asks in between would build one
    return before


def live_pipelines() -> list[Pipeline]:
    """Every pipeline of the process that somebody still holds."""
    return [pipeline for pipeline in living() if isinstance(pipeline, Pipeline)]

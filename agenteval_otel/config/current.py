"""The process's pipeline, the monitored handlers that use it, and the kill switch."""

from __future__ import annotations

import weakref
from typing import Protocol

from agenteval_otel.pipeline import Pipeline
from agenteval_otel.pipeline.exit import living


class Following(Protocol):
    """A handler that uses the process's pipeline."""

    def bind(self, pipeline: Pipeline) -> None:
        """Use another pipeline from now on."""


_CURRENT: dict[str, Pipeline] = {}
_FOLLOWING: weakref.WeakSet[Following] = weakref.WeakSet()


def current_pipeline() -> Pipeline | None:
    """The process's pipeline, if there is one already."""
    return _CURRENT.get("pipeline")


def set_current_pipeline(pipeline: Pipeline | None, *, replace: bool = True) -> Pipeline | None:
    """Set the process's pipeline (None: built when it is needed); returns the one before.

    Without `replace` the first of several threads wins, and its pipeline is returned.
    """
    if pipeline is None:
        return _CURRENT.pop("pipeline", None)
    if not replace:
        return _CURRENT.setdefault("pipeline", pipeline)
    before = _CURRENT.get("pipeline")
    _CURRENT["pipeline"] = pipeline  # never absent in between: another thread would build one
    return before


def follow(handler: Following) -> None:
    """Have `swap` move this handler for as long as it exists."""
    _FOLLOWING.add(handler)


def following() -> list[Following]:
    """Every handler that uses the process's pipeline."""
    return list(_FOLLOWING)


class _Switch:
    # Plain assignments, no lock and no I/O: safe in a signal handler, on any thread.
    def __init__(self) -> None:
        self.off = False
        self.switched_off: weakref.WeakSet[Pipeline] = weakref.WeakSet()


SWITCH = _Switch()


def disable() -> None:
    """Evaluate nothing from now on, in every pipeline of the process; calls count as ``disabled``.

    Queued calls are still evaluated. In force until `enable`, also after `configure` and `reload`. Safe in a signal
    handler.
    """
    SWITCH.off = True
    for pipeline in living():
        if isinstance(pipeline, Pipeline) and pipeline.enabled:
            SWITCH.switched_off.add(pipeline)
            pipeline.enabled = False


def enable() -> None:
    """Undo `disable`; also overrides ``enabled: false`` of the settings until the next `configure` or `reload`."""
    SWITCH.off = False
    for pipeline in [*SWITCH.switched_off, current_pipeline()]:
        if pipeline is not None:
            pipeline.enabled = True
    SWITCH.switched_off.clear()

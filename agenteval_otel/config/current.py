"""The process's pipeline, and the monitored handlers that use whichever it is."""

from __future__ import annotations

import weakref
from typing import Protocol

from agenteval_otel.pipeline import Pipeline

__all__ = ["Following", "current_pipeline", "follow", "following", "set_current_pipeline"]


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
    """Set the process's pipeline (None: built anew when it is needed); gives the one before.

    Without `replace` the first of several threads wins, and its pipeline is given.
    """
    if pipeline is None:
        return _CURRENT.pop("pipeline", None)
    if not replace:
        return _CURRENT.setdefault("pipeline", pipeline)
    before = _CURRENT.get("pipeline")
    _CURRENT["pipeline"] = pipeline  # at no moment there is none: another thread would build one
    return before


def follow(handler: Following) -> None:
    """Have `swap` move this handler, for as long as somebody holds it."""
    _FOLLOWING.add(handler)


def following() -> list[Following]:
    """Every handler that uses the process's pipeline."""
    return list(_FOLLOWING)

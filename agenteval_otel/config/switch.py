"""The kill switch at run time: everything off at once, whatever the settings say.

Plain assignments, no lock and no I/O: safe in a signal handler, on any thread, as often as one likes. The next call of
every handler sees it.
"""

from __future__ import annotations

import weakref

from agenteval_otel.config.current import current_pipeline
from agenteval_otel.pipeline import Pipeline
from agenteval_otel.pipeline.exit import living

__all__ = ["SWITCH", "disable", "enable"]


class _Switch:
    def __init__(self) -> None:
        self.off = False
        self.switched_off: weakref.WeakSet[Pipeline] = weakref.WeakSet()


SWITCH = _Switch()


def disable() -> None:
    """Evaluate nothing from now on, in every pipeline of the process; calls count as ``disabled``.

    What was taken before is still evaluated. It holds until `enable`, also through `configure` and `reload`.
    """
    SWITCH.off = True
    for pipeline in living():
        if isinstance(pipeline, Pipeline) and pipeline.enabled:
            SWITCH.switched_off.add(pipeline)
            pipeline.enabled = False


def enable() -> None:
    """Take `disable` back; also switch on what the settings had off, until the next `configure` or `reload`."""
    SWITCH.off = False
    for pipeline in [*SWITCH.switched_off, current_pipeline()]:
        if pipeline is not None:
            pipeline.enabled = True
    SWITCH.switched_off.clear()

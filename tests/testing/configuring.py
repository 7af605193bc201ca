"""An application's module that sets up evaluation when it is imported, as many do."""

from __future__ import annotations

import signal
import threading

from agenteval_otel import Settings, configure, monitor
from agenteval_otel.config import current_pipeline
from agenteval_otel.models import EvaluationInput

__all__ = ["handler", "is_inert"]

SETTINGS = configure(Settings(sample_rate=1.0, handle_sigterm=True))
PIPELINE, SIGTERM = current_pipeline(), signal.getsignal(signal.SIGTERM)


@monitor
def handler(question: str) -> str:
    """A monitored handler of the application."""
    return question


def is_inert(evaluation_input: EvaluationInput) -> bool:
    """Whether nothing is set up in this process, and the settings are those that were asked for."""
    handler("q")
    is_unused = (
        PIPELINE is None
        and getattr(SIGTERM, "__module__", "") != "agenteval_otel.engine.pipeline.exit"
    )
    return is_unused and threading.active_count() == 1 and SETTINGS.sample_rate == 1.0

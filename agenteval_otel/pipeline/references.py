"""References: what gives live inputs their ground truth, on the pool's loop, and counts what goes wrong with it."""

from __future__ import annotations

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.ground_truth import GroundTruthStore, with_ground_truth
from agenteval_otel.models import EvaluationInput
from agenteval_otel.telemetry import Accounting
from agenteval_otel.telemetry.log import log

__all__ = ["References"]


class References:
    """A ground-truth store on the route: failures are counted and logged, and evaluation goes on without.

    Args:
        store: None leaves every input as it is.
        accounting: Where failures are counted, as ``ground_truth``.
    """

    def __init__(self, store: GroundTruthStore | None, accounting: Accounting) -> None:
        self.store, self._accounting = store, accounting

    async def given(self, evaluation_input: EvaluationInput) -> EvaluationInput:
        """The input with its ground truth, where the store has one and the input brings none."""
        if self.store is None:
            return evaluation_input
        return await with_ground_truth(evaluation_input, self.store, self._failed)

    def _failed(self, error: BaseException) -> None:
        self._accounting.fail("ground_truth")
        # What is wrong with a file names its line and no content; what others raise may quote the conversation.
        said = {"said": str(error)} if isinstance(error, ConfigurationError) else {}
        log.warning("part_failed", part="ground_truth", error_type=type(error).__name__, **said)

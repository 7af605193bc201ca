"""`run_evaluation`: one input, one configuration, the aggregated result.

The same runner as for live answers, without sampler and dispatcher, so offline and online scores cannot differ. A
result holds a snapshot of its input: what happens to the input's lists and mappings afterwards does not change it.
"""

from __future__ import annotations

import time
from typing import Any

from agenteval_otel.capture import CURRENT, EVALUATING
from agenteval_otel.engine.aggregated import aggregate
from agenteval_otel.engine.answers import facts_of
from agenteval_otel.engine.blocking import blocking
from agenteval_otel.engine.config import EvaluationRunConfig
from agenteval_otel.engine.run import EvaluationRunner
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.execution import Executor
from agenteval_otel.ground_truth import with_ground_truth
from agenteval_otel.models import (
    AggregatedEvaluationResult,
    EvaluationInput,
    EvaluationResult,
    RunError,
)
from agenteval_otel.models.snapshot import snapshot_of
from agenteval_otel.models.value import replaced
from agenteval_otel.redaction.outgoing import Redaction
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.masking import message_of
from agenteval_otel.scoring import AgentDockCriteria

__all__ = ["OfflineRun", "run_evaluation", "run_evaluation_sync"]


class OfflineRun:
    """One configuration at work: its runner and its executor, for one input or for many.

    A context manager; leaving it ends the executor's threads. Belongs to one event loop.
    """

    def __init__(self, config: EvaluationRunConfig) -> None:
        if not isinstance(config, EvaluationRunConfig):
            raise ConfigurationError(
                f"expected an EvaluationRunConfig, found {type(config).__name__}; "
                "EvaluationRunConfig.model_validate(...) makes one of a mapping"
            )
        self.config = config
        self.executor = Executor(live=False)
        self.redaction = Redaction(config.redactors, _redaction_failed)
        self.runner = EvaluationRunner(
            config.selection.evaluators, criteria=config.criteria, executor=self.executor, redaction=self.redaction,
            escalation=config.escalation,
        )  # fmt: skip
        if not config.is_strict:
            self.runner.criteria = AgentDockCriteria.reading(self.runner.criteria)

    def __enter__(self) -> OfflineRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.executor.close()

    def __repr__(self) -> str:
        return f"<OfflineRun {self.runner!r}>"

    async def evaluate(self, evaluation_input: EvaluationInput) -> AggregatedEvaluationResult:
        """Evaluate one input and save the result. See `run_evaluation`."""
        config = self.config
        config.check_input(evaluation_input)
        snapshot = snapshot_of(evaluation_input)
        if not config.is_strict and snapshot.criteria:
            snapshot = replaced(snapshot, {"criteria": AgentDockCriteria.reading(snapshot.criteria)})
        started_ns, tick = time.time_ns(), time.perf_counter_ns()
        token = CURRENT.set(EVALUATING)
        failures: list[BaseException] = []
        try:
            snapshot = await with_ground_truth(snapshot, config.ground_truth, failures.append)
            # Every input of a run is evaluated; what its configuration passes over lowers that of single criteria.
            outcome = await self.runner.run(snapshot, probability=None if config.escalation is None else 1.0)
        finally:
            CURRENT.reset(token)
        outcome.results[:] = map(_weighted, outcome.results)
        outcome.errors.extend(_error_of("GroundTruthStore", trouble) for trouble in failures)
        aggregated = aggregate(
            snapshot, outcome, runner=self.runner, started_ns=started_ns,
            ended_ns=started_ns + time.perf_counter_ns() - tick, metadata=snapshot_of(config.metadata),
            storage="none" if config.storage_provider is None else "external", aggregation=config.aggregation,
        )  # fmt: skip
        changes: dict[str, Any] = {"input_snapshot": snapshot}
        if config.selection.left_out:
            left_out = [str(part) for part in config.selection.left_out]
            changes["evaluation_config_snapshot"] = {
                **(aggregated.evaluation_config_snapshot or {}), "leftOut": left_out,
            }  # fmt: skip
        return await self._saved(replaced(aggregated, changes))

    async def _saved(self, aggregated: AggregatedEvaluationResult) -> AggregatedEvaluationResult:
        if self.config.storage_provider is None:
            return aggregated
        try:
            await self.config.storage_provider.save_result(self.redaction.result(aggregated))
        except (Exception, SystemExit) as error:  # a client of the user's own: the results are not lost with it
            failed = _error_of("StorageProvider", error)
            return replaced(aggregated, {"run_errors": (*(aggregated.run_errors or ()), failed)})
        return aggregated


async def run_evaluation(evaluation_input: EvaluationInput, config: EvaluationRunConfig) -> AggregatedEvaluationResult:
    """Evaluate one input with the configured evaluators, on the running event loop.

    Results stand in configured order; an evaluator that raises leaves failed results and an entry in `run_errors`, the
    others go on. A storage provider or an aggregation that raises adds an entry of its own. Evaluators that block run
    on a thread.

    Raises:
        ConfigurationError: The input's own criteria cannot be scored by; before anything runs.
    """
    with OfflineRun(config) as run:
        return await run.evaluate(evaluation_input)


def run_evaluation_sync(evaluation_input: EvaluationInput, config: EvaluationRunConfig) -> AggregatedEvaluationResult:
    """`run_evaluation` for code without an event loop; blocks. Inside of a running loop it uses a thread of its own."""
    return blocking(lambda: run_evaluation(evaluation_input, config))


def _weighted(result: EvaluationResult) -> EvaluationResult:
    """With the probability that only its evaluator knows of, such as a spend limit's; all inputs are evaluated."""
    if result.probability is not None or result.probability_given_sampled == 1.0:
        return result
    return replaced(result, facts_of(result, {"probability": 1.0}))


def _error_of(part: str, error: BaseException) -> RunError:
    return RunError(evaluator_type=part, message=message_of(error))


def _redaction_failed(redactor: str, error: BaseException) -> None:
    log.warning("redaction_failed", part=redactor, error_type=type(error).__name__)

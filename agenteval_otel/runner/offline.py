"""`run_evaluation`: one input, one configuration, the aggregated result.

Accepts the specification's run configuration unchanged (``evaluatorConfigs: [{type, config}]``, ``RuleBased`` with
``rules``) as well as instances and functions.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from agenteval_otel.capture import CURRENT, EVALUATING
from agenteval_otel.capture.outgoing import Redaction
from agenteval_otel.capture.redaction import Redactor, default_redactors, load_redactors
from agenteval_otel.components import Explained, resolve
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator, as_evaluator
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationCriteria, EvaluationInput, RunError
from agenteval_otel.models.value import made, replaced
from agenteval_otel.runner.lanes import Lanes
from agenteval_otel.runner.run import EvaluationRunner, RunOutcome
from agenteval_otel.scoring import overall_score
from agenteval_otel.telemetry.log import log

__all__ = ["EvaluationRunConfig", "aggregate", "run_evaluation", "run_evaluation_sync"]


class EvaluationRunConfig(BaseModel, metaclass=Explained):
    """What to run.

    Attributes:
        evaluators: Instances, functions or ``{type: ..., field: ...}`` mappings. The specification's form,
            ``evaluatorConfigs: [{type, config}]``, is accepted in its place.
        criteria: Asked for when the input names none.
        storage_provider: Saves the result; anything with ``async save_result(aggregated)``.
        metadata: Copied into the result's metadata.
        redactors: What is taken out of that which evaluators in the lane ``model`` and the storage provider get;
            instances or ``{type: ...}`` mappings, an empty list for nothing. The result itself is given back as it is.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=True, alias_generator=to_camel, validate_by_name=True,
        validate_by_alias=True,
    )  # fmt: skip

    evaluators: tuple[Evaluator, ...] = ()
    criteria: tuple[EvaluationCriteria, ...] = ()
    storage_provider: Any = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    redactors: tuple[Redactor, ...] = Field(default_factory=default_redactors)

    @field_validator("redactors", mode="before")
    @classmethod
    def _load_redactors(cls, value: Any) -> Any:
        return load_redactors(value, path="redactors")

    @model_validator(mode="before")
    @classmethod
    def _load_evaluators(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        fields = dict(data)
        original = fields.pop("evaluatorConfigs", None) or fields.pop("evaluator_configs", None)
        path = "evaluators" if original is None else "evaluatorConfigs"
        entries = fields.get("evaluators") if original is None else original
        if not isinstance(entries, Sequence) or isinstance(entries, str) or not entries:
            raise ConfigurationError("expected a list with at least one evaluator", path=path)
        load = as_evaluator if original is None else _load_original
        fields["evaluators"] = tuple(load(entry, path=f"{path}[{index}]") for index, entry in enumerate(entries))
        return fields


def _load_original(entry: Any, *, path: str) -> Evaluator:
    """An entry of the specification's form: ``{type, config}``, or ``{type, rules}`` for ``RuleBased``."""
    if not isinstance(entry, Mapping):
        return as_evaluator(entry, path=path)
    fields = {key: value for key, value in entry.items() if key != "config"}
    config = entry.get("config", {})
    if not isinstance(config, Mapping):
        raise ConfigurationError(f"expected a mapping, found {type(config).__name__}", path=f"{path}.config")
    return resolve(Evaluator, {**config, **fields}, path=path, context={"original": True})


async def run_evaluation(evaluation_input: EvaluationInput, config: EvaluationRunConfig) -> AggregatedEvaluationResult:
    """Evaluate one input with the configured evaluators, on the running event loop.

    Results stand in configured order; an evaluator that raises leaves failed results and an entry in `run_errors`, the
    others go on. A storage provider that raises adds an entry of its own. Evaluators that block run on a thread.

    Raises:
        ConfigurationError: Only when the configuration is built, before anything runs.
    """
    lanes = Lanes()
    started_ns, tick = time.time_ns(), time.perf_counter_ns()
    token = CURRENT.set(EVALUATING)
    try:
        redaction = Redaction(config.redactors, _redaction_failed)
        runner = EvaluationRunner(config.evaluators, criteria=config.criteria, lanes=lanes, redaction=redaction)
        outcome = await runner.run(evaluation_input)
    finally:
        CURRENT.reset(token)
        lanes.close()
    elapsed_ns = time.perf_counter_ns() - tick
    aggregated = aggregate(
        evaluation_input, outcome, runner=runner, started_ns=started_ns, ended_ns=started_ns + elapsed_ns,
        metadata=config.metadata, storage="none" if config.storage_provider is None else "external",
    )  # fmt: skip
    aggregated = replaced(aggregated, {"input_snapshot": evaluation_input})
    if config.storage_provider is None:
        return aggregated
    try:
        await config.storage_provider.save_result(redaction.result(aggregated))
    except Exception as error:
        failed = RunError(evaluator_type="StorageProvider", message=f"{type(error).__name__}: {error}")
        return aggregated.model_copy(update={"run_errors": (*(aggregated.run_errors or ()), failed)})
    return aggregated


def _redaction_failed(redactor: str, error: BaseException) -> None:
    log.warning("redaction_failed", part=redactor, error_type=type(error).__name__)


def run_evaluation_sync(evaluation_input: EvaluationInput, config: EvaluationRunConfig) -> AggregatedEvaluationResult:
    """`run_evaluation` for code without an event loop; blocks. Inside of a running loop it uses a thread of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run_evaluation(evaluation_input, config))
    finished: list[AggregatedEvaluationResult | BaseException] = []

    def work() -> None:
        try:
            finished.append(asyncio.run(run_evaluation(evaluation_input, config)))
        except BaseException as error:
            finished.append(error)

    thread = threading.Thread(target=work, name="agenteval-offline")
    thread.start()
    thread.join()
    if isinstance(finished[0], BaseException):
        raise finished[0]
    return finished[0]


def aggregate(
    evaluation_input: EvaluationInput,
    outcome: RunOutcome,
    *,
    runner: EvaluationRunner,
    started_ns: int,
    ended_ns: int,
    metadata: Mapping[str, Any] | None = None,
    storage: str = "none",
) -> AggregatedEvaluationResult:
    """Put the results of one run together: overall score, errors, times and the snapshot of the configuration."""
    given = dict(metadata or {})
    errors = [error.model_dump(by_alias=True) for error in outcome.errors]
    # All of it comes from values that were validated when they were made.
    return made(AggregatedEvaluationResult, {
        "overall_score": overall_score(outcome.results, outcome.criteria),
        "results": tuple(outcome.results),
        "timestamp": ended_ns // 1_000_000,
        "agent_id": evaluation_input.agent_id,
        "session_id": evaluation_input.session_id,
        "evaluation_config_snapshot": {
            "evaluatorTypes": list(runner.labels),
            "criteriaNames": [criterion.name for criterion in outcome.criteria],
            "storageProviderType": storage,
            "metadataKeys": list(given),
        },
        "metadata": {**given, "errors": errors, "durationMs": (ended_ns - started_ns) // 1_000_000},
        "run_errors": tuple(outcome.errors) or None,
        "agent": evaluation_input.agent,
        "started_ns": started_ns,
        "ended_ns": ended_ns,
        "has_ground_truth": evaluation_input.ground_truth is not None,
        "stream_end": evaluation_input.stream_end,
        "response_id": evaluation_input.response_id,
        "conversation_id": evaluation_input.conversation_id,
        "model": evaluation_input.model,
    })  # fmt: skip

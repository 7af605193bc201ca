"""What runs for one monitored handler: resolved from what its user wrote, and checked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from pydantic import BaseModel

from agenteval_otel.capture.redaction.outgoing import Redaction
from agenteval_otel.components import Component
from agenteval_otel.components.explained import known_choices
from agenteval_otel.engine.agent_settings import AgentSettings
from agenteval_otel.engine.aggregation import Aggregation
from agenteval_otel.engine.execution import Executor
from agenteval_otel.engine.objectives import Objective
from agenteval_otel.engine.run import EvaluationRunner, own_criteria, waits
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.evaluators.base import SCHEDULE_SETTINGS, Schedule
from agenteval_otel.evaluators.ground_truth import GroundTruthStore
from agenteval_otel.evaluators.shadow import declared_criteria, harmless
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationCriteria
from agenteval_otel.models.scoring.scales import wrong_threshold
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.reentrancy import PROCESS
from agenteval_otel.sampling import Escalation, Sampler, SamplingContext, SamplingDecision
from agenteval_otel.sampling.escalation import ResultSampler
from agenteval_otel.sampling.key import SamplingKey
from agenteval_otel.sampling.trace import CallSampling, SamplingSettings
from agenteval_otel.semconv import (
    DISABLED,
    EVALUATION_CRITERIA,
    EVALUATION_SAMPLED,
    SHADOW,
)
from agenteval_otel.storage.base import FanOutStorage
from agenteval_otel.telemetry.emitter import Emitter

AgentSpan = Literal["always", "sampled", "never"]
_REMOTE = ("judge", "embedder", "storage")  # contracts of parts that may need a key
_DISABLED = SamplingDecision(sampled=False, probability=None, reason="disabled", outcome=DISABLED)


class SavesResults(Protocol):
    """Describes any object that saves results.

    `EvaluationStorageProvider` is the class for those chosen by settings.
    """

    def save_result(self, aggregated: AggregatedEvaluationResult, /) -> Awaitable[None]:
        """Save one result, on the background thread."""


StorageLike: TypeAlias = SavesResults | str | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SharedParts:
    """Holds what a pipeline gives to each of its handlers.

    Attributes:
        keeps_unsampled: Calls that were not sampled are captured too, in case of feedback.
        emitter: Emits the results of handlers whose storage has no emitter.
        telemetry_off: No signal can leave. A handler whose results are not stored, watched or
            (`calls_back`) reported is then disabled.
        forwards: The evaluators are the sidecar's.
    """

    executor: Executor
    redaction: Redaction
    key: SamplingKey
    sampling: SamplingSettings
    emitter: Emitter | None
    on_storage_failure: Callable[[str, BaseException], None]
    agent_span: AgentSpan = "sampled"
    keeps_unsampled: bool = False
    telemetry_off: bool = False
    calls_back: bool = False
    forwards: bool = False
    ground_truth: GroundTruthStore | None = None
    aggregation: Aggregation | None = None


@dataclass(frozen=True, slots=True)
class HandlerSettings:
    """Holds what runs for one handler: everything that its calls need.

    A part that is not configured is None or empty, and costs nothing.

    Attributes:
        sampling: Decides on calls as they begin, by `sampler`.
        is_idle: No call is evaluated, and none gets a span: the caller's thread only counts them.
        criteria: What inputs are asked for, where that differs from what the evaluators declare.
        objectives: By the criterion's name.
        least_probability: That of a sampled answer. None if the sampler does not know it.
        baseline_rate: The least probability with which a sampled answer goes on to escalated
            evaluators.
        content: Stored results keep the conversation and free text.
    """

    agent: str
    enabled: bool
    runner: EvaluationRunner
    sampler: Sampler
    sampling: CallSampling
    is_idle: bool
    emitter: Emitter | None
    storage: FanOutStorage | None
    capture: Callable[..., Any] | None
    function: Callable[..., Any] | None
    agent_span: AgentSpan
    criteria: tuple[EvaluationCriteria, ...]
    objectives: Mapping[str, Objective]
    least_probability: float | None
    baseline_rate: float
    content: bool
    ground_truth: GroundTruthStore | None
    aggregation: Aggregation | None
    calls_model: bool
    evaluated_attributes: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"<HandlerSettings {self.agent} {self.runner!r}>"


def resolve(
    agent: str,
    written: AgentSettings,
    shared: SharedParts,
    *,
    storage: Sequence[Any] = (),
    capture: Callable[..., Any] | None = None,
    function: Callable[..., Any] | None = None,
) -> HandlerSettings:
    """Return what runs for a handler of these settings.

    Raise ConfigurationError if they do not fit each other.

    A storage provider that has an `emitter` emits in place of the process's telemetry.
    """
    evaluators = written.evaluators or ()
    if not evaluators and not shared.forwards:
        raise ConfigurationError("expected at least one evaluator", path="evaluators")
    escalation = written.escalation or None
    criteria = _criteria_for_inputs(evaluators, written.criteria_set)
    runner = EvaluationRunner(
        evaluators,
        criteria=criteria,
        executor=shared.executor,
        redaction=shared.redaction,
        escalation=escalation,
        key=shared.key,
    )
    _check_thresholds(runner)
    if written.enabled:
        _check_conversations(runner, written.sampler)

    objectives = {
        criterion.name: Objective(criterion.objective, criterion.of_last, criterion.independent)
        for criterion in runner.criteria
        if criterion.objective
    }
    emitters = [provider.emitter for provider in storage if _emits(provider)]
    emitter = emitters[0] if emitters else shared.emitter
    kept = [provider for provider in storage if not _emits(provider)]

    has_use = (
        not shared.telemetry_off
        or bool(kept)
        or bool(objectives)
        or shared.calls_back
        or shared.forwards
    )
    enabled = written.enabled and has_use
    sampler = written.sampler if enabled else _Disabled()
    sampling = CallSampling(
        sampler, shared.sampling, shared.key, asks_always=shared.keeps_unsampled
    )
    agent_span = shared.agent_span if enabled and emitter is not None else "never"
    fan_out = FanOutStorage(kept, shared.on_storage_failure) if kept else None

    attributes: dict[str, Any] = {EVALUATION_SAMPLED: True}
    if not shared.forwards:
        attributes[EVALUATION_CRITERIA] = _criteria_of_answers(runner)
    is_idle = sampling.threshold == 0 and agent_span != "always"
    least_probability = getattr(written.sampler, "least_probability", None)
    baseline_rate = 1.0 if escalation is None else escalation.baseline_rate
    has_content = emitter is not None and emitter.content != "no_content"
    calls_model = any(step.calls_model for step in runner.steps)
    return HandlerSettings(
        agent=agent,
        enabled=enabled,
        runner=runner,
        sampler=sampler,
        sampling=sampling,
        is_idle=is_idle,
        emitter=emitter,
        storage=fan_out,
        capture=capture,
        function=function,
        agent_span=agent_span,
        criteria=criteria,
        objectives=objectives,
        least_probability=least_probability,
        baseline_rate=baseline_rate,
        content=has_content,
        ground_truth=shared.ground_truth,
        aggregation=shared.aggregation,
        calls_model=calls_model,
        evaluated_attributes=attributes,
    )


def check_schedules(runner: EvaluationRunner, known: Collection[Schedule]) -> None:
    """Refuse evaluators of a schedule that nothing runs. Raises `ConfigurationError`."""
    problems: list[tuple[str | None, str]] = []
    for evaluator in runner.evaluators:
        schedule = evaluator.schedule
        if schedule not in known:
            wrong = f"{evaluator.label} has schedule {schedule}, and nothing says when that is"
            # The setting that says when a schedule runs has the schedule's name.
            problems.append((schedule, f"{wrong}: {SCHEDULE_SETTINGS[schedule]}"))
    if problems:
        raise ConfigurationError.of(problems)


def _emits(provider: object) -> bool:
    """Tell whether a storage provider emits results, in place of saving them."""
    return getattr(provider, "emitter", None) is not None


def _check_thresholds(runner: EvaluationRunner) -> None:
    """Refuse a threshold that a criterion's scale cannot have."""
    for criterion in runner.criteria:
        wrong = wrong_threshold(criterion)
        if wrong is not None:
            raise ConfigurationError(f"criterion {criterion.name!r}: {wrong}", path="evaluators")


def _check_conversations(runner: EvaluationRunner, sampler: object) -> None:
    """Refuse a sampler that would leave holes in the conversations that evaluators see whole."""
    takes_all = (
        getattr(sampler, "own_randomness", False)
        or getattr(sampler, "least_probability", None) == 1.0
    )
    if runner.of_conversations and not takes_all:
        wrong = f"evaluators of conversations need whole ones, and this sampler picks single answers: {sampler}"
        raise ConfigurationError(
            f"{wrong}. Set sampler: {{type: conversation, ratio: 0.1}}", path="sampler"
        )


def _criteria_of_answers(runner: EvaluationRunner) -> tuple[str, ...]:
    """Return the names of the criteria that an answer is scored on.

    Those of conversations come later, if at all.
    """
    others: set[str] = set()
    for step in runner.of_conversations:
        others |= step.names
    for step in runner.of_answers:
        others -= step.names
    return tuple(part.name for part in runner.criteria if part.name not in others)


class _Disabled(Sampler):
    """Counts every call as disabled."""

    def decide(self, context: SamplingContext) -> SamplingDecision:
        return _DISABLED


def _criteria_for_inputs(
    evaluators: Sequence[Evaluator], changes: Sequence[EvaluationCriteria]
) -> tuple[EvaluationCriteria, ...]:
    """Return the criteria that each input names, or an empty tuple if nothing is changed.

    Without criteria in the input, evaluators score their own.
    """
    if not changes:
        return ()
    criteria = changed_criteria(own_criteria(evaluators), changes)
    if all(evaluator.criteria() for evaluator in evaluators):
        return criteria
    # An evaluator that declares none answers what it is asked for.
    declared = {criterion.name for criterion in criteria}
    added = [criterion for criterion in changes if criterion.name not in declared]
    return (*criteria, *added)


def changed_criteria(
    declared: Sequence[EvaluationCriteria], criteria: Sequence[EvaluationCriteria]
) -> tuple[EvaluationCriteria, ...]:
    """Return the declared criteria with the fields that those of the same name set."""
    changes = {
        criterion.name: {name: getattr(criterion, name) for name in criterion.model_fields_set}
        for criterion in criteria
    }
    changed: list[EvaluationCriteria] = []
    for own in declared:
        criterion = own.model_copy(update=changes.get(own.name, {}))
        if criterion.name.endswith(SHADOW):
            criterion = harmless(criterion, criterion.name)
        changed.append(criterion)
    return tuple(changed)


def check_escalation(
    escalation: Escalation,
    evaluators: Sequence[Evaluator],
    *,
    path: str = "escalation",
    complete: bool = True,
) -> None:
    """Raise ConfigurationError if a part of the escalation can never apply to these evaluators.

    `complete`: no others will be added, so at least one must be in the second stage.
    """
    first_stage = [evaluator for evaluator in evaluators if not waits(evaluator, escalation)]
    second_stage = [evaluator for evaluator in evaluators if waits(evaluator, escalation)]
    first_criteria = _criterion_names(first_stage)
    second_criteria = _criterion_names(second_stage)
    problems: list[tuple[str | None, str]] = []
    for index, name in enumerate(escalation.criteria):
        if name not in second_criteria:
            known = known_choices(name, [*first_criteria, *second_criteria])
            problems.append((f"{path}.criteria[{index}]", f"no evaluator scores {name!r}{known}"))
    if complete and not second_criteria and not problems:
        problems.append(
            (path, "no evaluator asks a model, so none waits: name those that do in criteria")
        )
    for index, rule in enumerate(escalation.rules):
        if isinstance(rule, ResultSampler):
            place = f"{path}.rules[{index}]"
            problems += _criteria_out_of_reach(rule, first_criteria, second_criteria, place)
            # A rule without criteria takes the results of all evaluators, and a handler may bring
            # more of them.
            sees_known_results = bool(rule.criteria) or complete
            if sees_known_results and set(rule.criteria) <= set(first_criteria):
                problems += _rule_without_match(rule, first_stage, second_criteria, place)
    if problems:
        raise ConfigurationError.of(problems)


def _criteria_out_of_reach(
    rule: ResultSampler, first: Sequence[str], waiting: Sequence[str], path: str
) -> list[tuple[str | None, str]]:
    """Return a problem for each criterion of a rule that the first stage does not score."""
    problems: list[tuple[str | None, str]] = []
    for number, name in enumerate(rule.criteria):
        if name not in first:
            wrong = f"no evaluator scores {name!r}"
            if name in waiting:
                wrong = f"{name!r} is scored in the second stage"
            hint = f"rules look at the first stage{known_choices(name, first)}"
            problems.append((f"{path}.criteria[{number}]", f"{wrong}: {hint}"))
    return problems


def _rule_without_match(
    rule: ResultSampler, first_stage: Sequence[Evaluator], waiting: Sequence[str], path: str
) -> list[tuple[str | None, str]]:
    """Return a problem if the first stage gives too few results for a rule to ever match."""
    names: list[str] = []
    for evaluator in first_stage:
        for criterion in declared_criteria(evaluator):
            if not rule.criteria or criterion.name in rule.criteria:
                names.append(criterion.name)
    if not names and waiting:
        return [(path, "never matches: every evaluator is in the second stage")]
    if 0 < len(names) < rule.least_results:
        wrong = f"never matches: the first stage has one result, of {names[0]!r}, and two have to differ"
        return [(f"{path}.disagreement", wrong)]
    return []


def _criterion_names(evaluators: Iterable[Evaluator]) -> list[str]:
    """Return the names of the criteria that evaluators declare, each once."""
    names: dict[str, None] = {}
    for evaluator in evaluators:
        for criterion in declared_criteria(evaluator):
            names[criterion.name] = None
    return list(names)


def judges_of(part: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every judge in a part's fields, at any depth, and its place.

    A place is written as in ``evaluators[0].judge``.
    """
    yield from _parts(part, path, ("judge",))


def problems_of(part: object, path: str) -> list[str]:
    """Return what keeps judges, embedders and storage from working, each with the setting's path.

    Only what is seen now is included.
    """
    problems: list[str] = []
    for where, remote in _parts(part, path, _REMOTE):
        problem = remote.config_problem()
        if problem is not None:
            problems.append(f"{where}: {problem}")
    return problems


def prepare_models(name: str, part: object, path: str = "") -> None:
    """Import the clients of a part's judges, embedders and storage, at start.

    What keeps them from working is logged.

    It runs on this thread: an import takes the interpreter from an event loop whatever thread runs
    it, and so must be over before the host serves. What a model raises is logged too. It does
    nothing in a worker process.
    """
    if PROCESS.is_ours:
        return
    problems: dict[str, list[str]] = {"model_cannot_be_asked": [], "storage_not_ready": []}
    for where, model in _parts(part, path, _REMOTE):
        try:
            problem = model.config_problem()
            # other embedders load in a worker process
            if problem is None and getattr(model, "is_async", True):
                model.prepare()
        except Exception as error:
            problem = f"it cannot be loaded ({type(error).__name__}: {error})"
        if problem is not None:
            event = "storage_not_ready" if model.contract == "storage" else "model_cannot_be_asked"
            problems[event].append(f"{where}: {problem}")
    for event, details in problems.items():
        if details:
            effect: dict[str, str] = {}
            if event == "model_cannot_be_asked":
                effect["effect"] = "results that need it fail, all others go on"
            log.warning(event, part=name, detail=". ".join(details)[:1_000], **effect)


def _parts(
    value: object, path: str, contracts: tuple[str, ...], depth: int = 8
) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Component) and value.contract in contracts:
        yield path, value
    inner: list[tuple[str, Any]] = []
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        inner = [(f"{path}.{name}" if path else name, value.__dict__.get(name)) for name in fields]
    elif isinstance(value, Mapping):
        inner = [(f"{path}.{key}", item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        inner = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    if depth <= 0:  # a field of a user's evaluator may hold a cycle
        return
    for place, item in inner:
        yield from _parts(item, place, contracts, depth - 1)

"""The settings of one monitored handler: resolved from the process, the agent and the decorator, and checked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from pydantic import BaseModel

from agenteval_otel.components import Component
from agenteval_otel.components.explained import known_choices
from agenteval_otel.engine.run import EvaluationRunner, waits
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.execution import Executor
from agenteval_otel.ground_truth import GroundTruthStore
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationCriteria
from agenteval_otel.redaction.outgoing import Redaction
from agenteval_otel.runtime.log import log
from agenteval_otel.sampling import Escalation, Sampler, SamplingContext, SamplingDecision
from agenteval_otel.sampling.escalation import ResultSampler
from agenteval_otel.scoring import Aggregation
from agenteval_otel.semconv import DISABLED, EVALUATION_CRITERIA, EVALUATION_SAMPLED, wrong_criterion_name
from agenteval_otel.storage.base import FanOutStorage
from agenteval_otel.telemetry.emitter import Emitter

AgentSpan = Literal["always", "sampled", "never"]
Problems = list[tuple[str | None, str]]
_DEPTH = 8


class SavesResults(Protocol):
    """Any object that saves results; `EvaluationStorageProvider` is the class for those chosen by settings."""

    def save_result(self, aggregated: AggregatedEvaluationResult, /) -> Awaitable[None]:
        """Save one result, on the background thread."""


StorageLike: TypeAlias = SavesResults | str | Mapping[str, Any]


class HandlerOptions(NamedTuple):
    """What the process, an agent's entry or a decorator asks for; None leaves it to the next one.

    Attributes:
        storage: Storage providers; one that has an `emitter` emits in place of the process's telemetry.
        criteria: What differs from what the evaluators declare, by the criterion's name; only fields that were set.
        escalation: False has every evaluator see every sampled answer.
    """

    evaluators: Sequence[Evaluator] | None = None
    sampler: Sampler | None = None
    storage: Sequence[Any] | None = None
    criteria: Sequence[EvaluationCriteria] | None = None
    enabled: bool | None = None
    escalation: Escalation | bool | None = None


def merged(*options: HandlerOptions) -> HandlerOptions:
    """One set of options: for each field the first that says something. A False of `enabled` always holds."""
    chosen = {
        name: next((value for value in values if value is not None), None)
        for name, values in zip(HandlerOptions._fields, zip(*options, strict=True), strict=True)
    }
    return HandlerOptions(**chosen)._replace(enabled=all(option.enabled is not False for option in options))


@dataclass(frozen=True, slots=True)
class HandlerSettings:
    """Everything that a call of one handler needs. A part that is not configured is None or empty, and costs nothing.

    Attributes:
        criteria: What inputs are asked for, where that differs from what the evaluators declare.
        objectives: By the criterion's name.
        baseline_rate: The least probability with which a sampled answer goes on to escalated evaluators.
        content: Stored results keep the conversation and free text.
    """

    agent: str
    enabled: bool
    runner: EvaluationRunner
    sampler: Sampler
    emitter: Emitter | None
    storage: FanOutStorage | None
    capture: Callable[..., Any] | None
    function: Callable[..., Any] | None
    agent_span: AgentSpan
    criteria: tuple[EvaluationCriteria, ...]
    objectives: Mapping[str, float]
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
    options: HandlerOptions,
    *,
    executor: Executor,
    redaction: Redaction,
    telemetry: Emitter | None,
    on_storage_failure: Callable[[str, BaseException], None],
    agent_span: AgentSpan = "sampled",
    telemetry_off: bool = False,
    calls_back: bool = False,
    ground_truth: GroundTruthStore | None = None,
    aggregation: Aggregation | None = None,
    capture: Callable[..., Any] | None = None,
    function: Callable[..., Any] | None = None,
) -> HandlerSettings:
    """The settings of one handler; raises ConfigurationError where they do not fit each other.

    With `telemetry_off` a handler is disabled whose results are neither stored, nor watched by an objective, nor, as
    `calls_back` says, reported to a function.
    """
    if not options.evaluators:
        raise ConfigurationError("expected at least one evaluator", path="evaluators")
    assert options.sampler is not None
    escalation = options.escalation if isinstance(options.escalation, Escalation) else None
    parts: dict[str, Any] = {"executor": executor, "redaction": redaction, "escalation": escalation}
    runner = EvaluationRunner(options.evaluators, **parts)
    criteria = _changed(runner.criteria, options.criteria) if options.criteria else ()
    if criteria:
        runner = EvaluationRunner(options.evaluators, criteria=criteria, **parts)
    names = [criterion.name for criterion in runner.criteria]
    _check_names(names)
    providers = tuple(options.storage or ())
    emitters = [emitter for part in providers if (emitter := getattr(part, "emitter", None)) is not None]
    emitter = emitters[0] if emitters else telemetry
    kept = [provider for provider in providers if getattr(provider, "emitter", None) is None]
    objectives = {part.name: part.objective for part in runner.criteria if part.objective}
    enabled = options.enabled is not False and bool(not telemetry_off or kept or objectives or calls_back)
    return HandlerSettings(
        agent=agent, runner=runner, sampler=options.sampler if enabled else _Disabled(), emitter=emitter,
        storage=FanOutStorage(kept, on_storage_failure) if kept else None, capture=capture, function=function,
        agent_span=agent_span if enabled and emitter is not None else "never", criteria=criteria,
        objectives=objectives, enabled=enabled,
        baseline_rate=1.0 if escalation is None else escalation.baseline_rate,
        content=emitter is not None and emitter.content != "no_content", ground_truth=ground_truth,
        aggregation=aggregation, calls_model=any(step.calls_model for step in runner.steps),
        evaluated_attributes={EVALUATION_SAMPLED: True, EVALUATION_CRITERIA: tuple(names)},
    )  # fmt: skip


class _Disabled(Sampler):
    """Counts every call as disabled."""

    def decide(self, context: SamplingContext) -> SamplingDecision:
        return _DISABLED


_DISABLED = SamplingDecision(False, None, "disabled", DISABLED)


def _changed(
    declared: Sequence[EvaluationCriteria], criteria: Sequence[EvaluationCriteria]
) -> tuple[EvaluationCriteria, ...]:
    changes = {
        criterion.name: {name: getattr(criterion, name) for name in criterion.model_fields_set}
        for criterion in criteria
    }
    return tuple(criterion.model_copy(update=changes.get(criterion.name, {})) for criterion in declared)


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if (wrong := wrong_criterion_name(name)) is not None:
            hint = "; name a lambda: Func(criterion_name=..., function=...)" if name == "<lambda>" else ""
            raise ConfigurationError(f"criterion name {name!r} {wrong}{hint}", path="evaluators")


def check_escalation(
    escalation: Escalation, evaluators: Sequence[Evaluator], *, path: str = "escalation", complete: bool = True
) -> None:
    """Refuse, by a ConfigurationError, what could never happen with these evaluators.

    `complete` says that no others will be added: then at least one of them has to wait, and a disagreement needs two
    that do not.
    """
    second = {id(evaluator) for evaluator in evaluators if waits(evaluator, escalation)}
    waiting = _names(member for member in evaluators if id(member) in second)
    first = _names(member for member in evaluators if id(member) not in second)
    problems: Problems = [
        (f"{path}.criteria[{index}]", f"no evaluator scores {name!r}{known_choices(name, [*first, *waiting])}")
        for index, name in enumerate(escalation.criteria) if name not in waiting
    ]  # fmt: skip
    if complete and not waiting and not problems:
        problems.append((path, "no evaluator asks a model, so none waits: name those that do in criteria"))
    for index, rule in enumerate(escalation.rules):
        if isinstance(rule, ResultSampler):
            problems += _problems_of_rule(rule, first, waiting, path=f"{path}.rules[{index}]", complete=complete)
    if problems:
        raise ConfigurationError.of(problems)


def _problems_of_rule(
    rule: ResultSampler, first: Sequence[str], waiting: Sequence[str], *, path: str, complete: bool
) -> Problems:
    problems: Problems = []
    for index, name in enumerate(rule.criteria):
        if name not in first:
            wrong = f"{name!r} is scored in the second stage" if name in waiting else f"no evaluator scores {name!r}"
            problems.append(
                (f"{path}.criteria[{index}]", f"{wrong}: rules look at the first stage{known_choices(name, first)}")
            )
    if complete and not rule.criteria and len(first) < rule.at_least:
        needed = "a criterion" if rule.at_least == 1 else f"{rule.at_least} criteria"
        problems.append((path, f"needs {needed} of the first stage, which has {', '.join(first) or 'none'}"))
    return problems


def _names(evaluators: Iterable[Evaluator]) -> list[str]:
    return list(dict.fromkeys(criterion.name for evaluator in evaluators for criterion in evaluator.criteria()))


def judges_of(part: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every judge in a part's fields, at any depth, with its place such as ``evaluators[0].judge``."""
    yield from _parts(part, path, _DEPTH, ("judge",))


def problems_of(part: Any, path: str) -> list[str]:
    """What keeps its judges and embedders from being asked, as far as that is seen now, with the setting's path."""
    models = _parts(part, path, _DEPTH, ("judge", "embedder"))
    return [f"{where}: {problem}" for where, model in models if (problem := model.config_problem()) is not None]


def log_problems(agent: str, evaluators: Iterable[Any]) -> None:
    """Log at start what keeps judges and embedders from being asked; never raises."""
    try:
        problems = problems_of(tuple(evaluators), "evaluators")
        if problems:
            log.warning("model_cannot_be_asked", part=agent, detail="; ".join(problems)[:1_000])
    except Exception:
        return


def _parts(value: Any, path: str, depth: int, contracts: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Component) and value.contract in contracts:
        yield path, value
    if depth <= 0:
        return
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _parts(value.__dict__.get(name), f"{path}.{name}" if path else name, depth - 1, contracts)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _parts(inner, f"{path}.{key}", depth - 1, contracts)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _parts(inner, f"{path}[{index}]", depth - 1, contracts)

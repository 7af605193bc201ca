"""What settings and decorators name: evaluators, samplers, storage, criteria sets, escalations; loaded and checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from pydantic import ConfigDict, Field, field_validator

from agenteval_otel.components.explained import FriendlyErrors, known_choices
from agenteval_otel.components.loading import load_each, resolve
from agenteval_otel.engine.handler import check_escalation
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.models import EvaluationCriteria
from agenteval_otel.sampling import RatioSampler, Sampler
from agenteval_otel.sampling.base import expect_before_results
from agenteval_otel.sampling.escalation import Escalation
from agenteval_otel.scoring import check_criteria
from agenteval_otel.semconv import wrong_criterion_name
from agenteval_otel.storage import EvaluationStorageProvider


def load_sampler(sample_rate: Any, sampler: Any) -> Any | None:
    """The sampler of a rate, or a sampler from an instance or mapping; None when neither is there."""
    if sample_rate is not None and sampler is not None:
        raise ConfigurationError("give sample_rate or sampler, not both", path="sampler")
    if sample_rate is not None:
        if isinstance(sample_rate, bool) or not isinstance(sample_rate, int | float) or not 0 <= sample_rate <= 1:
            raise ConfigurationError(f"expected a number from 0 to 1, found {sample_rate!r}", path="sample_rate")
        return RatioSampler(ratio=sample_rate)
    if sampler is None or (callable(getattr(sampler, "decide", None)) and not isinstance(sampler, Sampler)):
        return sampler
    return expect_before_results(resolve(Sampler, sampler, path="sampler"), path="sampler")


def load_storage(values: Any) -> tuple[Any, ...]:
    """Storage providers from one or several instances or mappings."""
    several = values if isinstance(values, list | tuple) else [values]
    return load_each(_load_provider, several, path="storage")


def _load_provider(value: Any, path: str) -> Any:
    inherited = EvaluationStorageProvider.save_result
    if isinstance(value, EvaluationStorageProvider) and type(value).save_result is inherited:
        raise ConfigurationError(f"{type(value).__name__} has no method save_result of its own", path=path)
    is_provider = callable(getattr(value, "save_result", None))
    return value if is_provider else resolve(EvaluationStorageProvider, value, path=path)


class Criterion(EvaluationCriteria, metaclass=FriendlyErrors):
    """A criterion in a criteria set: the fields that are set replace those of the evaluator.

    Attributes:
        name: The criterion's name, as its evaluator declares it.
        description: What the criterion means, for reports.
        scale: ``binary``, ``pass/fail``, ``likert5``, ``numeric``, or a custom word.
        weight: Share in the overall score; 0 leaves the criterion out.
        threshold: Raw score from which (inclusive) the label is ``pass``.
        objective: Share of passing results that the criterion should hold; alerts come from it.
        minimum: Lower end of a declared range of raw scores; needs `maximum`.
        maximum: Upper end of a declared range.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, loc_by_alias=False)

    weight: float | None = Field(default=None, ge=0)
    objective: float | None = Field(default=None, ge=0, le=1)

    @field_validator("name")
    @classmethod
    def _is_a_slug(cls, value: str) -> str:
        if (wrong := wrong_criterion_name(value)) is not None:
            raise ValueError(wrong)
        return value


CriteriaSet = tuple[Criterion, ...]


def load_set(values: Any) -> CriteriaSet:
    """A set from criteria and mappings, each criterion once. Raises `ConfigurationError` with ``criteria[<index>]``."""
    criteria = load_each(_load_criterion, values, path="criteria")
    check_criteria(criteria, path="criteria")
    return criteria


def _load_criterion(value: Any, path: str) -> Criterion:
    if isinstance(value, Criterion):
        return value
    if isinstance(value, EvaluationCriteria):
        value = value.model_dump(exclude_unset=True)
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"expected a mapping with 'name', found {type(value).__name__}", path=path)
    try:
        return Criterion(**value)
    except ConfigurationError as failure:
        raise failure.with_prefix(path) from None


def missing_sets(chosen: Mapping[str, Any], known: Iterable[str]) -> list[tuple[str | None, str]]:
    """A problem for each agent that names an unknown criteria set."""
    names = sorted(known)
    return [
        (f"agents.{agent}.criteria", f"no criteria set {name!r}{known_choices(name, names)}")
        for agent, name in chosen.items() if isinstance(name, str) and name not in names
    ]  # fmt: skip


def check_names(evaluators: tuple[Evaluator, ...]) -> tuple[Evaluator, ...]:
    """The evaluators; raises `ConfigurationError` if a criterion's name could not be an attribute."""

    def check(evaluator: Evaluator, path: str) -> Evaluator:
        for criterion in evaluator.criteria():
            if (wrong := wrong_criterion_name(criterion.name)) is not None:
                raise ConfigurationError(f"criterion name {criterion.name[:80]!r} {wrong}", path=path)
        return evaluator

    return load_each(check, evaluators, path="evaluators")


class _Entry(Protocol):
    """Settings of one agent, or of all."""

    @property
    def evaluators(self) -> Sequence[Evaluator] | None: ...
    @property
    def escalation(self) -> Escalation | bool | None: ...


def unfit_escalations(settings: _Entry, agents: Mapping[str, _Entry]) -> list[tuple[str | None, str]]:
    """A problem for each rule and each name that could never match.

    The settings' escalation applies to all agents without their own: any of them may score a criterion, and handlers
    may bring evaluators that call a model. An agent's escalation applies to the agent's evaluators.
    """
    problems: list[tuple[str | None, str]] = []
    if isinstance(settings.escalation, Escalation):
        heirs = [agent for agent in agents.values() if agent.escalation is None]
        evaluators = [
            *(settings.evaluators or ()),
            *(evaluator for agent in heirs for evaluator in agent.evaluators or ()),
        ]
        problems += _problems_of(settings.escalation, evaluators, "escalation", complete=False)
    for name, agent in agents.items():
        if isinstance(agent.escalation, Escalation):
            own = (settings.evaluators if agent.evaluators is None else agent.evaluators) or ()
            problems += _problems_of(agent.escalation, own, f"agents.{name}.escalation", complete=True)
    return problems


def _problems_of(
    escalation: Escalation, evaluators: Sequence[Evaluator], path: str, *, complete: bool
) -> Sequence[tuple[str | None, str]]:
    try:
        check_escalation(escalation, evaluators, path=path, complete=complete)
    except ConfigurationError as failure:
        return failure.problems
    return ()

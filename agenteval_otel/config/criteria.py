"""Criteria as settings say them: named sets that change what evaluators declare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ConfigDict, Field, field_validator

from agenteval_otel.components import Explained, choices, load_each
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.models import EvaluationCriteria
from agenteval_otel.scoring import check_criteria
from agenteval_otel.semconv import wrong_criterion_name

__all__ = ["CriteriaSet", "Criterion", "check_names", "check_once", "load_set", "missing_sets"]


class Criterion(EvaluationCriteria, metaclass=Explained):
    """What a criteria set says of one criterion; what it leaves out stays as its evaluator has it.

    Attributes:
        name: The criterion's name, as its evaluator declares it.
        description: What the criterion means, for reports.
        scale: ``binary``, ``pass/fail``, ``likert5``, ``numeric``, or a custom word.
        weight: Share in the overall score; 0 leaves the criterion out.
        threshold: Raw score from which on (inclusive) the label is ``pass``.
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
    return check_once(load_each(_load_criterion, values, path="criteria"), path="criteria")


def check_once(criteria: CriteriaSet, *, path: str) -> CriteriaSet:
    """The set; raises `ConfigurationError` when a name stands in it twice, or a range is none."""
    check_criteria(criteria, path=path)
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
        raise failure.under(path) from None


def missing_sets(chosen: Mapping[str, Any], known: Iterable[str]) -> list[tuple[str | None, str]]:
    """A problem for each agent that names a criteria set which is not there."""
    names = sorted(known)
    return [
        (f"agents.{agent}.criteria", f"no criteria set {name!r}{choices(name, names)}")
        for agent, name in chosen.items() if isinstance(name, str) and name not in names
    ]  # fmt: skip


def check_names(evaluators: tuple[Evaluator, ...]) -> tuple[Evaluator, ...]:
    """Refuse evaluators whose criteria could not be attributes; said here, it comes with everything else."""

    def check(evaluator: Evaluator, path: str) -> Evaluator:
        try:
            names = [criterion.name for criterion in evaluator.criteria()]
        except Exception as error:
            found = f"{type(error).__name__}: {str(error)[:200]}"
            raise ConfigurationError(f"does not say what it scores: {found}", path=path) from error
        for name in names:
            if (wrong := wrong_criterion_name(name)) is not None:
                raise ConfigurationError(f"criterion name {name[:80]!r} {wrong}", path=path)
        return evaluator

    return load_each(check, evaluators, path="evaluators")

"""What a user writes about one agent: an entry of the settings, or the arguments of a decorator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import ConfigDict, Field, ValidationInfo
from pydantic.functional_validators import field_validator, model_validator

from agenteval_otel.components.explained import ComponentError, FriendlyErrors, FrozenSettings
from agenteval_otel.components.loading import import_function, load_each, resolve
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.evaluators.compat import load_evaluators
from agenteval_otel.evaluators.shadow import declared_criteria
from agenteval_otel.models import EvaluationCriteria
from agenteval_otel.models.scoring import check_criteria
from agenteval_otel.models.value import refuse_truth_value
from agenteval_otel.sampling import RatioSampler, Sampler
from agenteval_otel.sampling.base import expect_before_results
from agenteval_otel.sampling.escalation import Escalation, load_escalation
from agenteval_otel.semconv import wrong_criterion_name

MONTH_S: Final = 30 * 86_400


class Criterion(EvaluationCriteria, metaclass=FriendlyErrors):
    """Describes a criterion in a criteria set. The fields that are set replace those of the evaluator.

    Attributes:
        name: The criterion's name, as its evaluator declares it.
        description: What the criterion means, for reports.
        scale: ``binary``, ``pass/fail``, ``likert5``, ``numeric``, or a custom word.
        weight: Share in the overall score. 0 leaves the criterion out.
        threshold: Lowest raw score with the label ``pass``.
        objective: Share of results that should pass. Alerts are based on it.
        of_last: Applies the objective to this many of the latest verdicts, without a test for
            chance: it is breached when more of them fail than it allows, with an objective of 1 as
            soon as one verdict fails. Needs an `objective`.
        minimum: Lower end of a declared range of raw scores. Needs `maximum`.
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
    """Return a set of criteria from criteria and mappings, each criterion once."""
    criteria = load_each(_load_criterion, values, path="criteria")
    check_criteria(criteria, path="criteria")
    return criteria


def _load_criterion(value: object, path: str) -> Criterion:
    if isinstance(value, Criterion):
        return value
    if isinstance(value, EvaluationCriteria):
        value = value.model_dump(exclude_unset=True)
    if not isinstance(value, Mapping):
        raise ConfigurationError(
            f"expected a mapping with 'name', found {type(value).__name__}", path=path
        )
    try:
        return Criterion(**value)
    except ConfigurationError as failure:
        raise failure.with_prefix(path) from None


def _load_evaluators(values: object) -> tuple[Evaluator, ...] | None:
    if isinstance(values, list | tuple):
        values = load_each(_imported, values, path="evaluators")
    if values is None:
        return None
    return load_each(_with_slugs, load_evaluators(values), path="evaluators")


def _imported(value: object, path: str) -> Any:
    if isinstance(value, str) and ":" in value:
        return import_function(value, path=path)
    return value


def _with_slugs(evaluator: Evaluator, path: str) -> Evaluator:
    for criterion in declared_criteria(evaluator):
        wrong = wrong_criterion_name(criterion.name)
        if wrong is not None:
            hint = ""
            if criterion.name == "<lambda>":
                hint = ". Name a lambda: Func(criterion_name=..., function=...)"
            raise ConfigurationError(
                f"criterion name {criterion.name[:80]!r} {wrong}{hint}", path=path
            )
    return evaluator


def _load_sampler(value: object) -> Any:
    is_like_one = callable(getattr(value, "decide", None)) and not isinstance(value, Sampler)
    if value is None or is_like_one:
        return value
    return expect_before_results(resolve(Sampler, value, path="sampler"), path="sampler")


_LOADERS: Final[dict[str, Callable[[Any], Any]]] = {
    "escalation": load_escalation,
    "evaluators": _load_evaluators,
    "sampler": _load_sampler,
}


def load_within(load: Callable[..., Any], *args: Any, **fields: Any) -> Any:
    """Load a part in a validator: its error has a path, and the other fields are still checked."""
    try:
        return load(*args, **fields)
    except ConfigurationError as failure:
        raise ComponentError(failure) from None


class SharedFields(FrozenSettings):
    """Loads the fields that `Settings` and an agent's entry have in common."""

    if TYPE_CHECKING:  # each model declares them where its documentation lists them
        sample_rate: float | None
        sampler: Any

    _is_a_number = field_validator("sample_rate", mode="before", check_fields=False)(
        refuse_truth_value
    )

    @field_validator(*_LOADERS, mode="before", check_fields=False)
    @classmethod
    def _load_shared(cls, value: object, info: ValidationInfo) -> Any:
        return load_within(_LOADERS[str(info.field_name)], value)

    @model_validator(mode="after")
    def _one_way_to_sample(self) -> Any:
        if self.sample_rate is not None and self.sampler is not None:
            failure = ConfigurationError("give sample_rate or sampler, not both", path="sampler")
            raise ComponentError(failure, of_model=True)
        return self

    @property
    def chosen_sampler(self) -> Any | None:
        """Return the sampler, or that of the rate, or None without either."""
        if self.sample_rate is None:
            return self.sampler
        return RatioSampler(ratio=self.sample_rate)


class AgentSettings(SharedFields):
    """Holds the defaults of ``@monitor(agent=...)`` for one agent. Missing fields come from `Settings`.

    Attributes:
        enabled: False counts the agent's calls as ``disabled``. The decorator cannot override it.
        evaluators: Instances, functions (``module:function`` in a file), type names or
            ``{type: ...}`` mappings.
        functions: Names of functions that decorators bring as evaluators of this agent, besides
            those of `Settings`.
        criteria: The name of a criteria set, or the agent's own set.
        sample_rate: Share of the calls that are evaluated, 0 to 1.
        sampler: A sampler instead of a rate.
        escalation: Which answers the expensive evaluators see. With false they see all.
        ground_truth_window_s: How long its answers wait for a ground truth, in seconds. With 0 they
            do not wait.
    """

    enabled: bool = True
    evaluators: tuple[Evaluator, ...] | None = None
    functions: tuple[str, ...] = ()
    criteria: str | CriteriaSet | None = None
    sample_rate: float | None = Field(default=None, ge=0, le=1)
    sampler: Any = None
    escalation: Escalation | Literal[False] | None = None
    ground_truth_window_s: float | None = Field(default=None, ge=0, le=MONTH_S)

    @field_validator("criteria", mode="wrap")
    @classmethod
    def _name_or_set(cls, value: object, handler: Callable[[Any], Any]) -> Any:
        # By hand: a union's own error lists both forms.
        if value is None or isinstance(value, str):
            return value
        if not isinstance(value, list | tuple):
            raise ValueError("expected the name of a criteria set, or a list of criteria")
        return load_within(load_set, value)

    @property
    def criteria_set(self) -> CriteriaSet:
        """Return the agent's own set, or an empty one. `Settings` look up the name of a set."""
        if isinstance(self.criteria, str):
            raise ConfigurationError(f"no criteria set {self.criteria!r}", path="criteria")
        return self.criteria or ()


def merged(*several: AgentSettings) -> AgentSettings:
    """Return one entry of several: each field's first value that is set.

    A False of `enabled` always holds.
    """
    chosen: dict[str, Any] = {"enabled": all(entry.enabled for entry in several)}
    for entry in several:
        written = {
            "evaluators": entry.evaluators,
            "criteria": entry.criteria,
            "sampler": entry.chosen_sampler,
            "escalation": entry.escalation,
        }
        for name, value in written.items():
            if chosen.get(name) is None:
                chosen[name] = value
    return AgentSettings.model_construct(**chosen)

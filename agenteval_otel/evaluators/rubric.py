"""Rubric: a criterion as a judge is told it, with what each level of its scale means."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from agenteval_otel.components import Explained
from agenteval_otel.evaluators.llm_judge_scales import bounds_of, bounds_of_levels
from agenteval_otel.models import EvaluationCriteria

__all__ = ["Levels", "Rubric", "with_bounds"]


def _with_names(value: Any) -> Any:
    # In YAML the level 1 is a number, and yes a truth value.
    if not isinstance(value, Mapping):
        return value
    return {str(level).lower() if isinstance(level, bool) else str(level): said for level, said in value.items()}


Levels = Annotated[dict[str, str], BeforeValidator(_with_names)]
"""What each level of a scale means, by the level."""


class Rubric(BaseModel, metaclass=Explained):
    """One criterion of an `LLMJudge`.

    Attributes:
        criterion_name: The criterion that it scores.
        description: What is to be judged, in words for the judge.
        scale: ``pass/fail``, ``binary``, ``likert5``, ``numeric`` (0-1), two ends (``0-10``), words (``low|high``), or
            any other word, whose scores are texts.
        levels: What a level means, by the level: ``{1: "word salad", 5: "clear throughout"}``; with levels of the
            user's own words, those are the scale.
        threshold: Raw score from which on (inclusive) the label is ``pass``.
        weight: Share in the overall score; 1 when left out, 0 leaves the criterion out of it.
        objective: Share of passing results that the criterion should hold, 0-1; alerts come from it.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, validate_by_name=True, validate_by_alias=True,
        loc_by_alias=False, ignored_types=(cached_property,), hide_input_in_errors=True, allow_inf_nan=False,
    )  # fmt: skip

    criterion_name: str
    description: str = ""
    scale: str = "pass/fail"
    levels: Levels = Field(default_factory=dict)
    threshold: float | None = None
    weight: float | None = Field(default=None, ge=0)
    objective: float | None = Field(default=None, ge=0, le=1)

    @field_validator("criterion_name", "scale")
    @classmethod
    def _is_said(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must not be blank")
        return value

    @model_validator(mode="after")
    def _levels_fit(self) -> Self:
        known = {"likert5": {"1", "2", "3", "4", "5"}, "pass/fail": _TWO, "binary": _TWO}.get(self.scale)
        bounds = bounds_of(self.scale)
        if bounds is not None:
            known = {str(level) for level in range(bounds[0], bounds[1] + 1)} if bounds[1] - bounds[0] < 1000 else None
        for level in self.levels:
            if known is not None and level not in known:
                expected = ", ".join(sorted(known, key=lambda one: (len(one), one))[:12])
                raise ValueError(f"level {level!r} is none of the scale {self.scale!r}: {expected}")
        return self

    @cached_property
    def criterion(self) -> EvaluationCriteria:
        """The criterion, for where the input does not bring it."""
        return with_bounds(
            EvaluationCriteria(
                name=self.criterion_name, description=self.description, scale=self.scale, threshold=self.threshold,
                weight=self.weight, objective=self.objective,
            ),
            self.levels,
        )  # fmt: skip

    def levels_on(self, criterion: EvaluationCriteria) -> Mapping[str, str]:
        """The described levels, where the criterion that is asked for is on the rubric's scale."""
        return self.levels if criterion.scale == self.scale else {}


_TWO = {"true", "false", "pass", "fail"}


def with_bounds(criterion: EvaluationCriteria, levels: Mapping[str, str]) -> EvaluationCriteria:
    """The criterion with the range that its scale's name or its levels declare, so that scores can be normalized."""
    if criterion.minimum is not None or criterion.maximum is not None or criterion.scale in _OWN_FORM:
        return criterion
    bounds = bounds_of(criterion.scale) or bounds_of_levels(levels)
    if bounds is None:
        return criterion
    return criterion.model_copy(update={"minimum": float(bounds[0]), "maximum": float(bounds[1])})


_OWN_FORM = ("binary", "pass/fail", "likert5", "numeric")

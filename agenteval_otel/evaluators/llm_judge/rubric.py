"""Rubric: a criterion as a judge is told it, with what each level of its scale means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue

from agenteval_otel.components import Explained, ListOf, PartError
from agenteval_otel.components.component import FreshCopies
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators.catalogue import names, rubric_fields
from agenteval_otel.evaluators.llm_judge.inputs import CaseField, CaseFields
from agenteval_otel.evaluators.llm_judge.scales import bounds_of_levels
from agenteval_otel.models import EvaluationCriteria
from agenteval_otel.scoring.scales import bounds_of

__all__ = ["Claims", "Levels", "NamedRubric", "Rubric", "with_bounds"]


def _with_names(value: Any) -> Any:
    # In YAML the level 1 is a number, and yes a truth value.
    if not isinstance(value, Mapping):
        return value
    return {str(level).lower() if isinstance(level, bool) else str(level): meaning for level, meaning in value.items()}


Levels = Annotated[dict[str, str], BeforeValidator(_with_names)]
"""What each level of a scale means, by the level."""


_STRICT = ConfigDict(
    frozen=True, extra="forbid", alias_generator=to_camel, validate_by_name=True, validate_by_alias=True,
    loc_by_alias=False, ignored_types=(cached_property,), hide_input_in_errors=True, allow_inf_nan=False,
)  # fmt: skip


class Claims(BaseModel, metaclass=Explained):
    """What a judge lists and judges one by one, where the score is the share that holds.

    The judge quotes each claim, says what decides it, and says whether it holds; code counts. ``score = claims that
    hold / claims``, from 0 to 1; on another range the share of it. Quotes that are not found in `source` are left out
    of both numbers, and where they are more than those that are found, the criterion has failed.

    Attributes:
        listed: What is a claim, in words for the judge.
        holds: When one holds.
        source: The field of the case that the claims are quoted from. Of tool calls each one is a claim.
        most: So many claims at most; an answer with more has failed.
    """

    model_config = _STRICT

    listed: str
    holds: str
    source: CaseField = "response"
    most: int = Field(default=20, ge=1, le=50)

    @field_validator("listed", "holds")
    @classmethod
    def _is_said(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must not be blank")
        return value


class Rubric(FreshCopies, BaseModel, metaclass=Explained):
    """One criterion of an `LLMJudge`: of the user's own words, or the catalogue's by its name.

    ``Coherence``, or ``{type: Coherence, threshold: 5}``, is the catalogue's criterion of that name.

    Attributes:
        criterion_name: The criterion that it scores.
        description: What is to be judged, in words for the judge.
        steps: How the judge should go about it, one after the other.
        scale: ``pass/fail``, ``binary``, ``likert5``, ``numeric`` (0-1), two ends (``0-10``), words (``low|high``), or
            any other word, whose scores are texts.
        levels: What a level means, by the level: ``{1: "word salad", 5: "clear throughout"}``; with levels of the
            user's own words, those are the scale. With ``numeric``, levels that are whole numbers are asked for, and
            the score is the place between the lowest and the highest, 0-1; so are ``true`` and ``false`` as 1 and 0;
            levels from 0 to 1 describe a score that may lie between them.
        edge_cases: What is easily judged wrongly, and what it gets.
        claims: In the place of levels: what is listed and judged one by one; the score is the share that holds.
        needs: What an input has to have for this criterion; what the evaluator says when left out.
        takes: What is shown too, if the input has it; what the evaluator says when left out.
        threshold: Raw score from which on (inclusive) the label is ``pass``.
        weight: Share in the overall score; 1 when left out, 0 leaves the criterion out of it.
        objective: Share of passing results that the criterion should hold, 0-1; alerts come from it.
    """

    model_config = _STRICT

    criterion_name: str
    description: str = ""
    steps: ListOf[str] = ()
    scale: str = "pass/fail"
    levels: Levels = Field(default_factory=dict)
    edge_cases: ListOf[str] = ()
    claims: Claims | None = None
    needs: ListOf[CaseFields] | None = None
    takes: ListOf[CaseFields] | None = None
    threshold: float | None = None
    weight: float | None = Field(default=None, ge=0)
    objective: float | None = Field(default=None, ge=0, le=1)

    @model_validator(mode="before")
    @classmethod
    def _of_the_catalogue(cls, data: Any) -> Any:
        named = {"type": data} if isinstance(data, str) else data
        if not isinstance(named, Mapping) or "type" not in named:
            return data
        ours = {to_camel(field): field for field in cls.model_fields}
        overrides = {ours.get(field, field): value for field, value in named.items() if field != "type"}
        try:
            return rubric_fields(str(named["type"]), overrides)
        except ConfigurationError as failure:
            raise PartError(failure, of_model=True) from None

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
                expected = ", ".join(sorted(known, key=lambda name: (len(name), name))[:12])
                raise ValueError(f"level {level!r} is none of the scale {self.scale!r}: {expected}")
        if self.claims is not None and (self.levels or (self.scale not in _OF_CLAIMS and bounds is None)):
            raise ValueError(f"claims give a share: no levels, and as scale {', '.join(_OF_CLAIMS)} or two ends")
        return self

    @model_validator(mode="after")
    def _levels_have_a_place(self) -> Self:
        if self.scale == "numeric" and self.levels and not (
            set(self.levels) in _PAIRS or bounds_of_levels(self.levels) or all(map(_is_share, self.levels))
        ):  # fmt: skip
            raise ValueError("levels of numeric are two whole numbers or more, true and false, pass and fail, or lie "
                             "between 0 and 1")  # fmt: skip
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
_PAIRS = ({"true", "false"}, {"pass", "fail"})
_OF_CLAIMS = ("numeric", "likert5")


def _is_share(level: str) -> bool:
    return re.fullmatch(r"0(\.\d{1,9})?|1(\.0{1,9})?", level) is not None


class _ByName:
    """Says in the JSON Schema that the name of the catalogue's criterion will do."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        named = {"enum": list(names())}
        with_changes = {"type": "object", "properties": {"type": named}, "required": ["type"]}
        return {"anyOf": [handler(schema), named, with_changes]}


NamedRubric = Annotated[Rubric, _ByName()]
"""A rubric that settings may also name."""


def with_bounds(criterion: EvaluationCriteria, levels: Mapping[str, str]) -> EvaluationCriteria:
    """The criterion with the range that its scale's name or its levels declare, so that scores can be normalized."""
    if criterion.minimum is not None or criterion.maximum is not None or criterion.scale in _OWN_FORM:
        return criterion
    bounds = bounds_of(criterion.scale) or bounds_of_levels(levels)
    if bounds is None:
        return criterion
    return criterion.model_copy(update={"minimum": float(bounds[0]), "maximum": float(bounds[1])})


_OWN_FORM = ("binary", "pass/fail", "likert5", "numeric")

"""Rubric: a criterion as a judge reads it, with the meaning of each level of its scale."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, Field, GetJsonSchemaHandler, model_validator
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue

from agenteval_otel.components import Explained, ListOf, PartError
from agenteval_otel.components.copies import FreshCopies
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators.built_in import NESTED, NotBlank
from agenteval_otel.evaluators.llm_judge.case import CaseField, CaseFields
from agenteval_otel.evaluators.llm_judge.catalogue import names, rubric_fields
from agenteval_otel.evaluators.llm_judge.scales import bounds_of_levels
from agenteval_otel.models import EvaluationCriteria
from agenteval_otel.scoring.scales import bounds_of

_TRUTH = {"true", "false"}
_PASSING = {"pass", "fail"}
_LEVELS = {"likert5": {"1", "2", "3", "4", "5"}, "pass/fail": _TRUTH | _PASSING, "binary": _TRUTH | _PASSING}
_WHOLE_NUMBER = re.compile(r"-?\d{1,9}")
_SCALES_OF_CLAIMS = ("numeric", "likert5")


def _with_names(value: Any) -> Any:
    # In YAML the level 1 is a number, and yes a truth value.
    if not isinstance(value, Mapping):
        return value
    return {str(level).lower() if isinstance(level, bool) else str(level): meaning for level, meaning in value.items()}


Levels = Annotated[dict[str, str], BeforeValidator(_with_names)]
"""What each level of a scale means, by the level."""


class Claims(BaseModel, metaclass=Explained):
    """Claims that a judge lists and judges one by one; the score is the share of claims that hold.

    The judge quotes each claim, names the evidence and says whether it holds; code counts. ``score = claims that
    hold / claims``, from 0 to 1; on another range the share of it. Quotes that are not in `source` are left out of both
    numbers; where most quotes are not in it, the criterion has failed.

    Attributes:
        listed: What is a claim, in words for the judge.
        holds: When one holds.
        source: The field of the case that the claims are quoted from. Of tool calls each one is a claim.
        most: So many claims at most; an answer with more has failed.
    """

    model_config = NESTED

    listed: NotBlank
    holds: NotBlank
    source: CaseField = "response"
    most: int = Field(default=20, ge=1, le=50)


class Rubric(FreshCopies, BaseModel, metaclass=Explained):
    """One criterion of an `LLMJudge`: of the user's own words, or the catalogue's by its name.

    ``Coherence``, or ``{type: Coherence, threshold: 5}``, is the catalogue's criterion of that name.

    Attributes:
        criterion_name: The criterion that it scores.
        description: What is to be judged, in words for the judge.
        steps: How the judge should proceed, one step after the other.
        scale: ``pass/fail``, ``binary``, ``likert5``, ``numeric`` (0-1), two ends (``0-10``), words (``low|high``), or
            any other word, whose scores are texts.
        levels: What a level means, by the level: ``{1: "word salad", 5: "clear throughout"}``; with levels of the
            user's own words, those are the scale. With ``numeric``, levels that are whole numbers are asked for, and
            the score is the place between the lowest and the highest, 0-1; so are ``true`` and ``false`` as 1 and 0;
            levels from 0 to 1 describe a score that may lie between them.
        edge_cases: What is easily judged wrongly, and what it gets.
        claims: In the place of levels: claims that are listed and judged one by one; the score is the share that holds.
        needs: What an input has to have for this criterion; the evaluator's when left out.
        takes: What is shown too, if the input has it; the evaluator's when left out.
        threshold: Raw score from which on (inclusive) the label is ``pass``.
        weight: Share in the overall score; 1 when left out, 0 leaves the criterion out of it.
        objective: Share of passing results that the criterion should hold, 0-1; alerts come from it.
    """

    model_config = NESTED

    criterion_name: NotBlank
    description: str = ""
    steps: ListOf[str] = ()
    scale: NotBlank = "pass/fail"
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
        by_alias = {to_camel(field): field for field in cls.model_fields}
        overrides = {by_alias.get(field, field): value for field, value in named.items() if field != "type"}
        try:
            return rubric_fields(str(named["type"]), overrides)
        except ConfigurationError as failure:
            raise PartError(failure, of_model=True) from None

    @model_validator(mode="after")
    def _levels_fit(self) -> Self:
        bounds = bounds_of(self.scale)
        for level in self.levels:
            if bounds and not (_WHOLE_NUMBER.fullmatch(level) and bounds[0] <= int(level) <= bounds[1]):
                raise ValueError(f"level {level!r} is none of the scale {self.scale!r}")
            if level not in (known := _LEVELS.get(self.scale, (level,))):
                raise ValueError(f"level {level!r} is none of the scale {self.scale!r}: {', '.join(sorted(known))}")
        if self.scale == "numeric" and self.levels and not (
            set(self.levels) in (_TRUTH, _PASSING) or bounds_of_levels(self.levels) or all(map(_is_share, self.levels))
        ):  # fmt: skip
            raise ValueError("levels of numeric are two whole numbers or more, true and false, pass and fail, or lie "
                             "between 0 and 1")  # fmt: skip
        if self.claims is not None and (self.levels or (self.scale not in _SCALES_OF_CLAIMS and bounds is None)):
            raise ValueError(f"claims give a share: no levels, and as scale {', '.join(_SCALES_OF_CLAIMS)} or two ends")
        return self

    @cached_property
    def criterion(self) -> EvaluationCriteria:
        """The criterion, where the input does not bring it."""
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


def _is_share(level: str) -> bool:
    return re.fullmatch(r"0(\.\d{1,9})?|1(\.0{1,9})?", level) is not None


class _ByName:
    """Adds names of the catalogue's criteria to the JSON Schema."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        named = {"enum": list(names())}
        with_changes = {"type": "object", "properties": {"type": named}, "required": ["type"]}
        return {"anyOf": [handler(schema), named, with_changes]}


NamedRubric = Annotated[Rubric, _ByName()]
"""A rubric, or the name of one of the catalogue's."""


def with_bounds(criterion: EvaluationCriteria, levels: Mapping[str, str]) -> EvaluationCriteria:
    """The criterion with the range that its scale's name or its levels declare, so that scores can be normalized."""
    if criterion.minimum is not None or criterion.maximum is not None or criterion.scale in (*_LEVELS, "numeric"):
        return criterion
    bounds = bounds_of(criterion.scale) or bounds_of_levels(levels)
    if bounds is None:
        return criterion
    return criterion.model_copy(update={"minimum": float(bounds[0]), "maximum": float(bounds[1])})

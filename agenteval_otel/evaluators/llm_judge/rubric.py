"""Rubric: a criterion as a judge reads it.

`AnswerScale` defines how a judge is asked for a score, and how the score is read, strictly.
"""

from __future__ import annotations

import math
import re
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, Field, GetJsonSchemaHandler, model_validator
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from agenteval_otel.components import ListOf
from agenteval_otel.components.component import FreshCopies
from agenteval_otel.components.explained import ComponentError, FriendlyErrors, known_choices
from agenteval_otel.errors import ConfigurationError, EvaluationError
from agenteval_otel.evaluators.built_in import NESTED, NotBlank
from agenteval_otel.evaluators.llm_judge.case import CaseField, CaseFields
from agenteval_otel.models import EvaluationCriteria, ScoreValue
from agenteval_otel.models.scoring.scales import BOOLEAN_SCALES, BOOLEAN_WORDS, bounds_of

# The catalogue: criteria with rubrics of our own, which are read when they are first used. A file
# has the fields of a `Rubric`, and beside them `group` and `direction` for readers, and `tags` for
# runs.
_FILES = Path(__file__).parents[1] / "catalogue"
_SCALES = {
    "pass/fail": ("pass/fail", "numeric"),
    "numeric": ("numeric", "likert5"),
    "likert5": ("likert5", "numeric"),
}
_NAMED_SCALES = (*BOOLEAN_SCALES, "likert5", "numeric")
_WHOLE_NUMBER = re.compile(r"-?\d{1,9}")
_LISTED_LEVELS = 21
_LONGEST_WORD = 64
_LONGEST_SLUG = 48
_LONGEST_WORDS = 200


def _with_names(value: object) -> Any:
    # In YAML the level 1 is a number, and yes a truth value.
    if not isinstance(value, Mapping):
        return value
    return {
        str(level).lower() if isinstance(level, bool) else str(level): meaning
        for level, meaning in value.items()
    }


Levels = Annotated[dict[str, str], BeforeValidator(_with_names)]
"""What each level of a scale means, by the level."""


class Claims(BaseModel, metaclass=FriendlyErrors):
    """Describes claims that a judge lists, quotes and judges one by one.

    The score is the share of claims that hold, 0 to 1. On another range the share is scaled to it.
    Claims whose quote is not in `source` are not counted. If they are the majority, the result is a
    failed one.

    Attributes:
        listed: What a claim is, in words for the judge.
        holds: When a claim holds, in words for the judge.
        source: The field of the case that the claims are quoted from. With tool calls, each call is
            a claim.
        most: Maximum number of claims. More of them in the judge's answer give a failed result.
    """

    model_config = NESTED

    listed: NotBlank
    holds: NotBlank
    source: CaseField = "response"
    most: int = Field(default=20, ge=1, le=50)


class Rubric(FreshCopies):
    """Describes one criterion of an `LLMJudge`, in the user's own words or by the catalogue's name.

    ``Coherence``, or ``{type: Coherence, threshold: 5}``, is the catalogue's criterion of that
    name.

    Attributes:
        criterion_name: The criterion that it scores.
        description: What is to be judged, in words for the judge.
        steps: How the judge should proceed, one step after the other.
        scale: ``pass/fail``, ``binary``, ``likert5``, ``numeric`` (0-1), two ends (``0-10``), words
            (``low|high``), or any other word, whose scores are texts.
        levels: What a level means, by the level: ``{1: "word salad", 5: "clear throughout"}``.
            Levels of the user's own words are the scale. With ``numeric`` the score is the level's
            place between the lowest and the highest, 0-1 (``true`` is 1), and levels from 0 to 1
            describe a score that may lie between them.
        edge_cases: Cases that are easily misjudged, and how to score them.
        claims: Replaces levels: claims that are listed and judged one by one. The score is the
            share that holds.
        needs: Fields that an input must have for this criterion. The evaluator's when left out.
        takes: Fields shown in addition if the input has them. The evaluator's when left out.
        max_windows: Splits answers longer than `max_field_chars` into up to this many windows. The
            worst score counts.
        conversation_windows: The same for longer conversations, which are split between turns.
        threshold: Lowest raw score with the label ``pass``.
        weight: Share in the overall score, 1 when left out. 0 leaves the criterion out of it.
        objective: Share of results that should pass, 0-1. Alerts are based on it.
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
    max_windows: int = Field(default=1, ge=1, le=100)
    conversation_windows: int = Field(default=1, ge=1, le=100)
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
        overrides = {
            by_alias.get(field, field): value for field, value in named.items() if field != "type"
        }
        try:
            return rubric_fields(str(named["type"]), overrides)
        except ConfigurationError as failure:
            raise ComponentError(failure, of_model=True) from None

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        named = {"enum": list(names())}
        with_changes = {"type": "object", "properties": {"type": named}, "required": ["type"]}
        return {"anyOf": [handler(schema), named, with_changes]}

    @cached_property
    def criterion(self) -> EvaluationCriteria:
        """Return the criterion, for an input that does not bring it."""
        fields = {
            name: getattr(self, name)
            for name in ("description", "scale", "threshold", "weight", "objective")
        }
        return with_bounds(EvaluationCriteria(name=self.criterion_name, **fields), self.levels)


def slug_of(words: str) -> str:
    """Return the first words in lower case, joined by ``_``. The text may be empty.

    It has at most 48 characters: letters (without accents), digits and ``_``.
    """
    decomposed = unicodedata.normalize("NFKD", words[:_LONGEST_WORDS])
    plain = decomposed.encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "_", plain).strip("_").lstrip("0123456789_")
    if len(slug) <= _LONGEST_SLUG:
        return slug
    whole_words = slug[: _LONGEST_SLUG + 1].rpartition("_")[0]
    return whole_words or slug[:_LONGEST_SLUG]


def names() -> tuple[str, ...]:
    """Return the criteria of the catalogue, in alphabetical order."""
    return tuple(sorted(file.stem.title().replace("_", "") for file in _FILES.glob("*.yaml")))


@lru_cache(maxsize=64)
def entry_of(name: str) -> Mapping[str, Any]:
    """Return the content of a criterion's file, which is not to be changed.

    The ConfigurationError for an unknown name names the criteria that there are.
    """
    if name not in names():
        raise ConfigurationError(
            f"{name!r} is no criterion of the catalogue{known_choices(name, names())}"
        )
    import yaml

    snake_name = re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()
    text = (_FILES / f"{snake_name}.yaml").read_text("utf-8")
    entry: dict[str, Any] = yaml.safe_load(text)
    return entry


def scales_of(name: str) -> tuple[str, ...]:
    """Return the scales that a criterion can be scored on, its own first.

    ``numeric`` is its form from 0 to 1.
    """
    return _SCALES[entry_of(name)["scale"]]


def rubric_fields(name: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a criterion's `Rubric`, some of them overridden.

    The catalogue's threshold moves along with the scale: 4 from 1 to 5 is 0.75 from 0 to 1.
    """
    entry = {
        field: value
        for field, value in entry_of(name).items()
        if field not in ("group", "direction", "tags")
    }
    scale = overrides.get("scale") or entry["scale"]
    if scale not in scales_of(name):
        raise ConfigurationError(
            f"{name} is given on {' or '.join(scales_of(name))}, found {scale!r}", path="scale"
        )
    low, high = _ends_of(scale)
    threshold = overrides.get("threshold")
    with suppress(TypeError, ValueError):  # no number: the field's own check says so
        if threshold is not None and not low <= float(threshold) <= high:
            message = f"{name} goes from {low} to {high} on the scale {scale}, found {threshold}"
            raise ConfigurationError(message, path="threshold")
    if scale != entry["scale"]:
        own_low, own_high = _ends_of(entry["scale"])
        share = (entry.get("threshold", 1) - own_low) / (own_high - own_low)
        entry["threshold"] = low + share * (high - low)
    return {**entry, "criterion_name": name, **overrides, "scale": scale}


def _ends_of(scale: str) -> tuple[int, int]:
    return (1, 5) if scale == "likert5" else (0, 1)


def with_bounds(criterion: EvaluationCriteria, levels: Mapping[str, str]) -> EvaluationCriteria:
    """Return the criterion with the range that its scale's name or its levels declare.

    With the range, scores can be normalized.
    """
    has_range = criterion.minimum is not None or criterion.maximum is not None
    if has_range or criterion.scale in _NAMED_SCALES:
        return criterion
    bounds = bounds_of(criterion.scale) or bounds_of_levels(levels)
    if bounds is None:
        return criterion
    return criterion.model_copy(update={"minimum": float(bounds[0]), "maximum": float(bounds[1])})


class AnswerScale(NamedTuple):
    """Describes a scale as a judge meets it.

    Attributes:
        schema: The JSON Schema of a score.
        wording: What a score is, in words for the judge.
        read: The score in an answer, strictly: one that would have to be guessed is refused.
            `EvaluationError` is ``malformed_answer`` for what is no score, ``out_of_range`` for one
            beyond the scale.
    """

    schema: dict[str, Any]
    wording: str
    read: Callable[[Any], ScoreValue]


def _read_boolean(value: object) -> bool:
    text = str(value).lower() if isinstance(value, bool | str) else ""
    if text not in BOOLEAN_WORDS:
        raise EvaluationError("the score is neither true nor false", error_type="malformed_answer")
    return bool(BOOLEAN_WORDS[text])


def _read_number(value: object, low: float = -math.inf, high: float = math.inf) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EvaluationError("the score is no number", error_type="malformed_answer")
    if not (low <= value <= high and abs(value) <= sys.float_info.max):
        message = f"the score is not from {low:g} to {high:g}: {str(value)[:20]}"
        raise EvaluationError(message, error_type="out_of_range")
    return value


def _read_whole_number(value: object, low: int, high: int) -> int:
    number = _read_number(value, low, high)
    if number != int(number):
        raise EvaluationError(
            f"the score {number:g} is not a whole number", error_type="out_of_range"
        )
    return int(number)


def _read_text(value: object) -> str:
    if not isinstance(value, str):
        raise EvaluationError("the score is no text", error_type="malformed_answer")
    return value


def _read_short_text(value: object) -> str:
    text = _read_text(value).strip()
    if not text:
        raise EvaluationError("the score is blank", error_type="malformed_answer")
    if len(text) > _LONGEST_WORD:
        raise EvaluationError(
            f"the score is longer than {_LONGEST_WORD} characters", error_type="out_of_range"
        )
    return text


def _read_word(value: object, words: Sequence[str]) -> str:
    text = _read_text(value).strip().lower()
    for word in words:
        if word.lower() == text:
            return word
    raise EvaluationError("the score is none of the levels", error_type="out_of_range")


def bounds_of_levels(levels: Mapping[str, str]) -> tuple[int, int] | None:
    """Return the lowest and the highest of several levels, or None.

    All of the levels have to be whole numbers.
    """
    if len(levels) < 2 or not all(map(_WHOLE_NUMBER.fullmatch, levels)):
        return None
    numbers = [int(level) for level in levels]
    return min(numbers), max(numbers)


def answer_scale(criterion: EvaluationCriteria, levels: Mapping[str, str]) -> AnswerScale:
    """Return the scale of a criterion.

    It is its described levels, a declared range, or what the scale's name means.
    """
    if criterion.scale in BOOLEAN_SCALES:
        return AnswerScale(
            {"type": "boolean"}, "true (it passes) or false (it does not)", _read_boolean
        )
    if criterion.scale == "likert5":
        return _whole(1, 5)
    bounds = bounds_of_levels(levels)
    if levels and bounds is None:
        return _words(list(levels))
    bounds = bounds or bounds_of(criterion.scale)
    if bounds is not None:
        return _whole(*bounds)
    if criterion.minimum is not None and criterion.maximum is not None:
        return _between(criterion.minimum, criterion.maximum)
    if criterion.scale == "numeric":
        return _between(0.0, 1.0)
    words = [name.strip() for name in criterion.scale.split("|")]
    if len(words) > 1 and all(words):
        return _words(words)
    return AnswerScale(
        {"type": "string"}, f'a word or a few on the scale "{criterion.scale}"', _read_short_text
    )


def agentdock_scale(criterion: EvaluationCriteria) -> AnswerScale:
    """Return the scale as AgentDock asks and reads it: any number, any text.

    1 is not a boolean. A ``likert5`` scale takes whole numbers from 1 to 5 alone.
    """
    if criterion.scale in BOOLEAN_SCALES or criterion.scale == "likert5":
        return answer_scale(criterion, {})
    if criterion.scale == "numeric":
        return AnswerScale({"type": "number"}, "a number", _read_number)
    return AnswerScale({"type": "string"}, "text", _read_text)


def _whole(low: int, high: int) -> AnswerScale:
    schema: dict[str, Any] = {"type": "integer"}
    if high - low < _LISTED_LEVELS:
        schema["enum"] = list(range(low, high + 1))
    read = partial(_read_whole_number, low=low, high=high)
    return AnswerScale(schema, f"a whole number from {low} (worst) to {high} (best)", read)


def _between(low: float, high: float) -> AnswerScale:
    read = partial(_read_number, low=low, high=high)
    return AnswerScale(
        {"type": "number"}, f"a number from {low:g} (worst) to {high:g} (best)", read
    )


def _words(words: list[str]) -> AnswerScale:
    shown = ", ".join(f'"{word}"' for word in words)
    return AnswerScale(
        {"type": "string", "enum": words}, f"one of {shown}", partial(_read_word, words=words)
    )

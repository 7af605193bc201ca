"""The checks of `RuleBased`: length, pattern, substrings, keywords, JSON and JSON Schema."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NoReturn, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.built_in import SHORT_LIST, read_text
from agenteval_otel.evaluators.json_schema import Definition, compiled
from agenteval_otel.evaluators.rules.base import RuleCheck, RuleFailure, RuleResult
from agenteval_otel.evaluators.words import Terms, folded
from agenteval_otel.models import EvaluationInput
from agenteval_otel.runtime.patterns import DEFAULT_LIMIT_S, Pattern, check_flags, compile_pattern


class Length(RuleCheck, type="length"):
    """Bounds on the length in UTF-16 units, inclusive, nothing trimmed; without bounds every text passes.

    Attributes:
        min: The least length that passes.
        max: The largest length that passes.
    """

    reason_codes: ClassVar[tuple[str, ...]] = ("too_short", "too_long")

    min: float | None = None
    max: float | None = None

    @model_validator(mode="after")
    def _bounds_leave_room(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"no text is at least {self.min:g} and at most {self.max:g} long")
        return self

    @property
    def is_fast(self) -> bool:
        return True

    def check(self, text: str) -> RuleResult:
        """Compare the length with the bounds."""
        length = len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
        if self.min is not None and length < self.min:
            return RuleFailure("too_short")
        return RuleFailure("too_long") if self.max is not None and length > self.max else None


class Regex(RuleCheck, type="regex"):
    r"""A regular expression that must occur in the text, or must not.

    The syntax is Python's; ``\d \w \s \b`` know ASCII only, ``$`` without ``m`` matches at the very end only.

    Attributes:
        pattern: Searched anywhere in the text.
        flags: Any of ``i`` (ignore case), ``m`` (``^ $`` match at lines) and ``s`` (``.`` matches line ends).
        expected_outcome: ``match``: it must occur; ``no_match``: it must not.
        limit_s: Time limit of one search in seconds, 0-60. Patterns that RE2 (the extra ``re2``) searches need none.
    """

    reason_codes: ClassVar[tuple[str, ...]] = ("pattern_missing", "forbidden_pattern")

    flags: str = ""
    pattern: str
    expected_outcome: Literal["match", "no_match"] = "no_match"
    limit_s: float = Field(default=DEFAULT_LIMIT_S, gt=0, le=60)

    @field_validator("flags")
    @classmethod
    def _flags_are_known(cls, value: str) -> str:
        check_flags(value)
        return value

    @field_validator("pattern")
    @classmethod
    def _pattern_compiles(cls, value: str, info: ValidationInfo) -> str:
        if "flags" in info.data:
            compile_pattern(value, info.data["flags"])
        return value

    @cached_property
    def _compiled(self) -> Pattern:
        return compile_pattern(self.pattern, self.flags)

    @property
    def is_fast(self) -> bool:
        """Whether RE2 searches the pattern, in time linear in the text."""
        return self._compiled.is_linear

    def check(self, text: str) -> RuleResult:
        """Search the text; a search beyond the time limit is a failure (``timeout``)."""
        try:
            occurs = self._compiled.occurs_in(text, limit_s=self.limit_s)
        except TimeoutError:
            raise EvaluationError(f"the pattern took longer than {self.limit_s:g} s", error_type="timeout") from None
        if self.expected_outcome == "match":
            return None if occurs else RuleFailure("pattern_missing")
        return RuleFailure("forbidden_pattern") if occurs else None


class Includes(RuleCheck, type="includes"):
    """Substrings, not words, of which all, any or none must occur; an empty one always occurs.

    Attributes:
        keywords: The substrings.
        case_sensitive: Whether case counts.
        expected_outcome: ``all``, ``any`` or ``none`` of them must occur.
    """

    reason_codes: ClassVar[tuple[str, ...]] = ("missing_keyword", "forbidden_keyword")

    keywords: tuple[str, ...]
    case_sensitive: bool = False
    expected_outcome: Literal["all", "any", "none"] = "all"

    @property
    def is_fast(self) -> bool:
        return len(self.keywords) <= SHORT_LIST

    def check(self, text: str) -> RuleResult:
        """Look for the substrings."""
        if self.case_sensitive:
            occurrences = (keyword in text for keyword in self.keywords)
        else:
            lower = text.lower()
            occurrences = (keyword.lower() in lower for keyword in self.keywords)
        if self.expected_outcome == "none":
            return RuleFailure("forbidden_keyword") if any(occurrences) else None
        passed = all(occurrences) if self.expected_outcome == "all" else any(occurrences)
        return None if passed else RuleFailure("missing_keyword")


class KeywordCount(RuleCheck, type="keyword_count"):
    """Bounds on how often keywords occur, all of them taken together; at least one bound is required.

    What a whole word is: see `KeywordCoverage`. A keyword that is listed twice counts once; occurrences of one keyword
    do not overlap, a keyword inside another one counts for itself.

    Attributes:
        keywords: At least one, each of at most 200 characters.
        min: The least number of occurrences that passes.
        max: The largest number of occurrences that passes.
        case_sensitive: Whether case counts.
        match_whole_word: False counts keywords inside longer words, too.
    """

    reason_codes: ClassVar[tuple[str, ...]] = ("too_few_keywords", "too_many_keywords")

    keywords: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...]
    min: int | None = Field(default=None, ge=0)
    max: int | None = Field(default=None, ge=0)
    case_sensitive: bool = False
    match_whole_word: bool = True

    @model_validator(mode="after")
    def _can_pass_and_fail(self) -> Self:
        if not self.keywords:
            raise ValueError("keywords must name at least one keyword")
        if self.min is None and self.max is None:
            raise ValueError("expected min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"nothing occurs at least {self.min} and at most {self.max} times")
        return self

    @cached_property
    def _terms(self) -> Terms:
        forms = (folded(keyword, case_sensitive=self.case_sensitive) for keyword in self.keywords)
        return Terms(forms, whole_words=self.match_whole_word)

    @property
    def is_fast(self) -> bool:
        return len(self.keywords) <= SHORT_LIST

    def check(self, text: str) -> RuleResult:
        """Count the keywords."""
        count = self._terms.count(folded(text, case_sensitive=self.case_sensitive))
        if self.min is not None and count < self.min:
            return RuleFailure("too_few_keywords", f"{count}, at least {self.min}")
        if self.max is not None and count > self.max:
            return RuleFailure("too_many_keywords", f"{count}, at most {self.max}")
        return None


class Json(RuleCheck, type="json_parse"):
    """Strict JSON: no NaN, no byte order mark, no trailing comma; a value that is not text passes."""

    reason_codes: ClassVar[tuple[str, ...]] = ("invalid_json",)

    @property
    def is_fast(self) -> bool:
        return True

    def check_input(self, evaluation_input: EvaluationInput) -> RuleResult:
        """Check the value; a missing response is not JSON, any other missing value is a failure."""
        value = evaluation_input.value_at(self.source_text_field)
        if isinstance(value, str):
            return self.check(value)
        if value is None and self.source_text_field != "response":
            raise EvaluationError(f"nothing at {self.source_text_field}", error_type="missing_text")
        return RuleFailure("invalid_json") if value is None else None

    def check(self, text: str) -> RuleResult:
        """Parse the text."""
        try:
            # Numbers are not converted: Python would refuse whole numbers beyond some thousand digits.
            json.loads(text, parse_constant=_refuse, parse_int=len, parse_float=len)
        except RecursionError:
            raise EvaluationError("JSON nested too deeply to be checked", error_type="too_deep") from None
        except ValueError:
            return RuleFailure("invalid_json")
        return None


class JsonSchema(RuleCheck, type="json_schema"):
    """JSON that fits a JSON Schema: text is parsed, any other value is taken as it is.

    Exactly one of the two fields is required. The draft is 2020-12 unless ``$schema`` names another.

    Attributes:
        definition: The schema: a mapping, true, false or JSON text.
        definition_file: A file with the schema, of at most 4 MiB; read once at load, and replaced by its content.
    """

    reason_codes: ClassVar[tuple[str, ...]] = ("invalid_json", "schema_mismatch")

    definition: Definition | None = None
    definition_file: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_file(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        rest = dict(data)
        path = rest.pop("definition_file", rest.pop("definitionFile", None))
        if not isinstance(path, str):
            return data
        if rest.get("definition") is not None:
            raise ValueError("expected definition or definition_file, found both")
        try:
            return {**rest, "definition": json.dumps(json.loads(read_text(path)), sort_keys=True)}
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
        except RecursionError:
            raise ValueError(f"{path}: not JSON: nested too deeply") from None

    @model_validator(mode="after")
    def _has_schema(self) -> Self:
        if self.definition is None:
            raise ValueError("expected definition (a JSON Schema) or definition_file")
        return self

    @cached_property
    def _problems_of(self) -> Callable[[Any], list[str]]:
        return compiled(json.loads(self.definition or "true"))

    def check_input(self, evaluation_input: EvaluationInput) -> RuleResult:
        """Check the text, or the value where there is no text."""
        if evaluation_input.text_at(self.source_text_field) is None:
            value = evaluation_input.value_at(self.source_text_field)
            if value is not None:
                return self._check_value(value)
        return super().check_input(evaluation_input)

    def check(self, text: str) -> RuleResult:
        """Parse and check the text."""
        try:
            return self._check_value(_parsed(text))
        except json.JSONDecodeError:
            return RuleFailure("invalid_json", "not JSON")

    def _check_value(self, value: Any) -> RuleResult:
        problems = self._problems_of(value)
        return RuleFailure("schema_mismatch", "; ".join(problems)) if problems else None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise EvaluationError("JSON nested too deeply to be checked", error_type="too_deep") from None
    except json.JSONDecodeError:
        raise
    except ValueError:  # a number beyond Python's digits, or beyond every float
        raise EvaluationError("holds a number too large to be checked", error_type="too_large") from None


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError
    return number


def _refuse(constant: str) -> NoReturn:
    raise json.JSONDecodeError(f"{constant} is not JSON", constant, 0)

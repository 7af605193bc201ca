"""RuleBased, the contract of a rule's check, and the checks that the package has.

`RulesEvaluator` is the base of evaluators of several rules.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NoReturn

from pydantic import AfterValidator, Field, SerializeAsAny, ValidationInfo, field_validator

from agenteval_otel.components import Component, ListOf
from agenteval_otel.components.loading import load_each, resolve
from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators.base import (
    Evaluator,
    Execution,
    failure_of,
    find_criterion,
    result_of,
    skipped_of,
)
from agenteval_otel.evaluators.built_in import SHORT_LIST, TextField, text_at
from agenteval_otel.evaluators.json_schema import Definition, compiled
from agenteval_otel.evaluators.words import Terms, folded
from agenteval_otel.models import (
    EvaluationCriteria,
    EvaluationInput,
    EvaluationResult,
    Score,
    ScoreValue,
)
from agenteval_otel.models.value import copy_with
from agenteval_otel.runtime.masking import message_of
from agenteval_otel.runtime.patterns import DEFAULT_LIMIT_S, Pattern, check_flags, compile_pattern
from agenteval_otel.runtime.text import brief

_SHOWN = 80  # characters of a keyword or a pattern
_ANSWERS = {answer: Score(value=answer) for answer in (True, False)}
_VALUES: dict[str, tuple[ScoreValue, ScoreValue]] = {
    "numeric": (0, 1),
    "likert5": (1, 5),
    "string": ("fail", "pass"),
}


class RulesEvaluator(Evaluator):
    """Evaluates rules, each with a `criterion_name` and `is_fast`.

    Several rules may decide one criterion.
    """

    repeats: ClassVar[bool] = True

    rules: ListOf[Any] = Field(min_length=1)

    def preferred_execution(self) -> Execution | None:
        return "inline" if all(rule.is_fast for rule in self.rules) else "process"

    @cached_property
    def _criteria(self) -> tuple[EvaluationCriteria, ...]:
        names = dict.fromkeys(rule.criterion_name for rule in self.rules)
        return tuple(EvaluationCriteria(name=name, scale="binary") for name in names)

    def criteria(self) -> tuple[EvaluationCriteria, ...]:
        return self._criteria

    async def evaluate(
        self, evaluation_input: EvaluationInput, criteria: Sequence[EvaluationCriteria]
    ) -> list[EvaluationResult]:
        """Return one result for each rule whose criterion is scored, in rule order."""
        due: list[tuple[Any, EvaluationCriteria]] = []
        for rule in self.rules:
            criterion = find_criterion(criteria, rule.criterion_name)
            if criterion is not None:
                due.append((rule, criterion))
        if not due:
            return []
        subject = self.subject(evaluation_input)
        return [self._result(rule, subject, criterion) for rule, criterion in due]

    def subject(self, evaluation_input: EvaluationInput) -> Any:
        """Return what the rules look at."""
        return evaluation_input

    def score_rule(self, rule: Any, subject: Any, criterion: EvaluationCriteria) -> Score:
        """Return the score of one rule. What it raises is a failed result of this rule alone."""
        raise NotImplementedError

    def filler(self, criterion: EvaluationCriteria) -> ScoreValue:
        """Return the score that AgentDock writes into a failed result."""
        raise NotImplementedError

    def _result(
        self, rule: object, subject: object, criterion: EvaluationCriteria
    ) -> EvaluationResult:
        try:
            return result_of(self, criterion, self.score_rule(rule, subject, criterion))
        except EvaluationSkipped as skipped:
            return skipped_of(self, criterion.name, str(skipped))
        except EvaluationError as error:
            failure = failure_of(self, criterion.name, str(error), error_type=error.error_type)
        except Exception as error:  # of a user's function: a run error
            failure = failure_of(
                self, criterion.name, message_of(error), error_type=type(error).__name__
            )
            failure = copy_with(failure, {"raised": True})
        return copy_with(failure, {"filler": self.filler(criterion)})


class RuleCheck(Component, contract="check"):
    """Checks a text for one criterion, as a rule of `RuleBased`.

    Subclass it with ``type="..."`` in the class line and implement `check`. Plugins use the
    entry-point group ``agenteval_otel.checks``.

    Attributes:
        criterion: The criterion that the rule decides.
        source_text_field: Where the text is: ``response``, ``prompt``, ``groundTruth`` or
            ``context.<path>``.
    """

    criterion: str = Field(min_length=1, pattern=r"\S")
    source_text_field: TextField = "response"

    @property
    def criterion_name(self) -> str:
        return self.criterion

    @property
    def is_fast(self) -> bool:
        """Tell whether no text can make the check slow.

        `RuleBased` runs ``inline`` if all of its checks are fast, else in a ``process``.
        """
        return False

    def check(self, text: str) -> bool | Score:
        """Tell whether the text passes. A `Score` may say what the rule saw of the text.

        What this method raises fails this rule alone.
        """
        raise EvaluationError(f"{self.type} does not implement check")

    def check_input(self, evaluation_input: EvaluationInput) -> bool | Score:
        """Check the text at `source_text_field`.

        Override it where values other than text can be checked.
        """
        return self.check(text_at(evaluation_input, self.source_text_field))


def _failed(reason_code: str, detail: str | None = None) -> Score:
    return Score(value=False, reason_code=reason_code, reasoning=detail)


class InvalidCheck(RuleCheck):
    """Gives a failed result in every evaluation, for a rule of AgentDock's that cannot run.

    Settings cannot choose it.
    """

    problem: str

    @property
    def is_fast(self) -> bool:
        return True

    def check_input(self, evaluation_input: EvaluationInput) -> bool | Score:
        raise EvaluationError(self.problem, error_type="invalid_rule")


class RuleBased(RulesEvaluator, type="RuleBased"):
    """Passes or fails criteria by fixed rules.

    Several rules may decide one criterion, each with its own result.

    A passed rule scores true on ``binary``, ``pass/fail``, declared ranges and custom scales, 1 on
    ``numeric``, 5 on ``likert5`` and ``"pass"`` on the scale ``string``. A failed rule scores
    false, 0, 1 and ``"fail"``. A rule that cannot be applied (no text, a pattern that takes too
    long) gives a failed result, and the other rules go on.

    Attributes:
        rules: At least one: instances such as ``Length(criterion="short_enough", max=80)``, or
            mappings such as ``{criterion: short_enough, type: length, max: 80}``. Rules for
            criteria that are not scored are ignored.
    """

    rules: ListOf[SerializeAsAny[RuleCheck]] = Field(min_length=1)

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            rules: Sequence[RuleCheck | Mapping[str, Any]],
            execution: Execution | None = None,
            timeout_s: float | None = None,
            sample_rate: float | None = None,
            tags: Sequence[str] = (),
        ) -> None: ...

    @field_validator("rules", mode="before")
    @classmethod
    def _load_rules(cls, value: object) -> Any:
        if not isinstance(value, list | tuple):
            raise ValueError("expected a list of rules")
        return load_each(_load_rule, value, path="rules")

    def score_rule(
        self, rule: RuleCheck, subject: EvaluationInput, criterion: EvaluationCriteria
    ) -> Score:
        try:
            answer = rule.check_input(subject)
            if type(answer) is bool:
                answer = _ANSWERS[answer]
            score = answer if isinstance(answer, Score) else Score(value=answer)
        except (EvaluationError, EvaluationSkipped):
            raise
        except Exception as error:  # of a user's check, or of a mapping in the input: this rule's failure, no run error
            raise EvaluationError(message_of(error), error_type=type(error).__name__) from None
        if not isinstance(score.value, bool):
            raise EvaluationError(
                f"expected true or false, found {score.value!r}", error_type="invalid_score"
            )
        outcome = "passed" if score.value else "failed"
        if score.reasoning:
            outcome = f"{outcome} ({score.reasoning})"
        changed = {
            "value": _value_on(criterion, passed=score.value),
            "passed": score.value,
            "reasoning": f"rule {rule.type} on {rule.source_text_field}: {outcome}",
        }
        return copy_with(score, changed)

    def filler(self, criterion: EvaluationCriteria) -> ScoreValue:
        return _value_on(criterion, passed=False)


def _load_rule(rule: object, path: str) -> RuleCheck:
    if isinstance(rule, Mapping) and rule.get("type") == InvalidCheck.__name__:
        fields = {name: value for name, value in rule.items() if name != "type"}
        return InvalidCheck.load(fields, path=path)
    return resolve(RuleCheck, rule, path=path)


def _value_on(criterion: EvaluationCriteria, *, passed: bool) -> ScoreValue:
    is_range = criterion.minimum is not None and criterion.maximum is not None
    if is_range:
        return passed
    failing, passing = _VALUES.get(criterion.scale, (False, True))
    return passing if passed else failing


class Length(RuleCheck, type="length"):
    """Bounds the length in UTF-16 units, inclusive, with nothing trimmed.

    Without bounds every text passes.

    Attributes:
        min: The least length that passes.
        max: The largest length that passes.
    """

    min: float | None = None
    max: float | None = None

    @property
    def is_fast(self) -> bool:
        return True

    def check(self, text: str) -> bool | Score:
        length = _utf16_length(text)
        seen = _within(length, self.min, self.max, "characters")
        if self.min is not None and length < self.min:
            return _failed("too_short", seen)
        if self.max is not None and length > self.max:
            return _failed("too_long", seen)
        return Score(value=True, reasoning=seen)


def _within(number: int, least: float | None, most: float | None, unit: str) -> str:
    """Return a number beside its bounds: ``96 of at most 160 characters``."""
    if least is not None and most is not None:
        return f"{number:,} {unit}, {least:,.10g} to {most:,.10g} are allowed"
    if least is not None:
        return f"{number:,} of at least {least:,.10g} {unit}"
    if most is not None:
        return f"{number:,} of at most {most:,.10g} {unit}"
    return f"{number:,} {unit}"


def _utf16_length(text: str) -> int:
    if text.isascii():
        return len(text)
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


class Regex(RuleCheck, type="regex"):
    r"""Requires that a regular expression occurs in the text, or that it does not.

    The syntax is Python's, but ``\d \w \s \b`` know ASCII only, and ``$`` without ``m`` matches at
    the very end only. A search beyond the time limit gives a failed result (``timeout``).

    Attributes:
        pattern: Searched anywhere in the text.
        flags: Any of ``i`` (ignore case), ``m`` (``^ $`` match at lines) and ``s`` (``.`` matches
            line ends).
        expected_outcome: ``match``: it must occur, or ``no_match``: it must not.
        limit_s: Time limit of one search in seconds, 0-60. Patterns that RE2 (the extra ``re2``)
            searches need none.
    """

    flags: Annotated[str, AfterValidator(check_flags)] = ""
    pattern: str
    expected_outcome: Literal["match", "no_match"] = "no_match"
    limit_s: float = Field(default=DEFAULT_LIMIT_S, gt=0, le=60)

    @field_validator("pattern")
    @classmethod
    def _pattern_compiles(cls, value: str, info: ValidationInfo) -> str:
        compile_pattern(value, info.data.get("flags", ""))
        return value

    @cached_property
    def _compiled(self) -> Pattern:
        return compile_pattern(self.pattern, self.flags)

    @property
    def is_fast(self) -> bool:
        return self._compiled.is_linear

    def check(self, text: str) -> bool | Score:
        try:
            occurs = self._compiled.occurs_in(text, limit_s=self.limit_s)
        except TimeoutError:
            raise EvaluationError(
                f"the pattern took longer than {self.limit_s:g} s", error_type="timeout"
            ) from None
        if self.expected_outcome == "match":
            return occurs or _failed("pattern_missing", f"no match of {_quoted(self.pattern)}")
        return _failed("forbidden_pattern", f"matches {_quoted(self.pattern)}") if occurs else True


class Includes(RuleCheck, type="includes"):
    """Requires that all, any or none of some substrings (not words) occur in the text.

    An empty substring always occurs.

    Attributes:
        keywords: The substrings.
        case_sensitive: Whether case counts.
        expected_outcome: ``all``, ``any`` or ``none`` of them must occur.
    """

    keywords: tuple[str, ...]
    case_sensitive: bool = False
    expected_outcome: Literal["all", "any", "none"] = "all"

    @property
    def is_fast(self) -> bool:
        return len(self.keywords) <= SHORT_LIST

    def check(self, text: str) -> bool | Score:
        keywords = self.keywords
        if not self.case_sensitive:
            text = text.lower()
            keywords = tuple(map(str.lower, keywords))
        pairs = zip(self.keywords, keywords, strict=True)
        if self.expected_outcome == "all":
            missing = next((shown for shown, keyword in pairs if keyword not in text), None)
            return missing is None or _failed("missing_keyword", f"without {_quoted(missing)}")
        present = next((shown for shown, keyword in pairs if keyword in text), None)
        if present is None:
            absent = f"none of {len(keywords):,}"
            return self.expected_outcome == "none" or _failed("missing_keyword", absent)
        seen = f"with {_quoted(present)}"
        if self.expected_outcome == "none":
            return _failed("forbidden_keyword", seen)
        return Score(value=True, reasoning=seen)


def _quoted(text: str) -> str:
    """Return the beginning of a keyword or a pattern in quotation marks."""
    return f'"{brief(text, _SHOWN)}"'


class KeywordCount(RuleCheck, type="keyword_count"):
    """Bounds the total number of occurrences of all keywords.

    Without bounds every text passes. `KeywordCoverage` defines whole words. A keyword that is
    listed twice counts once. Occurrences of one keyword do not overlap. A keyword inside another
    one is also counted.

    Attributes:
        keywords: At least one, each of at most 200 characters.
        min: The least number of occurrences that passes.
        max: The largest number of occurrences that passes.
        case_sensitive: Whether case counts.
        match_whole_word: False counts keywords inside longer words, too.
    """

    keywords: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field(min_length=1)
    min: int | None = Field(default=None, ge=0)
    max: int | None = Field(default=None, ge=0)
    case_sensitive: bool = False
    match_whole_word: bool = True

    @cached_property
    def _terms(self) -> Terms:
        forms = (folded(keyword, case_sensitive=self.case_sensitive) for keyword in self.keywords)
        return Terms(forms, whole_words=self.match_whole_word)

    @property
    def is_fast(self) -> bool:
        return len(self.keywords) <= SHORT_LIST

    def check(self, text: str) -> bool | Score:
        count = self._terms.count(folded(text, case_sensitive=self.case_sensitive))
        seen = _within(count, self.min, self.max, "occurrences")
        if self.min is not None and count < self.min:
            return _failed("too_few_keywords", seen)
        if self.max is not None and count > self.max:
            return _failed("too_many_keywords", seen)
        return Score(value=True, reasoning=seen)


class Json(RuleCheck, type="json"):
    """Requires strict JSON (no NaN, byte order mark or trailing comma).

    With a `definition` the JSON has to fit a schema. Text is parsed, any other value is taken as it
    is. A schema sees the text of a message. A missing response is not JSON, any other missing value
    is a failure. The draft of a schema is 2020-12 unless ``$schema`` names another.

    Attributes:
        definition: A JSON Schema (the extra ``jsonschema``): a mapping, true, false or JSON text.
    """

    definition: Definition | None = None

    @cached_property
    def _problems_of(self) -> Callable[[Any], list[str]]:
        return compiled(json.loads(self.definition or "true"))

    @property
    def is_fast(self) -> bool:
        return self.definition is None

    def check_input(self, evaluation_input: EvaluationInput) -> bool | Score:
        value = evaluation_input.value_at(self.source_text_field)
        text = evaluation_input.text_at(self.source_text_field)
        if isinstance(value, str) or (text is not None and self.definition is not None):
            return super().check_input(evaluation_input)
        if value is None and self.source_text_field != "response":
            raise EvaluationError(f"nothing at {self.source_text_field}", error_type="missing_text")
        if value is None:
            return _failed("invalid_json")
        return self._check_value(value)

    def check(self, text: str) -> bool | Score:
        parse_int: Callable[[str], Any] = int
        parse_float: Callable[[str], Any] = _finite
        # Without a schema numbers are not converted: Python refuses whole numbers beyond some
        # thousand digits.
        if self.definition is None:
            parse_int = len
            parse_float = len
        try:
            value = json.loads(
                text, parse_constant=_refuse, parse_int=parse_int, parse_float=parse_float
            )
        except RecursionError:
            raise EvaluationError(
                "JSON nested too deeply to be checked", error_type="too_deep"
            ) from None
        except json.JSONDecodeError:
            return _failed("invalid_json")
        except ValueError:  # a number beyond Python's digits, or beyond every float
            raise EvaluationError(
                "holds a number too large to be checked", error_type="too_large"
            ) from None
        return self._check_value(value)

    def _check_value(self, value: object) -> bool | Score:
        if self.definition is None:
            return True
        problems = self._problems_of(value)
        return _failed("schema_mismatch", ". ".join(problems)) if problems else True


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError
    return number


def _refuse(constant: str) -> NoReturn:
    raise json.JSONDecodeError(f"{constant} is not JSON", constant, 0)

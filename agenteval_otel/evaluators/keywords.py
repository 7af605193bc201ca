"""KeywordCoverage: how many of the wanted keywords an answer holds."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal, Self

from pydantic import AliasChoices, Field, ValidationInfo, field_validator, model_validator

from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.base import CriterionEvaluator, Lane, failure_of
from agenteval_otel.models import EvaluationInput, EvaluationResult, Score

__all__ = ["KeywordCoverage", "has_word"]

_SHOWN_CHARACTERS = 200
_FEW = 64
_SHORT_LIST = 100
_SEPARATORS = re.compile(r"[\s,\ufeff]+")
# Thai to Myanmar; Hangul Jamo; Khmer; Tai and Balinese to Batak; Kana, Bopomofo, Han and their extensions; Yi; Javanese
# to Tai Viet; Hangul. (Korean puts spaces between phrases only: its particles are written onto the word.)
_SPACELESS = (
    (0x0E00, 0x0FFF), (0x1000, 0x109F), (0x1100, 0x11FF), (0x1780, 0x17FF), (0x1950, 0x1AAF), (0x1B00, 0x1BFF),
    (0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x302F), (0x3031, 0x3035), (0x3038, 0x303C), (0x3040, 0x4DBF),
    (0x4E00, 0x9FFF), (0xA000, 0xA4CF), (0xA960, 0xAADF), (0xAC00, 0xD7FF), (0xF900, 0xFAFF), (0xFF66, 0xFFDC),
    (0x1B000, 0x1B2FF), (0x20000, 0x3FFFF),
)  # fmt: skip


class KeywordCoverage(CriterionEvaluator, type="KeywordCoverage"):
    """Fraction of the wanted keywords that occur in the text, 0 to 1; 1.0 when only empty keywords were configured.

    A whole word ends where letters, marks, digits and underscores of any language end; a keyword's own punctuation
    needs no such border, and scripts written without spaces (Chinese, Japanese, Korean, Thai, ...) are matched inside
    longer text. Keywords count once for each time they are listed. Missing text or keywords give a failed result.

    Attributes:
        expected_keywords: The keywords, with `keywords_source_field` ``config``.
        keywords_source_field: ``config``, ``groundTruth``, or ``context.<path>``: a list, of which the texts count, or
            a text that is split at commas and whitespace.
        source_text_field: Where the text comes from (see `EvaluationInput.text_at`).
        case_sensitive: Without it text and keywords are lower-cased.
        normalize_whitespace_for_source: Trim the text and turn each run of whitespace into one space;
            ``normalizeWhitespace`` is another name for it.
        match_whole_word: Without it a keyword may occur inside a longer word.
        ground_truth_keyword_mode: ``exact`` takes a ground truth's whole text as the only keyword.
    """

    reason_codes: ClassVar[tuple[str, ...]] = ("missing_keyword",)

    expected_keywords: tuple[str, ...] | None = None
    keywords_source_field: str = "config"
    source_text_field: str = "response"
    case_sensitive: bool = False
    normalize_whitespace_for_source: bool = Field(
        default=True,
        validation_alias=AliasChoices("normalizeWhitespaceForSource", "normalizeWhitespace", "normalize_whitespace"),
        serialization_alias="normalizeWhitespaceForSource",
    )
    match_whole_word: bool = True
    ground_truth_keyword_mode: Literal["split-comma", "exact"] = "split-comma"

    @field_validator("keywords_source_field")
    @classmethod
    def _source_is_known(cls, value: str, info: ValidationInfo) -> str:
        known = value in ("config", "groundTruth", "ground_truth") or value.startswith("context.")
        # The originals' form finds out in every evaluation, with a failed result.
        if not known and not (info.context and info.context.get("original")):
            raise ValueError("expected config, groundTruth or context.<path>")
        return value

    @model_validator(mode="after")
    def _configured_keywords(self) -> Self:
        if self.keywords_source_field == "config" and not self.expected_keywords:
            raise ValueError("expected_keywords must name at least one keyword")
        return self

    @property
    def lane(self) -> Lane:
        """``free`` for a short configured list; how many keywords an input brings nobody knows before."""
        configured = self.keywords_source_field == "config"
        return "free" if configured and len(self.expected_keywords or ()) <= _SHORT_LIST else "cpu"

    def score(self, evaluation_input: EvaluationInput) -> Score:
        """Look for the keywords; see `evaluate` for what cannot be looked for."""
        keywords = self._keywords(evaluation_input)
        if not keywords:
            return Score(value=1.0, reasoning="no keywords to look for")
        text = evaluation_input.text_at(self.source_text_field)
        if text is None:
            raise EvaluationError(f"no text at {self.source_text_field}", error_type="missing_text")
        text = self._prepared_text(text)
        look = has_word if self.match_whole_word else _has_substring
        found: list[str] = []
        missed: list[str] = []
        for keyword in keywords:
            (found if look(text, keyword) else missed).append(keyword)
        return _score_of(found, missed, text)

    async def evaluate(self, evaluation_input: EvaluationInput, criteria: Sequence[Any]) -> list[EvaluationResult]:
        """One result; a failed one when there is no text, or nothing to look for in ground truth or context."""
        try:
            return await super().evaluate(evaluation_input, criteria)
        except EvaluationError as error:
            return [failure_of(self, self.criterion_name, str(error), error_type=error.error_type, filler="error")]

    def _keywords(self, evaluation_input: EvaluationInput) -> Sequence[str]:
        source = self.keywords_source_field
        if source == "config":
            return self._configured
        is_ground_truth = source in ("groundTruth", "ground_truth")
        if not is_ground_truth and not source.startswith("context."):
            raise EvaluationError(f"unknown source of keywords {source!r}", error_type="invalid_configuration")
        value = evaluation_input.value_at(source)
        if isinstance(value, str):
            exact = is_ground_truth and self.ground_truth_keyword_mode == "exact"
            given: Sequence[Any] = (value.strip(),) if exact else _SEPARATORS.split(value)
        else:
            given = value if isinstance(value, list | tuple) else ()
        keywords = self._prepared_keywords(given)
        if not keywords:
            raise EvaluationError(f"no keywords at {source}", error_type="missing_keywords")
        return keywords

    @cached_property
    def _configured(self) -> tuple[str, ...]:
        return self._prepared_keywords(self.expected_keywords or ())

    def _prepared_keywords(self, given: Sequence[Any]) -> tuple[str, ...]:
        return tuple(self._folded(keyword) for keyword in given if isinstance(keyword, str) and keyword)

    def _prepared_text(self, text: str) -> str:
        if self.normalize_whitespace_for_source:
            # A byte order mark in the text is whitespace for the specification, not for Python.
            text = " ".join(text.replace("\ufeff", " ").split())
        return self._folded(text)

    def _folded(self, text: str) -> str:
        text = text if self.case_sensitive else text.lower()
        return text if text.isascii() else unicodedata.normalize("NFC", text)


def has_word(text: str, word: str) -> bool:
    """Whether `word` occurs in `text` and no letter, mark, digit or underscore of a spaced script goes on beside it.

    Linear in the text. Both are taken as they are: fold case and compose them before.
    """
    before, after = _joins(word[:1]), _joins(word[-1:])
    at, tries = text.find(word), 0
    while at >= 0:
        end = at + len(word)
        if not (before and _joins(text[max(at - 1, 0) : at])) and not (after and _joins(text[end : end + 1])):
            return True
        tries += 1
        if tries == _FEW:
            # A text made to hold the word inside others over and over: let the compiled search go through the rest.
            return _bordered(word, before, after).search(text, at + 1) is not None
        at = text.find(word, at + 1)
    return False


def _has_substring(text: str, word: str) -> bool:
    return word in text


def _joins(char: str) -> bool:
    """Whether a character beside a word would make it a part of a longer one; the empty text does not."""
    if char.isascii():
        return char.isalnum() or char == "_"
    if not (char.isalnum() or unicodedata.category(char)[0] == "M"):
        return False
    point = ord(char)
    return point < 0x0E00 or not any(low <= point <= high for low, high in _SPACELESS)


@lru_cache(maxsize=64)
def _bordered(word: str, before: bool, after: bool) -> re.Pattern[str]:
    text = re.escape(word)
    # The word stands first, so that the engine can look for it as a literal.
    right = f"(?!{_joining()})" if after else ""
    return re.compile(text + right + (f"(?<!{_joining()}{text})" if before else ""))


@lru_cache(maxsize=1)
def _joining() -> str:
    gaps = zip((0, *(high + 1 for _, high in _SPACELESS)), (*(low for low, _ in _SPACELESS), 0xE01F0), strict=True)
    # Between the extensions of Han and the variation selectors at the end nothing is assigned.
    spaced = (point for low, high in gaps for point in range(max(low, 0xE0100) if low > 0x3FFFF else low, high))
    points = [point for point in spaced if _joins(chr(point))]
    starts = [point for point, last in zip(points, [-2, *points], strict=False) if point != last + 1]
    ends = [point for point, following in zip(points, [*points[1:], -1], strict=True) if following != point + 1]
    return "[" + "".join(f"\\U{low:08X}-\\U{high:08X}" for low, high in zip(starts, ends, strict=True)) + "]"


def _score_of(found: list[str], missed: list[str], text: str) -> Score:
    wanted = len(found) + len(missed)
    lists = f"found: {', '.join(found) or 'none'}; missed: {', '.join(missed) or 'none'}"
    return Score(
        value=len(found) / wanted,
        reason_code="missing_keyword" if missed else None,
        reasoning=(
            f"{len(found)} of {wanted} keywords ({100 * len(found) / wanted:.0f}%); {lists}; "
            f"text: {text[:_SHOWN_CHARACTERS]}"
        ),
        metadata={"foundKeywords": found, "missedKeywords": missed},
    )

"""KeywordCoverage: how many of the wanted keywords an answer holds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

from pydantic import AliasChoices, Field, field_validator, model_validator

from agenteval_otel.components import ListOf
from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.base import CriterionEvaluator, Execution, failure_of
from agenteval_otel.evaluators.fields import TextField
from agenteval_otel.evaluators.whitespace import WHITESPACE, collapsed
from agenteval_otel.evaluators.words import Terms, folded, has_word
from agenteval_otel.models import EvaluationInput, EvaluationResult, Score

__all__ = ["KeywordCoverage", "has_word"]

_SHOWN_CHARACTERS = 200
_SHOWN_KEYWORDS = 20
_SHORT_LIST = 100
_SEPARATORS = re.compile(f"[{WHITESPACE},]+")


class KeywordCoverage(CriterionEvaluator, type="KeywordCoverage"):
    """Fraction of the wanted keywords that occur in the text, 0 to 1; 1.0 when only empty keywords were configured.

    A whole word ends where letters, marks, digits and underscores of any language end; a keyword's own punctuation
    needs no such border, and scripts written without spaces (Chinese, Japanese, Korean, Thai, ...) are matched inside
    longer text. Keywords count once for each time they are listed. Missing text or keywords give a failed result.

    Attributes:
        expected_keywords: The keywords, with `keywords_source_field` ``config``; ``keywords`` is another name for it.
        keywords_source_field: ``config``, ``groundTruth``, or ``context.<path>``: a list, of which the texts count, or
            a text that is split at commas and whitespace.
        source_text_field: Where the text comes from (see `EvaluationInput.text_at`); ``sourceField`` is another name.
        case_sensitive: Without it text and keywords are lower-cased.
        normalize_whitespace_for_source: Trim the text and turn each run of whitespace into one space;
            ``normalizeWhitespace`` is another name for it.
        match_whole_word: Without it a keyword may occur inside a longer word.
        ground_truth_keyword_mode: ``exact`` takes a ground truth's whole text as the only keyword.
    """

    reason_codes: ClassVar[tuple[str, ...]] = ("missing_keyword",)

    expected_keywords: ListOf[str] | None = Field(
        default=None,
        validation_alias=AliasChoices("expectedKeywords", "keywords"),
        serialization_alias="expectedKeywords",
    )
    keywords_source_field: str = "config"
    source_text_field: TextField = Field(
        default="response",
        validation_alias=AliasChoices("sourceTextField", "sourceField", "source_field"),
        serialization_alias="sourceTextField",
    )
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
    def _source_is_known(cls, value: str) -> str:
        known = value in ("config", "groundTruth", "ground_truth") or value.startswith("context.")
        if not known:
            raise ValueError("expected config, groundTruth or context.<path>")
        return value

    @model_validator(mode="after")
    def _configured_keywords(self) -> Self:
        if self.keywords_source_field == "config" and not self.expected_keywords:
            raise ValueError("expected_keywords must name at least one keyword")
        return self

    def preferred_execution(self) -> Execution | None:
        """``inline`` for a short configured list; how many keywords an input brings nobody knows before."""
        configured = self.keywords_source_field == "config"
        return "inline" if configured and len(self.expected_keywords or ()) <= _SHORT_LIST else None

    def score(self, evaluation_input: EvaluationInput) -> Score:
        """Look for the keywords; see `evaluate` for what cannot be looked for."""
        keywords = self._keywords(evaluation_input)
        if not keywords:
            return Score(value=1.0, reasoning="no keywords to look for")
        text = evaluation_input.text_at(self.source_text_field)
        if text is None:
            raise EvaluationError(f"no text at {self.source_text_field}", error_type="missing_text")
        text = self._prepared_text(text)
        matched = self._terms(keywords).terms_in(text)
        return _score_of(
            [keyword for keyword in keywords if keyword in matched],
            [keyword for keyword in keywords if keyword not in matched],
            text,
        )

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
        value = evaluation_input.value_at(source)
        if isinstance(value, str):
            exact = is_ground_truth and self.ground_truth_keyword_mode == "exact"
            candidates: Sequence[Any] = (value.strip(WHITESPACE),) if exact else _SEPARATORS.split(value)
        else:
            candidates = value if isinstance(value, list | tuple) else ()
        keywords = self._prepared_keywords(candidates)
        if not keywords:
            raise EvaluationError(f"no keywords at {source}", error_type="missing_keywords")
        return keywords

    @cached_property
    def _configured(self) -> tuple[str, ...]:
        return self._prepared_keywords(self.expected_keywords or ())

    @cached_property
    def _configured_terms(self) -> Terms:
        return Terms(self._configured, whole_words=self.match_whole_word)

    def _terms(self, keywords: Sequence[str]) -> Terms:
        if keywords is self._configured:
            return self._configured_terms
        return Terms(keywords, whole_words=self.match_whole_word)

    def _prepared_keywords(self, keywords: Sequence[Any]) -> tuple[str, ...]:
        return tuple(
            folded(keyword, case_sensitive=self.case_sensitive)
            for keyword in keywords
            if isinstance(keyword, str) and keyword
        )

    def _prepared_text(self, text: str) -> str:
        if self.normalize_whitespace_for_source:
            text = collapsed(text)
        return folded(text, case_sensitive=self.case_sensitive)


def _score_of(matched: list[str], missed: list[str], text: str) -> Score:
    wanted = len(matched) + len(missed)
    lists = f"found: {_listed(matched)}; missed: {_listed(missed)}"
    return Score(
        value=len(matched) / wanted,
        reason_code="missing_keyword" if missed else None,
        reasoning=(
            f"{len(matched)} of {wanted} keywords ({100 * len(matched) / wanted:.0f}%); {lists}; "
            f"text: {text[:_SHOWN_CHARACTERS]}"
        ),
        metadata={"foundKeywords": matched, "missedKeywords": missed},
    )


def _listed(keywords: list[str]) -> str:
    more = len(keywords) - _SHOWN_KEYWORDS
    return ", ".join(keywords[:_SHOWN_KEYWORDS] + ([f"{more} more"] if more > 0 else [])) or "none"

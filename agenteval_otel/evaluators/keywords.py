"""KeywordCoverage: how many of the wanted keywords an answer holds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

from pydantic import AliasChoices, Field, field_validator, model_validator

from agenteval_otel.components import ListOf
from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.base import Execution
from agenteval_otel.evaluators.built_in import SHORT_LIST, BuiltInEvaluator, TextField, listed, text_at
from agenteval_otel.evaluators.words import WHITESPACE, Terms, collapsed, folded
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, Score, ScoreValue

_SHOWN_CHARACTERS = 200
_SEPARATORS = re.compile(f"[{WHITESPACE},]+")


class KeywordCoverage(BuiltInEvaluator, type="KeywordCoverage"):
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
        """``inline`` for a short configured list; inputs may bring any number of keywords."""
        configured = self.keywords_source_field == "config"
        return "inline" if configured and len(self.expected_keywords or ()) <= SHORT_LIST else None

    def filler(self, criterion: EvaluationCriteria) -> ScoreValue:
        return "error"

    def score(self, evaluation_input: EvaluationInput) -> Score:
        """Search the keywords.

        Raises:
            EvaluationError: There is no text (``missing_text``), or ground truth or context have no keywords
                (``missing_keywords``); `evaluate` makes it a failed result.
        """
        if self.keywords_source_field == "config":
            keywords, terms = self._configured, self._configured_terms
        else:
            keywords = self._keywords_of(evaluation_input)
            terms = Terms(keywords, whole_words=self.match_whole_word)
        if not keywords:
            return Score(value=1.0, reasoning="no keywords to look for")
        text = text_at(evaluation_input, self.source_text_field)
        if self.normalize_whitespace_for_source:
            text = collapsed(text)
        text = folded(text, case_sensitive=self.case_sensitive)
        matches = terms.terms_in(text)
        matched = [keyword for keyword in keywords if keyword in matches]
        missed = [keyword for keyword in keywords if keyword not in matches]
        share = len(matched) / len(keywords)
        return Score(
            value=share,
            reason_code="missing_keyword" if missed else None,
            reasoning=(
                f"{len(matched)} of {len(keywords)} keywords ({100 * share:.0f}%); found: {listed(matched)}; "
                f"missed: {listed(missed)}; text: {text[:_SHOWN_CHARACTERS]}"
            ),
            metadata={"foundKeywords": matched, "missedKeywords": missed},
        )

    def _keywords_of(self, evaluation_input: EvaluationInput) -> Sequence[str]:
        source = self.keywords_source_field
        value = evaluation_input.value_at(source)
        if isinstance(value, str):
            exact = not source.startswith("context.") and self.ground_truth_keyword_mode == "exact"
            value = [value.strip(WHITESPACE)] if exact else _SEPARATORS.split(value)
        keywords = self._folded(value if isinstance(value, list | tuple) else ())
        if not keywords:
            raise EvaluationError(f"no keywords at {source}", error_type="missing_keywords")
        return keywords

    @cached_property
    def _configured(self) -> Sequence[str]:
        return self._folded(self.expected_keywords or ())

    @cached_property
    def _configured_terms(self) -> Terms:
        return Terms(self._configured, whole_words=self.match_whole_word)

    def _folded(self, keywords: Sequence[Any]) -> Sequence[str]:
        texts = (keyword for keyword in keywords if isinstance(keyword, str) and keyword)
        return [folded(text, case_sensitive=self.case_sensitive) for text in texts]

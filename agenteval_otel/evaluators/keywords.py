"""KeywordCoverage and Toxicity: which terms of a list a text contains."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import field_validator, model_validator

from agenteval_otel.components import ListOf
from agenteval_otel.components.explained import ComponentError
from agenteval_otel.errors import ConfigurationError, EvaluationError
from agenteval_otel.evaluators.base import Execution
from agenteval_otel.evaluators.built_in import (
    SHORT_LIST,
    BuiltInEvaluator,
    TextField,
    listed,
    read_text,
    text_at,
)
from agenteval_otel.evaluators.words import WHITESPACE, Terms, collapsed, folded
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, Score, ScoreValue

_SHOWN_CHARACTERS = 200
_SEPARATORS = re.compile(f"[{WHITESPACE},]+")


class KeywordCoverage(BuiltInEvaluator, type="KeywordCoverage"):
    """Scores the fraction of the wanted keywords that occur in the text, 0 to 1.

    The score is 1.0 when only empty keywords were configured.

    A whole word ends where letters, marks, digits and underscores of any language end. A keyword's
    own punctuation needs no such border, and scripts written without spaces (Chinese, Japanese,
    Korean, Thai, ...) are matched inside longer text. Keywords count once for each time they are
    listed. Missing text (``missing_text``) or keywords (``missing_keywords``) give a failed result.

    Attributes:
        expected_keywords: The keywords, with `keywords_source_field` ``config``.
        keywords_source_field: ``config``, or ``groundTruth`` or ``context.<path>``: a list of
            texts, or a text that is split at commas and whitespace.
        source_text_field: Where the text comes from (see `EvaluationInput.text_at`).
        case_sensitive: Without it text and keywords are lower-cased.
        normalize_whitespace_for_source: Trim text and keywords, each run of whitespace one space.
        match_whole_word: Without it a keyword may occur inside a longer word.
        ground_truth_keyword_mode: ``exact`` takes a ground truth's whole text as the only keyword.
    """

    expected_keywords: ListOf[str] | None = None
    keywords_source_field: str = "config"
    source_text_field: TextField = "response"
    case_sensitive: bool = False
    normalize_whitespace_for_source: bool = True
    match_whole_word: bool = True
    ground_truth_keyword_mode: Literal["split-comma", "exact"] = "split-comma"

    @field_validator("keywords_source_field")
    @classmethod
    def _source_is_known(cls, value: str) -> str:
        if value not in ("config", "groundTruth", "ground_truth") and not value.startswith(
            "context."
        ):
            raise ValueError("expected config, groundTruth or context.<path>")
        return value

    @model_validator(mode="after")
    def _configured_keywords(self) -> Self:
        if self.keywords_source_field == "config" and not self.expected_keywords:
            raise ValueError("expected_keywords must name at least one keyword")
        return self

    def preferred_execution(self) -> Execution | None:
        # Inputs may bring any number of keywords.
        configured = self.keywords_source_field == "config"
        return "inline" if configured and len(self.expected_keywords or ()) <= SHORT_LIST else None

    def filler(self, criterion: EvaluationCriteria) -> ScoreValue:
        return "error"

    def score(self, evaluation_input: EvaluationInput) -> Score:
        if self.keywords_source_field == "config":
            keywords, terms = self._configured
        else:
            keywords, terms = self._prepared(self._keywords_of(evaluation_input))
            if not keywords:
                message = f"no keywords at {self.keywords_source_field}"
                raise EvaluationError(message, error_type="missing_keywords")
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
        parts = (
            f"{len(matched)} of {len(keywords)} keywords ({100 * share:.0f}%)",
            f"Found: {listed(matched)}",
            f"Missed: {listed(missed)}",
            f"Text: {text[:_SHOWN_CHARACTERS]}",
        )
        return Score(
            value=share,
            reason_code="missing_keyword" if missed else None,
            reasoning=". ".join(parts),
            metadata={"foundKeywords": matched, "missedKeywords": missed},
        )

    def _keywords_of(self, evaluation_input: EvaluationInput) -> Sequence[Any]:
        source = self.keywords_source_field
        value = evaluation_input.value_at(source)
        if isinstance(value, str):
            is_truth = not source.startswith("context.")
            is_one_keyword = is_truth and self.ground_truth_keyword_mode == "exact"
            return [value.strip(WHITESPACE)] if is_one_keyword else _SEPARATORS.split(value)
        return value if isinstance(value, list | tuple) else ()

    @cached_property
    def _configured(self) -> tuple[Sequence[str], Terms]:
        return self._prepared(self.expected_keywords or ())

    def _prepared(self, keywords: Sequence[Any]) -> tuple[Sequence[str], Terms]:
        texts = [keyword for keyword in keywords if isinstance(keyword, str)]
        # The text is collapsed too: a keyword with two spaces would never be found in it.
        if self.normalize_whitespace_for_source:
            texts = [collapsed(text) for text in texts]
        forms = [folded(text, case_sensitive=self.case_sensitive) for text in texts if text]
        return forms, Terms(forms, whole_words=self.match_whole_word)


class Toxicity(BuiltInEvaluator, type="Toxicity"):
    """Scores true, on every scale, for a text that is clean: none of the terms occurs.

    An empty text is clean.

    Whole words are those of `KeywordCoverage`. The space inside a phrase must be the same. The
    metadata lists the terms that occur as ``foundToxicTerms``, each once, as configured and in the
    order of the configuration. The text around them stays out of the result. Missing text
    (``missing_text``) gives a failed result.

    Attributes:
        toxic_terms: The terms. Those that differ only in case are different terms, and an empty
            one never occurs.
        terms_file: A UTF-8 file with more terms, one a line. It is read once, into `toxic_terms`.
        source_text_field: Where the text comes from (see `EvaluationInput.text_at`).
        case_sensitive: Without it text and terms are lower-cased.
        match_whole_word: Without it a term may occur inside a longer word.
    """

    scale: str = "binary"
    toxic_terms: ListOf[str] = ()
    terms_file: str | None = None
    source_text_field: TextField = "response"
    case_sensitive: bool = False
    match_whole_word: bool = True

    @model_validator(mode="before")
    @classmethod
    def _read_file(cls, data: object) -> Any:
        if not isinstance(data, Mapping):
            return data
        rest = dict(data)
        # Both spellings are removed. The one of Python counts if both are there.
        path = rest.pop("terms_file", rest.pop("termsFile", None))
        terms = rest.pop("toxic_terms", rest.pop("toxicTerms", None)) or ()
        if not isinstance(path, str) or not isinstance(terms, list | tuple):
            return data
        try:
            lines = map(str.strip, read_text(path).splitlines())
        except ValueError as error:
            raise ComponentError(
                ConfigurationError(str(error), path="terms_file"), of_model=True
            ) from None
        return {**rest, "toxic_terms": (*terms, *dict.fromkeys(filter(None, lines)))}

    @model_validator(mode="after")
    def _has_terms(self) -> Self:
        if not any(term.strip() for term in self.toxic_terms):
            raise ValueError("toxic_terms or terms_file must name at least one term")
        return self

    def preferred_execution(self) -> Execution | None:
        return "inline" if len(self.toxic_terms) <= SHORT_LIST else None

    def filler(self, criterion: EvaluationCriteria) -> ScoreValue:
        return False

    def score(self, evaluation_input: EvaluationInput) -> Score:
        forms, prepared = self._prepared
        text = text_at(evaluation_input, self.source_text_field)
        matches = prepared.terms_in(folded(text, case_sensitive=self.case_sensitive))
        terms = [term for term, form in forms.items() if form in matches] if matches else []
        reasoning = f"{len(terms)} of {len(forms)} terms found on {self.source_text_field}"
        if terms:
            reasoning += f": {listed(terms)}"
        return Score(
            value=not terms,
            passed=not terms,
            reason_code="toxic_term" if terms else None,
            reasoning=reasoning,
            metadata={"foundToxicTerms": terms},
        )

    @cached_property
    def _prepared(self) -> tuple[dict[str, str], Terms]:
        """Return the form in which each distinct term is compared, and the `Terms` of these forms.

        The forms are in the order of the configuration.
        """
        forms = {
            term: folded(term, case_sensitive=self.case_sensitive)
            for term in self.toxic_terms
            if term
        }
        return forms, Terms(forms.values(), whole_words=self.match_whole_word)

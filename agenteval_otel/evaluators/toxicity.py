"""Toxicity: whether a text contains none of the terms of a list."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Self

from pydantic import model_validator

from agenteval_otel.components import ListOf
from agenteval_otel.evaluators.base import Execution
from agenteval_otel.evaluators.built_in import SHORT_LIST, BuiltInEvaluator, TextField, listed, read_text, text_at
from agenteval_otel.evaluators.words import Terms, folded
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, Score, ScoreValue


class Toxicity(BuiltInEvaluator, type="Toxicity"):
    """True for a text that is clean, on every scale: none of the terms occurs. An empty text is clean.

    A whole word ends where letters, marks, digits and underscores of any language end; a term's own punctuation needs
    no such border, and scripts written without spaces are matched inside longer text. The space inside a phrase must
    be the same. The metadata lists the terms that occur as ``foundToxicTerms``, each once, as configured and in the
    order of the configuration; the text around them stays out of the result. Missing text gives a failed result.

    Attributes:
        toxic_terms: The terms; those that differ only in case are different terms, an empty one never occurs.
        terms_file: A UTF-8 file with more terms, one a line, without the space around them, of at most 4 MiB. It is
            read once, when the configuration is loaded; its terms are then part of `toxic_terms`.
        source_text_field: Where the text comes from (see `EvaluationInput.text_at`).
        case_sensitive: Without it text and terms are lower-cased.
        match_whole_word: Without it a term may occur inside a longer word.
    """

    reason_codes: ClassVar[tuple[str, ...]] = ("toxic_term",)

    scale: str = "binary"
    toxic_terms: ListOf[str] = ()
    terms_file: str | None = None
    source_text_field: TextField = "response"
    case_sensitive: bool = False
    match_whole_word: bool = True

    @model_validator(mode="before")
    @classmethod
    def _read_file(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        rest = dict(data)
        path = rest.pop("terms_file", rest.pop("termsFile", None))
        terms = rest.pop("toxic_terms", rest.pop("toxicTerms", None)) or ()
        if not isinstance(path, str) or not isinstance(terms, list | tuple):
            return data
        try:
            lines = map(str.strip, read_text(path).splitlines())
        except ValueError as error:
            raise ValueError(f"terms_file: {error}") from None
        return {**rest, "toxic_terms": (*terms, *dict.fromkeys(filter(None, lines)))}

    @model_validator(mode="after")
    def _has_terms(self) -> Self:
        if not any(term.strip() for term in self.toxic_terms):
            raise ValueError("toxic_terms or terms_file must name at least one term")
        return self

    def preferred_execution(self) -> Execution | None:
        """``inline`` for a short list; how long another one takes depends on the texts."""
        return "inline" if len(self.toxic_terms) <= SHORT_LIST else None

    def filler(self, criterion: EvaluationCriteria) -> ScoreValue:
        return False

    def score(self, evaluation_input: EvaluationInput) -> Score:
        """Search the terms.

        Raises:
            EvaluationError: (``missing_text``) There is no text; `evaluate` makes it a failed result.
        """
        text = text_at(evaluation_input, self.source_text_field)
        matches = self._prepared.terms_in(folded(text, case_sensitive=self.case_sensitive))
        terms = [term for _, term in sorted(entry for form in matches for entry in self._forms[form])]
        outcome = f"{len(terms)} of {self._distinct} terms found on {self.source_text_field}"
        return Score(
            value=not terms,
            passed=not terms,
            reason_code="toxic_term" if terms else None,
            reasoning=f"{outcome}: {listed(terms)}" if terms else outcome,
            metadata={"foundToxicTerms": terms},
        )

    @cached_property
    def _forms(self) -> dict[str, list[tuple[int, str]]]:
        """The terms, each with its place in the list, by the form in which they are compared."""
        forms: dict[str, list[tuple[int, str]]] = {}
        for place, term in enumerate(dict.fromkeys(filter(None, self.toxic_terms))):
            forms.setdefault(folded(term, case_sensitive=self.case_sensitive), []).append((place, term))
        return forms

    @cached_property
    def _distinct(self) -> int:
        return sum(map(len, self._forms.values()))

    @cached_property
    def _prepared(self) -> Terms:
        return Terms(self._forms, whole_words=self.match_whole_word)

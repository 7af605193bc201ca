"""Toxicity: whether a text holds none of the terms of a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

from pydantic import field_validator, model_validator

from agenteval_otel.components import ListOf
from agenteval_otel.errors import ConfigurationError, EvaluationError
from agenteval_otel.evaluators.base import CriterionEvaluator, Execution, failure_of
from agenteval_otel.evaluators.fields import TextField
from agenteval_otel.evaluators.files import text_of
from agenteval_otel.evaluators.words import Terms, folded
from agenteval_otel.models import EvaluationInput, EvaluationResult, Score

__all__ = ["Toxicity"]

_SHORT_LIST = 100
_MOST_TERMS = 100_000
_LONGEST_TERM = 1_000
_MAX_FILE_BYTES = 4 * 1024 * 1024
_SHOWN_TERMS = 20


class Toxicity(CriterionEvaluator, type="Toxicity"):
    """True for a text that is clean, on every scale: none of the terms occurs. An empty text is clean.

    A whole word ends where letters, marks, digits and underscores of any language end; a term's own punctuation needs
    no such border, and scripts written without spaces are matched inside longer text. The space inside of a phrase must
    be the same. The terms that were found, each once, as configured and in the order of the configuration, are in the
    metadata as ``foundToxicTerms``; of the text around them nothing is told. Missing text gives a failed result.

    Attributes:
        toxic_terms: The terms, at most 100,000 of at most 1,000 characters; those that differ only in case are
            different terms, an empty one is never found.
        terms_file: A UTF-8 file with more terms, one a line, without the space around them, of at most 4 MiB. It is
            read once, when the configuration is loaded; what it says is then part of `toxic_terms`.
        source_text_field: Where the text comes from (see `EvaluationInput.text_at`).
        case_sensitive: Without it text and terms are lower-cased.
        match_whole_word: Without it a term may occur inside of a longer word.
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
    def _file_is_read(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        rest = dict(data)
        path = rest.pop("terms_file", rest.pop("termsFile", None))
        if not isinstance(path, str):
            return data
        listed = rest.pop("toxic_terms", rest.pop("toxicTerms", None)) or ()
        if not isinstance(listed, list | tuple):
            return data  # said of the field itself
        try:
            lines = text_of(path, max_bytes=_MAX_FILE_BYTES).splitlines()
        except ConfigurationError as error:
            raise ValueError(f"terms_file: {error}") from None
        terms = dict.fromkeys(stripped for line in lines if (stripped := line.strip()))
        return {**rest, "toxic_terms": (*listed, *terms)}

    @field_validator("toxic_terms")
    @classmethod
    def _terms_are_bounded(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(value) > _MOST_TERMS:
            raise ValueError(f"expected at most {_MOST_TERMS} terms")
        if any(len(term) > _LONGEST_TERM for term in value):
            raise ValueError(f"expected terms of at most {_LONGEST_TERM} characters")
        return value

    @model_validator(mode="after")
    def _terms_are_given(self) -> Self:
        if not any(term.strip() for term in self.toxic_terms):
            raise ValueError("toxic_terms or terms_file must name at least one term")
        return self

    def preferred_execution(self) -> Execution | None:
        """``inline`` for a short list; how long another one takes depends on the texts."""
        return "inline" if len(self.toxic_terms) <= _SHORT_LIST else None

    def score(self, evaluation_input: EvaluationInput) -> Score:
        """Look for the terms.

        Raises:
            EvaluationError: (``missing_text``) when there is no text; `evaluate` makes it a failed result.
        """
        text = evaluation_input.text_at(self.source_text_field)
        if text is None:
            raise EvaluationError(f"no text at {self.source_text_field}", error_type="missing_text")
        forms = self._ready.terms_in(folded(text, case_sensitive=self.case_sensitive))
        terms = [term for _, term in sorted(place for form in forms for place in self._forms[form])]
        return Score(
            value=not terms,
            passed=not terms,
            reason_code="toxic_term" if terms else None,
            reasoning=f"{len(terms)} of {self._distinct} terms found on {self.source_text_field}{_listed(terms)}",
            metadata={"foundToxicTerms": terms},
        )

    async def evaluate(self, evaluation_input: EvaluationInput, criteria: Sequence[Any]) -> list[EvaluationResult]:
        """One result; a failed one when there is no text."""
        try:
            return await super().evaluate(evaluation_input, criteria)
        except EvaluationError as error:
            return [failure_of(self, self.criterion_name, str(error), error_type=error.error_type, filler=False)]

    @cached_property
    def _forms(self) -> dict[str, list[tuple[int, str]]]:
        """What is looked for, and the terms that have this form, each with its place in the list."""
        forms: dict[str, list[tuple[int, str]]] = {}
        for place, term in enumerate(dict.fromkeys(filter(None, self.toxic_terms))):
            forms.setdefault(folded(term, case_sensitive=self.case_sensitive), []).append((place, term))
        return forms

    @cached_property
    def _distinct(self) -> int:
        return sum(map(len, self._forms.values()))

    @cached_property
    def _ready(self) -> Terms:
        return Terms(self._forms, whole_words=self.match_whole_word)


def _listed(terms: list[str]) -> str:
    if not terms:
        return ""
    more = len(terms) - _SHOWN_TERMS
    return ": " + ", ".join(terms[:_SHOWN_TERMS] + ([f"{more} more"] if more > 0 else []))

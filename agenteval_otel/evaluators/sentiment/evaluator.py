"""The evaluator `Sentiment`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.base import CriterionEvaluator, Execution, failure_of
from agenteval_otel.evaluators.fields import TextField
from agenteval_otel.evaluators.sentiment.lexicon import BUILTIN, Lexicon, load_lexicon
from agenteval_otel.evaluators.sentiment.tokens import NEGATORS, ORIGINAL_NEGATORS, original_tokens, tokens
from agenteval_otel.evaluators.whitespace import WHITESPACE
from agenteval_otel.models import EvaluationInput, EvaluationResult, Score, ScoreValue

__all__ = ["Sentiment"]

OutputType = Literal["comparativeNormalized", "rawScore", "category"]

_INLINE_UP_TO = 100_000
_KEPT_WORDS = 1_000
_SHOWN_WORDS = 20
_SCALES: dict[OutputType, str] = {"comparativeNormalized": "numeric", "rawScore": "raw", "category": "category"}


class Sentiment(CriterionEvaluator, type="Sentiment"):
    """How a text sounds by its words: the sum of the values of those that a lexicon lists, each from -5 to 5.

    A value changes its sign when a negator ("not", "don't", ...) stands directly before the word. The comparative score
    is the sum divided by the number of all words (AFINN's arithmetic, F. A. Nielsen 2011). A blank text is neutral; a
    missing one gives a failed result.

    Attributes:
        source_text_field: Where the text comes from (see `EvaluationInput.text_at`).
        output_type: ``comparativeNormalized`` is (comparative + 5) / 10, 0 to 1, 0.5 for neutral; ``rawScore`` the sum;
            ``category`` is ``positive``, ``negative`` or ``neutral``.
        positive_threshold: Comparative score above which the category is ``positive``.
        negative_threshold: Comparative score below which it is ``negative``.
        original_tokens: Split text and find negations as AgentDock does, with its oddities: a tab joins two words,
            typographic apostrophes negate nothing, an emoji counts only where it stands alone.
        lexicon: ``builtin`` is the package's own English one; ``afinn`` is AFINN-165, from the extra ``sentiment``,
            with the package's own emoji; anything else is the path of a file with ``word<TAB>value`` lines.
        max_characters: Only so many characters, from the start of the text, are looked at; results say so.
        scale: By default ``numeric`` for ``comparativeNormalized``; the other outputs have no place on that scale, so
            ``raw`` or ``category``.
    """

    source_text_field: TextField = "response"
    output_type: OutputType = "comparativeNormalized"
    positive_threshold: float = 0.2
    negative_threshold: float = -0.2
    original_tokens: bool = False
    lexicon: str = BUILTIN
    max_characters: int = Field(default=_INLINE_UP_TO, ge=1, le=10_000_000)

    @model_validator(mode="before")
    @classmethod
    def _scale_of_output(cls, data: Any) -> Any:
        output_type = data.get("output_type", data.get("outputType")) if isinstance(data, Mapping) else None
        scales: Mapping[Any, str] = _SCALES
        return {"scale": scales[output_type], **data} if output_type in (*scales,) else data

    @field_validator("lexicon")
    @classmethod
    def _lexicon_is_there(cls, value: str, info: ValidationInfo) -> str:
        load_lexicon(value, _split(info.data.get("original_tokens", False)))
        return value

    @model_validator(mode="after")
    def _lexicon_is_read(self) -> Self:
        # From here on it is kept, whatever becomes of its file.
        if not self._lexicon.values:
            raise ValueError(f"the lexicon {self.lexicon} has no entries")
        return self

    @model_validator(mode="after")
    def _categories_are_apart(self) -> Self:
        if self.output_type == "category" and self.negative_threshold >= self.positive_threshold:
            raise ValueError("negative_threshold must be below positive_threshold")
        return self

    def preferred_execution(self) -> Execution | None:
        """``inline`` while `max_characters` bounds its time, else ``process``."""
        return "inline" if self.max_characters <= _INLINE_UP_TO else "process"

    @cached_property
    def fingerprint(self) -> str:
        """Changes with the configuration and with what the lexicon holds."""
        return hashlib.sha256(f"{super().fingerprint} {self._lexicon.digest}".encode()).hexdigest()[:12]

    def score(self, evaluation_input: EvaluationInput) -> Score:
        """Sum up the words; see `evaluate` for what cannot be."""
        full_text = evaluation_input.text_at(self.source_text_field)
        if full_text is None:
            raise EvaluationError(f"no text at {self.source_text_field}", error_type="missing_text")
        text = full_text[: self.max_characters]
        if not text.strip(WHITESPACE):
            return Score(value=self._output(0, 0.0), reasoning="the text is blank")
        words = _split(self.original_tokens)(text)
        raw, positive, negative = self._summed(words)
        comparative = raw / max(1, len(words))
        metadata = {
            "rawScore": raw,
            "comparativeScore": comparative,
            "positiveWords": positive[:_KEPT_WORDS],
            "negativeWords": negative[:_KEPT_WORDS],
        }
        if len(text) < len(full_text):
            metadata["readCharacters"] = self.max_characters
        return Score(
            value=self._output(raw, comparative),
            reasoning=(
                f"raw score {raw:g} of {len(words)} words, comparative {comparative:.4f}; "
                f"positive: {_listed(positive)}; negative: {_listed(negative)}"
                f"{'; only the start of the text' if len(text) < len(full_text) else ''}"
            ),
            metadata=metadata,
        )

    async def evaluate(self, evaluation_input: EvaluationInput, criteria: Sequence[Any]) -> list[EvaluationResult]:
        """One result; a failed one when the text is missing."""
        try:
            return await super().evaluate(evaluation_input, criteria)
        except EvaluationError as error:
            filler: ScoreValue = "neutral" if self.output_type == "category" else 0
            return [failure_of(self, self.criterion_name, str(error), error_type=error.error_type, filler=filler)]

    @cached_property
    def _lexicon(self) -> Lexicon:
        return load_lexicon(self.lexicon, _split(self.original_tokens))

    def _summed(self, words: list[str]) -> tuple[int | float, list[str], list[str]]:
        """The sum, and the words on either side of zero after negation, from the end of the text."""
        values = self._lexicon.values
        negators = ORIGINAL_NEGATORS if self.original_tokens else NEGATORS
        raw: int | float = 0
        positive: list[str] = []
        negative: list[str] = []
        for at in reversed([at for at, token in enumerate(words) if token in values]):
            value = values[words[at]]
            if at and words[at - 1] in negators:
                value = -value
            raw += value
            if value:
                (positive if value > 0 else negative).append(words[at])
        return raw, positive, negative

    def _output(self, raw: int | float, comparative: float) -> ScoreValue:
        if self.output_type == "rawScore":
            return raw
        if self.output_type == "comparativeNormalized":
            return min(1.0, max(0.0, (comparative + 5) / 10))
        if comparative > self.positive_threshold:
            return "positive"
        return "negative" if comparative < self.negative_threshold else "neutral"


def _split(original: bool) -> Any:
    return original_tokens if original else tokens


def _listed(words: list[str]) -> str:
    shown = ", ".join(words[:_SHOWN_WORDS]) or "none"
    return f"{shown}, ..." if len(words) > _SHOWN_WORDS else shown

"""NLPAccuracy: how near the answer is to the ground truth, by an embedder."""

from __future__ import annotations

import json
import math
from typing import Any, ClassVar, Literal

from pydantic import AliasChoices, BaseModel, Field, SerializeAsAny, field_validator

from agenteval_otel.components.explained import ComponentError
from agenteval_otel.errors import ConfigurationError, EvaluationError, EvaluationSkipped, ModelError
from agenteval_otel.evaluators.base import EvaluatorKind, Execution
from agenteval_otel.evaluators.built_in import BuiltInEvaluator
from agenteval_otel.evaluators.embedders import Embedder, HashingEmbedder
from agenteval_otel.evaluators.embedders.base import EmbedderUsage, as_embedder
from agenteval_otel.models import (
    EvaluationCriteria,
    EvaluationInput,
    EvaluationResult,
    Score,
    ScoreValue,
)
from agenteval_otel.models.inputs import NO_GROUND_TRUTH, references_of
from agenteval_otel.models.scoring import AgentDockCriteria
from agenteval_otel.models.value import copy_with
from agenteval_otel.runtime.masking import message_of
from agenteval_otel.runtime.text import composed

_TWO_VALUED = ("binary", "pass/fail")
_NOTHING = -math.inf
"""In the place of a cosine where a vector is zero: below every cosine."""


class NLPAccuracy(BuiltInEvaluator, type="NLPAccuracy"):
    """Scores the cosine between the embeddings of response and ground truth, -1 to 1.

    Higher is nearer. The cosine of the angle is the dot product over the product of the lengths.
    With `similarity_threshold`, and only on the scales ``binary`` and ``pass/fail``, the score is
    whether the cosine reaches it. Without a threshold a cosine between 0 and 1 fails on these
    scales. On ``numeric`` a negative cosine is 0. In an AgentDock document it is kept, but not
    averaged. Values other than texts and messages are compared as JSON. Of several references, the
    nearest counts. A missing response, an error of the embedder or a zero vector (of a text without
    letters, say) gives a failed result.

    Attributes:
        embedder: An `Embedder`, its settings, a type's name, or an object with ``embed(texts)``.
            ``embeddingModel`` is another name for it. The built-in one compares wording, not
            meaning.
        similarity_threshold: Lowest cosine that passes.
        without_reference: ``skip`` inputs without a ground truth, or ``fail``.
    """

    kind: ClassVar[EvaluatorKind] = "embedding"
    # Where models lie, for embedders that load one; none of them is a secret.
    child_environment: ClassVar[tuple[str, ...]] = (
        "HF_HOME",
        "HF_HUB_CACHE",
        "HF_HUB_OFFLINE",
        "SENTENCE_TRANSFORMERS_HOME",
        "XDG_CACHE_HOME",
    )

    embedder: SerializeAsAny[Embedder] = Field(
        default_factory=HashingEmbedder,
        serialization_alias="embedder",
        validation_alias=AliasChoices("embedder", "embeddingModel", "embedding_model"),
    )
    similarity_threshold: float | None = Field(default=None, ge=-1, le=1)
    without_reference: Literal["skip", "fail"] = "skip"

    @field_validator("embedder", mode="before")
    @classmethod
    def _load_embedder(cls, value: object) -> Any:
        try:
            return as_embedder(value, path="embedder")
        except ConfigurationError as failure:
            raise ComponentError(failure) from None

    def preferred_execution(self) -> Execution | None:
        return "async" if self.embedder.is_async else "process"

    async def score(self, evaluation_input: EvaluationInput) -> Score:
        if self.without_reference == "skip" and evaluation_input.ground_truth is None:
            raise EvaluationSkipped(NO_GROUND_TRUTH)
        response = evaluation_input.text_at("response")
        ground_truth = evaluation_input.ground_truth
        if response is not None:
            texts = [_text_of(response, "response")]
            references = references_of(ground_truth)
        else:
            # An answer that is itself a list is compared with a list as a whole.
            texts = [_text_of(evaluation_input.response, "response")]
            references = [ground_truth]
        references = [reference for reference in references if reference != ""] or [""]
        texts += [_text_of(reference, "ground_truth") for reference in references]
        try:
            # Models embed a decomposed letter as other tokens than the same letter composed.
            vectors, usage = await self.embedder.embedded([composed(text) for text in texts])
        except (EvaluationError, EvaluationSkipped):
            raise
        except Exception as error:
            message = f"the embedder raised {message_of(error)}"
            raise EvaluationError(message, error_type=type(error).__name__) from error
        cosine = _nearest(vectors, len(references))
        return Score(value=cosine, metadata=_usage_metadata(self.embedder, usage))

    def filler(self, criterion: EvaluationCriteria) -> ScoreValue:
        return False if criterion.scale in _TWO_VALUED else 0

    def _failure_result(
        self, error: EvaluationError, criterion: EvaluationCriteria
    ) -> EvaluationResult:
        usage = error.usage if isinstance(error, ModelError) else None
        return copy_with(
            super()._failure_result(error, criterion),
            {"metadata": _usage_metadata(self.embedder, usage)},
        )

    def _adjusted(self, score: Score, criterion: EvaluationCriteria) -> Score:
        cosine: Any = score.value
        if cosine == _NOTHING:
            if not isinstance(criterion, AgentDockCriteria):
                raise EvaluationError(
                    "nothing in the texts that can be compared", error_type="missing_text"
                )
            cosine = 0.0
            score = copy_with(score, {"value": cosine})
        fields: dict[str, Any] = {"reasoning": f"cosine {cosine:.4f} ({self.embedder.type})"}
        begins_at_0 = criterion.scale == "numeric" and criterion.minimum is None
        if begins_at_0 and not isinstance(criterion, AgentDockCriteria):
            # Texts that point away from each other are as unlike as texts can be.
            fields["value"] = max(0.0, cosine)
        if self.similarity_threshold is not None:
            reached = cosine >= self.similarity_threshold
            outcome = "reached" if reached else "not reached"
            fields["reasoning"] += f", threshold {self.similarity_threshold:g} {outcome}"
            fields["reason_code"] = None if reached else "below_threshold"
            if criterion.scale in _TWO_VALUED:
                fields["value"] = reached
        return copy_with(score, fields)

    def prepare(self) -> None:
        self.embedder.prepare()


def _usage_metadata(embedder: Embedder, usage: EmbedderUsage | None) -> dict[str, Any] | None:
    if usage is None:
        return None
    return {
        "embedder": {"model": getattr(embedder, "model", ""), **usage.model_dump(by_alias=True)}
    }


def _text_of(value: object, name: str) -> str:
    """Return a text as it is, and anything else as compact JSON."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if value is None or value == "":
        raise EvaluationError(f"no {name}", error_type="missing_text")
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON does not tell 7.0 from 7
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    except (
        TypeError,
        ValueError,
        RecursionError,
    ) as error:  # a circle, a key that is no text, or far too deep
        raise EvaluationError(f"the {name} has no JSON form", error_type="invalid_text") from error


def _nearest(rows: Any, count: int) -> float:
    """Return the largest cosine of the first row with one of the `count` others."""
    try:
        first, *others = rows
    except (TypeError, ValueError) as error:
        raise EvaluationError(
            "expected a vector for each text", error_type="invalid_embedding"
        ) from error
    if len(others) != count:
        message = f"expected {count + 1} vectors, found {len(others) + 1}"
        raise EvaluationError(message, error_type="invalid_embedding")
    return max(_cosine((first, other)) for other in others)


def _cosine(rows: tuple[object, object]) -> float:
    """Return the cosine of the angle between two rows, or `_NOTHING` if one is zero."""
    import numpy as np

    try:
        first, second = (np.asarray(row, np.float64) for row in rows)
    except (TypeError, ValueError, OverflowError) as error:
        raise EvaluationError(
            "expected two vectors of numbers", error_type="invalid_embedding"
        ) from error
    if first.ndim != 1 or first.shape != second.shape or not first.size:
        message = f"the embeddings have the shapes {first.shape} and {second.shape}"
        raise EvaluationError(message, error_type="invalid_embedding")
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise EvaluationError("an embedding is not finite", error_type="invalid_embedding")
    # Scaled, so that no square overflows or vanishes.
    first = first / (abs(first).max() or 1.0)
    second = second / (abs(second).max() or 1.0)
    lengths = math.sqrt(float(first @ first) * float(second @ second))
    if not lengths:
        return _NOTHING
    cosine = float(first @ second) / lengths
    return min(1.0, max(-1.0, cosine))

"""Feedback as arguments of `record_feedback` and `record_score`, or as the body of a request."""

from __future__ import annotations

import time
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Literal

from opentelemetry.trace import SpanContext, TraceFlags
from pydantic import ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr
from pydantic.functional_validators import BeforeValidator, field_validator, model_validator
from pydantic_core import from_json, to_json

from agenteval_otel.capture.reference import Reference, read_reference
from agenteval_otel.capture.text import clean
from agenteval_otel.components.explained import ComponentError, FrozenSettings
from agenteval_otel.config.process import default_pipeline
from agenteval_otel.engine.signals import LateTruth
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators.base import EvaluatorKind, result_of
from agenteval_otel.instrumentation.feedback.recorder import Feedback
from agenteval_otel.models import EvaluationCriteria, EvaluationResult, Score, ScoreValue
from agenteval_otel.models.inputs import is_blank
from agenteval_otel.models.results import plain_score
from agenteval_otel.models.value import copy_with
from agenteval_otel.semconv import wrong_criterion_name

_MAX_TEXT = 4_096
_MAX_ID = 200
_MAX_TRUTH = 16_384
_BOOLEAN = "binary"
_NUMERIC = "numeric"
_Hexadecimal = r"^[0-9a-f]{%d}$"


class OfAnswer(FrozenSettings):
    """Names the answer that the feedback is about.

    It has a reference, a trace with or without a span, a response's id, or a conversation's.
    """

    model_config = ConfigDict(coerce_numbers_to_str=True)

    reference: Any = None
    trace_id: str | None = Field(default=None, pattern=_Hexadecimal % 32)
    span_id: str | None = Field(default=None, pattern=_Hexadecimal % 16)
    response_id: str | None = None
    conversation_id: str | None = None
    agent: str | None = None

    @field_validator("reference")
    @classmethod
    def _can_be_read(cls, reference: Any) -> Reference | None:
        if reference is None:
            return None
        try:
            return read_reference(reference)
        except (TypeError, ValueError, AttributeError):
            raise ValueError("expected what evaluation_reference gave") from None

    @model_validator(mode="after")
    def _leads_to_an_answer(self) -> Any:
        if self.span_id is not None and self.trace_id is None:
            raise _wrong("span_id", "needs its trace_id")
        parts = (self.reference, self.trace_id, self.response_id, self.conversation_id)
        if all(part is None for part in parts):
            raise _wrong(
                "reference", "expected a reference, a trace_id, a response_id or a conversation_id"
            )
        return self

    def feedback(self) -> Feedback:
        """Return what the recorder takes.

        Raises `EvaluationError` for a score that is not on its scale.
        """
        raise NotImplementedError

    def _about(self) -> dict[str, Any]:
        """Return the fields of `Feedback` that say which answer is meant."""
        reference: Reference | None = self.reference
        if reference is None:
            span_context = self._span_context()
            call_id = None
            agent = self.agent
        else:
            span_context = reference.span_context
            call_id = reference.call_id
            agent = self.agent or reference.agent
        return {
            "span_context": span_context,
            "agent": _short(agent) or None,
            "call_id": call_id,
            "response_id": _short(self.response_id),
            "conversation_id": _short(self.conversation_id),
        }

    def _span_context(self) -> SpanContext | None:
        if self.trace_id is None:
            return None
        # Where a person or a program knows the id of a trace, it was most likely kept.
        flags = TraceFlags(TraceFlags.SAMPLED)
        return SpanContext(int(self.trace_id, 16), int(self.span_id or "0", 16), True, flags)


class OfScore(OfAnswer):
    """Holds a score of an answer."""

    kind: ClassVar[EvaluatorKind] = "application"
    evaluator: ClassVar[str] = "application"

    name: str
    scale: str | None = None

    @field_validator("name")
    @classmethod
    def _is_a_criterion(cls, name: str) -> str:
        wrong = wrong_criterion_name(name)
        if wrong is not None:
            raise ValueError(wrong)
        return name

    def score_itself(self) -> Score:
        raise NotImplementedError

    def feedback(self) -> Feedback:
        user_id = getattr(self, "user_id", None)
        if user_id is not None:
            user_id = clean(default_pipeline().engine.user_id(user_id), _MAX_ID)
        result = self._result()
        about = self._about()
        key = (
            _id_in(about),
            self.kind,
            self.name,
            user_id,
            result.score,
            result.reasoning,
            str(result.metadata),
        )
        return Feedback(key=key, result=result, user_id=user_id, **about)

    def _result(self) -> EvaluationResult:
        score = self.score_itself()
        scale = self.scale or (_BOOLEAN if isinstance(score.value, bool) else _NUMERIC)
        criterion = EvaluationCriteria(
            name=self.name, scale=scale, threshold=getattr(self, "threshold", None)
        )
        result = result_of(_Signed(self), criterion, score)  # type: ignore[arg-type]  # only the signature is read
        now_ns = time.time_ns()
        return copy_with(result, {"started_ns": now_ns, "ended_ns": now_ns})


class OfPerson(OfScore):
    """Holds what a person says: see `record_feedback`."""

    kind: ClassVar[EvaluatorKind] = "human"
    evaluator: ClassVar[str] = "feedback"

    name: str = "user_feedback"
    thumbs: Literal["up", "down"] | None = None
    score: float | None = None
    comment: str | None = None
    correction: str | None = None
    user_id: str | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Any:
        if self.thumbs is not None and self.score is not None:
            raise _wrong("score", "give thumbs or score, not both")
        if self.thumbs is None and self.score is None and not self.comment and not self.correction:
            raise _wrong("thumbs", "expected thumbs, a score, a comment or a correction")
        return self

    def score_itself(self) -> Score:
        value: ScoreValue
        if self.score is not None:
            value = self.score
        elif self.thumbs is not None:
            value = self.thumbs == "up"
        elif self.comment:
            value = "comment"
        else:
            value = "correction"
        metadata = None
        if self.correction:
            metadata = {"correction": clean(self.correction, _MAX_TEXT)}
        return Score(value=value, reasoning=_text(self.comment), metadata=metadata)


class OfApplication(OfScore):
    """Holds what the application knows: see `record_score`."""

    value: Annotated[StrictBool | StrictInt | StrictFloat | StrictStr, BeforeValidator(plain_score)]
    threshold: float | None = None
    passed: bool | None = None
    label: str | None = None
    reasoning: str | None = None
    reason_code: str | None = None

    def score_itself(self) -> Score:
        return Score(
            value=self.value,
            passed=self.passed,
            label=self.label,
            reasoning=_text(self.reasoning),
            reason_code=self.reason_code,
        )


class OfTruth(OfAnswer):
    """Holds the reference answer, which came late: see `record_ground_truth`."""

    ground_truth: Any
    prompt: str | None = None

    @field_validator("ground_truth")
    @classmethod
    def _is_an_answer(cls, value: object) -> Any:
        if is_blank(value):
            raise ValueError("expected an answer, in text or any JSON value")
        try:
            text = to_json(value)
        except Exception:  # of the host's objects: any
            raise ValueError("expected text or a value that JSON has") from None
        if len(text) > _MAX_TRUTH:  # a part of it would be another answer
            raise ValueError(f"expected at most {_MAX_TRUTH:,} bytes of JSON, found {len(text):,}")
        return from_json(text)

    def feedback(self) -> Feedback:
        if default_pipeline().capabilities.take_answers:
            raise ConfigurationError(
                "answers are evaluated in the sidecar: send it there, to POST /v1/feedback"
            )
        about = self._about()
        digest = sha256(to_json(self.ground_truth)).digest()[:16]
        truth = LateTruth(self.ground_truth, self.prompt, digest)
        return Feedback(key=None, truth=truth, **about)


class _Signed:
    """Signs results in place of an evaluator."""

    def __init__(self, payload: OfScore) -> None:
        self.signature = {
            "evaluator_type": payload.evaluator,
            "evaluator_id": payload.evaluator,
            "evaluator_version": None,
            "evaluator_kind": payload.kind,
            "calls_model": False,
        }


def _id_in(about: dict[str, Any]) -> Any:
    """Return the id that says which answer is meant, the most exact of them."""
    span_context = about["span_context"]
    ids = (
        about["call_id"],
        span_context and span_context[:2],
        about["response_id"],
        about["conversation_id"],
    )
    return next(filter(None, ids), None)


def _wrong(field: str, message: str) -> ComponentError:
    return ComponentError(ConfigurationError(message, path=field), of_model=True)


def _text(text: str | None) -> str | None:
    return clean(text, _MAX_TEXT) if text else None


def _short(text: str | None) -> str | None:
    return None if text is None else clean(text, _MAX_ID)

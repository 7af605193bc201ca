"""Frozen values that travel the route: the input, the criteria, scores and results.

Python names are snake_case; the JSON form is the specification's camelCase, accepted and written by alias. Values are
built on the pool's thread (never on the caller's) or offline, and are never changed afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel

__all__ = [
    "AggregatedEvaluationResult",
    "EvaluationCriteria",
    "EvaluationInput",
    "EvaluationResult",
    "GroundTruth",
    "Message",
    "RunError",
    "Score",
    "SpanReference",
    "StreamEnd",
    "ToolCall",
    "Usage",
]

StreamEnd = Literal["completed", "error", "abandoned"]
ScoreValue = bool | int | float | str


class _Value(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, validate_by_name=True, validate_by_alias=True,
        ignored_types=(cached_property,), ser_json_inf_nan="null",
    )  # fmt: skip


class EvaluationCriteria(_Value):
    """A quality that is scored.

    Attributes:
        name: Unique id; a slug (letters, digits, ``_ . -``) wherever it becomes part of an attribute name.
        scale: ``binary``, ``pass/fail``, ``likert5`` (1-5), ``numeric`` (0-1, or 0-100), or a custom word. With
            `minimum` and `maximum` a declared range.
        weight: Share in the overall score; None counts as 1, 0 leaves the criterion out.
        threshold: Raw score from which on (inclusive) the label is ``pass``.
        objective: Share of passing results that the criterion should hold, 0-1; alerts come from it.
    """

    name: str
    description: str = ""
    scale: str = "binary"
    weight: float | None = None
    threshold: float | None = None
    objective: float | None = None
    minimum: float | None = None
    maximum: float | None = None

    @field_validator("weight", "threshold", "objective", "minimum", "maximum")
    @classmethod
    def _finite(cls, value: float | None) -> float | None:
        if value is not None and not math.isfinite(value):
            raise ValueError("must be a finite number")
        return value


class ToolCall(_Value):
    """One tool call of the agent: name, arguments as given, and the result where it is known."""

    name: str
    arguments: Any = None
    result: Any = None
    id: str | None = None


class Message(_Value):
    """One message of the conversation; parts and UI flags of the specification are kept in `content_parts`."""

    model_config = ConfigDict(extra="allow")

    role: str
    content: str | None = None
    id: str | None = None
    content_parts: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    tool_calls: list[ToolCall] | None = None


class Usage(_Value):
    """Tokens that the agent's own model used."""

    input_tokens: int | None = None
    output_tokens: int | None = None


class GroundTruth(_Value):
    """A reference answer and where it came from."""

    expected: Any
    source: str | None = None


class EvaluationInput(_Value):
    """The captured interaction: what an evaluator sees.

    Attributes:
        response: The answer: text, or a message with `contentParts`, or (offline only) any JSON value.
        criteria: What is asked for; empty means each evaluator's own criteria.
        error_type: Class name of the exception that the handler raised instead of answering.
        stream_end: How a streamed answer ended; None for answers that were not streamed.
        cost: What the answer cost, in USD.
        finish_reason: The model's own word for why it stopped, such as ``stop`` or ``length``.
    """

    response: Any = ""
    criteria: tuple[EvaluationCriteria, ...] = ()
    prompt: str | None = None
    context: dict[str, Any] | None = None
    ground_truth: Any = None
    agent_config: dict[str, Any] | None = None
    message_history: list[Message] | None = None
    timestamp: float | None = None
    session_id: str | None = None
    agent_id: str | None = None
    metadata: dict[str, Any] | None = None
    agent: str | None = None
    tool_calls: list[ToolCall] | None = None
    usage: Usage | None = None
    cost: float | None = None
    duration_s: float | None = None
    response_id: str | None = None
    conversation_id: str | None = None
    model: str | None = None
    finish_reason: str | None = None
    error_type: str | None = None
    stream_end: StreamEnd | None = None

    def text_at(self, field: str = "response") -> str | None:
        """Text of a field, by the specification's path rules; None when there is no text.

        The root is ``response``, ``prompt``, ``groundTruth`` or ``context`` (an empty name means ``response``); the
        rest of the path is walked key by key, list indexes as segments (``context.list.1``). A message yields its
        first ``text`` part.
        """
        return _text_of(self.value_at(field))

    def value_at(self, field: str = "response") -> Any:
        """The value of a field as it stands, by the same path rules; None when there is none."""
        root, _, path = (field or "response").partition(".")
        roots = {"response": self.response, "prompt": self.prompt, "groundTruth": self.ground_truth,
                 "ground_truth": self.ground_truth, "context": self.context}  # fmt: skip
        value = roots.get(root)
        for key in path.split(".") if path else ():
            value = _step(value, key)
        return value

    @cached_property
    def response_text(self) -> str:
        """The answer as text; empty when it has none."""
        return self.text_at("response") or ""


def _step(value: Any, key: str) -> Any:
    if key == "":
        return value
    if isinstance(value, Mapping):
        return value.get(key)
    if isinstance(value, list | tuple) and key.isdecimal() and int(key) < len(value):
        return value[int(key)]
    return None


def _text_of(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and isinstance(value.get("role"), str):
        parts = value.get("contentParts")
        for part in parts if isinstance(parts, list | tuple) else ():
            if isinstance(part, Mapping) and part.get("type") == "text":
                text = part.get("text")
                return text if isinstance(text, str) else None
    return None


class Score(_Value):
    """What an evaluator found.

    Attributes:
        value: On the criterion's scale: boolean, number or category.
        label: Category for the telemetry; derived from `passed` when left out.
        passed: The evaluator's own verdict, where it has one.
        reasoning: Free text; content, so exported only with content capture on.
        reason_code: A word of the evaluator's closed list, safe to export.
        metadata: Evaluator-specific facts, kept with the stored result.
    """

    value: ScoreValue
    label: str | None = None
    passed: bool | None = None
    reasoning: str | None = None
    reason_code: str | None = None
    metadata: dict[str, Any] | None = None


class EvaluationResult(_Value):
    """One score, skip or failure of one criterion by one evaluator: exactly one of the three.

    Attributes:
        score: Raw score on the criterion's scale; None for skips and failures.
        error: What broke; set for failures only. `error_type` is its low-cardinality word.
        skip_reason: Why the evaluator abstained; set for skips only.
        normalized: The score moved to [0, 1], higher is better; None where the scale has no such form.
        evaluator_kind: ``deterministic``, ``llm_judge``, ``embedding`` or ``human``.
        calls_model: The evaluator asked a model, so its time and its span are worth showing.
        probability: Inclusion probability of this response for this evaluator; None when unknown.
    """

    criterion_name: str
    score: ScoreValue | None = None
    evaluator_type: str
    reasoning: str | None = None
    error: str | None = None
    metadata: dict[str, Any] | None = None
    normalized: float | None = None
    label: str | None = None
    passed: bool | None = None
    threshold: float | None = None
    reason_code: str | None = None
    error_type: str | None = None
    skip_reason: str | None = None
    evaluator_id: str | None = None
    evaluator_version: str | None = None
    evaluator_kind: str = "deterministic"
    calls_model: bool = False
    suspected_injection: bool = False
    probability: float | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    raised: bool = False
    filler: ScoreValue | None = Field(default=None, exclude=True)

    @property
    def status(self) -> Literal["scored", "skipped", "failed"]:
        """``failed`` when the evaluator broke, ``skipped`` when it abstained, else ``scored``."""
        if self.error:
            return "failed"
        return "skipped" if self.skip_reason is not None else "scored"

    def original_json(self) -> dict[str, Any]:
        """The original framework's JSON shape, where an errored result carries the filler score of its evaluator."""
        shape: dict[str, Any] = {
            "criterionName": self.criterion_name,
            "score": self.filler if self.error else self.score,
            "evaluatorType": self.evaluator_type,
        }
        optional = {"reasoning": self.reasoning, "error": self.error, "metadata": self.metadata}
        return shape | {key: value for key, value in optional.items() if value is not None}


class RunError(_Value):
    """An evaluator or storage provider that raised, by its label."""

    message: str
    evaluator_type: str | None = None


class SpanReference(_Value):
    """The evaluated span, as it can be written down: hexadecimal ids, flags and trace state."""

    trace_id: str
    span_id: str
    trace_flags: int = 0
    trace_state: str = ""
    is_remote: bool = False


class AggregatedEvaluationResult(_Value):
    """All results of one input, with the weighted overall score.

    Attributes:
        overall_score: Weighted mean of the normalized scores, 0 worst to 1 best; None when nothing could be averaged.
        timestamp: Milliseconds since the epoch, end of the run.
        input_snapshot: The whole input offline; monitored answers only with content capture on.
        span: The evaluated span; None when there was none.
        response_ended_ns: When the answer was complete, nanoseconds since the epoch.
    """

    overall_score: float | None = None
    results: tuple[EvaluationResult, ...] = ()
    timestamp: int = 0
    agent_id: str | None = None
    session_id: str | None = None
    input_snapshot: EvaluationInput | None = None
    evaluation_config_snapshot: dict[str, Any] | None = None
    metadata: dict[str, Any] = {}
    run_errors: tuple[RunError, ...] | None = None
    agent: str | None = None
    span: SpanReference | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    response_ended_ns: int | None = None
    sampling_probability: float | None = None
    sampling_reason: str | None = None
    has_ground_truth: bool = False
    stream_end: StreamEnd | None = None
    response_id: str | None = None
    conversation_id: str | None = None
    model: str | None = None

    def by_criterion(self) -> dict[str, EvaluationResult]:
        """Results by the name of their criterion; of several for one criterion the last."""
        return {result.criterion_name: result for result in self.results}

    def original_json(self) -> dict[str, Any]:
        """The original framework's JSON shape; what a raising evaluator left stands in ``runErrors`` only."""
        shape: dict[str, Any] = {
            "results": [result.original_json() for result in self.results if not result.raised and not result.skip_reason],
            "timestamp": self.timestamp,
            "metadata": self.metadata,
        }
        optional = {
            "overallScore": self.overall_score,
            "agentId": self.agent_id,
            "sessionId": self.session_id,
            "evaluationConfigSnapshot": self.evaluation_config_snapshot,
        }
        shape |= {key: value for key, value in optional.items() if value is not None}
        if self.input_snapshot is not None:
            shape["inputSnapshot"] = self.input_snapshot.model_dump(mode="json", by_alias=True, exclude_unset=True)
        if self.run_errors:
            shape["runErrors"] = [error.model_dump(by_alias=True) for error in self.run_errors]
        return shape

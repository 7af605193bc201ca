"""What people and the application say of an answer.

It is recorded by `record_feedback`, `record_score` and `record_ground_truth`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from agenteval_otel.config.process import default_pipeline
from agenteval_otel.errors import AgentEvalError
from agenteval_otel.instrumentation.feedback.payload import (
    OfAnswer,
    OfApplication,
    OfPerson,
    OfTruth,
)
from agenteval_otel.instrumentation.feedback.recorder import RECORDER
from agenteval_otel.models import ScoreValue
from agenteval_otel.runtime.log import log


def record_feedback(
    reference: str | None = None,
    /,
    *,
    thumbs: Literal["up", "down"] | None = None,
    score: float | None = None,
    scale: str | None = None,
    comment: str | None = None,
    correction: str | None = None,
    name: str = "user_feedback",
    user_id: str | None = None,
    trace_id: str | None = None,
    span_id: str | None = None,
    response_id: str | None = None,
    conversation_id: str | None = None,
    agent: str | None = None,
) -> bool:
    """Record what a person says of an answer: a thumb, a score, a comment or a better answer.

    It is emitted as ``gen_ai.evaluation.result`` with the evaluator type ``human``, in the trace of
    the answer and beside its other scores, counted in the metrics, and stored. An answer is meant
    by its `evaluation_reference`, by trace and span, or by an id that it has. The newest answer of
    a conversation is meant by the conversation's id. Feedback whose answer is not known waits a
    minute for it, and is then recorded without a trace. The same feedback of the same user counts
    once. A changed one counts again. Never raises, and never blocks.

    Args:
        reference: What `evaluation_reference` gave in the handler.
        thumbs: ``up`` passes, ``down`` fails.
        score: Instead of `thumbs`, on `scale`: 0 to 1, 1 best, unless it says otherwise
            (``likert5``, ``0-10``).
        scale: Of `score`.
        comment: In the person's words. It is content, so exported with content capture alone.
        correction: The answer that it should have been. It is content too, stored and not exported.
        name: The criterion: how it is called beside the others.
        user_id: Who says it. It is hashed, unless the settings say otherwise.
        trace_id: Of the answer, 32 hexadecimal digits.
        span_id: Of the answer's span, 16 hexadecimal digits.
        response_id: The model's own id of its response.
        conversation_id: Of the conversation, whose newest answer is meant.
        agent: Which agent answered, where nothing else says it.

    Returns:
        Whether it was taken. Wrong arguments are logged and counted (``feedback:wrong``).
    """
    return _record(
        OfPerson,
        reference=reference,
        thumbs=thumbs,
        score=score,
        scale=scale,
        comment=comment,
        correction=correction,
        name=name,
        user_id=user_id,
        trace_id=trace_id,
        span_id=span_id,
        response_id=response_id,
        conversation_id=conversation_id,
        agent=agent,
    )


def record_score(
    name: str,
    value: ScoreValue,
    /,
    reference: str | None = None,
    *,
    scale: str | None = None,
    threshold: float | None = None,
    passed: bool | None = None,
    label: str | None = None,
    reasoning: str | None = None,
    reason_code: str | None = None,
    trace_id: str | None = None,
    span_id: str | None = None,
    response_id: str | None = None,
    conversation_id: str | None = None,
    agent: str | None = None,
) -> bool:
    """Record what the application knows of an answer by itself.

    That is, for example, a guardrail's result, or whether the ticket was resolved. It is recorded
    as by `record_feedback`, with the evaluator type ``application``. Never raises, and never
    blocks.

    Args:
        name: The criterion.
        value: A boolean, a number on `scale`, or a category.
        reference: What `evaluation_reference` gave in the handler, else an id below.
        scale: ``numeric`` (0 to 1, 1 best), ``likert5``, ``0-10`` and others. ``binary`` is for a
            boolean.
        threshold: Score from which on it passes.
        passed: The verdict, where it does not follow from the value.
        label: A category beside a number.
        reasoning: Why, in words. It is content, so exported with content capture alone.
        reason_code: A word of a closed list, safe to export.
        trace_id: As of `record_feedback`, like those that follow.

    Returns:
        Whether it was taken. Wrong arguments are logged and counted (``feedback:wrong``).
    """
    return _record(
        OfApplication,
        name=name,
        value=value,
        reference=reference,
        scale=scale,
        threshold=threshold,
        passed=passed,
        label=label,
        reasoning=reasoning,
        reason_code=reason_code,
        trace_id=trace_id,
        span_id=span_id,
        response_id=response_id,
        conversation_id=conversation_id,
        agent=agent,
    )


def record_ground_truth(
    ground_truth: object,
    /,
    reference: str | None = None,
    *,
    prompt: str | None = None,
    trace_id: str | None = None,
    span_id: str | None = None,
    response_id: str | None = None,
    conversation_id: str | None = None,
) -> bool:
    """Record what the right answer was, once that is known: the evaluators that lacked it are run.

    With ``ground_truth_window_s`` set, an answer waits for its ground truth if an evaluator was
    skipped for lack of it. The results are added to the answer's trace, with the same probability
    as if the ground truth had been there. If it arrives before its answer is evaluated, it waits a
    minute. It is used once: a second one for the answer is counted (``ground_truth:repeated``,
    ``ground_truth:contradicted``). It goes into no file. Never raises, and never blocks.

    Args:
        ground_truth: Text, a list of texts of which the nearest counts, or any JSON value. It has
            at most 16 KiB as JSON.
        reference: What `evaluation_reference` gave in the handler, else an id below.
        prompt: The question that it answers. It is not used if the answer has a different one.
        trace_id: As of `record_feedback`, like those that follow.

    Returns:
        Whether it was taken. Wrong arguments are logged and counted (``feedback:wrong``). Where
        answers are evaluated in the sidecar it is False: send it there, to ``POST /v1/feedback``.
    """
    return _record(
        OfTruth,
        ground_truth=ground_truth,
        reference=reference,
        prompt=prompt,
        trace_id=trace_id,
        span_id=span_id,
        response_id=response_id,
        conversation_id=conversation_id,
    )


def _record(model: Callable[..., OfAnswer], **fields: object) -> bool:
    try:
        return RECORDER.take(model(**fields).feedback())
    except Exception as error:
        problem = type(error).__name__
        if isinstance(error, AgentEvalError):
            # Our messages name fields; the values after them may be content.
            problem = str(error).partition(", found")[0]
        default_pipeline().accounting.fail("feedback:wrong")
        log.warning("feedback_left_out", part="feedback", problem=problem)
        return False

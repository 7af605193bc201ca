"""A recorded answer, read from its spans, and the scores that were recorded with it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from agenteval_otel import semconv as names
from agenteval_otel.capture.calls import call_id_of_span
from agenteval_otel.capture.spans.span import ReadSpan
from agenteval_otel.capture.spans.trace import read_trace
from agenteval_otel.instrumentation.spans import place_of, without_evaluations
from agenteval_otel.models import (
    EvaluationCriteria,
    EvaluationInput,
    EvaluationResult,
    SpanReference,
)
from agenteval_otel.models.scoring.scales import normalize
from agenteval_otel.models.value import construct, copy_with

_PREFIX: Final = "gen_ai.evaluation."
_VERDICTS: Final = {names.LABEL_PASS: True, names.LABEL_FAIL: False}
Scores = dict[str, EvaluationResult]
"""The newest recorded result of each criterion."""


class RecordedAnswer(NamedTuple):
    """Holds an answer of the past.

    Attributes:
        key: Names the answer among all of a replay.
        input: What is evaluated.
        span: The evaluated span. None where the storage has none of it.
        began_ns, ended_ns: By the clock of the host that answered, nanoseconds since the epoch.
        scores: Recorded results, the newest of each criterion.
        call_id: The answer's own id. None where it was stored without one.
    """

    key: str
    input: EvaluationInput
    span: SpanReference | None
    began_ns: int
    ended_ns: int
    scores: Scores
    call_id: str | None = None


class AnswerFilter(NamedTuple):
    """Selects the answers that are scored again. What is empty selects all.

    Attributes:
        since_ns, until_ns: The answer began then or later, and before, nanoseconds since the epoch.
        below, at_least: Limits of recorded scores, normalized to 0 to 1, by their criterion.
    """

    since_ns: int | None = None
    until_ns: int | None = None
    services: Collection[str] = ()
    agents: Collection[str] = ()
    below: Mapping[str, float] = {}
    at_least: Mapping[str, float] = {}

    def takes(self, answer: RecordedAnswer) -> bool:
        since_ns = self.since_ns or 0
        until_ns = self.until_ns or 1 << 64
        if not since_ns <= answer.began_ns < until_ns:
            return False
        if self.services and answer.input.service not in self.services:
            return False
        if self.agents and answer.input.agent not in self.agents:
            return False
        scores = {name: _number(result) for name, result in answer.scores.items()}
        for name, limit in self.below.items():
            if not _lies(scores.get(name), limit, below=True):
                return False
        return all(
            _lies(scores.get(name), limit, below=False) for name, limit in self.at_least.items()
        )


class RecordedSource(Protocol):
    """Reads recorded answers from one place. It is used by one thread, which may block.

    Attributes:
        counts: What was not read, by its reason.
    """

    counts: Counter[str]

    def answers(self) -> Iterator[RecordedAnswer]:
        """Yield the answers, in the same order each time as far as the place can promise that."""

    def progress(self) -> str:
        """Return how far it is, in a few words. Empty if that is unknown."""

    def share(self) -> float | None:
        """Return how much of the place was read, from 0 to 1. None where that is unknown."""

    def close(self) -> None: ...


def completed(answer: RecordedAnswer, criteria: Mapping[str, EvaluationCriteria]) -> RecordedAnswer:
    """Return the answer with the normalized forms of its recorded scores.

    They follow the scales of the criteria as they are now.
    """
    scores: Scores = {}
    for name, result in answer.scores.items():
        if result.normalized is None and name in criteria and result.status == "scored":
            normalized = normalize(result.score, criteria[name])
            scores[name] = copy_with(result, {"normalized": normalized})
        else:
            scores[name] = result
    return answer._replace(scores=scores)


def _number(result: EvaluationResult) -> float | None:
    if result.normalized is not None:
        return result.normalized
    if result.passed is not None:
        return float(result.passed)
    number = _real(result.score)
    if number is None or not 0.0 <= number <= 1.0:
        return None
    return number


def _real(value: object) -> float | None:
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return None


def _lies(number: float | None, limit: float, *, below: bool) -> bool:
    return number is not None and (number < limit) == below


def answers_of(
    spans: Sequence[ReadSpan], counts: Counter[str], *, nested_agents: bool = False
) -> Iterator[RecordedAnswer]:
    """Yield the answers of a trace, including those that were evaluated live.

    Raises nothing. What is left out is counted.
    """
    parents = {span.span_id: span for span in spans}
    reading = read_trace(without_evaluations(spans), nested_agents=nested_agents)
    counts.update({f"not readable: {name}": count for name, count in reading.failed.items()})
    if reading.left_out:
        counts["spans beyond the limit of a trace"] += reading.left_out
    if not reading.answers:
        return
    recorded = recorded_scores(spans, parents)
    for mapped in reading.answers:
        if mapped.content_switch is not None:
            counts["answers without content"] += 1
            continue
        if mapped.is_unread:
            counts["answers of which no part is text"] += 1
            continue
        span = mapped.span
        place = place_of(mapped.span.resource)
        agent = mapped.input.agent or place.get("service") or "unknown"
        reference = construct(
            SpanReference,
            {
                "trace_id": f"{span.trace_id:032x}",
                "span_id": f"{span.span_id:016x}",
                "trace_flags": span.flags,
                "trace_state": span.trace_state,
                "is_remote": True,
            },
        )
        yield RecordedAnswer(
            key=f"{reference.trace_id}-{reference.span_id}",
            input=copy_with(mapped.input, {**place, "agent": agent, "steps": mapped.steps()}),
            span=reference,
            began_ns=span.start_ns,
            ended_ns=max(span.start_ns, span.end_ns),
            scores=recorded.get(span.span_id, {}),
            call_id=call_id_of_span(span.span_id),
        )


def recorded_scores(
    spans: Sequence[ReadSpan], parents: Mapping[int, ReadSpan]
) -> dict[int, Scores]:
    """Return scores by the evaluated span's id.

    Each criterion has its most complete result, and of equally complete ones the newest.
    """
    recorded: dict[int, Scores] = {}
    best_last = sorted(_recorded(spans, parents), key=lambda item: item[:2])
    for _, _, span_id, result in best_last:
        scores = recorded.setdefault(span_id or 0, {})
        scores[result.criterion_name] = result
    return recorded


def _recorded(
    spans: Sequence[ReadSpan], parents: Mapping[int, ReadSpan]
) -> Iterator[tuple[int, int, int | None, EvaluationResult]]:
    """Yield results with their rank: scores on agent spans, on run spans, result spans, events."""
    for span in spans:
        if span.scope != names.SCOPE_NAME or not span.is_evaluation:
            for result in _of_attributes(span.attributes):
                yield 0, span.end_ns, span.span_id, result
        elif not span.attributes.get(names.EVALUATION_REPLAYED):
            run = parents.get(span.parent_id or 0)
            if names.EVALUATION_NAME not in span.attributes:
                for result in _of_attributes(span.attributes):
                    yield 1, span.end_ns, span.parent_id, result
            elif run is not None:
                yield 2, span.end_ns, run.parent_id, result_of(span.attributes)
        for event in span.events:
            attributes = event.attributes
            is_result = event.name == names.EVENT_RESULT and names.EVALUATION_NAME in attributes
            if is_result and not attributes.get(names.EVALUATION_REPLAYED):
                yield 3, event.time_ns, span.span_id, result_of(attributes)


def result_of(attributes: Mapping[str, Any]) -> EvaluationResult:
    """Return the result that an event or a span of a result shows."""
    get = attributes.get
    error_type = _text(get(names.ERROR_TYPE))
    label = _text(get(names.SCORE_LABEL))
    score = _real(get(names.SCORE_VALUE))
    evaluator_id = _text(get(names.EVALUATOR_ID))
    return construct(
        EvaluationResult,
        {
            "criterion_name": str(attributes[names.EVALUATION_NAME]),
            "score": label if score is None else score,
            "error": error_type,
            "error_type": error_type,
            "label": label,
            "passed": _VERDICTS.get(label or ""),
            "normalized": _real(get(names.SCORE_NORMALIZED)),
            "threshold": _real(get(names.THRESHOLD)),
            "evaluator_id": evaluator_id,
            "evaluator_type": evaluator_id or "recorded",
            "evaluator_version": _text(get(names.EVALUATOR_VERSION)),
            "evaluator_kind": _text(get(names.EVALUATOR_TYPE)) or "deterministic",
        },
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _of_attributes(attributes: Mapping[str, Any]) -> Iterator[EvaluationResult]:
    """Yield the scores that a run span or an agent's span shows, without their evaluators."""
    criteria: dict[str, None] = {}
    for name in attributes:
        if name.startswith(_PREFIX) and name.endswith((".score", ".label")):
            criterion, _, _ = name.removeprefix(_PREFIX).rpartition(".")
            criteria[criterion] = None
    for criterion in criteria:
        if names.CRITERION_NAME.fullmatch(criterion) is None:
            continue
        if criterion.partition(".")[0] in names.RESERVED_CRITERIA:
            continue
        score = attributes.get(names.criterion_score(criterion))
        label = attributes.get(names.criterion_label(criterion))
        yield result_of(
            {
                names.EVALUATION_NAME: criterion,
                names.SCORE_VALUE: score,
                names.SCORE_LABEL: label,
            }
        )

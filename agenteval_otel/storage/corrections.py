"""Corrections that people recorded, read back from storage.

Each has the question and the answer that it is about.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.read import place_of

_CORRECTION: Final = "correction"
_HUMAN: Final = "human"


class Correction(NamedTuple):
    """What an answer should have been, as a person said.

    Attributes:
        id: 12 hexadecimal digits of text, user and answer: a correction that is stored twice has
            one id.
        recorded_ns: When it was recorded, in nanoseconds since the epoch.
        prompt: The question. None if it was stored without content, or is not stored at all.
        answer: What the agent said.
        module: The part of the system that answered.
    """

    id: str
    text: str
    comment: str | None
    user_id: str | None
    agent: str | None
    trace_id: str | None
    span_id: str | None
    response_id: str | None
    conversation_id: str | None
    recorded_ns: int
    prompt: str | None = None
    answer: str | None = None
    module: str | None = None

    def ids(self) -> Iterator[tuple[str, str]]:
        """Yield the ids of its answer, the most exact first.

        For a trace or conversation, that is the newest answer before the correction.
        """
        if self.trace_id and self.span_id:
            yield "span", f"{self.trace_id}/{self.span_id}"
        for kind in ("trace", "response", "conversation"):
            if value := getattr(self, f"{kind}_id"):
                yield kind, value


def read_corrections(places: Sequence[str], known: Iterable[str] = ()) -> list[Correction]:
    """Return the corrections in files of JSON lines and in databases, oldest first.

    Those of `known` ids are left out.

    Blocks. Raises `StorageError` for a place that cannot be read.
    """
    by_id: dict[str, Correction] = {}
    skipped = set(known)
    opened = [place_of(place) for place in places]
    for place in opened:
        for _, evaluation in place.feedback(_CORRECTION):
            for correction in _corrections_of(evaluation):
                if correction.id not in skipped:
                    by_id.setdefault(correction.id, correction)
    wanted: set[tuple[str, str]] = set()
    for correction in by_id.values():
        wanted.update(correction.ids())
    answers: dict[tuple[str, str], list[tuple[int, AggregatedEvaluationResult]]] = {}
    for place in opened if by_id else ():
        for _, evaluation in place.answers(_values_of(wanted)):
            answered_ns = evaluation.response_ended_ns or evaluation.ended_ns or 0
            for key in _keys_of(evaluation):
                if key in wanted:
                    answers.setdefault(key, []).append((answered_ns, evaluation))
    complete = [_with_answer(correction, answers) for correction in by_id.values()]
    return sorted(complete, key=lambda correction: correction.recorded_ns)


def _corrections_of(evaluation: AggregatedEvaluationResult) -> Iterator[Correction]:
    span = evaluation.span
    trace_id = span.trace_id if span else None
    span_id = span.span_id if span else None
    for result in evaluation.results:
        if result.evaluator_kind != _HUMAN or not result.metadata:
            continue
        text = result.metadata.get(_CORRECTION)
        if not isinstance(text, str) or not text.strip():
            continue
        about: dict[str, Any] = {
            "user_id": evaluation.user_id,
            "trace_id": trace_id,
            "span_id": span_id,
            "response_id": evaluation.response_id,
            "conversation_id": evaluation.conversation_id,
        }
        identity = json.dumps([text, *about.values()])
        id = sha256(identity.encode()).hexdigest()[:12]
        recorded_ns = result.ended_ns or evaluation.ended_ns or 0
        yield Correction(
            id,
            text,
            result.reasoning,
            agent=evaluation.agent,
            module=evaluation.agent,
            recorded_ns=recorded_ns,
            **about,
        )


def _with_answer(
    correction: Correction,
    answers: dict[tuple[str, str], list[tuple[int, AggregatedEvaluationResult]]],
) -> Correction:
    for key in correction.ids():
        is_exact = key[0] in ("span", "response")
        some = [
            entry
            for entry in answers.get(key, ())
            if is_exact or entry[0] <= correction.recorded_ns
        ]
        for _, evaluation in sorted(some, key=lambda entry: entry[0], reverse=True):
            known = evaluation.input_snapshot
            if known is not None and known.prompt and known.prompt.strip():
                module = known.module or correction.module
                return correction._replace(
                    prompt=known.prompt, answer=known.response_text, module=module
                )
    return correction


def _values_of(keys: set[tuple[str, str]]) -> dict[str, set[str]]:
    """Return the ids by the columns in which they are looked for."""
    trace_ids: set[str] = set()
    response_ids: set[str] = set()
    conversation_ids: set[str] = set()
    for kind, value in keys:
        if kind == "response":
            response_ids.add(value)
        elif kind == "conversation":
            conversation_ids.add(value)
        else:  # a trace, or a span as "<trace id>/<span id>"
            trace_ids.add(value.partition("/")[0])
    return {
        "trace_id": trace_ids,
        "response_id": response_ids,
        "conversation_id": conversation_ids,
    }


def _keys_of(evaluation: AggregatedEvaluationResult) -> Iterator[tuple[str, str]]:
    span = evaluation.span
    if span is not None:
        yield "span", f"{span.trace_id}/{span.span_id}"
        yield "trace", span.trace_id
    for kind in ("response", "conversation"):
        if value := getattr(evaluation, f"{kind}_id"):
            yield kind, value

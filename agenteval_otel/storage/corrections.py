"""Corrections that people recorded, read back from storage with the question and the answer that
they are about.
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
        prompt: The question; None where it was stored without content, or is not stored at all.
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
        """Yield the ids of its answer, the most exact first. For a trace or conversation it is the
        newest answer before it.
        """
        if self.trace_id and self.span_id:
            yield "span", f"{self.trace_id}/{self.span_id}"
        for kind in ("trace", "response", "conversation"):
            if value := getattr(self, f"{kind}_id"):
                yield kind, value


def read_corrections(places: Sequence[str], known: Iterable[str] = ()) -> list[Correction]:
    """Return the corrections in files of JSON lines and in databases, oldest first. Those of
    `known` ids are left out.

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
    wanted = {key for correction in by_id.values() for key in correction.ids()}
    answers: dict[tuple[str, str], list[tuple[int, AggregatedEvaluationResult]]] = {}
    for place in opened if by_id else ():
        for _, evaluation in place.answers(_values_of(wanted)):
            for key in _keys_of(evaluation):
                if key in wanted:
                    answers.setdefault(key, []).append(
                        (evaluation.response_ended_ns or evaluation.ended_ns or 0, evaluation)
                    )
    complete = [_with_answer(correction, answers) for correction in by_id.values()]
    return sorted(complete, key=lambda correction: correction.recorded_ns)


def _corrections_of(evaluation: AggregatedEvaluationResult) -> Iterator[Correction]:
    span = evaluation.span
    for result in evaluation.results:
        text = (result.metadata or {}).get(_CORRECTION) if result.evaluator_kind == _HUMAN else None
        if not isinstance(text, str) or not text.strip():
            continue
        about: dict[str, Any] = {
            "user_id": evaluation.user_id,
            "trace_id": span.trace_id if span else None,
            "span_id": span.span_id if span else None,
            "response_id": evaluation.response_id,
            "conversation_id": evaluation.conversation_id,
        }
        id = sha256(json.dumps([text, *about.values()]).encode()).hexdigest()[:12]
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
    return {
        "trace_id": {value.partition("/")[0] for kind, value in keys if kind in ("span", "trace")},
        "response_id": {value for kind, value in keys if kind == "response"},
        "conversation_id": {value for kind, value in keys if kind == "conversation"},
    }


def _keys_of(evaluation: AggregatedEvaluationResult) -> Iterator[tuple[str, str]]:
    span = evaluation.span
    if span is not None:
        yield "span", f"{span.trace_id}/{span.span_id}"
        yield "trace", span.trace_id
    for kind in ("response", "conversation"):
        if value := getattr(evaluation, f"{kind}_id"):
            yield kind, value

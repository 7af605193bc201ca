"""Erasure from the requests in the sidecar's journal.

The body of ``POST /v1/erase``, which asks for an erasure, is read here too.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from agenteval_otel.capture.otlp.body import BodyError, OtlpMessages, strict_json
from agenteval_otel.capture.spans.span import event_of_log, span_of_otlp
from agenteval_otel.config.erasure import erase_waiting
from agenteval_otel.errors import AgentEvalError, StorageError
from agenteval_otel.instrumentation.spans import trace_is_concerned
from agenteval_otel.sidecar.journal import TRACES, Journal, JournalEntry
from agenteval_otel.storage.erasure import Erasure

MAX_BYTES: Final = 1024 * 1024
Messages = Mapping[int, OtlpMessages]


def take_erasure(body: bytes) -> bytes:
    """Erase from this process what a request asks for, and return the answer in JSON.

    Blocks, up to minutes. Raises `BodyError`: 400 if the request is wrong, 503 if the journal could
    not be rewritten.
    """
    _, value = strict_json(body)
    try:
        counts, delivered = erase_waiting(value)
    except StorageError as error:
        raise BodyError(503, str(error)) from None
    except AgentEvalError as error:
        raise BodyError(400, str(error)) from None
    return json.dumps({"erased": counts, "delivered": delivered}).encode()


def erase_from_journal(
    journal: Journal, messages: Messages, erasure: Erasure, turn: AbstractContextManager[Any]
) -> set[int]:
    """Remove the concerned traces from all requests, those that are done too, and return their ids.

    Blocks.

    A trace is concerned if one of its spans or log records is. `turn` is held only while a segment
    is written. Raises `StorageError` if the disk refuses.
    """
    traces: set[int] = set()
    with turn:
        segments = journal.segments()
    for segment in segments:
        for entry in journal.requests(segment):
            request = _request_of(entry, messages)
            for trace, is_concerned in _traces_of(entry.kind, request, erasure):
                if is_concerned:
                    traces.add(trace)
    try:
        for segment in segments:
            changed: dict[int, bytes] = {}
            for entry in journal.requests(segment):
                data = _without(entry, messages, erasure, traces)
                if data is not None:
                    changed[entry.number] = data
            if changed:
                with turn:
                    journal.rewrite(segment, changed)
    except OSError as error:
        raise StorageError(f"the journal could not be rewritten: {error.strerror}") from None
    return traces


def _request_of(entry: JournalEntry, messages: Messages) -> Any:
    """Return the request, or an empty request if it cannot be read.

    What an unreadable request holds is not known, so it is removed too.
    """
    try:
        return messages[entry.kind].request.FromString(entry.data)
    except Exception:
        return messages[entry.kind].request()


def _traces_of(kind: int, request: Any, erasure: Erasure) -> Iterator[tuple[int, bool]]:
    for items in _items(kind, request):
        for item in items:
            yield _trace_of(item), _is_concerned(kind, item, erasure)


def _without(
    entry: JournalEntry, messages: Messages, erasure: Erasure, traces: set[int]
) -> bytes | None:
    """Return the request without what is concerned. The result is None if nothing is concerned."""
    request = _request_of(entry, messages)
    # An entry that cannot be read became an empty request, which replaces it.
    is_changed = bool(entry.data) and not request.ByteSize()
    for items in _items(entry.kind, request):
        kept = []
        for item in items:
            trace = _trace_of(item)
            # A log record without a trace is checked alone.
            is_erased = trace in traces if trace else _is_concerned(entry.kind, item, erasure)
            if not is_erased:
                kept.append(item)
        if len(kept) < len(items):
            is_changed = True
            del items[:]
            items.extend(kept)
    return request.SerializeToString() if is_changed else None


def keep_traces(kind: int, request: Any, traces: Collection[int]) -> None:
    """Remove from a request all that is not of these traces."""
    for items in _items(kind, request):
        kept = [item for item in items if _trace_of(item) in traces]
        del items[:]
        items.extend(kept)


def _items(kind: int, request: Any) -> Iterator[Any]:
    """Yield the lists of spans, or of log records."""
    if kind == TRACES:
        for resource_spans in request.resource_spans:
            for scope_spans in resource_spans.scope_spans:
                yield scope_spans.spans
    else:
        for resource_logs in request.resource_logs:
            for scope_logs in resource_logs.scope_logs:
                yield scope_logs.log_records


def _trace_of(item: Any) -> int:
    return int.from_bytes(item.trace_id)


def _is_concerned(kind: int, item: Any, erasure: Erasure) -> bool:
    if kind == TRACES:
        return trace_is_concerned(erasure, 0, [span_of_otlp(item, {}, "", "")], ())
    return trace_is_concerned(erasure, 0, (), [event_of_log(item)])

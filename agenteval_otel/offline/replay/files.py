"""Recorded answers from files with OTLP.

They are put together by trace in a temporary file, since their parts may be anywhere.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final, NamedTuple

from agenteval_otel.capture.otlp.body import LOGS, TRACES, OtlpMessages
from agenteval_otel.capture.otlp.files import requests_in
from agenteval_otel.capture.otlp.json import spans_of_json
from agenteval_otel.capture.spans.span import ReadEvent, ReadSpan, event_of_log, spans_of_otlp
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.offline.replay.recorded import RecordedAnswer, answers_of
from agenteval_otel.runtime.masking import printable

_MAX_SPANS: Final = 10_000  # of a trace, and events of it
_CACHE_KIB: Final = 16_384
_COMMIT_ROWS: Final = 2_000
_NAMED_LINES: Final = 5
_SAY_EVERY_S: Final = 10.0
_BROKEN: Final = "broken lines"
_SPAN_FIELDS: Final = [field.name for field in fields(ReadSpan)]
_EVENT_FIELDS: Final = [field.name for field in fields(ReadEvent)]
_SPAN: Final = attrgetter(*_SPAN_FIELDS)
_EVENT: Final = attrgetter(*_EVENT_FIELDS)
_EVENTS_AT: Final = _SPAN_FIELDS.index("events")


class _TraceParts(NamedTuple):
    """Holds what a request has of a trace.

    Attributes:
        events: Events that came as log records, each with the id of its span.
    """

    spans: list[ReadSpan]
    events: list[tuple[int, ReadEvent]]


class OtlpFiles:
    """Reads the answers of files with OTLP: see `requests_in`.

    A first pass brings the parts of each trace together, in a temporary file of about the same size
    without a name. Only one request is in memory at a time. A line that cannot be read is named and
    counted. Traces come in the order of their first part.

    Args:
        say: Gets a line about a broken line, and with `progress` about how far the first pass is.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        nested_agents: bool = False,
        say: Callable[[str], object] = lambda line: None,
        progress: bool = False,
    ) -> None:
        for path in paths:
            if not os.access(path, os.R_OK) or os.path.isdir(path):
                raise ConfigurationError(
                    "cannot be read: no such file, or no right to read it", path=path
                )
        self.counts: Counter[str] = Counter()
        self._paths = paths
        self._nested = nested_agents
        self._say = say
        self._says_how_far = progress
        self._messages = {TRACES: OtlpMessages("trace"), LOGS: OtlpMessages("logs")}
        # SQLite's own temporary file: it has no name, so it is gone with the process, however that
        # ends.
        self._database = sqlite3.connect("", check_same_thread=False)
        self._done = 0
        self._traces = 0
        self._said_at = time.monotonic()

    def close(self) -> None:
        self._database.close()

    def progress(self) -> str:
        share = self.share()
        return "" if share is None else f"{100 * share:.0f} % of the traces"

    def share(self) -> float | None:
        return self._done / self._traces if self._traces else None

    def answers(self) -> Iterator[RecordedAnswer]:
        self._collect()
        query = self._database.execute
        (self._traces,) = query("SELECT count(DISTINCT trace) FROM parts").fetchone()
        by_time = "SELECT trace FROM parts GROUP BY trace ORDER BY min(number)"
        of_trace = "SELECT data FROM parts WHERE trace = ? ORDER BY number"
        for done, (trace,) in enumerate(query(by_time)):
            self._done = done
            spans = self._spans(query(of_trace, (trace,)))
            yield from answers_of(spans, self.counts, nested_agents=self._nested)
            del spans  # else they stay in memory while the next trace is read

    def _spans(self, rows: Iterator[tuple[str]]) -> list[ReadSpan]:
        spans: dict[int, ReadSpan] = {}
        events: dict[int, list[ReadEvent]] = {}
        event_count = 0  # of all spans: a span may have many
        for (data,) in rows:
            parts = _unpacked(data)
            # a client that tried again may have sent one twice
            spans |= {span.span_id: span for span in parts.spans}
            for span_id, event in parts.events:
                events.setdefault(span_id, []).append(event)
            event_count += len(parts.events)
            if len(spans) + event_count > _MAX_SPANS:
                self.counts["traces with too many spans, cut"] += 1
                break
        for span_id in spans.keys() & events.keys():
            spans[span_id].events = [*spans[span_id].events, *events[span_id]]
        return list(spans.values())

    def _collect(self) -> None:
        query = self._database.execute
        number = 0
        for setting in ("journal_mode=OFF", "synchronous=OFF", f"cache_size=-{_CACHE_KIB}"):
            query(f"PRAGMA {setting}")
        query("CREATE TABLE parts (number INTEGER PRIMARY KEY, trace BLOB, data TEXT)")
        rows: list[tuple[bytes, str]] = []
        for path in self._paths:
            requests = requests_in(
                path, self._messages, self._broken, self._say_how_far, _read_json
            )
            for kind, request in requests:
                number += 1
                if kind == LOGS:
                    of_traces = _of_logs(request)
                elif isinstance(request, list):
                    of_traces = _of_spans(request)
                else:
                    of_traces = _of_spans(spans_of_otlp(request.resource_spans))
                for trace_id, parts in of_traces.items():
                    rows.append((trace_id.to_bytes(16, "big"), _packed(parts)))
                if len(rows) >= _COMMIT_ROWS:
                    self._insert(rows)
        self._insert(rows)
        query("CREATE INDEX of_trace ON parts (trace)")

    def _insert(self, rows: list[tuple[bytes, str]]) -> None:
        with self._database:
            self._database.executemany("INSERT INTO parts (trace, data) VALUES (?, ?)", rows)
        rows.clear()

    def _broken(self, place: str, problem: str) -> None:
        self.counts[_BROKEN] += 1
        if self.counts[_BROKEN] <= _NAMED_LINES:
            self._say(printable(f"{place}: {problem}, left out"))

    def _say_how_far(self, name: str, at: int, size: int) -> None:
        if self._says_how_far and time.monotonic() - self._said_at > _SAY_EVERY_S:
            self._said_at = time.monotonic()
            percentage = 100 * at / max(1, size)
            self._say(f"reading {name}: {percentage:.0f} %")


def _packed(parts: _TraceParts) -> str:
    values_of_spans = list(map(_SPAN, parts.spans))
    return json.dumps([values_of_spans, parts.events], default=_EVENT)


def _unpacked(text: str) -> _TraceParts:
    values_of_spans, values_of_events = json.loads(text)
    spans: list[ReadSpan] = []
    for values in values_of_spans:
        values[_EVENTS_AT] = [ReadEvent(*event) for event in values[_EVENTS_AT]]
        spans.append(ReadSpan(*values))
    events = [(span_id, ReadEvent(*event)) for span_id, event in values_of_events]
    return _TraceParts(spans, events)


def _read_json(kind: int, value: Any) -> list[ReadSpan] | None:
    """Return the spans of a request.

    None for logs, and for what only protobuf's parser may understand.
    """
    if kind != TRACES:
        return None
    try:
        return list(spans_of_json(value["resourceSpans"]))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _of_spans(spans: Iterable[ReadSpan]) -> Mapping[int, _TraceParts]:
    parts: dict[int, _TraceParts] = {}
    for span in spans:
        if span.trace_id and span.span_id:
            of_trace = parts.setdefault(span.trace_id, _TraceParts([], []))
            of_trace.spans.append(span)
    return parts


def _of_logs(request: Any) -> Mapping[int, _TraceParts]:
    parts: dict[int, _TraceParts] = {}
    for resource in request.resource_logs:
        for scope in resource.scope_logs:
            for record in scope.log_records:
                if len(record.trace_id) == 16 and len(record.span_id) == 8:
                    trace_id = int.from_bytes(record.trace_id, "big")
                    span_id = int.from_bytes(record.span_id, "big")
                    event = event_of_log(record)
                    of_trace = parts.setdefault(trace_id, _TraceParts([], []))
                    of_trace.events.append((span_id, event))
    return parts

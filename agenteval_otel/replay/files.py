"""Recorded answers from files with OTLP, put together by trace in a temporary file: their parts may be anywhere."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import IO, Any, Final

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.mappers.span import ReadEvent, ReadSpan, event_of_log, spans_of_otlp
from agenteval_otel.replay.recorded import RecordedAnswer, answers_of
from agenteval_otel.runtime.masking import printable
from agenteval_otel.sidecar.body import OtlpMessages, request_of_json

_MAX_SPANS: Final = 10_000  # of a trace, and events of it
_WHOLE_BYTES: Final = 64 * 1024 * 1024  # of a file that is one request
_CACHE_KIB: Final = 16_384
_COMMIT_ROWS: Final = 2_000
_NAMED_LINES: Final = 5
_SAY_EVERY_S: Final = 10.0
_BROKEN: Final = "broken lines"
_KINDS: Final = {"resourceSpans": "trace", "resourceLogs": "logs", "resourceMetrics": None}
Parts = tuple[list[ReadSpan], list[tuple[int, ReadEvent]]]
"""What a request has of a trace: spans, and events that came as log records, by their span."""
_SPAN, _EVENT = (attrgetter(*(field.name for field in fields(kind))) for kind in (ReadSpan, ReadEvent))
_EVENTS_AT: Final = [field.name for field in fields(ReadSpan)].index("events")


class OtlpFiles:
    """Answers of files as the Collector's file exporter writes them (a request in JSON a line), or with one request.

    A first pass brings the parts of each trace together, in a temporary file of about the same size without a name;
    only one request is in memory at a time. A line that cannot be read is named and counted. Traces come in the order
    of their first part.

    Args:
        say: Gets a line about a broken line, and with `progress` about how far the first pass is.
    """

    def __init__(
        self, paths: Sequence[str], *, nested_agents: bool = False, say: Callable[[str], object] = lambda line: None,
        progress: bool = False,
    ) -> None:  # fmt: skip
        for path in paths:
            if not os.access(path, os.R_OK) or os.path.isdir(path):
                raise ConfigurationError("cannot be read: no such file, or no right to read it", path=path)
        self.counts: Counter[str] = Counter()
        self._paths, self._nested, self._say, self._says_how_far = paths, nested_agents, say, progress
        self._messages = {kind: OtlpMessages(kind) for kind in ("trace", "logs")}
        # SQLite's own temporary file: it has no name, so it is gone with the process, however that ends.
        self._database = sqlite3.connect("", check_same_thread=False)
        self._done = self._traces = 0
        self._said_at = time.monotonic()

    def close(self) -> None:
        self._database.close()

    def progress(self) -> str:
        return f"{100 * self._done / self._traces:.0f} % of the traces" if self._traces else ""

    def answers(self) -> Iterator[RecordedAnswer]:
        self._collect()
        query = self._database.execute
        [(self._traces,)] = query("SELECT count(DISTINCT trace) FROM parts")
        by_time = "SELECT trace FROM parts GROUP BY trace ORDER BY min(number)"
        for self._done, (trace,) in enumerate(query(by_time)):
            yield from answers_of(
                self._spans(query("SELECT data FROM parts WHERE trace = ? ORDER BY number", (trace,))), self.counts,
                nested_agents=self._nested,
            )  # fmt: skip

    def _spans(self, rows: Iterator[tuple[str]]) -> list[ReadSpan]:
        spans: dict[int, ReadSpan] = {}
        events: dict[int, list[ReadEvent]] = {}
        for (data,) in rows:
            read, logged = _unpacked(data)
            spans |= {span.span_id: span for span in read}  # a client that tried again may have sent one twice
            for span_id, event in logged:
                events.setdefault(span_id, []).append(event)
            if len(spans) + len(events) > _MAX_SPANS:
                self.counts["traces with too many spans, cut"] += 1
                break
        for span_id in spans.keys() & events.keys():
            spans[span_id].events = [*spans[span_id].events, *events[span_id]]
        return list(spans.values())

    def _collect(self) -> None:
        query, number = self._database.execute, 0
        for setting in ("journal_mode=OFF", "synchronous=OFF", f"cache_size=-{_CACHE_KIB}"):
            query(f"PRAGMA {setting}")
        query("CREATE TABLE parts (number INTEGER PRIMARY KEY, trace BLOB, data TEXT)")
        rows: list[tuple[bytes, str]] = []
        for path in self._paths:
            for kind, request in self._requests(path):
                number += 1
                for trace_id, parts in (_of_spans if kind == "trace" else _of_logs)(request).items():
                    rows.append((trace_id.to_bytes(16, "big"), _packed(parts)))
                if len(rows) >= _COMMIT_ROWS:
                    self._insert(rows)
        self._insert(rows)
        query("CREATE INDEX of_trace ON parts (trace)")

    def _insert(self, rows: list[tuple[bytes, str]]) -> None:
        with self._database:
            self._database.executemany("INSERT INTO parts (trace, data) VALUES (?, ?)", rows)
        rows.clear()

    def _requests(self, path: str) -> Iterator[tuple[str, Any]]:
        """The requests of a file with spans or log records, and their kind; metrics are passed over."""
        name = os.path.basename(path)
        with open(path, "rb") as raw:
            file: IO[bytes] = gzip.open(raw) if path.endswith(".gz") else raw  # type: ignore[assignment]  # noqa: SIM115
            size = os.fstat(raw.fileno()).st_size
            try:
                first = file.read(1)
                file.seek(0)
                if first not in b"{[ \t\r\n":
                    yield "trace", self._whole(name, file)
                    return
                for number, line in enumerate(file, 1):
                    if line.strip():
                        yield from self._of_line(name, number, line, file)
                    self._say_how_far(name, raw.tell(), size)
            except (OSError, EOFError, zlib.error) as error:  # a cut or damaged .gz among them
                self._broken(name, f"ends early: {error}")

    def _whole(self, name: str, file: IO[bytes]) -> Any:
        data = file.read(_WHOLE_BYTES + 1)
        try:
            if len(data) > _WHOLE_BYTES:
                raise ValueError
            return self._messages["trace"].request.FromString(data)
        except Exception:
            wrong = f"is no OTLP: neither a request in protobuf of at most {_WHOLE_BYTES:,} bytes, nor lines of JSON"
            raise ConfigurationError(wrong, path=name) from None

    def _of_line(self, name: str, number: int, line: bytes, file: IO[bytes]) -> Iterator[tuple[str, Any]]:
        try:
            if number == 1 and line.strip() == b"{":  # one request over several lines
                line += file.read(_WHOLE_BYTES)
            value = json.loads(line)
            kinds = [kind for key, kind in _KINDS.items() if key in value]
            if not kinds:
                raise ValueError(f"none of {', '.join(_KINDS)}")
            requests = [(kind, request_of_json(value, self._messages[kind])) for kind in kinds if kind is not None]
        except Exception as error:  # of the parsers; the text of some quotes content
            reason = str(error) if type(error) is ValueError else type(error).__name__
            self._broken(f"{name}:{number}", f"is no OTLP in JSON ({reason}), left out")
            return
        yield from requests

    def _broken(self, place: str, problem: str) -> None:
        self.counts[_BROKEN] += 1
        if self.counts[_BROKEN] <= _NAMED_LINES:
            self._say(printable(f"{place}: {problem}"))

    def _say_how_far(self, name: str, at: int, size: int) -> None:
        if self._says_how_far and time.monotonic() - self._said_at > _SAY_EVERY_S:
            self._said_at = time.monotonic()
            self._say(f"reading {name}: {100 * at / max(1, size):.0f} %")


def _packed(parts: Parts) -> str:
    spans, logged = parts
    return json.dumps([list(map(_SPAN, spans)), logged], default=_EVENT)


def _unpacked(text: str) -> Parts:
    spans, logged = json.loads(text)
    for values in spans:
        values[_EVENTS_AT] = [ReadEvent(*event) for event in values[_EVENTS_AT]]
    return [ReadSpan(*values) for values in spans], [(span_id, ReadEvent(*event)) for span_id, event in logged]


def _of_spans(request: Any) -> Mapping[int, Parts]:
    parts: dict[int, Parts] = {}
    for span in spans_of_otlp(request.resource_spans):
        if span.trace_id and span.span_id:
            parts.setdefault(span.trace_id, ([], []))[0].append(span)
    return parts


def _of_logs(request: Any) -> Mapping[int, Parts]:
    parts: dict[int, Parts] = {}
    for resource in request.resource_logs:
        for scope in resource.scope_logs:
            for record in scope.log_records:
                if len(record.trace_id) == 16 and len(record.span_id) == 8:
                    event = int.from_bytes(record.span_id, "big"), event_of_log(record)
                    parts.setdefault(int.from_bytes(record.trace_id, "big"), ([], []))[1].append(event)
    return parts

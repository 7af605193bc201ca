"""Loopback servers in the wire formats of Jaeger's ``/api/v3`` and of Tempo, which page badly where
a test asks.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.backends.faults import PostHandler, serving

from . import recordings as rec

Queries = list[dict[str, str]]
Reply = tuple[int, Any]


class Searched:
    """Traces of one span each, by their start in seconds after the base; most recent first, as
    backends return them.

    Attributes:
        queries: Of the searches, in order.
        fault: Gets the number of a search; its reply stands in for the real one where it has one.
        drops: Whether a trace is left out of a window of so many seconds.
    """

    def __init__(self, starts: list[float]) -> None:
        self.starts = dict(enumerate(starts))
        self.queries: Queries = []
        self.fetched: list[int] = []
        self.fault: Callable[[int], Reply | None] = lambda number: None
        self.drops: Callable[[int, float], bool] = lambda number, width_s: False

    def within(self, since_s: float, until_s: float, limit: int) -> list[int]:
        inside = [
            number
            for number, at_s in self.starts.items()
            if since_s <= at_s <= until_s and not self.drops(number, until_s - since_s)
        ]
        return sorted(inside, key=lambda number: -self.starts[number])[:limit]

    def span(self, number: int) -> rec.Json:
        return rec.answer_span(number, f"Answer {number}, please.", at_s=self.starts[number])

    def of_jaeger(self, path: str, query: dict[str, str]) -> Reply:
        if path == "/api/v3/services":
            return 200, {"services": ["shop"]}
        self.queries.append(query)
        if (reply := self.fault(len(self.queries))) is not None:
            return reply
        since_s, until_s = (_seconds(query[f"query.start_time_{end}"]) for end in ("min", "max"))
        numbers = self.within(since_s, until_s, int(query["query.num_traces"]))
        if not numbers:
            return 404, {"error": {"httpCode": 404, "message": "No traces found"}}
        return 200, {"result": rec.traces([self.span(number) for number in numbers])}

    def of_tempo(self, path: str, query: dict[str, str]) -> Reply:
        if path == "/api/search":
            self.queries.append(query)
            if (reply := self.fault(len(self.queries))) is not None:
                return reply
            base_s = rec.BASE_NS // rec.SECOND
            numbers = self.within(
                int(query["start"]) - base_s, int(query["end"]) - base_s, int(query["limit"])
            )
            return 200, {
                "traces": [{"traceID": rec.ids(number)[0].lstrip("0")} for number in numbers],
                "metrics": {},
            }
        number = int(path.rpartition("/")[2], 16) - 1
        self.fetched.append(number)
        trace = rec.traces([self.span(number)])
        [scope] = trace["resourceSpans"][0]["scopeSpans"]
        for span in scope["spans"]:
            for name in ("traceId", "spanId"):  # as protobuf's own JSON writes bytes
                span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
        return 200, {
            "trace": trace,
            "metrics": {},
            **({"status": "PARTIAL"} if number == 0 else {}),
        }


def _seconds(text: str) -> float:
    whole, _, rest = text.removesuffix("Z").partition(".")
    seconds = int(datetime.fromisoformat(whole + "+00:00").timestamp()) - rec.BASE_NS // rec.SECOND
    return seconds + int(rest) / 1e9


@contextmanager
def answering(
    answer: Callable[[str, dict[str, str]], Reply],
    headers_of: Callable[[str], dict[str, str]] = lambda path: {},
) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server whose address and requests' headers are returned."""
    headers: list[dict[str, str]] = []

    class Handler(PostHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            headers.append({name.lower(): value for name, value in self.headers.items()})
            status, value = answer(
                parts.path, {key: values[0] for key, values in parse_qs(parts.query).items()}
            )
            body = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.answer(
                status, body, {"content-type": "application/json", **headers_of(parts.path)}
            )

    assert issubclass(Handler, BaseHTTPRequestHandler)
    with serving(Handler) as port:
        yield f"http://127.0.0.1:{port}", headers

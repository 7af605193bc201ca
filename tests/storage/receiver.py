"""A receiver of scores on loopback, which keeps its requests and answers them as it is told."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any, NamedTuple

from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
from agenteval_otel.models.results import SpanReference
from tests.backends.faults import PostHandler
from tests.storage.samples import aggregated

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SECRET = "sk-lf-canary-5d41402abc4b2a76"


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: Any
    at: float


class Answer(NamedTuple):
    status: int = 200
    body: Any = {}
    headers: dict[str, str] = {}
    wait: threading.Event | None = None


class Receiver:
    """Answers each request by `answer`, which gets it."""

    def __init__(self, answer: Callable[[Request], Answer], port: int = 0) -> None:
        self.requests: list[Request] = []
        self.arrived = threading.Event()
        owner = self

        class Handler(PostHandler):
            def do_POST(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = json.loads(self.body())
                request = Request(self.command, self.path, headers, body, time.monotonic())
                owner.requests.append(request)
                owner.arrived.set()
                reply = answer(request)
                if reply.wait is not None:
                    reply.wait.wait(30)
                if isinstance(reply.body, str):
                    text, kind = reply.body, "text/html"
                else:
                    text, kind = json.dumps(reply.body), "application/json"
                self.answer(reply.status, text.encode(), {"content-type": kind, **reply.headers})

            do_PATCH = do_GET = do_POST

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, address: Any) -> None: ...  # the client went away

        self._server = Server(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @contextmanager
    def running(self) -> Iterator[Receiver]:
        self._thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


@contextmanager
def receiving(*answers: Answer) -> Iterator[Receiver]:
    """One that gives these answers in order, the last one again and again."""
    left = list(answers)
    with Receiver(lambda _: left.pop(0) if len(left) > 1 else left[0]).running() as receiver:
        yield receiver


def of_span(
    *results: EvaluationResult, span_id: str = SPAN, **fields: Any
) -> AggregatedEvaluationResult:
    """The results of an evaluated span."""
    span = SpanReference(trace_id=TRACE, span_id=span_id, trace_flags=1)
    return aggregated(*results, span=span, **fields)

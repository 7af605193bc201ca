"""ModelServer: a model provider on loopback, for tests of agents and judges.

It fails on demand as networks do.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from agenteval_otel.testing.model_formats import (
    BATCHES,
    FORMATS,
    Events,
    Exchange,
    Format,
    MessageBatch,
    ModelReply,
)

Reply = str | ModelReply | Callable[[dict[str, Any]], "str | ModelReply"]
_CLOSE_TIMEOUT_S = 5.0
_CHUNK_BYTES = 16_384


class ModelServer:
    """Serves as a model provider on a free port of the loopback interface. A context manager.

        replies = ["Hello.", ModelReply(status=429, headers={"Retry-After": "1"})]
        with ModelServer(replies) as server:
            anthropic.Anthropic(base_url=server.url, api_key="test")
            openai.OpenAI(base_url=f"{server.url}/v1", api_key="test")

    It answers ``POST`` requests whose path ends in ``/messages``, ``/chat/completions`` or
    ``/responses``, plain and with ``"stream": true``, and ``/embeddings``. Every connection has a
    daemon thread. `close` ends them all.

    Args:
        replies: Text, a `ModelReply`, or a function from the request's body to one of these. Sent
            in order, the last one again and again.

    Attributes:
        url: The address. The version's part of the path is the client's.
        requests, paths, headers: Of the requests, in order: JSON bodies, paths, headers with names
            in lower case.
        connections: Number of connections so far.
        batch_polls: Number of polls during which a batch of ``/messages/batches`` is in progress.
            None: forever. Each of its requests is also in `requests`. A reply with status 410 marks
            its request as expired.
    """

    def __init__(self, replies: Sequence[Reply] = ("Hello.",)) -> None:
        if not replies or isinstance(replies, str):
            raise ValueError("expected a list with at least one reply")
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.connections = 0
        self.batch_polls: int | None = 0
        self._batches: dict[str, MessageBatch] = {}
        self._replies = list(replies)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._open: dict[socket.socket, threading.Thread] = {}
        self._server = _Listener(("127.0.0.1", 0), partial(_Handler, self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    def __repr__(self) -> str:
        return f"<ModelServer {self.url} requests={len(self.requests)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _exchange(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Exchange:
        """Record a request, and choose the reply to it."""
        with self._lock:
            number = len(self.requests)
            self.requests.append(body)
            self.paths.append(path)
            self.headers.append(headers)
        reply = self._replies[min(number, len(self._replies) - 1)]
        if callable(reply):
            reply = reply(body)
        if isinstance(reply, str):
            reply = ModelReply(text=reply)
        return Exchange(body, reply, number + 1)

    def _batch(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        """Make a batch of the requests, each answered by the next reply."""
        exchanges = [
            (request["custom_id"], self._exchange(path, headers, request["params"]))
            for request in body["requests"]
        ]
        batch = MessageBatch(f"msgbatch_{len(self._batches) + 1:04d}", exchanges)
        self._batches[batch.id] = batch
        return batch.state(self.url, has_ended=False)

    def close(self) -> None:
        """Stop listening, break off open connections, and end every thread. Idempotent."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            left = dict(self._open)
        for connection in left:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in (*left.values(), self._thread):
            thread.join(_CLOSE_TIMEOUT_S)


class _Listener(ThreadingHTTPServer):
    request_queue_size = 128


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, owner: ModelServer, *arguments: Any) -> None:
        self._owner = owner
        self._closed = owner._closed
        super().__init__(*arguments)

    def setup(self) -> None:
        super().setup()
        with self._owner._lock:
            self._owner.connections += 1
            self._owner._open[self.connection] = threading.current_thread()

    def handle(self) -> None:
        # the client went away, or the connection was reset
        with contextlib.suppress(OSError, ValueError):
            super().handle()

    def finish(self) -> None:
        with self._owner._lock:
            self._owner._open.pop(self.connection, None)
        super().finish()

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def do_GET(self) -> None:
        batch = self._owner._batches.get(self.path.removesuffix("/results").rpartition("/")[2])
        if batch is None:
            self._refuse(404)
        elif self.path.endswith("/results"):
            lines = "".join(json.dumps(line) + "\n" for line in batch.results)
            self._send(ModelReply(), lines.encode())
        else:
            batch.polls += 1
            has_ended = (
                self._owner.batch_polls is not None and batch.polls > self._owner.batch_polls
            )
            self._send(
                ModelReply(), json.dumps(batch.state(self._owner.url, has_ended=has_ended)).encode()
            )

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        wire = next((known for end, known in FORMATS.items() if path.endswith(end)), None)
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        is_batch = path.endswith(BATCHES)
        is_known = wire is not None or is_batch
        if not is_known or not isinstance(body, dict):
            self._refuse(400 if is_known else 404)
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        if is_batch:
            self._send(ModelReply(), json.dumps(self._owner._batch(path, headers, body)).encode())
            return
        assert wire is not None
        exchange = self._owner._exchange(path, headers, body)
        if self._stay_silent(exchange.reply):
            return
        self._answer(wire, exchange)

    def _refuse(self, status: int) -> None:
        text = "expected POST to a known path, with a JSON object"
        self._send(
            ModelReply(status=status),
            json.dumps({"error": {"message": text, "type": "not_found"}}).encode(),
        )

    def _stay_silent(self, reply: ModelReply) -> bool:
        """Wait as the reply says. Return True if the connection has to end without an answer."""
        if reply.delay_s > 0:
            self._closed.wait(reply.delay_s)
        if reply.hangs == "before":
            self._closed.wait()
        # closed with data left to send and no time for it, so that the client sees a reset
        if reply.resets:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        self.close_connection = reply.resets or self._closed.is_set()
        return self.close_connection

    def _answer(self, wire: Format, exchange: Exchange) -> None:
        reply = exchange.reply
        body = reply.body
        if wire.events and reply.status < 400 and body is None and exchange.request.get("stream"):
            self._stream(reply, wire.events(exchange))
            return
        if body is None:
            body = wire.failure(exchange) if reply.status >= 400 else wire.plain(exchange)
        text = body if isinstance(body, str) else json.dumps(body)
        self._send(reply, b" " * reply.padding + text.encode())

    def _begin(self, reply: ModelReply, **headers: str) -> None:
        self.send_response(reply.status)
        for name, value in {**headers, **reply.headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def _send(self, reply: ModelReply, body: bytes) -> None:
        length = (
            {"Transfer_Encoding": "chunked"}
            if reply.chunked
            else {"Content_Length": str(len(body))}
        )
        self._begin(reply, Content_Type="application/json", **length)
        breaks_off = reply.cut_after is not None or reply.hangs is not None
        if breaks_off:
            body = b"" if reply.hangs == "headers" else body[: len(body) // 2]
        size = 1 if reply.trickle_s else _CHUNK_BYTES
        for start in range(0, len(body), size):
            if reply.trickle_s and self._closed.wait(reply.trickle_s):
                break
            part = body[start : start + size]
            if reply.chunked:
                self._chunk(part)
            else:
                self.wfile.write(part)
        if reply.hangs is not None:
            self._closed.wait()
        if reply.chunked and not breaks_off:
            self._chunk(b"")
        self.close_connection = self.close_connection or breaks_off or self._closed.is_set()

    def _stream(self, reply: ModelReply, events: Events) -> None:
        self._begin(
            reply, Content_Type="text/event-stream; charset=utf-8", Transfer_Encoding="chunked"
        )
        for event, data in events[: reply.cut_after]:
            text = data if isinstance(data, str) else json.dumps(data)
            name = f"event: {event}\n" if event else ""
            self._chunk(f"{name}data: {text}\n\n".encode())
        self.close_connection = reply.cut_after is not None or self._closed.is_set()
        if not self.close_connection:
            self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

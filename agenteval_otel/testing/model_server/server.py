"""ModelServer: the replies behind an address."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final

from agenteval_otel.testing.model_server import completions, embeddings, messages, responses
from agenteval_otel.testing.model_server.exchange import Exchange, Wire
from agenteval_otel.testing.model_server.reply import ModelReply

__all__ = ["ModelServer"]

Reply = str | ModelReply | Callable[[dict[str, Any]], "str | ModelReply"]

_WIRES: Final[dict[str, Wire]] = {
    "/messages": messages,
    "/chat/completions": completions,
    "/responses": responses,
    "/embeddings": embeddings,
}
_CLOSE_TIMEOUT_S: Final = 5.0
_CHUNK: Final = 16_384
_AT_ONCE: Final = ModelReply()


class ModelServer:
    """A model provider on a free port of the loopback interface; a context manager.

        with ModelServer(["Hello.", ModelReply(status=429, headers={"Retry-After": "1"})]) as server:
            anthropic.Anthropic(base_url=server.url, api_key="test")
            openai.OpenAI(base_url=f"{server.url}/v1", api_key="test")

    It answers ``POST`` requests whose path ends in ``/messages``, ``/chat/completions`` or ``/responses``, plain and
    with ``"stream": true``, and ``/embeddings``. Every connection has a daemon thread; `close` ends them all.

    Args:
        replies: Text, a `ModelReply`, or a function from the request's body to one of these; given in order, the last
            one again and again.

    Attributes:
        url: Where it listens; the version's part of the path is the client's.
        requests: The JSON bodies that came, in order.
        paths: Their paths.
        headers: Their headers, names in lower case.
    """

    def __init__(self, replies: Sequence[Reply] = ("Hello.",)) -> None:
        if not replies or isinstance(replies, str):
            raise ValueError("expected a list with at least one reply")
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self._replies, self._lock, self._closed = list(replies), threading.Lock(), threading.Event()
        self._server = _Listener(self)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<ModelServer {self.url} requests={len(self.requests)}>"

    def __enter__(self) -> ModelServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening, break off what is open, and end every thread. Idempotent."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._server.break_off(_CLOSE_TIMEOUT_S)
        self._thread.join(_CLOSE_TIMEOUT_S)

    def hang(self) -> None:
        """Let time pass until the server is closed."""
        self._closed.wait()

    @property
    def connections(self) -> int:
        """How many connections were made so far."""
        return self._server.accepted

    def wait(self, seconds: float) -> bool:
        """Let time pass; True when the server was closed meanwhile."""
        return seconds > 0 and self._closed.wait(seconds)

    def take(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Exchange:
        """Note a request, and choose the reply to it."""
        with self._lock:
            number = len(self.requests)
            self.requests.append(body)
            self.paths.append(path)
            self.headers.append(headers)
        chosen = self._replies[min(number, len(self._replies) - 1)]
        if callable(chosen):
            chosen = chosen(body)
        return Exchange(body, ModelReply(text=chosen) if isinstance(chosen, str) else chosen, number + 1)


class _Listener(ThreadingHTTPServer):
    """The HTTP server, which knows its connections and their threads so that both can be ended."""

    block_on_close = False
    request_queue_size = 128

    def __init__(self, owner: ModelServer) -> None:
        self.owner = owner
        self._open: dict[socket.socket, threading.Thread] = {}
        self._guard = threading.Lock()
        self.accepted = 0
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(target=self.process_request_thread, args=(request, client_address), daemon=True)
        with self._guard:
            self._open[request] = thread
            self.accepted += 1
        thread.start()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._guard:
                self._open.pop(request, None)

    def cut(self, connection: socket.socket) -> None:
        """Close a connection this moment."""
        with self._guard:
            self._open.pop(connection, None)
        connection.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is none of ours to print."""

    def break_off(self, timeout_s: float) -> None:
        """End every connection, and wait for its thread."""
        with self._guard:
            left = dict(self._open)
        for connection in left:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in left.values():
            thread.join(timeout_s)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._send(404, {}, b'{"error": {"message": "this server only answers POST", "type": "not_found"}}')

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        wire = next((wire for end, wire in _WIRES.items() if path.endswith(end)), None)
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        if wire is None or not isinstance(body, dict):
            status = 404 if wire is None else 400
            self._send(status, {}, b'{"error": {"message": "no known path or no JSON object", "type": "not_found"}}')
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        exchange = self.server.owner.take(path, headers, body)
        if self.server.owner.wait(exchange.reply.delay_s) or self._is_silent(exchange.reply):
            self.close_connection = True
            return
        self._answer(wire, exchange)

    def _is_silent(self, reply: ModelReply) -> bool:
        if reply.hangs == "before":
            self.server.owner.hang()
        if reply.resets:  # closed with something left to send, and no time for it: the client sees a reset
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.server.cut(self.connection)
        return reply.hangs == "before" or reply.resets

    def _answer(self, wire: Wire, exchange: Exchange) -> None:
        reply = exchange.reply
        if reply.status < 400 and reply.body is None and exchange.request.get("stream"):
            self._stream(wire, exchange)
            return
        body = reply.body
        if body is None:
            body = wire.failure(exchange) if reply.status >= 400 else wire.plain(exchange)
        text = body if isinstance(body, str) else json.dumps(body)
        self._send(reply.status, reply.headers, b" " * reply.padding + text.encode(), reply)

    def _send(self, status: int, headers: dict[str, str], body: bytes, reply: ModelReply = _AT_ONCE) -> None:
        self.send_response(status)
        length = {"Transfer-Encoding": "chunked"} if reply.chunked else {"Content-Length": str(len(body))}
        for name, value in {"Content-Type": "application/json", **length, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        breaks_off = reply.cut_after is not None or reply.hangs is not None
        if breaks_off:
            body = b"" if reply.hangs == "headers" else body[: len(body) // 2]
        self._write(body, reply)
        if reply.hangs is not None:
            self.wfile.flush()
            self.server.owner.hang()
        if reply.chunked and not breaks_off:
            self._chunk(b"")
        self.close_connection = self.close_connection or breaks_off

    def _write(self, body: bytes, reply: ModelReply) -> None:
        """The body as it is, in chunks, or byte by byte with time between."""
        size = 1 if reply.trickle_s else _CHUNK if reply.chunked else max(1, len(body))
        for start in range(0, len(body), size):
            if self.server.owner.wait(reply.trickle_s):
                self.close_connection = True
                return
            part = body[start : start + size]
            if reply.chunked:
                self._chunk(part)
            else:
                self.wfile.write(part)

    def _stream(self, wire: Wire, exchange: Exchange) -> None:
        reply = exchange.reply
        self.send_response(reply.status)
        headers = {"Content-Type": "text/event-stream; charset=utf-8", "Transfer-Encoding": "chunked", **reply.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        for sent, (event, data) in enumerate(wire.events(exchange)):
            cut = reply.cut_after is not None and sent >= reply.cut_after
            if cut or self.server.owner.wait(reply.chunk_delay_s):
                self.close_connection = True
                return
            text = data if isinstance(data, str) else json.dumps(data)
            line = f"event: {event}\ndata: {text}\n\n" if event else f"data: {text}\n\n"
            self._chunk(line.encode())
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

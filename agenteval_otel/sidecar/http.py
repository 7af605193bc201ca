"""OTLP, feedback, erasure, evaluation, health and readiness over HTTP.

It is an ASGI application, served by uvicorn.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agenteval_otel.capture.otlp.body import (
    NO_ROOM,
    PACKINGS,
    PATIENCE_S,
    REFUSAL_CHARS,
    Decoding,
    Full,
    Refusal,
    attempt,
    decoded,
    decoded_json,
    unpacked,
)
from agenteval_otel.config.sidecar import SidecarSettings
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.version import scope_version
from agenteval_otel.sidecar.access import RequestAccess
from agenteval_otel.sidecar.erasure import MAX_BYTES as ERASURE_BYTES
from agenteval_otel.sidecar.erasure import take_erasure
from agenteval_otel.sidecar.evaluate import MAX_BYTES as EVALUATE_BYTES
from agenteval_otel.sidecar.evaluate import Evaluations, count_request
from agenteval_otel.sidecar.feedback import MAX_BYTES as FEEDBACK_BYTES
from agenteval_otel.sidecar.feedback import take_feedback
from agenteval_otel.sidecar.intake import Intake
from agenteval_otel.sidecar.journal import LOGS, TRACES

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

_PROTOBUF: Final = "application/x-protobuf"
_JSON: Final = "application/json"
_PATHS: Final = {"/v1/traces": TRACES, "/v1/logs": LOGS}
_LINGER_S: Final = 2.0
_SEND_BUFFER_BYTES: Final = 64 * 1024
_FEEDBACK: Final = "/v1/feedback"
_ERASE: Final = "/v1/erase"
_EVALUATE: Final = "/v1/evaluate"

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Add = Callable[[int], bool]


class HttpReply(NamedTuple):
    """Holds the reply to one request."""

    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[bytes, bytes], ...] = ()


class HttpReceiver:
    """The ASGI application. Nothing of a request is logged.

    Args:
        intake: Takes what was decoded.
        decoding: Bounds what waits to be decoded.
        evaluations: Answers requests for an evaluation. None: that is switched off.
        why_not: Says why `/readyz` says no. None: it says yes.
    """

    def __init__(
        self,
        intake: Intake,
        settings: SidecarSettings,
        decoding: Decoding,
        evaluations: Evaluations | None,
        why_not: Callable[[], str | None],
    ) -> None:
        self._intake = intake
        self._evaluations = evaluations
        self._why_not = why_not
        self._max_bytes = settings.max_request_bytes
        self._access = RequestAccess(settings)
        self._decoding = decoding

    async def __call__(
        self, scope: Message, receive: Receive, send: Callable[[Message], Awaitable[None]]
    ) -> None:
        if scope["path"] == _EVALUATE:
            await self._evaluate(scope, receive, send)
        else:
            await _send(await self._attempted(self._reply(scope, receive)), send)

    async def _evaluate(
        self, scope: Message, receive: Receive, send: Callable[[Message], Awaitable[None]]
    ) -> None:
        """Answer a request for an evaluation. Its room is free once its client has the reply."""
        if self._evaluations is None:
            await _send(await self._attempted(self._no_evaluation(scope)), send)
            return
        with self._evaluations.room.body() as add:
            reply = await self._attempted(self._evaluation(scope, receive, add, self._evaluations))
            count_request(reply.status)
            add(len(reply.body))
            await _send(reply, send, waits_for_client=True)

    async def _attempted(self, work: Awaitable[HttpReply]) -> HttpReply:
        try:
            return await work
        except Exception as error:
            # The server would log it with its message, in which there may be content.
            log.warning("request_failed", part="receiver", error_type=type(error).__name__)
            return _refused(500, "not taken: an error of the receiver")

    async def _reply(self, scope: Message, receive: Receive) -> HttpReply:
        path = scope["path"]
        method = scope["method"]
        if path in ("/healthz", "/readyz") and method in ("GET", "HEAD"):
            problem = None if path == "/healthz" else self._why_not()
            state = {"status": "ok", "version": scope_version()}
            if problem is not None:
                state |= {"status": "not ready", "reason": problem}
            silence = self._intake.silence.reason
            if silence is not None:
                # Not the names of services, which anybody who asks would see.
                state |= {"nothing_evaluated": silence.outcome, "fix": silence.fix}
            return HttpReply(200 if problem is None else 503, json.dumps(state).encode(), _JSON)
        kind = _PATHS.get(path)
        if kind is None and path not in (_FEEDBACK, _ERASE):
            return _refused(404, f"POST OTLP to {' or '.join(_PATHS)}")
        headers = dict(scope["headers"])
        refused = self._closed_to(method, headers)
        if refused is not None:
            return refused
        with self._decoding.body() as add:
            if kind is None:
                return await self._json(path, headers, receive, add)
            return await self._otlp(kind, headers, receive, add)

    def _closed_to(self, method: str, headers: dict[bytes, bytes]) -> HttpReply | None:
        """Return why a request is refused whatever its body says, or None."""
        if method != "POST":
            return _refused(405, "POST alone", allow=b"POST")
        refusal = self._access.refusal(headers)
        if refusal is None:
            return None
        if refusal.status == 401:
            return _refused(401, refusal.message, www_authenticate=b"Bearer")
        return _refused(*refusal)

    async def _no_evaluation(self, scope: Message) -> HttpReply:
        refused = self._closed_to(scope["method"], dict(scope["headers"]))
        return refused or _refused(404, "switched off: set sidecar.evaluate to true")

    async def _evaluation(
        self, scope: Message, receive: Receive, add: Add, evaluations: Evaluations
    ) -> HttpReply:
        headers = dict(scope["headers"])
        refused = self._closed_to(scope["method"], headers)
        if refused is not None:
            return refused
        encoding = _encoding_of(headers)
        refused = _unknown_kind(_content_type_of(headers), encoding, (_JSON,))
        if refused is not None:
            return refused
        if evaluations.refusal is not None:
            return _refused(*evaluations.refusal)
        body = await self._body(headers, receive, add, EVALUATE_BYTES)
        if isinstance(body, HttpReply):
            return body
        result = await evaluations.reply(body, encoding)
        if isinstance(result, Refusal):
            return _refused(*result)
        return HttpReply(200, result.encode(), _JSON)

    async def _otlp(
        self, kind: int, headers: dict[bytes, bytes], receive: Receive, add: Add
    ) -> HttpReply:
        content_type = _content_type_of(headers)
        encoding = _encoding_of(headers)
        refused = _unknown_kind(content_type, encoding, (_PROTOBUF, _JSON))
        if refused is not None:
            return refused
        body = await self._body(headers, receive, add, self._max_bytes)
        if isinstance(body, HttpReply):
            return body
        messages = self._intake.messages[kind]
        rejected = await self._decoding.run(
            partial(self._taken, kind, body, encoding, content_type)
        )
        if isinstance(rejected, Refusal):
            return _refused(*rejected)
        answer = messages.answer(rejected, "without a trace id or a span id")
        if content_type == _JSON:
            return HttpReply(200, messages.json.MessageToJson(answer).encode(), _JSON)
        return HttpReply(200, answer.SerializeToString(), _PROTOBUF)

    async def _json(
        self, path: str, headers: dict[bytes, bytes], receive: Receive, add: Add
    ) -> HttpReply:
        """Answer a request with feedback, or with an erasure."""
        take: Callable[[bytes], Any] = take_erasure if path == _ERASE else take_feedback
        max_bytes = ERASURE_BYTES if path == _ERASE else FEEDBACK_BYTES
        body = await self._body(headers, receive, add, max_bytes)
        if isinstance(body, HttpReply):
            return body
        work = partial(attempt, partial(take, bytes(body)))
        answer = await asyncio.get_running_loop().run_in_executor(None, work)
        if isinstance(answer, Refusal):
            return _refused(*answer)
        if path == _ERASE:
            return HttpReply(200, answer, _JSON)
        return HttpReply(202, b'{"taken": %d}' % answer, _JSON)

    async def _body(
        self, headers: dict[bytes, bytes], receive: Receive, add: Add, max_bytes: int
    ) -> bytearray | HttpReply:
        too_large = _refused(413, f"larger than {max_bytes:,} bytes")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > max_bytes:
            return too_large
        body = bytearray()
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return _refused(400, "client disconnected")
                    chunk = message.get("body", b"")
                    body += chunk
                    has_room = add(len(chunk))
                    if len(body) > max_bytes:
                        return too_large
                    if not has_room:
                        return _refused(429, NO_ROOM, Full.retry_after_s)
                    if not message.get("more_body"):
                        return body
        except TimeoutError:
            return _refused(408, f"the body took longer than {PATIENCE_S:g} s")

    def _taken(self, kind: int, body: bytearray, encoding: str, content_type: str) -> int:
        data: Any = unpacked(body, encoding, self._max_bytes)
        messages = self._intake.messages[kind]
        room = self._intake.room()
        is_json = content_type == _JSON
        decode = decoded_json if is_json else decoded
        request = decode(data, messages, room)
        self._intake.note_empty(kind, request)
        return self._intake.take(kind, request, None if is_json else data)


def _content_type_of(headers: dict[bytes, bytes]) -> str:
    content_type, _, _ = headers.get(b"content-type", b"").decode("latin-1").partition(";")
    return content_type.strip().lower()


def _encoding_of(headers: dict[bytes, bytes]) -> str:
    return headers.get(b"content-encoding", b"").decode("latin-1").strip().lower()


def _unknown_kind(content_type: str, encoding: str, known: tuple[str, ...]) -> HttpReply | None:
    """Return the refusal of a body that cannot be read, or None."""
    if content_type not in known:
        return _refused(415, f"content-type: {' or '.join(known)}")
    if encoding not in ("", "identity", *PACKINGS):
        return _refused(415, f"content-encoding: {', '.join(PACKINGS)} or none")
    return None


async def _send(
    reply: HttpReply, send: Callable[[Message], Awaitable[None]], *, waits_for_client: bool = False
) -> None:
    """Send a reply. With `waits_for_client` return once the client has taken most of it."""
    headers = [
        (b"content-type", reply.content_type.encode()),
        (b"content-length", b"%d" % len(reply.body)),
    ]
    await send(
        {
            "type": "http.response.start",
            "status": reply.status,
            "headers": [*headers, *reply.headers],
        }
    )
    body: Message = {"type": "http.response.body", "body": reply.body}
    if waits_for_client:
        await send({**body, "more_body": True})
        # The server sends nothing more before what is there has gone out.
        body["body"] = b""
    await send(body)


def _refused(
    status: int, message: str, retry_after_s: int | None = None, **headers: bytes
) -> HttpReply:
    # What is left of a body is not read, so the connection is of no further use.
    named = {"connection": b"close", **headers}
    if retry_after_s:
        named["retry-after"] = b"%d" % retry_after_s
    pairs = tuple((name.replace("_", "-").encode(), value) for name, value in named.items())
    return HttpReply(status, f"{message[:REFUSAL_CHARS]}\n".encode(), headers=pairs)


class HttpServer:
    """Serves the receiver on the event loop in which `serve` runs.

    Raises `ConfigurationError` where uvicorn is missing, or a certificate is wrong.
    """

    def __init__(self, receiver: HttpReceiver, settings: SidecarSettings) -> None:
        try:
            import uvicorn

            h11_impl = import_module("uvicorn.protocols.http.h11_impl")
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                'uvicorn is missing: pip install "agenteval-otel[sidecar]"'
            ) from error
        certificates: dict[str, Any] = {}
        if settings.certificate is not None:
            certificates = {"ssl_certfile": settings.certificate, "ssl_keyfile": settings.key}
        if settings.client_ca is not None:
            import ssl

            certificates |= {"ssl_ca_certs": settings.client_ca, "ssl_cert_reqs": ssl.CERT_REQUIRED}
        protocol = type(
            "Impatient", (_Impatience, h11_impl.H11Protocol), {"sends_body": h11_impl.h11.SEND_BODY}
        )
        config = uvicorn.Config(
            receiver,
            http=protocol,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=3,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=16 * 1024,
            **certificates,
        )
        try:
            config.load()
        except OSError as error:  # of `ssl` too
            wrong = f"certificate, key or client_ca cannot be used: {error}"
            raise ConfigurationError(wrong, path="sidecar.certificate") from None
        self._server = uvicorn.Server(config)

    async def serve(self, listener: socket.socket) -> None:
        """Serve until `stop`.

        Does not run on the main thread, where uvicorn would handle the signals.
        """
        await self._server.serve(sockets=[listener])

    def stop(self) -> None:
        """Take no further connection, and answer what has come."""
        self._server.should_exit = True


class EventLoop(asyncio.SelectorEventLoop):
    """Runs the system's event loop, with less time for the handshake of TLS.

    A client has `PATIENCE_S` for it instead of a minute.
    """

    async def create_server(self, *arguments: Any, **options: Any) -> Any:
        if options.get("ssl") is not None:
            options |= {"ssl_handshake_timeout": PATIENCE_S, "ssl_shutdown_timeout": _LINGER_S}
        return await super().create_server(*arguments, **options)


class _Transport:
    """A client's transport that closes without waiting for the client and without losing the reply.

    To close a connection with unread data makes the system reset it, and the client may never see
    why its request was refused. So further data is read for a moment and discarded.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._is_closing = False
        self.lingers = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._is_closing or self._transport.is_closing()

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if not (self.lingers and self._says_end()):
            self._transport.close()
        self._loop.call_later(_LINGER_S, self._transport.abort)

    def _says_end(self) -> bool:
        """Close the sending side and continue reading. Return False if that is not possible."""
        try:
            if not self._transport.can_write_eof():  # over TLS
                return False
            self._transport.write_eof()
        except OSError:  # the client has left
            return False
        self._transport.resume_reading()
        return True


class _Impatience:
    """Closes connections of clients that take longer than `PATIENCE_S`, to read too.

    Used as a base class beside a protocol of uvicorn.
    """

    sends_body: object
    loop: asyncio.AbstractEventLoop
    transport: _Transport
    conn: Any
    cycle: RequestResponseCycle | None
    _head: asyncio.TimerHandle | None = None
    _reply: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        # The loop sets this only for sockets that name their protocol. Without it, a reply's body
        # would wait for the client's acknowledgement of the head, 40 ms.
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Replies are short: what a client does not read is noticed soon, and the system keeps
        # little of it.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        super().connection_made(_Transport(transport, self.loop))  # type: ignore[misc]
        self._await_head()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            self._await_head()
        super().data_received(data)  # type: ignore[misc]
        self.transport.lingers = self.conn.their_state is self.sends_body
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget_head()

    def pause_writing(self) -> None:
        super().pause_writing()  # type: ignore[misc]
        self._reply = self.loop.call_later(PATIENCE_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()  # type: ignore[misc]
        if self._reply is not None:
            self._reply.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        super().connection_lost(exc)  # type: ignore[misc]

    def _await_head(self) -> None:
        if self._head is None:
            self._head = self.loop.call_later(PATIENCE_S, self.transport.close)

    def _forget_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

"""OTLP over gRPC: one method for traces, one for logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from agenteval_otel.capture.otlp.body import (
    NO_ROOM,
    PATIENCE_S,
    Decoding,
    Full,
    Refusal,
    decoded,
    unpacked,
)
from agenteval_otel.config.sidecar import SidecarSettings
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.sidecar.access import RequestAccess, counted
from agenteval_otel.sidecar.intake import Intake
from agenteval_otel.sidecar.journal import LOGS, TRACES

if TYPE_CHECKING:
    import grpc

_SERVICES: Final = {"trace": TRACES, "logs": LOGS}
_CODES: Final = {
    429: "RESOURCE_EXHAUSTED",
    413: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
_HEALTH: Final = "grpc.health.v1.Health"
_SERVING: Final = b"\x08\x01"
_NOT_SERVING: Final = b"\x08\x02"
"""The two replies of the health service, which has a message of one enumeration: its package would be
a dependency for these bytes."""
_HANDSHAKE_MS: Final = 8_000
_GZIP: Final = b"\x1f\x8b"
"""What gzip begins with, and no message of protobuf does."""
_MOST_READ: Final = 64
"""How many bodies may be read at once: gRPC reads a body before its size is known. Above this, the
oldest read is cut off, to be sent again: refusing new ones instead would let slow clients block all
others."""
_FULL: Final = Refusal(429, NO_ROOM, Full.retry_after_s)
_MOST_STREAMS: Final = 100
"""How many calls a connection may have open. Of one more its client waits by itself, as HTTP/2 has
it."""
_MOST_PENDING: Final = 3_000
"""How many calls of all clients gRPC keeps until they are begun. It ends those above with CANCELLED.
By default it ends some at random from 1,000 on. Each takes some 20 KB."""
_IDLE_MS: Final = 8_000
"""Idle connections are closed after this time, half-open ones among them. Clients reconnect by
themselves.
"""


class GrpcReceiver:
    """Answers calls on the event loop in which it is started. Nothing of a request is logged.

    Args:
        intake: Takes what was decoded.
        decoding: Bounds what waits to be decoded.
        why_not: Says why the health service says `NOT_SERVING`. None: it says `SERVING`.
    """

    def __init__(
        self,
        intake: Intake,
        settings: SidecarSettings,
        decoding: Decoding,
        why_not: Callable[[], str | None],
    ) -> None:
        self._intake = intake
        self._settings = settings
        self._decoding = decoding
        self._why_not = why_not
        self._access = RequestAccess(settings)
        self._server: Any = None
        self._reading: dict[asyncio.Timeout, None] = {}  # oldest first

    async def start(self) -> int:
        """Listen, and return the port.

        Raises `ConfigurationError` if the port is taken or a certificate is wrong.
        """
        import grpc

        # Without so_reuseport a second sidecar would share the port instead of failing.
        options = [
            ("grpc.max_receive_message_length", self._settings.max_request_bytes),
            ("grpc.so_reuseport", 0),
            ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
            ("grpc.max_metadata_size", 16 * 1024),
            ("grpc.max_connection_idle_ms", _IDLE_MS),
            ("grpc.max_concurrent_streams", _MOST_STREAMS),
            ("grpc.server.max_pending_requests", _MOST_PENDING),
            ("grpc.server.max_pending_requests_hard_limit", _MOST_PENDING),
            # gRPC leaves messages compressed: unpacked here, a bomb takes a third of the memory.
            # Only gzip or none.
            ("grpc.per_message_decompression", 0),
            ("grpc.compression_enabled_algorithms_bitset", 0b101),
        ]
        self._server = grpc.aio.server(options=options)
        for package, kind in _SERVICES.items():
            name = f"opentelemetry.proto.collector.{package}.v1.{package.capitalize()}Service"
            # Declared as a stream of one, so the token is checked before the request is read.
            method = grpc.stream_unary_rpc_method_handler(partial(self._export, kind))
            self._server.add_generic_rpc_handlers(
                [grpc.method_handlers_generic_handler(name, {"Export": method})]
            )
        check = grpc.unary_unary_rpc_method_handler(self._check)
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(_HEALTH, {"Check": check})]
        )
        port = self._bind(grpc)
        await self._server.start()
        return port

    async def stop(self, timeout_s: float) -> None:
        """Take no further request, and answer those that have come."""
        await self._server.stop(timeout_s)

    def _bind(self, grpc: Any) -> int:
        """Bind the address, with TLS if there is a certificate, and return the port."""
        settings = self._settings
        address = f"[{settings.host}]" if ":" in settings.host else settings.host
        address = f"{address}:{settings.grpc_port}"
        try:
            if settings.certificate is None:
                return int(self._server.add_insecure_port(address))
            key = Path(settings.key or "").read_bytes()
            chain = Path(settings.certificate).read_bytes()
            client_ca = None
            if settings.client_ca is not None:
                client_ca = Path(settings.client_ca).read_bytes()
            needs_client = client_ca is not None
            credentials = grpc.ssl_server_credentials([(key, chain)], client_ca, needs_client)
            return int(self._server.add_secure_port(address, credentials))
        except RuntimeError:
            raise cannot_bind("grpc_port", address) from None

    async def _check(self, _: bytes, context: grpc.aio.ServicerContext) -> bytes:
        """Answer the health service as `/readyz` does, without a token."""
        return _SERVING if self._why_not() is None else _NOT_SERVING

    async def _export(
        self, kind: int, _: AsyncIterator[bytes], context: grpc.aio.ServicerContext
    ) -> bytes:
        import grpc

        codes = grpc.StatusCode
        metadata = dict(context.invocation_metadata() or ())
        authorization = metadata.get("authorization", "")
        if not self._access.has_token(str(authorization).encode()):
            await context.abort(codes.UNAUTHENTICATED, "send authorization: Bearer TOKEN")
        outcome = await self._received(kind, context)
        if isinstance(outcome, Refusal):
            await _refuse(outcome, context)
        rejected = outcome
        answer = self._intake.messages[kind].answer(rejected, "without a trace id or a span id")
        reply: bytes = answer.SerializeToString()
        return reply

    async def _received(self, kind: int, context: grpc.aio.ServicerContext) -> int | Refusal:
        """Read and take a request. Return how many of its records were rejected, or why all were."""
        import grpc

        try:
            async with asyncio.timeout(PATIENCE_S) as patience:
                self._make_room()
                self._reading[patience] = None
                try:
                    # Not through the iterator, which keeps its last message until garbage
                    # collection.
                    data = await context.read()
                finally:
                    is_cut_off = patience not in self._reading
                    self._reading.pop(patience, None)
        except TimeoutError:
            if is_cut_off:
                return counted("cut_off", _FULL)
            wrong = f"the request took longer than {PATIENCE_S:g} s"
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, wrong)
        if data is grpc.aio.EOF:
            data = b""
        with self._decoding.body() as add:
            if not add(len(data)):
                return _FULL
            return await self._decoding.run(partial(self._taken, kind, data))

    def _make_room(self) -> None:
        """Cut off the read that began first, if as many are under way as may be."""
        if len(self._reading) >= _MOST_READ:
            oldest = next(iter(self._reading))
            del self._reading[oldest]
            if not oldest.expired():
                oldest.reschedule(asyncio.get_running_loop().time())

    def _taken(self, kind: int, packed: bytes) -> int:
        most = self._settings.max_request_bytes
        encoding = "gzip" if packed.startswith(_GZIP) else ""
        data: Any = unpacked(packed, encoding, most)
        request = decoded(data, self._intake.messages[kind], self._intake.room())
        self._intake.note_empty(kind, request)
        return self._intake.take(kind, request, data)


async def _refuse(refusal: Refusal, context: grpc.aio.ServicerContext) -> NoReturn:
    import grpc

    if refusal.retry_after_s is not None:
        context.set_trailing_metadata((("grpc-status-details-bin", _try_again(refusal)),))
    code = _CODES.get(refusal.status, "INVALID_ARGUMENT")
    await context.abort(getattr(grpc.StatusCode, code), refusal.message)
    raise AssertionError("an abort raises")


def _try_again(refusal: Refusal) -> bytes:
    """Return the status with `RetryInfo`, without which a client would not send the request again."""
    from google.rpc import code_pb2, error_details_pb2, status_pb2

    code = code_pb2.UNAVAILABLE if refusal.status == 503 else code_pb2.RESOURCE_EXHAUSTED
    status = status_pb2.Status(code=code, message=refusal.message)
    retry = error_details_pb2.RetryInfo()
    retry.retry_delay.seconds = refusal.retry_after_s
    status.details.add().Pack(retry)
    details: bytes = status.SerializeToString()
    return details


def cannot_bind(field: str, address: str) -> ConfigurationError:
    """Return the error of an address that cannot be bound."""
    return ConfigurationError(
        f"{address} cannot be bound: it is taken, perhaps by another sidecar, or no address of this machine. Choose "
        f"another port with --{field.replace('_', '-')}, 0 for a free one. 4317 and 4318 belong to the local Collector",
        path=f"sidecar.{field}",
    )

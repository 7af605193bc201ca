"""The gRPC receiver: who is slow makes room for others."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import grpc
import pytest

from agenteval_otel import configure
from agenteval_otel.config.sidecar import SidecarSettings
from agenteval_otel.sidecar import grpc as receiver
from agenteval_otel.sidecar.access import RequestAccess
from agenteval_otel.sidecar.serve import Sidecar
from agenteval_otel.testing import RecordedTelemetry
from tests.promises.served import TRACES, new_trace_id, trace_request


def test_the_oldest_of_many_slow_calls_is_cut_off(
    telemetry: RecordedTelemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its time is up and to be sent again, so that a call that comes later is answered; the
    others go on.
    """
    monkeypatch.setattr(receiver, "_MOST_READ", 3)
    waiting, has_token = threading.Semaphore(0), RequestAccess.has_token

    def noted(access: RequestAccess, sent: bytes) -> bool:
        waiting.release()  # the call is read next, before another one is looked at
        return has_token(access, sent)

    monkeypatch.setattr(RequestAccess, "has_token", noted)
    configure(storage=[telemetry.storage()], evaluators=["ResponseHealth"])
    sidecar = Sidecar(SidecarSettings(grpc_port=0, http_port=0))
    address = sidecar.start().grpc

    async def work() -> list[Any]:
        async with grpc.aio.insecure_channel(address) as channel:
            slow = [channel.stream_unary(TRACES)() for _ in range(3)]  # they send no body
            for _ in slow:  # the receiver waits for each
                assert await asyncio.to_thread(waiting.acquire, timeout=5)
            await channel.unary_unary(TRACES)(trace_request(new_trace_id()), timeout=5)
            # They arrive in any order.
            ended, going_on = await asyncio.wait(
                [asyncio.ensure_future(call.code()) for call in slow],
                timeout=5,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for call in slow:
                call.cancel()
            return [*(task.result() for task in ended), len(going_on)]

    try:
        assert asyncio.run(work()) == [grpc.StatusCode.RESOURCE_EXHAUSTED, 2]
    finally:
        sidecar.stop(5.0)


def test_a_message_above_the_usual_limit_is_taken(telemetry: RecordedTelemetry) -> None:
    """gRPC's own limit of 4 MiB would refuse what a batch of long answers takes."""
    configure(storage=[telemetry.storage()], evaluators=["ResponseHealth"])
    sidecar = Sidecar(SidecarSettings(grpc_port=0, http_port=0))
    address = sidecar.start().grpc
    request = trace_request(new_trace_id(), text="It is due. " * 600_000)
    assert len(request) > 6 * 1024 * 1024
    try:
        with grpc.insecure_channel(address) as channel:
            channel.unary_unary(TRACES)(request, timeout=30)
    finally:
        sidecar.stop(10.0)
    assert len(telemetry.events()) == 1

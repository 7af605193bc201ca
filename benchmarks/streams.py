"""What a chunk of a sampled stream costs on top of the bare stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

from opentelemetry import trace

from benchmarks import subjects
from benchmarks.harness import Numbers, Size

__all__ = ["chunks"]

_now = time.perf_counter_ns
_CHUNKS = 10_000


def _stream(count: int) -> Generator[str, None, None]:
    for _ in range(count):
        yield "word "


async def _stream_async(count: int) -> AsyncGenerator[str, None]:
    for _ in range(count):
        yield "word "


def _passed_on(function: Any) -> Any:
    """The least that a wrapper in Python costs: a generator that passes the chunks on."""

    def passing(count: int) -> Generator[str, None, None]:
        stream = function(count)
        while True:  # `yield from` would leave the wrapper out of it
            try:
                chunk = stream.send(None)
            except StopIteration:
                return
            yield chunk

    return passing


def _passed_on_async(function: Any) -> Any:
    async def passing(count: int) -> AsyncGenerator[str, None]:
        async for chunk in function(count):
            yield chunk

    return passing


def _read(stream: Callable[[int], Any]) -> float:
    started = _now()
    for _ in stream(_CHUNKS):
        pass
    return (_now() - started) / _CHUNKS / 1e3


async def _read_async(stream: Callable[[int], Any]) -> float:
    started = _now()
    async for _ in stream(_CHUNKS):
        pass
    return (_now() - started) / _CHUNKS / 1e3


def chunks(size: Size, *, ours: bool, in_span: bool = True) -> Numbers:
    """Microseconds a chunk of a sampled stream costs on top of the bare stream."""
    tracer = subjects.use_tracing()
    subject = subjects.Ours(shedding=False) if ours else None
    sync = subject.wrap(_stream) if subject else _passed_on(_stream)
    coroutine = subject.wrap(_stream_async) if subject else _passed_on_async(_stream_async)
    lows = [float("inf")] * 4

    def drain() -> None:
        """So that no evaluation of one stream runs beside the next."""
        if subject:
            subject.drain()

    with trace.use_span(tracer.start_span("request") if in_span else trace.INVALID_SPAN):
        for _ in range(size.of(5, 25)):
            row = [_read(_stream), _read(sync)]
            drain()
            row += [asyncio.run(_read_async(_stream_async)), asyncio.run(_read_async(coroutine))]
            drain()
            lows = [min(low, value) for low, value in zip(lows, row, strict=True)]
    return {"sync": lows[1] - lows[0], "async": lows[3] - lows[2]}

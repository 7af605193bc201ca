"""Rows in which the host is a service: requests at a pace, and what they and its event loop notice."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from opentelemetry import trace

from benchmarks import subjects
from benchmarks.harness import Numbers, Size
from benchmarks.loops import loops_for, paced, paced_async
from benchmarks.speed.application import Application, exporting_nowhere, exporting_to
from benchmarks.speed.process import children, resident_mb, threads, tree_cpu_s
from benchmarks.speed.receiver import receiver
from benchmarks.speed.subjects import make

__all__ = ["agent_span", "exported", "in_the_host", "loop_lag", "requests"]

_now = time.perf_counter
_RATE = 50.0
_CPU_S = 0.005


# --- calls a millisecond apart
# ----------------------------------------------------------------------------------------
def agent_span(name: str, size: Size) -> Numbers:
    """p50 that a sampled call adds, sync and async, in turns with the bare call: caches are cold,
    as in a service.
    """
    subject, calls = make(name, exporting_nowhere()), size.of(200, 1_000)
    added: Numbers = {}
    for mode, times in (
        ("sync", paced(subjects.answer, subject.wrap(subjects.answer), calls)),
        (
            "async",
            asyncio.run(
                paced_async(subjects.answer_async, subject.wrap(subjects.answer_async), calls)
            ),
        ),
    ):
        bare, wrapped = (statistics.median(values[calls // 10 :]) for values in times)
        added[f"{mode} us"] = wrapped - bare
    return added


# --- requests: fifty a second, Poisson
# --------------------------------------------------------------------------------
def requests(name: str, size: Size) -> Numbers:
    """Milliseconds from a request's scheduled arrival to its answer, p99: 2 ms of I/O, an evaluator
    of 5 ms CPU.
    """
    application = exporting_nowhere()
    subject = make(name, application, loops=loops_for(_CPU_S), execution="process")
    seconds = size.of(2, 8)
    sync = _requests(subject.wrap(_serve), seconds)
    _finish(subject, application)
    kept = application.arrived()["events"] / len(_arrivals(seconds))
    return {
        "sync ms": sync,
        "async ms": asyncio.run(_requests_async(subject, seconds)),
        "kept": kept,
    }


def _finish(subject: Any, application: Application) -> None:
    subject.drain()
    application.flush()


def _serve(question: str) -> str:
    time.sleep(0.002)
    return subjects.ANSWER


async def _serve_async(question: str) -> str:
    await asyncio.sleep(0.002)
    return subjects.ANSWER


def _requests(handler: Callable[[str], Any], seconds: int) -> float:
    latencies: list[float] = []

    def request(due: float) -> None:
        handler(subjects.QUESTION)
        latencies.append(_now() - due)

    with ThreadPoolExecutor(32) as pool:
        began = _now()
        for at in _arrivals(seconds):
            time.sleep(max(0.0, began + at - _now()))
            pool.submit(request, began + at)
    return _p99(latencies)


async def _requests_async(subject: Any, seconds: int) -> float:
    handler, latencies = subject.wrap(_serve_async), list[float]()

    async def request(due: float) -> None:
        await handler(subjects.QUESTION)
        latencies.append(_now() - due)

    began, tasks = _now(), []
    for at in _arrivals(seconds):
        await asyncio.sleep(max(0.0, began + at - _now()))
        tasks.append(asyncio.create_task(request(began + at)))
    await asyncio.gather(*tasks)
    return _p99(latencies)


def _arrivals(seconds: float) -> list[float]:
    chance, at, arrivals = random.Random(7), 0.0, []
    while at < seconds:
        at += chance.expovariate(_RATE)
        arrivals.append(at)
    return arrivals


def _p99(latencies: list[float]) -> float:
    # the first requests start threads, children and connections
    return _quantile(latencies[20:], 0.99) * 1e3


def _quantile(values: list[float], share: float) -> float:
    # A value that occurred: between few values far apart an interpolated p99 may lie beyond all of
    # them.
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


# --- the event loop
# ---------------------------------------------------------------------------------------------------
def loop_lag(name: str, size: Size) -> Numbers:
    """p99 of a 1 ms timer's lag, in milliseconds, idle and while 4,000 answers are worked off."""
    application, calls = exporting_nowhere(), size.of(400, 4_000)
    subject = make(name, application)
    handler = subject.wrap(subjects.answer_async)

    async def host() -> Numbers:
        for _ in range(32):
            await handler(subjects.QUESTION)
        await asyncio.sleep(0.5)
        idle = await _lags(asyncio.create_task(asyncio.sleep(size.of(1, 2))))
        application.flush()
        before = application.arrived()["events"]
        busy = await _lags(asyncio.create_task(_work_off(subject, handler, calls)))
        application.flush()
        kept = (application.arrived()["events"] - before) / calls
        return {
            "idle ms": _quantile(idle, 0.99) * 1e3,
            "ms": _quantile(busy, 0.99) * 1e3,
            "kept": kept,
        }

    return asyncio.run(host())


async def _work_off(subject: Any, handler: Callable[[str], Any], calls: int) -> None:
    for index in range(calls):
        await handler(subjects.QUESTION)
        if index % 4 == 3:
            # the calls themselves hold the loop as little as a service's would
            await asyncio.sleep(0.001)
    wait = getattr(subject, "wait", None)
    await (wait() if wait else asyncio.to_thread(subject.drain))


async def _lags(during: asyncio.Task[None]) -> list[float]:
    lags: list[float] = []
    while not during.done():
        began = _now()
        await asyncio.sleep(0.001)
        lags.append(_now() - began - 0.001)
    return lags


# --- delay and footprint
# ----------------------------------------------------------------------------------------------
def exported(name: str, size: Size) -> Numbers:
    """Seconds from the end of an answer to its score at the receiver, p95, at 50 answers a second."""
    ended_ns: dict[str, int] = {}
    with receiver() as sink:
        if name == "ours":
            # Without providers of the application: our own exporter's flush interval is measured.
            telemetry = {"endpoint": sink.address, "protocol": "http/protobuf"}
            subject: Any = make(name, None, telemetry=telemetry)
        else:
            subject = make(name, exporting_to(sink))
        handler = subject.wrap(subjects.answer)
        for number in range(1, int(size.of(2, 12) * _RATE)):
            context = trace.SpanContext(number << 64 | number, number, False, trace.TraceFlags(1))
            time.sleep(1 / _RATE)
            with trace.use_span(trace.NonRecordingSpan(context)):
                handler(subjects.QUESTION)
            ended_ns[f"{context.trace_id:032x}"] = time.time_ns()
        # what is late is late by the exporter's interval, not by a flush of ours
        time.sleep(size.of(2, 6))
        subject.drain()
        arrived_ns = sink.arrived().events_ns
    delays = [(arrived_ns[key] - ended_ns[key]) / 1e9 for key in ended_ns if key in arrived_ns]
    return {
        "p95 s": _quantile(delays, 0.95) if delays else float("nan"),
        "kept": len(delays) / len(ended_ns),
    }


def in_the_host(name: str, size: Size) -> Numbers:
    """Memory, threads, child processes and CPU at 50 traced requests a second, of which 10 % are
    sampled.
    """
    with receiver() as sink:
        application, seconds = exporting_to(sink), size.of(3, 20)
        handler = make(name, application, rate=0.1).wrap(subjects.answer)
        tracer = application.traces.get_tracer("application")
        _at_rate(handler, tracer, 1)
        cpu, began = tree_cpu_s(), _now()
        _at_rate(handler, tracer, seconds)
        used = (tree_cpu_s() - cpu) / (_now() - began)
        return {
            "MiB": resident_mb(),
            "threads": float(threads()),
            "children": float(children()),
            "% of a core": used * 100,
        }


def _at_rate(handler: Callable[[str], Any], tracer: trace.Tracer, seconds: int) -> None:
    began = _now()
    for at in _arrivals(seconds):
        time.sleep(max(0.0, began + at - _now()))
        with tracer.start_as_current_span("application"):
            handler(subjects.QUESTION)

"""Rows in which every call comes at once."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

from benchmarks import subjects
from benchmarks.harness import Numbers, Size
from benchmarks.speed.application import Application, exporting_nowhere, exporting_to
from benchmarks.speed.process import resident_mb, tree_cpu_s
from benchmarks.speed.receiver import receiver
from benchmarks.speed.subjects import make

__all__ = ["memory", "no_op", "otlp"]

_now = time.perf_counter
_OWN_EVERY = 10
_WARM = 32


def otlp(subject: str, size: Size) -> Numbers:
    """5,000 calls in a row beside 500 spans of the application, over OTLP to a receiver that takes
    20 ms a request.
    """
    with receiver() as sink:
        return _burst(subject, exporting_to(sink), size.of(500, 5_000))


def no_op(subject: str, size: Size) -> Numbers:
    """The same without a network."""
    return _burst(subject, exporting_nowhere(), size.of(500, 5_000))


def _burst(name: str, application: Application, calls: int) -> Numbers:
    subject = make(name, application)
    handler, tracer = subject.wrap(subjects.answer), application.traces.get_tracer("application")
    _warm_up(subject, handler, application)
    before, cpu, began, caller_cpu, caller = application.arrived(), tree_cpu_s(), _now(), 0.0, 0.0
    for index in range(calls):
        wall, own = _now(), time.thread_time()
        handler(subjects.QUESTION)
        caller_cpu += time.thread_time() - own
        caller += _now() - wall
        if index % _OWN_EVERY == 0:
            tracer.start_span("application").end()
    subject.drain()
    application.flush()
    took, used = _now() - began, tree_cpu_s() - cpu
    arrived = {what: count - before[what] for what, count in application.arrived().items()}
    # Where nothing is evaluated, a span is the answer that arrived.
    answers = max(1, arrived["events"] or arrived["agent spans"])
    return {
        **{
            what: arrived[what] / (calls / _OWN_EVERY if what == "own" else calls)
            for what in arrived
        },
        "per s": answers / took,
        "cpu us": used / answers * 1e6,
        "caller cpu us": caller_cpu / calls * 1e6,
        "caller us": caller / calls * 1e6,
    }


def _warm_up(subject: Any, handler: Any, application: Application) -> None:
    """A first few calls start threads, resolve providers and connect."""
    for _ in range(_WARM):
        handler(subjects.QUESTION)
    subject.drain()
    application.flush()


def memory(name: str, size: Size) -> Numbers:
    """20,000 calls at once, each with 1 KB of its own: how much arrives, and the memory that it
    takes on the way.
    """
    application, calls = exporting_nowhere(), size.of(1_000, 20_000)
    subject, number = make(name, application), itertools.count()
    handler = subject.wrap(lambda question: f"{next(number)} {subjects.ANSWER}"[:1024])
    _warm_up(subject, handler, application)
    before, start = application.arrived(), resident_mb()
    ended, highest = threading.Event(), [start]

    def watch() -> None:
        while not ended.wait(0.02):
            highest[0] = max(highest[0], resident_mb())

    watching = threading.Thread(target=watch)
    watching.start()
    for _ in range(calls):
        handler(subjects.QUESTION)
    subject.drain()
    application.flush()
    ended.set()
    watching.join()
    after = application.arrived()
    kept = {what: (after[what] - before[what]) / calls for what in ("agent spans", "events")}
    return {**kept, "MiB": highest[0] - start}

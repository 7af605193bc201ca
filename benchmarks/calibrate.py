"""The calibration: what is known of the machine of the goals, measured on this one, in the same run."""

from __future__ import annotations

import os
import queue
import statistics
import threading
import time
from functools import partial
from typing import Any

from benchmarks import subjects
from benchmarks.harness import Bench, Figure, Numbers, Phase, Size, standalone
from benchmarks.loops import at_random, goes_by, paced, sampled
from benchmarks.machine import Machine
from benchmarks.providers import Nowhere

__all__ = ["BENCH", "found_by", "on_one_core", "signals_only"]

_now = time.perf_counter


def on_one_core() -> None:
    """Pin this process, and what it starts, to one core, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def signals_only(size: Size, *, events: int = 8, records: int = 10) -> Numbers:
    """What the SDK alone takes for the signals of one evaluated response: run span, events, metrics, encoded."""
    from opentelemetry import _logs
    from opentelemetry.context import Context

    on_one_core()
    encoded = Nowhere(encode=True)
    tracer, logger = encoded.traces.get_tracer("floor"), encoded.logs.get_logger("floor")
    histogram = encoded.meters.get_meter("floor").create_histogram("score")
    event: dict[str, Any] = {
        **{f"text.{index}": "some value" for index in range(8)},
        **{f"number.{index}": 0.5 for index in range(4)},
    }
    run: dict[str, Any] = {
        **{f"text.{index}": "some value" for index in range(9)},
        **{f"number.{index}": 0.5 for index in range(7)},
    }
    calls, severity = size.of(500, 2_000), _logs.SeverityNumber.INFO
    began, cpu = _now(), time.process_time()
    for index in range(calls):
        span = tracer.start_span("evaluation answer", attributes={"a": "b", "c": "d"})
        for _ in range(events):
            logger.emit(
                event_name="gen_ai.evaluation.result", context=Context(), timestamp=1, severity_number=severity,
                severity_text="INFO", body="criterion pass", attributes=event,
            )  # fmt: skip
        for _ in range(records):
            histogram.record(0.5, {"gen_ai.evaluation.name": "criterion", "gen_ai.agent.name": "answer"})
        span.set_attributes(run)
        span.end()
        if not index % 500:
            encoded.flush()  # so that the processors' queues lose none
    encoded.flush()
    took, used = _now() - began, time.process_time() - cpu
    return {"per s": calls / took, "per cpu s": calls / used}


def _spans(size: Size) -> Numbers:
    subjects.use_tracing()
    traced, calls = subjects.RawSpan().wrap(subjects.answer), 5_000
    best = float("inf")
    for _ in range(size.of(2, 5)):
        began = time.process_time()
        for _ in range(calls):
            traced(subjects.QUESTION)
        best = min(best, (time.process_time() - began) / calls * 1e6)
    return {"us": best}


def _put(size: Size) -> Numbers:
    subjects.use_tracing()
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()

    def take() -> None:
        while waiting.get():
            pass

    threading.Thread(target=take, daemon=True).start()

    def put(question: str) -> str:
        waiting.put(question)
        return subjects.ANSWER

    bare, wrapped = paced(subjects.answer, put, size.of(250, 1_000))
    return {"p50": statistics.median(wrapped) - statistics.median(bare)}


_PHASES = (
    Phase("random", "raw", partial(goes_by, lambda: at_random)),
    Phase("spans", "raw", _spans),
    Phase("put", "raw", _put),
    Phase("span", "raw", partial(sampled, subjects.RawSpan, in_span=True)),
    Phase("floor", "raw", signals_only),
)


def found_by(found: dict[str, Numbers]) -> Numbers:
    """The calibration's numbers under the names of `machine.REFERENCE`."""
    span = {f"span {name}": value for name, value in found["span:raw"].items() if name != "evaluated"}
    return {
        "random sync": found["random:raw"]["sync"], "random async": found["random:raw"]["async"],
        "span tight": found["spans:raw"]["us"], "put p50": found["put:raw"]["p50"],
        "floor per s": found["floor:raw"]["per cpu s"], **span,
    }  # fmt: skip


def _no_figures(found: dict[str, Numbers], machine: Machine) -> list[Figure]:
    return []


BENCH = Bench("calibrate", "Calibration", _PHASES, _no_figures)

if __name__ == "__main__":
    standalone(BENCH)

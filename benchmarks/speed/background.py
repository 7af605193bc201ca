"""Rows about the work after capture. Calls come in short rows, so that no subject drops or sheds
any.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks import subjects
from benchmarks.harness import Numbers, Size
from benchmarks.speed.application import exporting_nowhere
from benchmarks.speed.process import beside_main_cpu_s, on_one_core, tree_cpu_s
from benchmarks.speed.subjects import make

__all__ = ["after_capture", "eight", "in_process"]

_ROW = 50


def after_capture(name: str, size: Size) -> Numbers:
    """CPU time of everything but the caller's thread, an answer: one inline evaluator, no-op
    exporter.
    """
    application = exporting_nowhere()
    subject, rows = make(name, application, shedding=False), size.of(4, 50)
    handler = subject.wrap(subjects.answer)
    done = _rows(subject, handler, 4, 0)
    application.flush()
    before, cpu = application.arrived(), beside_main_cpu_s()
    calls = _rows(subject, handler, rows, done) - done
    subject.drain()
    application.flush()
    used, events = beside_main_cpu_s() - cpu, application.arrived()["events"] - before["events"]
    return {"us": used / calls * 1e6, "kept": events / calls}


def eight(name: str, size: Size) -> Numbers:
    """Answers a second through eight deterministic evaluators, encoded by the SDK; the whole
    process on one core.
    """
    from benchmarks.evaluators import eight as evaluators

    on_one_core()
    application, rows = exporting_nowhere(encode=True), size.of(4, 30)
    # Without an agent span of ours, as the application of the goal had one: the row is about
    # evaluation and encoding.
    subject = make(name, application, evaluators=evaluators(), shedding=False, agent_span="never")
    handler = subject.wrap(subjects.answer)
    done = _rows(subject, handler, 2, 0)
    application.flush()
    before, began = application.arrived(), time.perf_counter()
    calls = _rows(subject, handler, rows, done) - done
    subject.drain()
    application.flush()
    took, events = time.perf_counter() - began, application.arrived()["events"] - before["events"]
    return {"per s": calls / took, "kept": events / calls / 8}


def in_process(name: str, size: Size) -> Numbers:
    """CPU time that `execution="process"` adds to a trivial function, children included: rows of
    both in turns.
    """
    from agenteval_otel import monitor
    from benchmarks.evaluators import Busy

    application, rows = exporting_nowhere(), size.of(4, 100)
    subject = make(name, application, shedding=False)
    done, used = 0, {"inline": 0.0, "process": 0.0}
    handlers: dict[str, Any] = {
        execution: monitor(
            evaluators=[Busy(criterion_name=execution, loops=0, execution=execution)]
        )(subjects.answer)
        for execution in used
    }
    for row in range(-2, rows):
        for execution, handler in handlers.items():
            cpu = tree_cpu_s()
            done = _rows(subject, handler, 1, done)
            if row >= 0:
                used[execution] += tree_cpu_s() - cpu
    subject.drain()
    application.flush()
    kept = application.arrived()["events"] / done
    return {"us": (used["process"] - used["inline"]) / (rows * _ROW) * 1e6, "kept": kept}


def _rows(subject: Any, handler: Any, rows: int, done: int) -> int:
    """So many rows of calls, each worked off before the next begins; how many calls there were in
    all.
    """
    for _ in range(rows):
        for _ in range(_ROW):
            handler(subjects.QUESTION)
        done += _ROW
        subject.settle(done)
    return done

"""What `evaluate_in="sidecar"` costs the application: CPU time of the caller's thread and of the
process, a call.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import subjects
from benchmarks.goals import at_most, holds
from benchmarks.harness import Bench, Figure, Numbers, Phase, Size, clean_environment, standalone

__all__ = ["BENCH"]

_SETTINGS = """
evaluators: [ResponseHealth]
sidecar: {grpc_port: 0, http_port: 0, quiet_s: 0.5}
"""
_BLOCKS = {0.001: 250, 0.0: 2_000}
"""Calls of a block, by the seconds before each: with them a call finds cold caches, and threads
that sleep.
"""


@contextlib.contextmanager
def _sidecar() -> Iterator[tuple[str, Callable[[], str]]]:
    """`agenteval-otel serve` as a process: its address for gRPC, and what ends it and gives its
    last words.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sidecar.yaml"
        file.write_text(_SETTINGS, encoding="utf-8")
        command = [sys.executable, "-m", "agenteval_otel", "serve", "--settings", str(file)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=clean_environment()
        )
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        while process.stdout.readline().strip() != "ready":
            pass

        def end() -> str:
            process.terminate()
            return process.communicate(timeout=60)[0]

        try:
            yield f"http://{address}", end
        finally:
            process.kill()


def _sent(size: Size, *, in_span: bool, pause_s: float) -> Numbers:
    """CPU microseconds that monitoring adds to a call; and whether all were sent and evaluated."""
    with _sidecar() as (endpoint, end):
        numbers, calls = _added(size, in_span, pause_s, evaluate_in="sidecar", endpoint=endpoint)
        last = end()
    return numbers | {"evaluated": float(f"{calls:,} evaluated" in last)}


def _here(size: Size, *, in_span: bool, pause_s: float) -> Numbers:
    """The same where the answers are evaluated in the process, by `ResponseHealth`."""
    return _added(size, in_span, pause_s, evaluators=["ResponseHealth"])[0]


def _added(size: Size, in_span: bool, pause_s: float, **settings: Any) -> tuple[Numbers, int]:
    """Blocks of the bare and of the monitored call in turns; and how many were monitored."""
    import agenteval_otel

    tracer = subjects.use_tracing()
    agenteval_otel.configure(sample_rate=1.0, load_shedding={"enabled": False}, **settings)
    monitored, blocks = agenteval_otel.monitor(subjects.answer), size.of(3, 16)
    # The span that stands in place of ours, where there is none: what it costs is not the
    # sidecar's.
    bare = subjects.answer if in_span else _in_own_span(tracer)
    rows: dict[str, list[tuple[float, float]]] = {"bare": [], "ours": []}
    with tracer.start_as_current_span("request") if in_span else contextlib.nullcontext():
        for number in range(-1, blocks):
            for name, handler in (("bare", bare), ("ours", monitored)):
                used = _block(handler, pause_s, agenteval_otel.flush)
                if number >= 0:
                    rows[name].append(used)
    caller, whole = (
        statistics.median(
            ours[index] - other[index]
            for ours, other in zip(rows["ours"], rows["bare"], strict=True)
        )
        for index in (0, 1)
    )
    calls = _BLOCKS[pause_s] * (blocks + 1)
    return {
        "caller": caller,
        "whole": whole,
        "sent": agenteval_otel.accounting()["sent"] / calls,
    }, calls


def _in_own_span(tracer: Any) -> Callable[[str], str]:
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "answer"}

    def answer(question: str) -> str:
        with tracer.start_as_current_span("invoke_agent answer", attributes=attributes) as span:
            found = subjects.answer(question)
            span.set_attributes({"agenteval.evaluation.sampled": True})
        return found

    return answer


def _block(
    handler: Callable[[str], Any], pause_s: float, flush: Callable[[float], bool]
) -> tuple[float, float]:
    """CPU microseconds of the calling thread and of the process, a call, until everything has
    arrived.
    """
    whole, caller, calls = time.process_time(), 0.0, _BLOCKS[pause_s]
    for _ in range(calls):
        if pause_s:
            time.sleep(pause_s)
        began = time.thread_time()
        handler(subjects.QUESTION)
        caller += time.thread_time() - began
    flush(60.0)
    return caller / calls * 1e6, (time.process_time() - whole) / calls * 1e6


_CASES = {
    "current": ("in a span", True, 0.001),
    "own": ("with a span of its own, beyond that", False, 0.001),
    "busy": ("in a span, one after the other", True, 0.0),
}
_PHASES = tuple(
    Phase(name, subject, partial(run, in_span=in_span, pause_s=pause_s))
    for name, (_, in_span, pause_s) in _CASES.items()
    for subject, run in (("ours", _sent), ("raw", _here))
)


def _figures(found: dict[str, Numbers]) -> list[Figure]:
    lines: list[Figure] = []
    for phase, (case, *_) in _CASES.items():
        values, here = found[f"{phase}:ours"], found[f"{phase}:raw"]
        for what, title, limit in (
            ("caller", "caller's thread", 10.0),
            ("whole", "whole process", 60.0),
        ):
            both = {"ours": values[what], "raw": here[what]}
            lines.append(
                Figure(f"{case}, {title}, CPU a call", "us", both, at_most(values[what], limit))
            )
        arrived = values["sent"] == 1.0 and values["evaluated"] == 1.0
        lines.append(
            Figure(
                f"{case}: sent and evaluated",
                "share",
                {"ours": values["sent"]},
                holds("all", arrived),
            )
        )
    return lines


BENCH = Bench(
    "sidecar_mode",
    "Evaluated in the sidecar",
    _PHASES,
    _figures,
    rounds=3,
    notes=(
        "Evaluated in the sidecar: answers of 1 KB, 1 ms apart but in the last case, to a real `agenteval-otel serve` "
        "over gRPC, blocks in turns with the bare call; the bare call of the second case is in an ordinary span with "
        "three attributes. raw: the same answers evaluated in the process by `ResponseHealth`, without events and "
        "metrics.",
    ),
)

if __name__ == "__main__":
    standalone(BENCH)

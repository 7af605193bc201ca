"""The sidecar as a process on one core: traces of five spans in over OTLP/gRPC, scores out, and
what that takes.

The load generator and the receiver of the scores have the other core.
"""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.evaluators import eight
from benchmarks.goals import at_least, at_most, holds
from benchmarks.harness import (
    ROOT,
    Bench,
    Figure,
    Numbers,
    Phase,
    Size,
    clean_environment,
    standalone,
)

__all__ = ["BENCH"]

_QUIET_S = 2.0
_IN_FLIGHT = 4
# traces that were sent and have no score, where the load is as much as the sidecar takes
_AHEAD = 5_500
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_LIMIT_S, _TRY_AGAIN_S = 60.0, 0.05


class Sidecar:
    """`agenteval-otel serve` as its users start it, on the last core."""

    def __init__(self, folder: Path, endpoint: str, core: int, settings: dict[str, Any]) -> None:
        file = folder / "agenteval.yaml"
        file.write_text(json.dumps(settings), encoding="utf-8")
        command = [sys.executable, "-m", "agenteval_otel", "serve", "--settings", str(file)]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            env=clean_environment() | {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint},
        )
        os.sched_setaffinity(self._process.pid, {core})  # before it has threads
        printed = [line.split() for line in self._lines("ready")]
        [self.address] = [words[1] for words in printed if words[0] == "OTLP/gRPC"]
        [self.url] = [words[1] for words in printed if words[0] == "OTLP/HTTP"]

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * _TICK_S

    def memory_mb(self) -> float:
        """The most that it has had."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024 / 1e6

    def stop(self) -> str:
        """End it as a service manager does; what it says of its answers."""
        self._process.send_signal(signal.SIGTERM)
        return "".join(self._lines())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _lines(self, until: str = "") -> Iterator[str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield line
            if line.strip() == until:
                return


class Load:
    """Sends traces, compressed, a few requests at once; what is refused is sent again, and counted."""

    def __init__(self, address: str) -> None:
        import grpc

        from benchmarks.sidecar_load import BATCH_TRACES, batches

        self._refusals, self._batches, self._per_batch = grpc.RpcError, batches(), BATCH_TRACES
        channel = grpc.insecure_channel(
            address, [("grpc.max_send_message_length", -1)], grpc.Compression.Gzip
        )
        self._export = channel.unary_unary(_METHOD)
        self._under_way: deque[tuple[Any, bytes]] = deque()
        self._sent = self.refused = 0
        self.sent_s: dict[int, float] = {}
        """When the last span of a trace was sent, by its number."""

    def send(self) -> None:
        """Send the next batch, as soon as another one may be under way."""
        while len(self._under_way) >= _IN_FLIGHT:
            self._finish_one()
        batch = next(self._batches)
        self._sent += 1
        self.sent_s.update(dict.fromkeys(batch.completes, time.monotonic()))
        self._under_way.append((self._export.future(batch.body, timeout=_LIMIT_S), batch.body))

    def send_for(self, seconds: float, traces_per_s: float) -> None:
        """Send at this rate for so long."""
        began = time.monotonic()
        for index in range(round(seconds * traces_per_s / self._per_batch)):
            time.sleep(max(0.0, began + index * self._per_batch / traces_per_s - time.monotonic()))
            self.send()

    def finish(self) -> None:
        """Send the rest of the traces that have begun, and have every request answered."""
        while self._sent * self._per_batch > len(self.sent_s):
            self.send()
        while self._under_way:
            self._finish_one()

    def _finish_one(self) -> None:
        call, body = self._under_way.popleft()
        try:
            call.result()
        except self._refusals as error:
            if error.code().name != "RESOURCE_EXHAUSTED":
                raise
            self.refused += 1
            time.sleep(_TRY_AGAIN_S)
            self._under_way.append((self._export.future(body, timeout=_LIMIT_S), body))


class Run:
    """A sidecar, its load and the receiver of its scores, which this process is, on the first core."""

    def __init__(
        self,
        evaluators: Sequence[Any],
        *,
        answers: bool = True,
        quiet_s: float = _QUIET_S,
        **settings: Any,
    ) -> None:
        from benchmarks.sidecar_load import Receiver

        cores = os.sched_getaffinity(0)
        described = [
            evaluator.model_dump(mode="json", exclude_unset=True) for evaluator in evaluators
        ]
        self.receiver = Receiver(len(evaluators), answers=answers)
        with tempfile.TemporaryDirectory() as folder:
            self.sidecar = Sidecar(
                Path(folder),
                self.receiver.endpoint,
                max(cores),
                {
                    "sample_rate": 1.0,
                    "evaluators": described,
                    "sidecar": {"grpc_port": 0, "http_port": 0, "quiet_s": quiet_s},
                    **settings,
                },
            )
        os.sched_setaffinity(0, {min(cores)})
        self.load = Load(self.sidecar.address)

    def send_ahead(self, seconds: float) -> None:
        """Send so that the sidecar always has something to do."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if len(self.load.sent_s) - self.receiver.complete < _AHEAD:
                self.load.send()
            else:
                time.sleep(0.001)

    def finish(self) -> None:
        """Have all traces scored, as far as they will be."""
        self.load.finish()
        end = time.monotonic() + _LIMIT_S
        while self.receiver.complete < len(self.load.sent_s) and time.monotonic() < end:
            time.sleep(0.05)

    def check(self) -> None:
        """End it: every trace was scored once, in its own trace, with its own answer's score."""
        said = self.sidecar.stop()
        self.receiver.close()
        sent, complete, wrong = (
            len(self.load.sent_s),
            self.receiver.complete,
            dict(self.receiver.wrong),
        )
        assert (sent, {}) == (complete, wrong), (
            f"{sent} traces, {complete} scored, wrong: {wrong}; {said}"
        )


def _most(evaluators: Sequence[Any], size: Size) -> Numbers:
    """Traces that a sidecar scores each second where there are always more, and the CPU time of
    each.
    """
    run = Run(evaluators, load_shedding={"enabled": False})
    run.send_ahead(_QUIET_S + 3)
    own_s, marks = (
        time.process_time(),
        [(run.receiver.complete, time.monotonic(), run.sidecar.cpu_s())],
    )
    for _ in range(size.of(4, 10)):
        run.send_ahead(1.0)
        marks.append((run.receiver.complete, time.monotonic(), run.sidecar.cpu_s()))
    scored, took_s, used_s = (last - first for first, last in zip(marks[0], marks[-1], strict=True))
    busy = (time.process_time() - own_s) / took_s
    run.finish()
    run.check()
    seconds = [(now[0] - then[0], now[1] - then[1]) for then, now in pairwise(marks)]
    return {
        "per s": scored / took_s,
        "us": used_s / scored * 1e6,
        "core": used_s / took_s,
        "load's core": busy,
        "best second": max(count / lasted for count, lasted in seconds),
    }


def _steady(evaluators: Sequence[Any], size: Size, traces_per_s: float) -> Numbers:
    """Lag from an answer's last span to its score, at a rate that does not change; nothing is
    refused or lost.
    """
    run = Run(evaluators)
    run.load.send_for(2.0, traces_per_s)
    before, cpu_s = set(run.load.sent_s), run.sidecar.cpu_s()
    run.load.send_for(size.of(4, 10, 300), traces_per_s)
    run.finish()
    used_s, memory_mb = run.sidecar.cpu_s() - cpu_s, run.sidecar.memory_mb()
    run.check()
    lags = [
        arrived - run.load.sent_s[number]
        for number, arrived in run.receiver.arrived_s.items()
        if number not in before
    ]
    quantiles = statistics.quantiles(lags, n=100)
    return {
        "p50 s": quantiles[49],
        "p99 s": quantiles[98],
        "us": used_s / len(lags) * 1e6,
        "refused": run.load.refused,
        "MB": memory_mb,
    }


def _full(evaluators: Sequence[Any], size: Size) -> Numbers:
    """Memory where the receiver is away, and more comes than can be scored, or than ends: requests
    are refused.
    """
    most_mb, refused = 0.0, 0
    for quiet_s, answers in ((_QUIET_S, False), (_LIMIT_S, True)):
        run = Run(evaluators, answers=answers, quiet_s=quiet_s)
        end = time.monotonic() + size.of(5, 15, 120)
        while time.monotonic() < end:
            run.load.send()
        most_mb, refused = max(most_mb, run.sidecar.memory_mb()), refused + run.load.refused
        run.sidecar.kill()
    return {"MB": most_mb, "refused": float(refused)}


_EVALUATORS: dict[str, tuple[Callable[[], list[Any]], float]] = {
    "one evaluator": (lambda: eight()[:1], 1_500.0),
    "eight evaluators": (eight, 600.0),
}
"""Evaluators, and how many traces a second are the goal."""


def _phases() -> Iterator[Phase]:
    for name, (evaluators, goal) in _EVALUATORS.items():
        yield Phase(f"most, {name}", "ours", lambda size, make=evaluators: _most(make(), size))
        yield Phase(
            f"steady, {name}",
            "ours",
            lambda size, make=evaluators, rate=0.8 * goal: _steady(make(), size, rate),
        )
    yield Phase("full", "ours", lambda size: _full(eight(), size))


def _figures(measured: dict[str, Numbers]) -> list[Figure]:
    figures = []
    for name, (_, goal) in _EVALUATORS.items():
        most, steady = measured[f"most, {name}:ours"], measured[f"steady, {name}:ours"]
        beyond_s = steady["p99 s"] - _QUIET_S
        figures += [
            Figure(
                f"{name}: traces scored",
                "1/s",
                {"ours": most["per s"]},
                at_least(most["per s"], goal),
            ),
            Figure("the same: in the best second", "1/s", {"ours": most["best second"]}),
            Figure(
                "the same: CPU time of a trace",
                "us",
                {"ours": most["us"]},
                at_most(most["us"], 1e6 / goal),
            ),
            Figure("the same: of a core", "share", {"ours": most["core"]}),
            Figure(
                "the same: the load's and receiver's part of theirs",
                "share",
                {"ours": most["load's core"]},
            ),
            Figure(
                f"{name}, {0.8 * goal:g} traces/s: lost or wrong",
                "traces",
                {"ours": 0.0},
                holds("0", True),
            ),
            Figure(
                "the same: refused",
                "requests",
                {"ours": steady["refused"]},
                at_most(steady["refused"], 0),
            ),
            Figure("the same: CPU time of a trace", "us", {"ours": steady["us"]}),
            Figure("the same: lag, p50", "s", {"ours": steady["p50 s"]}),
            Figure("the same: lag, p99", "s", {"ours": steady["p99 s"]}),
            Figure(
                f"the same: beyond quiet_s of {_QUIET_S:g} s, p99",
                "s",
                {"ours": beyond_s},
                at_most(beyond_s, 1),
            ),
            Figure("the same: memory", "MB", {"ours": steady["MB"]}),
        ]
    full = measured["full:ours"]
    figures.append(
        Figure("queues full: memory", "MB", {"ours": full["MB"]}, at_most(full["MB"], 300))
    )
    figures.append(
        Figure(
            "the same: refused", "requests", {"ours": full["refused"]}, at_least(full["refused"], 1)
        )
    )
    return figures


BENCH = Bench(
    "sidecar",
    "Sidecar: a process on one core, traces of five spans over OTLP/gRPC",
    tuple(_phases()),
    _figures,
    notes=(
        "Sidecar: traces of 8 KB, 2 KB of them content, spans of 512 traces shuffled over five requests, gzip. A run "
        "in which a trace is not scored, or scored twice, in another trace or for another answer, gives no figure. "
        "Lag is from the last span's request until the score is received. Load and receiver have the other core.",
    ),
)

if __name__ == "__main__":
    standalone(BENCH)

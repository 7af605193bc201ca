"""The rows of the table: who is measured, with what, and what ours should hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.harness import Numbers, Size
from benchmarks.speed import background, bursts, service

__all__ = ["ROWS", "Line", "Row", "Values"]

Values = Callable[[str, str], float]
"""The median of a number, by subject and name of the number; NaN where it was not measured."""


@dataclass(frozen=True)
class Line:
    """One figure of a row.

    Attributes:
        title: What it is, with its unit.
        number: Its name among the row's numbers.
        goal: What ours should hold, in words.
        met: Whether ours holds it.
    """

    title: str
    number: str
    goal: str = ""
    met: Callable[[Values], bool] | None = None


@dataclass(frozen=True)
class Row:
    """Figures that are measured together, in one process for each subject and round.

    Attributes:
        title: What is measured.
        run: Gives the numbers of a subject.
        subjects: Who is measured.
        lines: What of it the table shows.
        without: Why a subject that belongs into the table cannot run, by subject.
    """

    title: str
    run: Callable[[str, Size], Numbers]
    subjects: Sequence[str]
    lines: Sequence[Line]
    without: dict[str, str] = field(default_factory=dict)


def _at_most(number: str, limit: float) -> Callable[[Values], bool]:
    return lambda values: values("ours", number) <= limit


def _at_least(number: str, limit: float) -> Callable[[Values], bool]:
    return lambda values: values("ours", number) >= limit


def _times_at_most(number: str, times: float, subject: str) -> Callable[[Values], bool]:
    return lambda values: values("ours", number) <= times * values(subject, number)


def _times_at_least(number: str, times: float, subject: str) -> Callable[[Values], bool]:
    return lambda values: values("ours", number) >= times * values(subject, number)


def _all(number: str) -> Callable[[Values], bool]:
    return lambda values: values("ours", number) == 1


def _above(number: str, beyond: float, subject: str = "bare") -> Callable[[Values], bool]:
    return lambda values: values("ours", number) <= values(subject, number) + beyond


def _kept(what: str, number: str) -> Line:
    return Line(f"{what} that arrive, share", number, "all", _all(number))


_EVERY = ("raw", "ours", "pydantic", "splunk", "late")
_RIVALS = ("raw", "ours", "pydantic", "splunk")


def _requests_lines(mode: str) -> tuple[Line, Line]:
    number = f"{mode} ms"
    return (
        Line(
            f"{mode}, ms; ours as a process",
            number,
            "<= 1.3 x bare",
            _times_at_most(number, 1.3, "bare"),
        ),
        Line(
            f"{mode}, ms; ours as a thread",
            number,
            "below Splunk",
            lambda values: values("ours_thread", number) < values("splunk", number),
        ),
    )


_KEPT = Line("events that arrive, share", "kept")
_SPLUNKS_OWN = "runs a second copy of its whole manager as a process, not a single evaluator"
_NO_PROCESS = "offers no process"

ROWS: dict[str, Row] = {
    "otlp": Row(
        "burst of 5,000, OTLP exporters, receiver of 20 ms a request",
        bursts.otlp,
        _EVERY,
        (
            _kept("agent spans", "agent spans"),
            _kept("events", "events"),
            _kept("the application's spans", "own"),
            Line(
                "delivered, 1/s",
                "per s",
                ">= 0.8 x late paced",
                _times_at_least("per s", 0.8, "late"),
            ),
            Line(
                "CPU of the process, us an answer that arrives",
                "cpu us",
                "<= 350",
                _at_most("cpu us", 350),
            ),
            Line(
                "caller, us of CPU",
                "caller cpu us",
                "<= a raw span + 10",
                _above("caller cpu us", 10, "raw"),
            ),
        ),
    ),
    "no_op": Row(
        "burst of 5,000, no-op exporter",
        bursts.no_op,
        _EVERY,
        (
            Line(
                "evaluated and emitted, 1/s",
                "per s",
                ">= 1.5 x Splunk",
                _times_at_least("per s", 1.5, "splunk"),
            ),
            _kept("agent spans", "agent spans"),
            _kept("events", "events"),
            Line("CPU of the process, us an answer that arrives", "cpu us"),
            Line(
                "caller, us",
                "caller us",
                "<= 0.2 x Splunk",
                _times_at_most("caller us", 0.2, "splunk"),
            ),
        ),
    ),
    "memory": Row(
        "burst of 20,000 x 1 KB, no-op exporter",
        bursts.memory,
        _EVERY,
        (
            _kept("agent spans", "agent spans"),
            _kept("events", "events"),
            Line("memory, MiB more", "MiB", "<= 64", _at_most("MiB", 64)),
        ),
    ),
    "after_capture": Row(
        "after capture, one inline evaluator, no-op exporter",
        background.after_capture,
        ("ours", "pydantic", "splunk", "late"),
        (
            Line(
                "CPU beside the caller's thread, us an answer", "us", "<= 200", _at_most("us", 200)
            ),
            _KEPT,
        ),
    ),
    "eight": Row(
        "eight deterministic evaluators, OTLP encoded by the SDK, one core",
        background.eight,
        ("ours", "pydantic"),
        (Line("answers, 1/s", "per s", ">= 600", _at_least("per s", 600)), _KEPT),
        {
            "splunk": "the eight are ours, and its OpenTelemetry is another",
            "late": "has one evaluator",
        },
    ),
    "agent_span": Row(
        "sampled, own span, calls 1 ms apart, p50",
        service.agent_span,
        _RIVALS,
        tuple(
            Line(
                f"{mode}, us more than the bare call",
                f"{mode} us",
                "<= 1.15 x raw",
                _times_at_most(f"{mode} us", 1.15, "raw"),
            )
            for mode in ("sync", "async")
        ),
    ),
    "process": Row(
        'explicit execution="process", trivial function',
        background.in_process,
        ("ours",),
        (
            Line(
                "CPU, children included, us more than inline", "us", "<= 100", _at_most("us", 100)
            ),
            _KEPT,
        ),
        {"pydantic": _NO_PROCESS, "splunk": _SPLUNKS_OWN, "late": _NO_PROCESS},
    ),
    "requests": Row(
        "handler at 50/s, evaluator of 5 ms CPU, p99",
        service.requests,
        ("bare", "ours", "ours_thread", "pydantic", "splunk"),
        (*(line for mode in ("sync", "async") for line in _requests_lines(mode)), _KEPT),
    ),
    "loop_lag": Row(
        "the host's loop while 4,000 answers are worked off, lag p99",
        service.loop_lag,
        _RIVALS,
        (
            Line("idle, ms", "idle ms"),
            Line(
                "worked off, ms",
                "ms",
                "<= idle + 5",
                lambda values: values("ours", "ms") <= values("ours", "idle ms") + 5,
            ),
            _KEPT,
        ),
        {"late": "sync only"},
    ),
    "exported": Row(
        "end of an answer to its score at the receiver, 50/s",
        service.exported,
        ("ours", "pydantic", "splunk"),
        (Line("p95, s", "p95 s", "<= 2", _at_most("p95 s", 2)), _kept("events", "kept")),
    ),
    "in_the_host": Row(
        "in the host, 50 traced requests/s, 10 % sampled (bare: the SDK alone)",
        service.in_the_host,
        ("bare", "ours", "pydantic", "splunk"),
        (
            Line("memory, MiB", "MiB", "<= the SDK + 40", _above("MiB", 40)),
            Line("threads", "threads", "<= the SDK + 3", _above("threads", 3)),
            Line("child processes", "children", "0", _at_most("children", 0)),
            Line("CPU, % of a core", "% of a core", "<= the SDK + 1", _above("% of a core", 1)),
        ),
    ),
}

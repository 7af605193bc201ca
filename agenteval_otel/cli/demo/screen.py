"""What the demo shows: the live view or lines of progress, then the summary."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from agenteval_otel.cli.demo.scores import Scores
from agenteval_otel.engine.pipeline import Pipeline
from agenteval_otel.models.intervals import Estimate
from agenteval_otel.offline.reports.figures import (
    BAD,
    DOWN,
    GOOD,
    count_of,
    frequencies,
    percent,
    setting,
    with_interval,
)
from agenteval_otel.offline.reports.table import criteria_table, grid_of
from agenteval_otel.semconv import NOT_SAMPLED

_DRAWN_PER_S = 4
_PROGRESS_S = 4.0


@dataclass
class DemoRun:
    """Holds the state of a run.

    `seconds` is None for a replay. `destination` is None if telemetry is sent nowhere.
    `has_settings` tells whether the criteria are the user's.
    """

    pipeline: Pipeline
    scores: Scores
    sampling: str
    total: int
    seconds: float | None = None
    destination: str | None = None
    has_settings: bool = False
    calls: int = 0
    release: int = 1
    interrupted: bool = False
    started: float = field(default_factory=time.monotonic)
    ended: float | None = None

    @property
    def elapsed_s(self) -> float:
        return (self.ended or time.monotonic()) - self.started

    @property
    def done(self) -> float:
        """Return the share of the run that is over, from 0 to 1."""
        if self.seconds:
            return min(1.0, self.elapsed_s / self.seconds)
        return min(1.0, self.calls / max(1, self.total))

    @property
    def news(self) -> str:
        """Return the prompt in force, or the progress of a replay."""
        if self.seconds is None:
            return f"{self.calls:,} of {self.total:,} recorded answers"
        if self.release == 1:
            return "prompt v1"
        return f"prompt v2, released at {self.seconds / 2:.1f} s"


@dataclass
class DemoDelivery:
    """Holds the address and the service of telemetry, and whether it arrived.

    `complete` tells whether all of it arrived, `spans` whether at least the spans did.
    """

    address: str | None = None
    service: str = ""
    complete: bool = False
    spans: bool = False


async def show_live(run: DemoRun, console: Console) -> None:
    """Show the run on the terminal's alternate screen until cancelled. A thread of `Live` draws it."""
    shown = partial(render, run, console)
    with Live(get_renderable=shown, console=console, screen=True, refresh_per_second=_DRAWN_PER_S):
        await asyncio.Event().wait()


async def print_progress(run: DemoRun, console: Console) -> None:
    """Print a line every few seconds until cancelled."""
    while True:
        pause_s = min(_PROGRESS_S, run.seconds / 5) if run.seconds else _PROGRESS_S
        await asyncio.sleep(pause_s)
        evaluated = run.scores.totals.inputs
        queued = run.pipeline.dispatcher.state()["size"]
        line = f"{run.elapsed_s:6.1f} s  {run.calls:,} calls, {evaluated:,} evaluated, queue {queued:,}, {run.news}"
        if run.scores.breaches:
            line += f", objectives breached: {', '.join(run.scores.breaches)}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def render(run: DemoRun, console: Console) -> RenderableType:
    width = console.width
    of_seconds = f" of {run.seconds:g} s" if run.seconds else " s"
    end = f"{run.elapsed_s:.1f}{of_seconds}"
    space = " " * max(1, width - 19 - len(end))
    title = Text.assemble(("agenteval-otel demo", "bold cyan"), space, end)
    bar = ProgressBar(
        total=1.0, completed=run.done, width=width, complete_style="cyan", finished_style="cyan"
    )
    facts = grid_of(_facts(run))
    table = _table(run, width)
    alarms = grid_of([(f"{DOWN} alarm", text) for text in _breaches(run)], style="red")
    hint = Text("\n95 % intervals · Ctrl-C ends early, with the summary", style="dim")
    return Group(title, bar, Text(), facts, Text(), table, Text(), alarms, hint)


def _facts(run: DemoRun) -> Iterator[tuple[str, str]]:
    queue = run.pipeline.dispatcher.state()
    outcomes = run.pipeline.accounting.outcomes()
    seen = sum(outcomes.values()) + queue["size"]
    sampled = seen - outcomes[NOT_SAMPLED]
    calls_per_s = run.calls / max(run.elapsed_s, 0.1)
    yield "Agent", f"{run.calls:,} calls · {calls_per_s:,.0f} a second · {run.news}"
    share = percent(sampled / max(1, seen))
    yield "Sampling", f"{sampled:,} of {seen:,} ({share}) · {run.sampling}"
    lag = run.scores.lag_ms()
    delay = ""
    if lag is not None:
        median_ms, most_ms = lag
        delay = f" · scored {median_ms:.0f} ms after the answer, 95 % within {most_ms:.0f} ms"
    yield "Queue", f"{queue['size']:,} calls · {queue['bytes'] / 1024:,.0f} KiB{delay}"
    if run.destination:
        yield "OTLP", run.destination
    parts = [f"{count:,} {outcome}" for outcome, count in outcomes.items() if count]
    pending = run.calls - sum(outcomes.values())
    end = f" + {pending:,} under way" if pending else f" {GOOD} adds up"
    yield "Outcomes", f"{run.calls:,} calls = {' + '.join(parts) or '0'}{end}"


def _table(run: DemoRun, width: int) -> Table:
    bins = min(40, width - 50)
    columns = ["criterion", "pass rate", "scored", "target"]
    if bins > 3:
        columns.append("trend")
    totals = run.scores.totals
    targets = run.scores.targets()
    trends = run.scores.trends(bins)
    return criteria_table(totals, targets, width=width, columns=columns, trends=trends)


def _breaches(run: DemoRun) -> Iterator[str]:
    for name, breach in list(run.scores.breaches.items()):
        count, before, _ = run.scores.around(breach)
        place = f"after {count:,} of {run.total:,}"
        if run.seconds is not None:
            started = time.time() - (time.monotonic() - run.started)
            place = f"at {breach.at_ns / 1e9 - started:.1f} s"
        start = f"{with_interval(before, rate=True)} → " if before else ""
        at_alarm = Estimate(
            breach.rate,
            breach.low,
            breach.high,
            scores=breach.count,
            effective=breach.count,
            units=breach.units,
        )
        rate = with_interval(at_alarm, rate=True)
        yield f"{name:<16} {start}{rate}  below {setting(breach.objective)} {place}"


def print_summary(
    run: DemoRun,
    console: Console,
    delivery: DemoDelivery,
    storage: str | None = None,
    *,
    evaluated: bool,
    planted: bool,
) -> None:
    """Print the last page.

    `planted` tells that a worse prompt was released, `storage` is the file with the results.
    """
    page = _Page(console)
    ended = "ended early by Ctrl-C, after" if run.interrupted else "over after"
    page.heading(f"The traffic is {ended} {run.elapsed_s:.1f} s", "bold cyan")
    page.show(grid_of(_facts(run)))
    if not evaluated:
        page.line("Some answers were not evaluated in time.", "red")
    page.heading("Scores · weighted by 1 / probability, with 95 % intervals")
    page.show(_table(run, console.width - 2))
    if run.seconds is None and not run.has_settings:
        page.line(
            "These criteria are the demo's own. --settings FILE scores by yours (see Next).", "dim"
        )
    _print_breaches(page, run, planted=planted)
    _print_delivery(page, delivery, run.scores)
    page.heading("Next")
    in_browser = "agenteval-otel demo --storage agenteval.db"
    if storage:
        in_browser = f"agenteval-otel ui {storage}"
    to_stack = "agenteval-otel demo --otlp-endpoint http://localhost:4317"
    if delivery.address:
        to_stack = f"export OTEL_EXPORTER_OTLP_ENDPOINT={delivery.address}"
    for name, command in (
        ("in the browser", in_browser),
        ("your handler", "from agenteval_otel import monitor    # then @monitor above it"),
        ("your settings", "agenteval-otel init"),
        ("your stack", to_stack),
        ("your alerts", "agenteval-otel provision all --settings agenteval.yaml"),
        ("your recordings", "agenteval-otel demo --traffic conversations.jsonl"),
    ):
        page.command(command, f"  {name:<18}")


def _print_breaches(page: _Page, run: DemoRun, *, planted: bool) -> None:
    breaches = run.scores.breaches
    if not breaches:
        page.heading(f"{GOOD} No quality drop found", "bold green")
        watched = run.scores.targets()
        page.line(
            "No objective was breached."
            if watched
            else "No criterion has an objective that could be breached."
        )
        if planted:
            page.line(
                "A worse prompt was released half-way. More traffic (--seconds) would show it."
            )
        return
    news = f" ({run.news})" if run.seconds else f" in {run.total:,} answers"
    page.heading(
        f"{DOWN} Quality dropped: {count_of(len(breaches), 'objective')} breached{news}", "bold red"
    )
    for breach, text in zip(list(breaches.values()), _breaches(run), strict=False):
        page.line(text)
        _, _, verdicts = run.scores.around(breach)
        reasons = Counter(
            verdict.reason for verdict in verdicts if not verdict.passed and verdict.reason
        )
        if reasons:
            page.line(f"    why: {frequencies(reasons)} of the last {len(verdicts)}", "dim")
    kept = [item.name for item in run.scores.totals.criteria if item.name not in breaches]
    page.line(f"No breach: {', '.join(kept) or 'none'}")


def _print_delivery(page: _Page, delivery: DemoDelivery, scores: Scores) -> None:
    if delivery.address is None:
        page.heading("Nothing left this process", "dim")
        return
    if delivery.complete:
        page.heading(
            f"{GOOD} Sent to {delivery.address} as service {delivery.service}", "bold green"
        )
    else:
        page.heading(f"{BAD} Not everything reached {delivery.address}", "bold yellow")
        page.line(
            "The spans did, but events or metrics did not. Jaeger by itself takes only spans: send to a Collector."
            if delivery.spans
            else "Is the Collector up, and is the port right (4317 gRPC, 4318 HTTP)? On other ports set "
            "OTEL_EXPORTER_OTLP_PROTOCOL, to grpc or http/protobuf."
        )
    breached = (breach.trace_id for breach in scores.breaches.values())
    trace_id = next(filter(None, breached), scores.failing_trace)
    if trace_id and delivery.spans:
        page.line("Traces: a failing answer, with its scores on its evaluation span, is")
        page.command(trace_id)
        page.command(f"http://localhost:16686/trace/{trace_id}    # in Jaeger")
    if delivery.complete:
        page.line("Metrics: the outcomes of the calls, in PromQL, are")
        page.command("sum by (agenteval_outcome) (agenteval_responses_total)")
        page.line("Events: gen_ai.evaluation.result, one for each score, with the trace's ids")


class _Page:
    """Prints sections, indented by two."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def heading(self, text: str, style: str = "bold") -> None:
        self._console.print(Text(f"\n{text}", style=style))

    def line(self, text: str, style: str = "") -> None:
        self.show(Text(text, style=style))

    def show(self, shown: RenderableType) -> None:
        self._console.print(Padding(shown, (0, 0, 0, 2), expand=False))

    def command(self, text: str, label: str = "    ") -> None:
        """Print something to be copied, never wrapped."""
        self._console.print(Text.assemble(label, (text, "cyan")), soft_wrap=True)

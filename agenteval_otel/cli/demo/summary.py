"""The last page: what happened, what got worse and how; then where to look and what to do next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from agenteval_otel.cli.demo.changes import FALSE_ALARMS, Drop, Point
from agenteval_otel.cli.demo.guidance import Delivery, tell_next_steps, tell_where_it_went
from agenteval_otel.cli.demo.page import Page
from agenteval_otel.cli.demo.recording import Recording
from agenteval_otel.cli.demo.state import RunState
from agenteval_otel.cli.demo.tables import accounting_line, criteria_table, percent

__all__ = ["failing_trace", "print_summary"]

_REASONS = 3


def print_summary(
    state: RunState,
    console: Console,
    *,
    delivery: Delivery,
    recording: Recording | None,
    evaluated: bool,
    planted: bool,
) -> None:
    """Print the last page.

    Args:
        state: The run, over.
        console: Where to.
        delivery: What became of what was sent.
        recording: What was replayed, if anything was.
        evaluated: Whether everything that was taken is evaluated.
        planted: Whether a worse prompt was released while the traffic lasted.
    """
    page = Page(console)
    drops = state.final_drops()
    _tell_calls(page, state, recording, evaluated)
    page.heading(f"Scores {page.glyphs.dot} weighted by 1 / probability, with 95 % intervals")
    page.show(criteria_table(state.ledger, width=page.width - 2, glyphs=page.glyphs, with_counts=True,
                             fallen=[drop.criterion for drop in drops]))  # fmt: skip
    _tell_drops(page, state, drops, live=recording is None, planted=planted)
    tell_where_it_went(page, delivery, failing_trace(state, drops))
    tell_next_steps(page, delivery, replayed=recording is not None)


def _tell_calls(page: Page, state: RunState, recording: Recording | None, evaluated: bool) -> None:
    outcomes, calls, glyphs = state.outcomes, state.traffic.calls, page.glyphs
    ended = "ended early by Ctrl-C, after" if state.interrupted else "over after"
    page.heading(f"The traffic is {ended} {state.elapsed_s:.1f} s", style="bold cyan")
    adds_up = sum(outcomes.values()) == calls
    verdict = (f" {glyphs.good} adds up", "green") if adds_up else (f" {glyphs.bad} does not add up", "bold red")
    page.line(Text.assemble((accounting_line(calls, outcomes), "bold"), verdict))
    page.line(f"Sampling: {state.sampling} {glyphs.dot} {_by_probability(state)}")
    lag = state.lag_ms()
    if lag is not None:
        page.line(f"Scored in the background: {_ms(lag[0])} after the answer (median), 95 % within {_ms(lag[1])}")
    if not evaluated:
        page.line("Not everything was evaluated in time.", style="red")
    if recording is not None:
        _tell_recording(page, recording)


def _by_probability(state: RunState) -> str:
    counted = sorted(state.ledger.probabilities.items(), key=lambda item: -(item[0] or 0.0))
    return ", ".join(
        f"{count:,} at {'p unknown' if probability is None else f'p = {probability:.2g}'}"
        for probability, count in counted
    ) or "none evaluated"  # fmt: skip


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.0f} ms" if milliseconds < 10_000 else f"{milliseconds / 1000:.0f} s"


def _tell_recording(page: Page, recording: Recording) -> None:
    page.line(f"Replayed {recording.conversations:,} conversations of {recording.path.name} ({recording.line:,} lines)")
    if recording.malformed:
        page.line(f"{recording.malformed:,} lines left out:", style="yellow")
        for line, reason in recording.problems:
            page.line(f"line {line}: {reason}", indent=4)
        if recording.malformed > len(recording.problems):
            page.line(f"and {recording.malformed - len(recording.problems):,} more", indent=4)


def _tell_drops(page: Page, state: RunState, drops: Sequence[Drop], *, live: bool, planted: bool) -> None:
    glyphs = page.glyphs
    if not drops:
        page.heading(f"{glyphs.good} No drop found", style="bold green")
        page.line(f"No pass rate fell by more than chance explains (false alarms: {percent(FALSE_ALARMS)} at most).")
        if planted:
            page.line("A worse prompt was released half-way; more traffic (--seconds) would find it.")
        return
    at_s = min(drops, key=lambda drop: drop.p_value).at_s
    where = f"at about {at_s:.1f} s" if live else f"after about {state.part_of(at_s)} of the replay"
    noted = f" ({state.traffic.news})" if live else ""
    page.heading(f"{glyphs.down} Quality dropped {where}{noted}", style="bold red")
    for drop in drops:
        _tell_drop(page, state, drop)
    others = [name for name in state.ledger.criteria if name not in {drop.criterion for drop in drops}]
    if others:
        page.line(f"No clear change: {', '.join(others)}")
    page.line("(p is corrected for every moment and criterion that was tried)", style="dim")


def _tell_drop(page: Page, state: RunState, drop: Drop) -> None:
    glyphs, before, after = page.glyphs, drop.before, drop.after
    change = Text.assemble(
        (f"{drop.criterion:<16}", "bold"), f" {percent(before.mean)} {_interval(before.low, before.high, glyphs.dash)} "
        f"{glyphs.arrow} ", (percent(after.mean), "bold red"), f" {_interval(after.low, after.high, glyphs.dash)}  "
        f"{_p_value(drop.p_value)}",
    )  # fmt: skip
    page.line(change)
    reasons = _reasons(state.ledger.criteria[drop.criterion].series(), drop.place)
    if reasons:
        page.line(f"why: {reasons}", indent=6, style="dim")


def _interval(low: float, high: float, dash: str) -> str:
    return f"({round(100 * low)}{dash}{round(100 * high)})"


def _p_value(p_value: float) -> str:
    return "p < 0.0001" if p_value < 0.0001 else f"p = {p_value:.4f}"


def _reasons(points: Sequence[Point], place: int) -> str:
    """The reason codes of the failing verdicts after the fall, the most frequent first, with their share before."""
    before, after = points[:place], points[place:]
    failing = Counter(point.reason for point in after if not point.passed and point.reason)
    told = []
    for reason, count in failing.most_common(_REASONS):
        earlier = sum(1 for point in before if not point.passed and point.reason == reason)
        told.append(f"{reason} {count} of {len(after)} (before: {earlier} of {len(before)})")
    return ", ".join(told)


def failing_trace(state: RunState, drops: Sequence[Drop]) -> str | None:
    """The trace id of an answer that fails the criterion that fell most, or else any."""
    names = [drop.criterion for drop in drops] or list(state.ledger.criteria)
    for name in names:
        for point in reversed(state.ledger.criteria[name].series()):
            if not point.passed and point.trace_id:
                return point.trace_id
    return None

"""The live view: one calm screen, redrawn four times a second at most, gone when the traffic ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from agenteval_otel.cli.demo.state import RunState
from agenteval_otel.cli.demo.tables import accounting_line, criteria_table, glyphs_of, percent, shown_bytes

__all__ = ["render", "watch"]

_EVERY_S = 0.25
_SHARE_OF_TIME = 0.1


async def watch(state: RunState, console: Console) -> None:
    """Show the run until cancelled, on the terminal's other screen, which gives the first one back unchanged."""
    with Live(render(state, console), console=console, screen=True, auto_refresh=False) as live:
        while True:
            began = time.perf_counter()
            live.update(render(state, console), refresh=True)
            # A long series takes longer to draw: the agent's loop is ours for a tenth of the time at most.
            await asyncio.sleep(max(_EVERY_S, (time.perf_counter() - began) / _SHARE_OF_TIME))


def render(state: RunState, console: Console) -> RenderableType:
    """The screen at this moment."""
    width, glyphs = console.width, glyphs_of(console)
    drops = state.drops()
    parts: list[RenderableType] = [_title(state, width), _bar(state, width, glyphs.bar, glyphs.rest), Text()]
    parts.append(_lines(_facts(state, glyphs.dot)))
    if state.ledger.criteria:
        table = criteria_table(
            state.ledger, width=width, glyphs=glyphs, window=state.window(),
            fallen=[drop.criterion for drop in drops],
        )  # fmt: skip
        parts += [Text(), table]
    parts += [Text(), _lines([("Outcomes", accounting_line(state.traffic.calls, state.outcomes))])]
    fell = []
    for drop in drops:
        change = f"{percent(drop.before.mean)} {glyphs.arrow} {percent(drop.after.mean)}"
        when = f"since about {drop.at_s:.1f} s" if state.seconds else f"after {state.part_of(drop.at_s)} of the replay"
        fell.append((f"{glyphs.down} fell", f"{drop.criterion:<16}  {change}, {when}"))
    parts.append(_lines(fell, style="red"))
    parts += [Text(), Text(f"95 % intervals {glyphs.dot} Ctrl-C ends early, with the summary", style="dim")]
    return Group(*parts)


def _title(state: RunState, width: int) -> Text:
    end = f"{state.elapsed_s:.1f} of {state.seconds:g} s" if state.seconds else f"{state.elapsed_s:.1f} s"
    what = "a support agent under live traffic" if state.seconds else "a recorded agent, replayed"
    left = Text.assemble(("agenteval-otel demo", "bold cyan"), ("  " + what if width >= 76 else "", "dim"))
    return Text.assemble(left, " " * max(1, width - left.cell_len - len(end)), end, no_wrap=True, overflow="crop")


def _bar(state: RunState, width: int, bar: str, rest: str) -> Text:
    filled = int(width * state.traffic.done)
    return Text.assemble((bar * filled, "cyan"), (rest * (width - filled), "dim"), no_wrap=True, overflow="crop")


def _facts(state: RunState, dot: str) -> Iterator[tuple[str, str]]:
    queue, (seen, sampled) = state.queue, state.sampled
    share = percent(sampled / seen) if seen else "-"
    rate = state.traffic.calls / max(state.elapsed_s, 0.1)
    yield "Agent", f"{state.traffic.calls:,} calls {dot} {rate:,.0f} a second {dot} {state.traffic.news}"
    yield "Sampling", f"{seen:,} seen, {sampled:,} sampled ({share}) {dot} {state.sampling}"
    held = f"{queue['size']:,} calls {dot} {shown_bytes(queue['bytes'])} of "
    held += shown_bytes(queue["max_bytes"])
    if (lag := state.lag_ms()) is not None:
        held += f" {dot} scored {lag[0]:.0f} ms after the answer"
    yield "Queue", held
    if state.outlet:
        yield "OTLP", state.outlet


def _lines(named: Iterable[tuple[str, str]], style: str = "") -> Table:
    """Names and what they say, wrapped beside the name where the terminal is narrow."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, min_width=8, style=style or "dim")
    grid.add_column(style=style)
    for name, text in named:
        grid.add_row(Text(name), Text(text))
    return grid

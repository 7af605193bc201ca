"""Progress as plain lines, for pipes, logs and ``--no-live``."""

from __future__ import annotations

import asyncio

from rich.console import Console

from agenteval_otel.cli.demo.state import RunState
from agenteval_otel.cli.demo.tables import percent

__all__ = ["tell"]

_EVERY_S = 4.0


async def tell(state: RunState, console: Console) -> None:
    """Print a line every few seconds until cancelled."""
    every_s = min(_EVERY_S, state.seconds / 5) if state.seconds else _EVERY_S
    while True:
        await asyncio.sleep(every_s)
        outcomes = state.outcomes
        line = f"{state.elapsed_s:6.1f} s  {state.traffic.calls:,} calls, {outcomes['evaluated']:,} evaluated"
        line += f", queue {state.queue['size']:,}; {state.traffic.news}"
        drops = state.drops()
        if drops:
            told = ", ".join(f"{drop.criterion} {percent(drop.after.mean)}" for drop in drops)
            line += f"; fallen: {told}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)

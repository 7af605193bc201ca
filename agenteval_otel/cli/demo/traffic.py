"""Live traffic: the planned turns, each at its time, many at once; and what every kind of traffic tells the view."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

from agenteval_otel.cli.demo.agent import SupportAgent
from agenteval_otel.cli.demo.script import Turn

__all__ = ["LiveTraffic", "Traffic"]

_GRACE_S = 2.0


class Traffic(Protocol):
    """What takes place while the view looks on.

    Attributes:
        calls: Calls that began.
    """

    calls: int

    @property
    def done(self) -> float:
        """Share of the traffic that is over, 0 to 1."""

    @property
    def news(self) -> str:
        """What is in force, in a few words."""

    async def run(self) -> None:
        """Let it happen; returns when the last answer is there, or soon after `stop`."""

    def stop(self) -> None:
        """Begin nothing more."""


class LiveTraffic:
    """The support agent's users.

    Args:
        agent: Who answers.
        turns: The plan, in the order of time.
        seconds: How long it lasts; half-way the second prompt comes.
    """

    def __init__(self, agent: SupportAgent, turns: Sequence[Turn], seconds: float) -> None:
        self._agent, self._turns, self._seconds = agent, turns, seconds
        self._stopped = asyncio.Event()
        self.calls = 0
        self.release = 1
        self._started = time.monotonic()

    @property
    def done(self) -> float:
        """Share of the time that is over."""
        return min(1.0, (time.monotonic() - self._started) / self._seconds)

    @property
    def news(self) -> str:
        """Which prompt is in force."""
        if self.release == 1:
            return "prompt v1"
        return f"prompt v2, released at {self._seconds / 2:.1f} s"

    def stop(self) -> None:
        """Begin no more turns; those under way get a moment."""
        self._stopped.set()

    async def run(self) -> None:
        """Let every turn begin at its time, after the turn before it in its conversation."""
        self._started = time.monotonic()
        latest: dict[int, asyncio.Task[None]] = {}
        for turn in self._turns:
            await self._until(turn.at_s)
            if self._stopped.is_set():
                break
            self.release = turn.release
            latest[turn.conversation] = asyncio.create_task(self._take(turn, latest.get(turn.conversation)))
            if len(latest) > 512:
                latest = {number: task for number, task in latest.items() if not task.done()}
        under_way = [task for task in latest.values() if not task.done()]
        if under_way:
            _, late = await asyncio.wait(under_way, timeout=_GRACE_S if self._stopped.is_set() else None)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _take(self, turn: Turn, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.done():
            await asyncio.wait({before})
            if self._stopped.is_set():
                return
        self.calls += 1
        await self._agent.take(turn)

    async def _until(self, at_s: float) -> None:
        left_s = self._started + at_s - time.monotonic()
        if left_s <= 0:
            await asyncio.sleep(0)
            return
        try:
            await asyncio.wait_for(self._stopped.wait(), left_s)
        except TimeoutError:
            return

"""Shapes of agents: pipelines, teams, tool turns, shared state; bare, monitored, traced, and with
pydantic-evals.

Every function of an agent is wrapped: each stage of a pipeline, each member of a team, each writer.
What runs inside is next to nothing, so that the figures are the cost of what is around it. Bursts
are short and what they left in the background is evaluated outside the timing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from benchmarks import subjects
from benchmarks.harness import Bench, Figure, Numbers, Phase, Size, standalone
from benchmarks.tables import render

__all__ = ["BENCH", "shapes"]

_now = time.perf_counter_ns
Run = Callable[[], Awaitable[Any]]
Wrap = Callable[[Any], Any]
_CALLS_A_ROUND = 20


# --- the shapes
# -------------------------------------------------------------------------------------------------------
async def _reply(question: str) -> str:
    """A model that answers at once."""
    return subjects.ANSWER


async def _look_up(question: str) -> str:
    return "Paris"


def _stage() -> Any:
    async def stage(text: str) -> str:
        return await _reply(text)

    return stage


def _pipeline(wrap: Wrap, stages: int) -> Run:
    wrapped = [wrap(_stage()) for _ in range(stages)]

    async def run() -> str:
        text = subjects.QUESTION
        for stage in wrapped:
            text = await stage(text)
        return text

    return run


def _team(wrap: Wrap, members: int) -> Run:
    wrapped = [wrap(_stage()) for _ in range(members)]

    async def run() -> list[str]:
        return await asyncio.gather(*(member(subjects.QUESTION) for member in wrapped))

    return run


def _agent(wrap: Wrap) -> Run:
    agent = wrap(_stage())
    return lambda: agent(subjects.QUESTION)


def _with_tool(wrap: Wrap) -> Run:
    async def agent(question: str) -> dict[str, Any]:
        await _reply(question)  # asks for the tool
        found = await _look_up(question)
        text = await _reply(found)
        return {
            "content": text,
            "tool_calls": [{"name": "look_up", "arguments": {"question": question}}],
        }

    wrapped = wrap(agent)
    return lambda: wrapped(subjects.QUESTION)


def _parallel(wrap: Wrap) -> Run:
    agent = wrap(_stage())

    async def run() -> list[str]:
        return await asyncio.gather(*(agent(subjects.QUESTION) for _ in range(10)))

    return run


def _session(wrap: Wrap, writers: int) -> Run:
    state: dict[str, list[str]] = {"turns": []}
    lock = asyncio.Lock()

    async def save_and_load(question: str) -> str:
        async with lock:
            state["turns"] = [*state["turns"][-9:], question]
        async with lock:
            return state["turns"][-1]

    wrapped = wrap(save_and_load)
    if not writers:
        return lambda: wrapped(subjects.QUESTION)

    async def run() -> list[str]:
        return await asyncio.gather(*(wrapped(f"turn {index}") for index in range(writers)))

    return run


def shapes(wrap: Wrap) -> dict[str, tuple[Run, int]]:
    """Each shape by its name: what runs, and how many monitored calls that is."""
    return {
        "agent run": (_agent(wrap), 1),
        "agent run with a tool turn": (_with_tool(wrap), 1),
        "10 parallel agent runs": (_parallel(wrap), 10),
        **{f"pipeline, {n} stage{'s' * (n > 1)}": (_pipeline(wrap, n), n) for n in (1, 3, 5, 10)},
        **{
            f"team, {n} agent{'s' * (n > 1)} at once": (_team(wrap, n), n)
            for n in (1, 2, 5, 10, 20)
        },
        "shared session state: save and load": (_session(wrap, 0), 1),
        **{
            f"shared session state, {n} writer{'s' * (n > 1)}": (_session(wrap, n), n)
            for n in (1, 2, 5, 10)
        },
    }


# --- and what they take
# -----------------------------------------------------------------------------------------------
def _measured(make: Callable[[], Any], size: Size) -> Numbers:
    """Microseconds a run, the lowest of short bursts, by shape."""
    tracer = subjects.use_tracing()
    subject = make()
    taken: Numbers = {}

    async def measure(name: str, run: Run, calls: int) -> None:
        runs = max(1, _CALLS_A_ROUND // calls)
        lowest = float("inf")
        for index in range(size.of(5, 40) + 3):
            began = _now()
            for _ in range(runs):
                await run()
            took = (_now() - began) / runs / 1e3
            if index >= 3:
                lowest = min(lowest, took)
            await _settle(subject)
        taken[name] = lowest

    async def every() -> None:
        # In one loop: the writers' lock and the rival's tasks belong to it.
        for name, (run, calls) in shapes(subject.wrap).items():
            with tracer.start_as_current_span("request"):
                await measure(name, run, calls)

    asyncio.run(every())
    return taken


async def _settle(subject: Any) -> None:
    if isinstance(subject, subjects.Rival):
        await subject.wait()
    elif isinstance(subject, subjects.Ours):
        await asyncio.to_thread(subject.drain)


class _Bare:
    """The handler as it is."""

    def wrap(self, handler: Any) -> Any:
        return handler


_COLUMNS: dict[str, Callable[[], Any]] = {
    "bare": _Bare,
    "not sampled": partial(subjects.Ours, rate=subjects.SAMPLED_OUT_RATE),
    "sampled": partial(subjects.Ours, shedding=False),
    "raw span": subjects.RawSpan,
    "pydantic-evals": partial(subjects.Rival, limit=100_000),
}
_PHASES = tuple(
    Phase("shapes", subject, partial(_measured, make)) for subject, make in _COLUMNS.items()
)


def _no_figures(found: dict[str, Numbers]) -> list[Figure]:
    return []


def table(found: dict[str, Numbers]) -> str:
    """Microseconds a run and how many times the bare run, side by side."""
    header = ["shape", "bare us"]
    for subject in _COLUMNS:
        header += [] if subject == "bare" else [f"{subject} us", "x bare"]
    rows = []
    for name, bare in found["shapes:bare"].items():
        row = [name, f"{bare:,.1f}"]
        for subject in _COLUMNS:
            value = found[f"shapes:{subject}"][name]
            row += [] if subject == "bare" else [f"{value:,.1f}", f"{value / bare:,.1f}"]
        rows.append(row)
    return render(header, rows)


BENCH = Bench(
    "agents",
    "Shapes of agents",
    _PHASES,
    _no_figures,
    table=table,
    notes=(
        "Shapes of agents: every stage, member and writer is wrapped and does next to nothing; "
        "in a request's span; ours "
        "at rate 1 and passed over by the ratio; pydantic-evals at rate 1 with its limit raised. "
        "Microseconds a run, as "
        "its caller waits for it; what goes on in the background is waited for between the bursts.",
    ),
)

if __name__ == "__main__":
    standalone(BENCH)

"""The cases of the comparison: each is a program that gives facts, run once with ours and once with
pydantic-evals.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

from benchmarks.rival_doors import open_door

__all__ = ["CASES"]

Facts = dict[str, Any]
_now = time.perf_counter
_CANARY = "patient-4711-canary"


async def _answer(question: str) -> str:
    return f"the answer to {question}"


def _plain(question: str) -> str:
    return f"the answer to {question}"


# --- the host's loop and the judges
# -----------------------------------------------------------------------------------
def blocked_loop(door: Any, folder: str) -> Facts:
    """One evaluator of 500 ms pure Python: how long does the host's loop stand still?"""
    from benchmarks.evaluators import Busy
    from benchmarks.loops import loops_for

    handler = door.evaluate_with(Busy(loops=loops_for(0.5)))(_answer)

    async def host() -> float:
        longest, until = 0.0, _now() + 3.0
        asked = False
        while _now() < until:
            began = _now()
            if not asked and began > until - 2.5:
                asked = True
                await handler("q")
            await asyncio.sleep(0.001)
            longest = max(longest, _now() - began - 0.001)
        await door.settle()
        return longest

    return {"longest stall of the loop, ms": round(asyncio.run(host()) * 1e3)}


def hung_judges(door: Any, folder: str) -> Facts:
    """Ten judges hang; 990 calls follow, two milliseconds apart."""
    taken = iter(range(1_000_000))

    async def judge(answer: str) -> float:
        if next(taken) < 10:
            await asyncio.Event().wait()
        return 1.0

    handler = door.evaluate(judge)(_answer)

    async def host() -> None:
        for index in range(1_000):
            await handler(f"{index}")
            await asyncio.sleep(0.002)
        # not the rival's own wait, which never ends with a coroutine that hangs
        await asyncio.sleep(1.0)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(host())
    return {
        "of the 990 later calls: scored": door.scored(),
        "of the 1,000: fate known": _but_ten(door),
    }


def _but_ten(door: Any) -> int:
    known: int = door.known()
    # Ours: the ten are still under evaluation, and counted as such in the queue.
    from agenteval_otel.config import current_pipeline

    pipeline = current_pipeline()
    return known + (pipeline.dispatcher.state()["size"] if pipeline is not None else 0)


def hung_at_exit(door: Any, folder: str) -> Facts:
    """A judge hangs, the handler is sync, the program ends."""

    async def judge(answer: str) -> float:
        await asyncio.Event().wait()
        return 1.0

    door.evaluate(judge)(_plain)("q")
    time.sleep(0.2)
    return {}


def end_of_run(door: Any, folder: str) -> Facts:
    """Five calls, a judge of 50 ms, and `asyncio.run` ends at once."""
    handler = door.evaluate(_marking(folder))(_answer)

    async def main() -> None:
        await asyncio.gather(*(handler(f"{index}") for index in range(5)))

    asyncio.run(main())
    return {}


def loop_closed(door: Any, folder: str) -> Facts:
    """One call on a loop that is closed right after it; the program lives on for a second."""
    handler = door.evaluate(_marking(folder))(_answer)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(handler("q"))
    loop.close()
    time.sleep(1.0)
    return {}


def _marking(folder: str) -> Any:
    from benchmarks.evaluators import note

    async def judge(answer: str) -> float:
        await asyncio.sleep(0.05)
        note(os.path.join(folder, "scored"))
        return 1.0

    return judge


# --- what reaches the caller, and what leaves the process
# -------------------------------------------------------------
def broken_sampler(door: Any, folder: str) -> Facts:
    """What the user brought to choose the rate raises; ten calls."""
    handler = door.evaluate(_one, sampler=door.raising_sampler())(_answer)

    async def host() -> tuple[int, str]:
        raised, what = 0, ""
        for index in range(10):
            try:
                await handler(f"{index}")
            except Exception as error:
                raised, what = raised + 1, type(error).__name__
        return raised, what

    raised, what = asyncio.run(host())
    return {"calls that raised into the user, of 10": f"{raised} ({what})" if raised else 0}


async def _one(answer: Any) -> float:
    return 1.0


def leaking_error(door: Any, folder: str) -> Facts:
    """An evaluator raises an error that quotes the answer; what is exported holds the quotation?"""

    async def judge(answer: str) -> float:
        raise ValueError(f"cannot judge: {answer}")

    async def secret(question: str) -> str:
        return f"the diagnosis of {_CANARY}"

    handler = door.evaluate(judge)(secret)

    async def host() -> None:
        await handler("q")
        await door.settle()

    asyncio.run(host())
    leaks = sum(_CANARY in text for text in door.exported())
    return {"exported items that hold the answer": leaks}


def generators(door: Any, folder: str) -> Facts:
    """Handlers that stream: what do evaluators get?"""
    seen: list[str] = []

    async def judge(answer: Any) -> float:
        seen.append(repr(answer) if isinstance(answer, str) else type(answer).__name__)
        return 1.0

    decorate = door.evaluate(judge)

    def stream(question: str) -> Generator[str, None, None]:
        yield "one "
        yield "two"

    async def stream_async(question: str) -> AsyncGenerator[str, None]:
        yield "one "
        yield "two"

    async def host() -> None:
        list(decorate(stream)("q"))
        await door.settle()
        found = decorate(stream_async)("q")
        if asyncio.iscoroutine(found):
            found = await found
        _ = [chunk async for chunk in found]
        await door.settle()

    asyncio.run(host())
    names = ("a generator's evaluator gets", "an async generator's evaluator gets")
    return dict(zip(names, [*seen, "nothing", "nothing"], strict=False))


CASES: dict[str, Callable[[Any, str], Facts]] = {
    case.__name__: case
    for case in (
        blocked_loop,
        hung_judges,
        hung_at_exit,
        end_of_run,
        loop_closed,
        broken_sampler,
        leaking_error,
        generators,
    )
}
"""By name."""

if __name__ == "__main__":
    _, _name, _subject, _folder = sys.argv
    print(json.dumps(CASES[_name](open_door(_subject), _folder)), flush=True)

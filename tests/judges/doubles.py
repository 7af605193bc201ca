"""A judge for the tests of the guards: answers what it is told to, and counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property
from typing import Any

from pydantic import Field

from agenteval_otel.judges import Judge, JudgeRequest, JudgeUsage, Verdict

__all__ = ["CountingJudge", "request_of", "usage_of"]

GOOD = {"score": 4}


class CountingJudge(Judge):
    """Calls `answer` with the number of the call; it gives a verdict, or raises."""

    model: str = "small-1"
    answer: Callable[[int], Any] = Field(default=lambda number: verdict(), exclude=True)
    pause: Any = Field(default=None, exclude=True)

    @cached_property
    def made(self) -> list[JudgeRequest]:
        return []

    @cached_property
    def arrivals(self) -> asyncio.Queue[int]:
        """The numbers of the calls that have begun, to be waited for."""
        return asyncio.Queue()

    @property
    def calls(self) -> int:
        return len(self.made)

    async def judge(self, request: JudgeRequest) -> Verdict:
        self.made.append(request)
        number = len(self.made)
        self.arrivals.put_nowait(number)
        if self.pause is not None:
            await self.pause.wait()
        else:
            await asyncio.sleep(0)
        result = self.answer(number)
        assert isinstance(result, Verdict)
        return result


def usage_of(read: int = 100, answered: int = 50) -> JudgeUsage:
    return JudgeUsage(input_tokens=read, output_tokens=answered)


def verdict(read: int = 100, answered: int = 50) -> Verdict:
    return Verdict(
        answer=dict(GOOD), raw="{}", usage=usage_of(read, answered), model="small-1", duration_s=0.2
    )


def request_of(
    prompt: str = "a" * 300, *, fingerprint: str = "", purpose: str = "correctness", most: int = 100
) -> Any:
    return JudgeRequest(prompt=prompt, max_tokens=most, purpose=purpose, fingerprint=fingerprint)

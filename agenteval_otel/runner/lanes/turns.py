"""Turns: async evaluations that compute begin one after the other, as their evaluator's share allows."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable

from agenteval_otel.errors import EvaluationError
from agenteval_otel.runner.lanes.share import Share

__all__ = ["Turns"]

_WEIGHT = 0.25


class Turns:
    """Whose turn it is among the evaluations of one evaluator.

    What an evaluation uses is known at its end, and many may be under way: so each books at its beginning what they
    usually use, and what it was in truth at its end. Those that wait do so in a queue: they must not all begin at the
    moment in which there is credit again.
    """

    def __init__(self, share: Share) -> None:
        self._share = share
        self._queues: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()
        self._usual_s = 0.0

    async def begin(self, patience_s: float, held: Callable[[], None]) -> float:
        """Wait for credit, and book; the CPU seconds that were booked, 0 while nothing is known.

        Args:
            patience_s: How long to wait at most.
            held: Called when it has to wait.

        Raises:
            EvaluationError: ``timeout``: there was no credit in time.
        """
        queue = self._queue()
        if queue.locked() or self._share.rest_s() > 0:
            held()
            try:
                async with asyncio.timeout(patience_s), queue:
                    while True:
                        rest_s = self._share.rest_s()
                        if rest_s <= 0:
                            return self._booked()
                        await asyncio.sleep(rest_s)
            except TimeoutError:
                said = f"no turn within {patience_s:g} s: it is held to its share of a processor"
                raise EvaluationError(said, error_type="timeout") from None
        return self._booked()

    def is_in_debt(self) -> bool:
        """Whether there is no credit."""
        return self._share.rest_s() > 0

    def end(self, booked_s: float, used_s: float | None) -> None:
        """Correct what was booked; None for an evaluation that never ran."""
        self._share.used((used_s or 0.0) - booked_s)
        if used_s is not None:
            self._usual_s += (used_s - self._usual_s) * (_WEIGHT if self._usual_s else 1.0)

    def _booked(self) -> float:
        booked_s = self._usual_s
        self._share.used(booked_s)
        return booked_s

    def _queue(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        queue = self._queues.get(loop)
        if queue is None:
            queue = self._queues[loop] = asyncio.Lock()
        return queue

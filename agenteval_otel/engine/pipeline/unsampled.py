"""Calls that were not sampled, kept for a while.

What a user complains about is evaluated after all.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from agenteval_otel.capture.build import build_input
from agenteval_otel.engine.task import HandlerCall, Queued
from agenteval_otel.models.scoring.probability import SamplingDecision
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.storage.erasure import Erasure

FEEDBACK = SamplingDecision(True, None, "feedback")
"""Chosen because of what a user said: with unknown probability, so in no unbiased rate."""


class _Kept(NamedTuple):
    queued: Queued
    size_bytes: int
    until_s: float


class UnsampledCalls:
    """Keeps the newest calls that were not sampled, within time and memory.

    Any thread may call. The lock is held for microseconds.

    A call that is let go counts as the sampler said. A call that is taken is counted when it is
    evaluated.

    Args:
        window_s: How long a call is kept.
        settle: Counts a call that is let go, with its outcome.
    """

    def __init__(self, window_s: float, settle: Callable[[Queued, str], object]) -> None:
        self._window_s = window_s
        self._settle = settle
        self._reset()
        reset_in_child(self._reset)

    def __repr__(self) -> str:
        return f"<UnsampledCalls {len(self._kept)}>"

    def _reset(self) -> None:
        # a signal handler may run a monitored call in the middle of another one
        self._lock = threading.RLock()
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._places: dict[Any, int] = {}

    def keep(self, queued: Queued, size_bytes: int) -> None:
        """Keep a call whose decision says that it is not sampled.

        The oldest are let go if there is no room.
        """
        with self._lock:
            self.expire()
            while not MEMORY.unsampled_calls.reserve(size_bytes):
                if not self._kept:
                    self._let_go(_Kept(queued, 0, 0.0))
                    return
                self._let_go(self._remove(next(iter(self._kept))))
            self._kept[id(queued)] = _Kept(queued, size_bytes, time.monotonic() + self._window_s)
            for key in _keys(queued):
                self._places[key] = id(queued)

    def take(self, *keys: Any) -> tuple[Queued, int] | None:
        """Return the call with one of these keys, to be evaluated, or None without one.

        A key is ``("call", id)``, the ids of trace and span, or the trace's id for its
        newest call.
        """
        with self._lock:
            self.expire()
            place = next((self._places[key] for key in keys if key in self._places), None)
            if place is None:
                return None
            kept = self._remove(place)
        kept.queued.decision = FEEDBACK
        return kept.queued, kept.size_bytes

    def erase(
        self,
        erasure: Erasure,
        user_id: Callable[[str], str],
        broken: Callable[[str, BaseException], object],
    ) -> int:
        """Remove the calls that match the erasure and return how many.

        A call whose ids cannot be read is removed too. Matching runs without the lock.
        """
        with self._lock:
            every = [kept.queued for kept in self._kept.values()]

        def is_concerned(queued: Queued) -> bool:
            try:
                if isinstance(queued, HandlerCall):
                    value = build_input(
                        queued,
                        on_bad_fact=lambda *_: None,
                        capture=queued.settings.capture,
                        function=queued.settings.function,
                        user_id=user_id,
                    )
                else:
                    assert queued.input is not None
                    value = queued.input
                return erasure.concerns_input(value, queued.ended_ns)
            except Exception as error:
                broken("capture", error)
                return True

        concerned = {id(queued) for queued in every if is_concerned(queued)}
        with self._lock:
            places = [place for place in self._kept if place in concerned]
            for place in places:
                self._let_go(self._remove(place))
        return len(places)

    def expire(self, *, all_of_them: bool = False) -> None:
        """Let the calls go whose time is over."""
        now_s = time.monotonic()
        with self._lock:
            while self._kept and (all_of_them or next(iter(self._kept.values())).until_s <= now_s):
                self._let_go(self._remove(next(iter(self._kept))))

    def _remove(self, place: int) -> _Kept:
        kept = self._kept.pop(place)
        MEMORY.unsampled_calls.release(kept.size_bytes)
        for key in _keys(kept.queued):
            if self._places.get(key) == place:
                del self._places[key]
        return kept

    def _let_go(self, kept: _Kept) -> None:
        assert kept.queued.decision is not None
        self._settle(kept.queued, kept.queued.decision.outcome)


def _keys(queued: Queued) -> list[Any]:
    span = queued.span_context if isinstance(queued, HandlerCall) else queued.target
    keys: list[Any] = []
    if span is not None and span.is_valid:
        keys = [(span.trace_id, span.span_id), span.trace_id]
    if queued.call_id is not None:
        keys.append(("call", queued.call_id))
    return keys

"""Load shedding: sample less under load.

There is load while queued work would take too long, or while evaluation makes the host's loop late.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from agenteval_otel.components.explained import FriendlyErrors
from agenteval_otel.models.scoring.probability import SamplingDecision
from agenteval_otel.runtime.fork import RANDOM, reset_in_child
from agenteval_otel.runtime.log import log
from agenteval_otel.sampling.base import threshold_of
from agenteval_otel.semconv import SHED

LEVELS: Final = ("full", "reduced", "no model calls", "off")
FULL, REDUCED, NO_MODEL_CALLS, OFF = range(len(LEVELS))

LOOK_EVERY_S: Final = 0.25
_LOOKS_ABOVE: Final = 5
# from the least share to all within 30 s
_REDUCE_EVERY_S = 0.5
_RECOVER_AFTER_S = 3.5
_RECOVER_BELOW = 0.75
_LAG_WINDOW_S = 5.0
_LAG_QUANTILE = 0.9
_LAG_LEAST_COUNT = 8
_LITTLE_WORK: Final = 1 / 8
_GAUGE_WINDOW_S: Final = 60.0
_NO_LOOK_S: Final = 5.0
_IGNORE_S: Final = 300.0
_WEIGHT: Final = 1 / 32
_MAX_FACTOR: Final = 4.0
_TIMER_S = 0.25
_MEASURED_FOR_S = 5.0
_MAX_LOOPS = 8
# A loop that was stopped and started again was not late.
_STOPPED_S: Final = 10.0


class LoadSheddingSettings(BaseModel, metaclass=FriendlyErrors):
    """When sampling is reduced under load.

    Null disables a bound. Drain time and lag are still exported.

    Attributes:
        enabled: False measures the load, but never reduces sampling.
        max_drain_s: Estimated seconds until the queued answers are evaluated, above which the
            sampling rate is halved.
        max_loop_lag_s: Maximum lag of the host's event loop in seconds while answers are evaluated,
            as the 90th percentile of the last five seconds.
        min_rate: Smallest share of the sampled responses, above 0 to 1. Below it evaluators that
            call a model are skipped.
        grace_s: Seconds after the first answer in which a late event loop reduces nothing: imports
            and first requests make it late. A long queue still does.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True
    )

    enabled: bool = True
    max_drain_s: float | None = Field(default=10.0, gt=0)
    max_loop_lag_s: float | None = Field(default=0.05, gt=0)
    min_rate: float = Field(default=1 / 64, gt=0, le=1)
    grace_s: float = Field(default=60.0, ge=0, le=3_600)


class _Overload(NamedTuple):
    """Holds a measure above its bound, and the highest level that it may lead to."""

    measure: str
    value: float
    bound: float
    max_level: int

    def in_words(self) -> str:
        if self.measure == "loop_lag":
            return f"the event loop ran {self.value:.2g} s late (limit {self.bound:g} s)"
        if self.measure == "queue_full":
            return f"the queue was full, and evaluating it would take {self.value:.2g} s"
        return f"evaluating what waits would take {self.value:.2g} s (limit {self.bound:g} s)"


class LoadShedder:
    """Decides on load shedding of one pipeline.

    `look` runs on the background thread, `thin` and `keep` are for callers' threads.

    Args:
        work: Returns the answers that wait or are under evaluation.
        loop_lag: How late the host's event loops run. By default it is measured with `clock`.

    Attributes:
        keep: None at full sampling, else the share in [0, 1) of the sampled responses that goes on.
        level: 0 full, 1 reduced, 2 no model calls (`skip_models`), 3 off.
    """

    def __init__(
        self,
        settings: LoadSheddingSettings | None = None,
        *,
        work: Callable[[], Work],
        clock: Callable[[], float] = time.monotonic,
        loop_lag: LoopLag | None = None,
    ) -> None:
        self.settings = settings or LoadSheddingSettings()
        self._work = work
        self._clock = clock
        self._loop_lag = LoopLag(clock) if loop_lag is None else loop_lag
        self.note_loop = self._loop_lag.note
        self.reset()
        reset_in_child(self.reset)

    def __repr__(self) -> str:
        return f"<LoadShedder {LEVELS[self.level]} keep={self.keep}>"

    def reset(self) -> None:
        self._set(FULL, 1.0)
        self._moved_at = self._looked_at = self._passed_at = self._ignore_lag_until = -math.inf
        # when the first answers were there
        self._began_at: float | None = None
        self._drain: deque[tuple[float, float]] = deque(maxlen=_LOOKS_ABOVE)
        self._dropped: int | None = None
        self._late_s = 0.0
        self._late_before: float | None = None
        self._loop_lag.reset()

    def thin(self, decision: SamplingDecision, randomness: int) -> SamplingDecision:
        """Apply `keep` to a final decision that samples. Any thread. Never raises."""
        keep = self.keep
        if keep is None:
            return decision
        now = self._clock()
        if now - self._looked_at > _NO_LOOK_S and now - self._passed_at >= 1.0:
            # The background thread ended or was replaced: one call a second wakes it, and it looks
            # again.
            self._passed_at = now
            return decision._replace(probability=None)
        return thinned(decision, randomness, keep)

    def look(self) -> bool:
        """Measure, and reduce or recover if due. Return whether it has to be called again."""
        now = self._clock()
        work = self._work()
        if self._began_at is None:
            self._began_at = now
        overload = self._measure(now, work)
        if self.settings.enabled:
            self._move(now, work, overload)
        return work.queued > 0 or self.level != FULL

    def gauges(self) -> dict[str, float]:
        """Return ``level``, ``drain_time`` and, if a loop is known, ``loop_lag``. Any thread.

        The lag is that of the last minute.
        """
        gauges = {"level": float(self.level), "drain_time": self._work().drain_s}
        late = self._loop_lag.since(self._clock() - _GAUGE_WINDOW_S)
        if late:
            gauges["loop_lag"] = max(late)
        return gauges

    def _measure(self, now: float, work: Work) -> _Overload | None:
        if now - self._looked_at > _NO_LOOK_S:
            self._drain.clear()
            self._dropped = None
        before = self._dropped
        self._dropped = work.dropped
        self._looked_at = now
        self._drain.append((now, work.drain_s))
        bound_s = self.settings.max_drain_s
        if bound_s is not None:
            if self._takes_too_long(bound_s):
                return _Overload("drain_time", work.drain_s, bound_s, NO_MODEL_CALLS)
            # A queue that overflows loses calls, whatever the estimate says.
            if before is not None and work.dropped > before:
                return _Overload("queue_full", work.drain_s, bound_s, NO_MODEL_CALLS)
        return self._lag(now, work)

    def _takes_too_long(self, bound_s: float) -> bool:
        """Tell whether the drain time exceeded its bound for a second.

        Return False if it falls fast enough by itself.
        """
        if len(self._drain) < _LOOKS_ABOVE or min(drain_s for _, drain_s in self._drain) <= bound_s:
            return False
        first_at, first_s = self._drain[0]
        last_at, last_s = self._drain[-1]
        fallen_s = first_s - last_s
        took_s = last_at - first_at
        return fallen_s <= 0 or (last_s - bound_s) * took_s > bound_s * fallen_s

    def _lag(self, now: float, work: Work) -> _Overload | None:
        """Return the host's loop lag if it exceeds its bound and evaluation may be the cause."""
        bound_s = self.settings.max_loop_lag_s
        late = self._loop_lag.since(max(now - _LAG_WINDOW_S, self._moved_at))
        is_starting = self._began_at is not None and now - self._began_at < self.settings.grace_s
        counts = (
            bound_s is not None
            and late
            and work.queued
            and now >= self._ignore_lag_until
            and not is_starting
        )
        late_s = 0.0
        if counts:
            position = math.ceil(_LAG_QUANTILE * len(late)) - 1
            late_s = sorted(late)[position]
        self._late_s = late_s
        if bound_s is None or not counts or len(late) < _LAG_LEAST_COUNT:
            return None
        if self._late_s <= bound_s:
            self._late_before = None
            return None
        if self._late_before is None:
            self._late_before = self._late_s
        elif (
            self._rate <= _LITTLE_WORK
            and work.drain_s < LOOK_EVERY_S
            and self._late_s > 0.7 * self._late_before
        ):
            # Little work, no backlog, and the loop is as late as before: the host's own work makes
            # it late.
            self._late_before = None
            self._late_s = 0.0
            self._ignore_lag_until = now + _IGNORE_S
            return None
        return _Overload("loop_lag", self._late_s, bound_s, OFF)

    def _move(self, now: float, work: Work, overload: _Overload | None) -> None:
        before = self.level
        since_s = now - self._moved_at
        step = (
            self._recovered(since_s, work) if overload is None else self._reduced(since_s, overload)
        )
        if step is None:  # it stays
            return
        self._set(*step)
        self._moved_at = now
        if self.level == before:
            return
        facts: dict[str, Any] = {"part": LEVELS[self.level], "level": self.level, "keep": self.keep}
        effect = self._effect_in_words()
        if overload is None:
            log.warning("sampling_recovered", **facts, before=LEVELS[before], effect=effect)
        else:
            log.warning(
                "sampling_reduced",
                **facts,
                measure=overload.measure,
                value=round(overload.value, 4),
                bound=overload.bound,
                cause=overload.in_words(),
                effect=effect,
            )

    def _effect_in_words(self) -> str:
        if self.level == FULL:
            return "every sampled answer is evaluated"
        if self.level == OFF:
            return "no answer is evaluated"
        share = round(1 / self._rate)
        text = f"one of {share} sampled answers is evaluated"
        if share == 1:
            text = "every sampled answer is evaluated"
        elif share == 2:
            text = "every second sampled answer is left out"
        return text if self.level == REDUCED else f"{text}, and no model is asked"

    def _reduced(self, since_s: float, overload: _Overload) -> tuple[int, float] | None:
        if since_s < _REDUCE_EVERY_S:
            return None
        if self._rate > self.settings.min_rate:
            return REDUCED, max(self.settings.min_rate, self._rate / 2)
        if self.level >= overload.max_level:
            return None
        return max(NO_MODEL_CALLS, self.level + 1), self._rate

    def _recovered(self, since_s: float, work: Work) -> tuple[int, float] | None:
        bounds = (
            (work.drain_s, self.settings.max_drain_s),
            (self._late_s, self.settings.max_loop_lag_s),
        )
        is_near = any(
            bound is not None and value > _RECOVER_BELOW * bound for value, bound in bounds
        )
        if self.level == FULL or is_near or since_s < _RECOVER_AFTER_S:
            return None
        if self.level > REDUCED:
            return self.level - 1, self._rate
        rate = min(1.0, 2 * self._rate)
        level = FULL if rate == 1.0 else REDUCED
        return level, rate

    def _set(self, level: int, rate: float) -> None:
        self.level = level
        self._rate = rate
        self.skip_models = level >= NO_MODEL_CALLS
        if level == FULL:
            self.keep: float | None = None
        elif level == OFF:
            self.keep = 0.0
        else:
            self.keep = rate


def thinned(decision: SamplingDecision, randomness: int, share: float) -> SamplingDecision:
    """Return the decision with `share` of its probability.

    The rest is not sampled, with the outcome ``shed``.

    The response's own randomness decides where it decided before, so that a smaller share is part
    of a larger one. Randomness at or above the probability shows a sampler that used other numbers:
    then ours decide.
    """
    probability = decision.probability
    randomness = randomness if decision.randomness is None else decision.randomness
    lowered = None if probability is None else probability * share
    if probability is None or lowered is None or randomness >= threshold_of(probability):
        goes_on = RANDOM.random() < share
    else:
        goes_on = randomness < threshold_of(lowered)
    decision = decision._replace(probability=lowered)
    return decision if goes_on else decision._replace(sampled=False, outcome=SHED)


class Work(NamedTuple):
    """Counts the answers that wait or are under evaluation.

    `drain_s` are the seconds until there is no such answer, `dropped` the calls refused so far.
    """

    queued: int
    drain_s: float
    dropped: int


class CostMeter:
    """Measures what an answer costs, on the background thread and in each execution.

    `at_once` says how many evaluations run at once in each execution.
    """

    def __init__(self, at_once: Mapping[str, int]) -> None:
        self._at_once = at_once
        self._inline_s = 0.0
        self._elsewhere_s = dict.fromkeys(at_once, 0.0)
        self._answers = 0

    def note(self, answers: int, seconds: float, elsewhere_s: Mapping[str, float]) -> None:
        """Note how long the background thread took for some answers.

        For them it started evaluations of `elsewhere_s` seconds.

        The thread's seconds for the first answers are left out, others count as four times the mean
        at most: a first call may import a library.
        """
        is_first = self._answers == 0
        self._answers += answers
        weight = 1.0 - (1.0 - _WEIGHT) ** answers
        for mode, total_s in elsewhere_s.items():
            mean_s = self._elsewhere_s[mode]
            share = weight if mean_s else 1.0
            self._elsewhere_s[mode] = mean_s + share * (total_s / answers - mean_s)
        if not is_first:
            per_answer_s = seconds / answers
            mean_s = self._inline_s or per_answer_s
            counted_s = min(per_answer_s, _MAX_FACTOR * mean_s)
            self._inline_s = mean_s + weight * (counted_s - mean_s)

    def drain_s(self, queued: int, waiting_s: Mapping[str, float]) -> float:
        """Return the estimated seconds until all is done.

        The background thread and the executions work side by side.
        """
        longest_s = queued * self._inline_s
        for mode, seconds in waiting_s.items():
            total_s = queued * self._elsewhere_s[mode] + seconds
            longest_s = max(longest_s, total_s / self._at_once[mode])
        return longest_s


class LoopLag:
    """Measures how late the host's event loops run.

    It measures four times a second, for five seconds after a monitored call.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        self._measured: deque[tuple[float, float]] = deque(maxlen=256)
        self._until: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, float] = (
            weakref.WeakKeyDictionary()
        )

    def note(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measure this loop for the next seconds.

        It is called on the loop's own thread, and never raises.
        """
        try:
            if loop not in self._until:
                closed_loops = [other for other in self._until if other.is_closed()]
                for closed_loop in closed_loops:
                    del self._until[closed_loop]
                if len(self._until) >= _MAX_LOOPS:
                    return
                self._set_timer(loop)
            self._until[loop] = self._clock() + _MEASURED_FOR_S
        except Exception:  # a loop of an unknown kind: it is not measured
            return

    def add(self, late_s: float) -> None:
        if late_s < _STOPPED_S:
            self._measured.append((self._clock(), late_s))

    def since(self, moment: float) -> list[float]:
        return [late_s for measured_at, late_s in list(self._measured) if measured_at > moment]

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        due = self._clock() + _TIMER_S
        # In a context of its own: the timer would keep the caller's alive.
        loop.call_later(
            _TIMER_S, self._fired, weakref.ref(loop), due, context=contextvars.Context()
        )

    def _fired(self, reference: weakref.ref[asyncio.AbstractEventLoop], due: float) -> None:
        loop = reference()
        now = self._clock()
        self.add(max(0.0, now - due))
        if loop is None:
            return
        if now < self._until.get(loop, 0.0) and not loop.is_closed():
            self._set_timer(loop)
        else:
            self._until.pop(loop, None)

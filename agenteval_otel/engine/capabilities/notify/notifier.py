"""Notifier: hears what gets worse and what is well again, and tells people by messages.

Nothing here waits: changes go into the outboxes, which have threads of their own. One thread more
looks at circuit breakers and evaluators every ten seconds, and closes the week.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from agenteval_otel.engine.capabilities.notify.outbox import Outbox
from agenteval_otel.engine.capabilities.notify.place import MessagePlace
from agenteval_otel.engine.capabilities.notify.week import MOST_PAIRS, Pair, Week
from agenteval_otel.engine.capability import Capability, Evaluated, Host, MakeCapability
from agenteval_otel.engine.execution import Executor
from agenteval_otel.engine.handler import HandlerSettings, judges_of
from agenteval_otel.engine.signals import StateChange
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.reentrancy import EvaluationThread
from agenteval_otel.runtime.worker import Worker
from agenteval_otel.semconv import EVALUATED, NOT_WANTED, RATE_LIMITED, SENT

_TICK_S: Final = 10.0
_MAX_LOOKED_AT: Final = 256
_MOMENTS: Final = 500
_DAY_NS: Final = 86_400 * 10**9


class Notifier(Capability):
    """Sends messages to the places of the settings.

    It is silent until the pipeline is the one of its process: a pipeline that replays recorded
    answers sends nothing about them.

    Args:
        clock: Monotonic, in seconds.
        time_of_day: Unix time, by which weeks end and shared files are kept.
    """

    name = "notify"
    sends_later = True  # a place that is away must not keep answers from being delivered

    @classmethod
    def made_by(cls, places: Sequence[MessagePlace]) -> MakeCapability:
        """Return what makes it for a pipeline."""
        return lambda host: cls(places, host)

    def __init__(
        self,
        places: Sequence[MessagePlace],
        host: Host,
        *,
        clock: Callable[[], float] = time.monotonic,
        time_of_day: Callable[[], float] = time.time,
    ) -> None:
        self._places = tuple(places)
        self._accounting = host.accounting
        self._announce = host.announce
        self._time_of_day = time_of_day
        self._outboxes: list[Outbox] = []
        for number, place in enumerate(self._places):
            outbox = Outbox(
                place, f"notify[{number}]", host.accounting, clock=clock, time_of_day=time_of_day
            )
            self._outboxes.append(outbox)
        self._evaluators: dict[int, tuple[Executor, Evaluator]] = {}
        self._judges: dict[str, Any] = {}
        self._is_on = False
        self._successor: Notifier | None = None  # hears what answers under way still give
        self._worker = Worker(
            "agenteval-notify",
            max_waiting=1,
            idle_s=_TICK_S,
            on_idle=self.look,
            stays=True,
            thread_class=EvaluationThread,
        )
        self._reset()
        reset_in_child(self._reset)

    def __repr__(self) -> str:
        return f"<Notifier {', '.join(place.label for place in self._places)}>"

    def _reset(self) -> None:
        now_s = self._time_of_day()
        self._weeks: dict[tuple[str, str], Week] = {}
        self._due_s: dict[tuple[str, str], float] = {}
        # when the week of the schedule began
        self._counted: dict[tuple[str, str], Mapping[str, int]] = {}
        for place in self._places:
            due_s = place.next_summary(now_s)
            if due_s is not None:
                schedule = (place.summary, place.timezone)
                self._weeks[schedule] = Week(now_s)
                self._due_s[schedule] = due_s
                self._counted[schedule] = self._count()
        self._moments: dict[Pair, deque[int]] = {}
        self._bad: set[tuple[str, str]] = set()

    @property
    def uses_results(self) -> bool:
        """Tell that answers are evaluated for it, also where nothing else uses their results."""
        return True

    def start(self) -> None:
        """Begin to send, and to look."""
        self._is_on = True
        self._worker.start()

    def bind(self, settings: HandlerSettings) -> None:
        """Look at the evaluators of a handler, and at the judges that they ask."""
        runner = settings.runner
        for evaluator in runner.evaluators:
            if len(self._evaluators) < _MAX_LOOKED_AT:
                self._evaluators[id(evaluator)] = (runner.executor, evaluator)
        for _, judge in judges_of(runner.evaluators):
            guarded = judge.guarded()
            if guarded.breaker is not None and len(self._judges) < _MAX_LOOKED_AT:
                self._judges[guarded.name] = guarded

    def on_response(self, evaluated: Evaluated) -> None:
        """Count the results of an answer for the weekly summary."""
        if self._successor is not None:
            self._successor.on_response(evaluated)
        if not self._is_on or not evaluated.is_counted:
            return
        self._worker.start()  # a forked child has no thread yet
        self._note_moments(evaluated)
        for week in self._weeks.values():
            week.add(evaluated)

    def on_change(self, change: StateChange) -> None:
        """Report a change to each place."""
        if self._successor is not None:
            self._successor.on_change(change)
        if not self._is_on:
            return
        for week in self._weeks.values():
            week.note(change)
        since_ns = self._since_ns(change)
        for outbox in self._outboxes:
            outbox.report(change, since_ns)

    def flush(self, timeout_s: float) -> bool:
        """Send what waits, without lingering. Return whether nothing waits any more."""
        deadline = time.monotonic() + timeout_s
        flushed = [outbox.flush(max(0.0, deadline - time.monotonic())) for outbox in self._outboxes]
        return all(flushed)

    def retire(self) -> None:
        """Leave the looking to the next pipeline. What waits is still sent."""
        self._is_on = False
        self._worker.close(0.0)

    def close(self, timeout_s: float) -> bool:
        """Send what waits within the time, and count the rest as not sent."""
        is_sent = self.flush(timeout_s)
        self.retire()
        for outbox in self._outboxes:
            outbox.end()
        return is_sent

    def take_over(self, before: Notifier) -> None:
        """Continue with the week, and with the outboxes of the places that are the same."""
        for schedule in self._weeks.keys() & before._weeks.keys():
            self._weeks[schedule] = before._weeks[schedule]
            self._due_s[schedule] = before._due_s[schedule]
            self._counted[schedule] = before._counted[schedule]
        self._moments = before._moments
        self._bad = before._bad
        for number, outbox in enumerate(self._outboxes):
            for other in [*before._outboxes]:
                if other.place == outbox.place:
                    self._outboxes[number] = other
                    before._outboxes.remove(other)
                    break
        self._is_on = before._is_on
        before._is_on = False
        before._successor = self
        # no thread looks at them any more: keep no evaluator of each reload
        before._evaluators.clear()
        before._judges.clear()
        before._worker.close(0.0)

    def _since_ns(self, change: StateChange) -> int:
        """Return the moment of the first answer behind a change, as far as it is known."""
        moments = self._moments.get((change.part, change.agent))
        if change.crossing is not None and not change.is_bad:
            return change.crossing.since_ns
        if change.crossing is None or not moments:
            return change.at_ns - _DAY_NS
        # the oldest of them: answers that were evaluated late are between the others
        return min(list(moments)[-change.crossing.count :])

    # --- the thread that looks

    def look(self) -> None:
        """Look at breakers and evaluators, remind of what lasts, and close weeks that are over."""
        if not self._is_on:
            return
        # several may have the same label: one that is bad makes it bad
        breakers: dict[str, set[str]] = {}
        for guarded in list(self._judges.values()):
            breakers.setdefault(guarded.label, set()).add(guarded.breaker.state)
        for label, states in breakers.items():
            # half open: the next call decides
            if "open" in states or "half_open" not in states:
                self._observe("breaker", label, "open" in states)
        evaluators: dict[str, bool] = {}
        for executor, evaluator in list(self._evaluators.values()):
            is_bad = evaluators.get(evaluator.label, False)
            evaluators[evaluator.label] = is_bad or executor.is_quarantined(evaluator)
        for label, is_bad in evaluators.items():
            self._observe("evaluator", label, is_bad)
        for outbox in self._outboxes:
            outbox.remind()
        self._close_weeks(self._time_of_day())

    def _observe(self, kind: Any, part: str, is_bad: bool) -> None:
        key = (kind, part)
        if is_bad is (key in self._bad):
            return
        if is_bad:
            self._bad.add(key)
        else:
            self._bad.discard(key)
        self._announce(StateChange(kind, part, None, is_bad, time.time_ns()))

    def _close_weeks(self, now_s: float) -> None:
        for schedule, due_s in list(self._due_s.items()):
            if now_s < due_s:
                continue
            closed = self._weeks[schedule].close(now_s, self._lost(schedule))
            for outbox in self._outboxes:
                place = outbox.place
                if (place.summary, place.timezone) == schedule and "summary" in place.about:
                    self._due_s[schedule] = place.next_summary(now_s) or now_s
                    outbox.add(closed.notices(timezone=place.timezone, pages_url=place.pages_url))

    def _lost(self, schedule: tuple[str, str]) -> dict[str, int]:
        """Return what was lost or failed in the week of a schedule, by the outcome or the part."""
        counted = self._count()
        before = self._counted[schedule]
        self._counted[schedule] = counted
        since = {name: times - before.get(name, 0) for name, times in counted.items()}
        return {name: times for name, times in since.items() if times > 0}

    def _count(self) -> dict[str, int]:
        outcomes = self._accounting.outcomes()
        counted = {
            outcome: times
            for outcome, times in outcomes.items()
            if outcome not in (EVALUATED, SENT, RATE_LIMITED, *NOT_WANTED)
        }
        return counted | self._accounting.failures

    def _note_moments(self, evaluated: Evaluated) -> None:
        response = evaluated.response
        at_ns = response.response_ended_ns or response.ended_ns
        for criterion in evaluated.task.settings.objectives:
            pair = (criterion, response.agent)
            moments = self._moments.get(pair)
            if moments is None and len(self._moments) < MOST_PAIRS:
                moments = self._moments[pair] = deque(maxlen=_MOMENTS)
            if moments is not None:
                moments.append(at_ns)

"""Objectives: the last step of an evaluated answer, on the background thread: verdicts in, crossings out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from agenteval_otel.models import EvaluationResult, SpanReference
from agenteval_otel.models.value import replaced
from agenteval_otel.objectives.callbacks import Callback, Callbacks
from agenteval_otel.objectives.crossing import ObjectiveCrossing, attributes_of
from agenteval_otel.objectives.settings import BreachSettings
from agenteval_otel.objectives.track import Change, Tracks, Verdict
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.log import log
from agenteval_otel.sampling.escalation import BASELINE
from agenteval_otel.scoring.probability import independent
from agenteval_otel.semconv import EVENT_BREACHED, EVENT_RECOVERED

if TYPE_CHECKING:
    from agenteval_otel.telemetry.emitter import Emitter, Response


class ObjectiveSettings(NamedTuple):
    """When an objective counts as breached, and which functions are called.

    Attributes:
        on_breach: Called with an `ObjectiveCrossing` when an objective is breached, and for each reminder.
        on_recovery: Called likewise when it has recovered.
    """

    breach: BreachSettings = BreachSettings()
    on_breach: Callback | None = None
    on_recovery: Callback | None = None

    @property
    def calls_back(self) -> bool:
        """Whether there is a function to call."""
        return self.on_breach is not None or self.on_recovery is not None


class Watched(Protocol):
    """A handler's settings, as far as objectives need them.

    Attributes:
        objectives: By the criterion's name.
        floor: The least probability with which a sampled answer reaches escalated evaluators.
    """

    @property
    def objectives(self) -> Mapping[str, float]: ...
    @property
    def floor(self) -> float: ...
    @property
    def emitter(self) -> Emitter | None: ...


class Objectives:
    """Watches the objectives of a pipeline's handlers.

    Args:
        settings: The defaults when left out.
        broken: Called with the part that broke (``objectives``, ``on_breach``, ``on_recovery``), and the error.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        settings: ObjectiveSettings | None,
        broken: Callable[[str, BaseException], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings, self._broken, self._clock = settings or ObjectiveSettings(), broken, clock
        self.tracks = Tracks(self.settings.breach)
        self._callbacks = Callbacks(self._callback_failed, timeout_s=self.settings.breach.timeout_s, clock=clock)
        reset_in_child(self._reset)

    def __repr__(self) -> str:
        return f"<Objectives {self.tracks!r} {self._callbacks!r}>"

    def observe(self, watched: Watched, response: Response) -> None:
        """Add the verdicts of one answer; emits events and calls back where they change something. Never raises.

        Background thread only; a few microseconds for each verdict.
        """
        if not self.settings.breach.enabled:
            return
        try:
            self._callbacks.check_late()
            for crossing in self._crossings(watched, response):
                self._report(crossing, watched.emitter)
        except Exception as error:
            self._broken("objectives", error)

    def take_over(self, before: Objectives) -> None:
        """Continue with the tracks of another one, where its `breach` settings are equal; otherwise start anew."""
        if before.settings.breach == self.settings.breach:
            self.tracks = before.tracks

    def flush(self, timeout_s: float) -> bool:
        """Wait until the callbacks have run, or are late; False when the time ran out."""
        return self._callbacks.flush(timeout_s)

    def close(self, timeout_s: float) -> bool:
        """`flush`, and call nothing more."""
        return self._callbacks.close(timeout_s)

    def _reset(self) -> None:
        """In a forked child nothing is known yet and no callback runs."""
        self.tracks.reset()
        self._callbacks.reset()

    def _crossings(self, watched: Watched, response: Response) -> list[ObjectiveCrossing]:
        verdicts = list(_verdicts(watched, response))
        crossings: list[ObjectiveCrossing] = []
        tracks, now_s, too_many = self.tracks, self._clock(), False
        with tracks.lock:
            agent = tracks.agent(response.agent) if verdicts else None
            for criterion, objective, verdict in verdicts:
                track = tracks.of(agent, criterion, objective)
                if track is None:
                    too_many = True
                elif (change := track.add(verdict, now_s)) is not None:
                    crossing = _crossing(change, agent, criterion, objective, verdict.at_ns)
                    crossings.append(replaced(crossing, {"clustered": response.sampling_clustered}))
        if too_many:  # reported without the lock
            self._broken("objectives", OverflowError("too many are watched"))
        return crossings

    def _report(self, crossing: ObjectiveCrossing, emitter: Emitter | None) -> None:
        breached = crossing.kind == "breached"
        function = self.settings.on_breach if breached else self.settings.on_recovery
        if function is not None:
            self._callbacks.submit(function, crossing)
        if emitter is not None:
            emitter.emit_event(
                EVENT_BREACHED if breached else EVENT_RECOVERED, span=crossing.span, body=str(crossing),
                attributes=attributes_of(crossing), warn=breached,
            )  # fmt: skip

    def _callback_failed(self, kind: str, error: BaseException) -> None:
        if kind == "breached":
            self._broken("on_breach", error)
        else:
            self._broken("on_recovery", error)


def _verdicts(watched: Watched, response: Response) -> Iterator[tuple[str, float, Verdict]]:
    for result in response.results:
        objective = watched.objectives.get(result.criterion_name)
        if objective is None or result.passed is None or result.status != "scored":
            continue
        if result.probability:
            verdict = _verdict(result, result.probability, response.span, watched.floor)
            yield result.criterion_name, objective, verdict
        else:  # it stands for an unknown number of answers: counted as one it could cause a false alarm
            log.warning("verdict_left_out", part=result.criterion_name, why="its probability is unknown")


def _verdict(result: EvaluationResult, probability: float, span: SpanReference | None, floor: float) -> Verdict:
    # An escalation rule's answer could have been left to the floor: bets must be small enough for that.
    least = probability if result.sampling_reason in (None, BASELINE) else independent(probability, floor) or 0.0
    return Verdict(result.passed is True, probability, least, span, result.ended_ns or time.time_ns())


def _crossing(change: Change, agent: str | None, criterion: str, objective: float, at_ns: int) -> ObjectiveCrossing:
    estimate = change.estimate
    return ObjectiveCrossing(
        kind=change.kind, criterion=criterion, agent=agent, objective=objective, rate=estimate.mean, low=estimate.low,
        high=estimate.high, count=estimate.scores, since_ns=change.since_ns, at_ns=at_ns, reminder=change.reminder,
        span=change.span,
    )  # fmt: skip

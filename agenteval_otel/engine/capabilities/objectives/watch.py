"""Objectives: the last step of an evaluated answer, on the background thread.

Verdicts come in, and crossings go out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from agenteval_otel.engine.capability import Capability, Evaluated, MakeCapability
from agenteval_otel.engine.handler import HandlerSettings
from agenteval_otel.engine.objectives.crossings import (
    Callback,
    Callbacks,
    ObjectiveCrossing,
    attributes_of,
)
from agenteval_otel.engine.objectives.evidence import BETS
from agenteval_otel.engine.objectives.track import (
    LEAST_COUNTED,
    BreachSettings,
    Objective,
    ObjectiveVerdict,
    Tracks,
)
from agenteval_otel.engine.signals import StateChange
from agenteval_otel.models import EvaluationResult
from agenteval_otel.models.scoring.probability import least_probability_of
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.log import log
from agenteval_otel.semconv import EVENT_BREACHED, EVENT_RECOVERED
from agenteval_otel.telemetry.metrics import SharedState
from agenteval_otel.telemetry.names import NameTable

if TYPE_CHECKING:
    from agenteval_otel.telemetry.emitter import Emitter, Response


class ObjectiveSettings(NamedTuple):
    """Says when an objective counts as breached, and which functions are called.

    They are called with the `ObjectiveCrossing` of a breach, its reminders and its recovery.
    """

    breach: BreachSettings = BreachSettings()
    on_breach: Callback | None = None
    on_recovery: Callback | None = None

    @property
    def calls_back(self) -> bool:
        return self.on_breach is not None or self.on_recovery is not None


class Objectives(Capability):
    """Watches the objectives of a pipeline's handlers.

    `broken` is called with the part that broke (``objectives``, ``on_breach``, ``on_recovery``),
    and the error. `agents` says which agents are watched by their own name.
    """

    name = "objectives"

    @classmethod
    def made_by(cls, settings: ObjectiveSettings) -> MakeCapability:
        """Return what makes it for a pipeline."""
        return lambda host: cls(
            settings, host.broken, host.accounting.names.agents, announce=host.announce
        )

    def __init__(
        self,
        settings: ObjectiveSettings | None,
        broken: Callable[[str, BaseException], None],
        agents: NameTable | None = None,
        *,
        announce: Callable[[StateChange], None] | None = None,
    ) -> None:
        self.settings = settings or ObjectiveSettings()
        self._broken = broken
        self._announce = announce
        self.tracks = Tracks(self.settings.breach, agents)
        # tracks of objectives that these settings have
        self._current: set[tuple[str | None, str, Objective]] = set()
        self._callbacks = Callbacks(self._callback_failed, timeout_s=self.settings.breach.timeout_s)
        reset_in_child(self._reset)

    @property
    def uses_results(self) -> bool:
        """Tell whether breaches call back."""
        return self.settings.calls_back

    def bind(self, settings: HandlerSettings) -> None:
        """Have the states of objectives exported where the handler's results are."""
        if settings.emitter is not None:
            settings.emitter.observe_objectives(self.states, self.shared)

    def on_response(self, evaluated: Evaluated) -> None:
        """Add the verdicts of an answer whose results are counted."""
        settings = evaluated.task.settings
        if evaluated.is_counted and settings.objectives:
            self.observe(
                evaluated.response,
                settings.objectives,
                settings.emitter,
                baseline_rate=settings.baseline_rate,
                least_probability=evaluated.sampling.least,
            )

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that crossed was called back. Return whether it was."""
        return self._callbacks.flush(timeout_s)

    def close(self, timeout_s: float) -> bool:
        """Wait as `flush` does, and call back nothing more."""
        return self._callbacks.close(timeout_s)

    def observe(
        self,
        response: Response,
        objectives: Mapping[str, Objective],
        emitter: Emitter | None,
        *,
        baseline_rate: float = 1.0,
        least_probability: float | None = None,
    ) -> None:
        """Add the verdicts of one answer, on the background thread.

        Emit and call back if they change something.

        `least_probability` is that of any sampled answer, None if the sampler does not know it.
        `baseline_rate` is the least with which a sampled answer reaches escalated evaluators.
        """
        if not self.settings.breach.enabled:
            return
        try:
            for crossing in self._crossings(response, objectives, baseline_rate, least_probability):
                self._report(crossing, emitter)
        except Exception as error:
            self._broken("objectives", error)

    def states(self) -> dict[tuple[str, str | None], tuple[bool, float | None]]:
        """Return whether each is breached, and the evidence for a breach, by criterion and agent.

        The evidence is that of `METRIC_OBJECTIVE_EVIDENCE`.

        The evidence is None if `of_last` asks for none. Of several objectives of one criterion the
        worst counts. Any thread. It takes the lock of the tracks.
        """
        states: dict[tuple[str, str | None], tuple[bool, float | None]] = {}
        now_s = time.monotonic()
        with self.tracks.lock:
            for key, track in self.tracks.items():
                # of an objective before a reload: nothing would end its breach
                if key not in self._current:
                    continue
                agent, criterion, _ = key
                breached, evidence = states.get((criterion, agent), (False, None))
                if track.of_last is None:
                    # While breached a track collects evidence of the recovery: the alarm lasts.
                    own = 0.0 if track.breached else track.evidence.log_ratio
                    evidence = own if evidence is None else max(evidence, own)
                states[criterion, agent] = breached or track.is_shown(now_s), evidence
        return states

    def shared(self) -> dict[tuple[str, str | None], SharedState]:
        """Return the sums that a rule adds over processes, by criterion and agent.

        Any thread. It takes the lock of the tracks.
        """
        now_s = time.monotonic()

        def by_bet(sums: list[float]) -> dict[float, float]:
            return dict(zip(BETS, sums, strict=True))

        shared: dict[tuple[str, str | None], SharedState] = {}
        with self.tracks.lock:
            for key, sums in self.tracks.shared_sums(now_s).items():
                age_s = max(0.0, now_s - sums.began_s)
                shared[key] = SharedState(
                    age_s=age_s,
                    verdicts=sums.verdicts,
                    gains=by_bet(sums.gains),
                    run_gains=by_bet(sums.run_gains),
                    losses=by_bet(sums.losses),
                )
        return shared

    def take_over(self, before: Objectives) -> None:
        """Continue with the tracks of another one if its `breach` settings are equal.

        Otherwise start anew.
        """
        if before.settings.breach == self.settings.breach:
            self.tracks = before.tracks

    def _reset(self) -> None:
        self.tracks.reset()
        self._current.clear()
        self._callbacks.reset()

    def _crossings(
        self,
        response: Response,
        objectives: Mapping[str, Objective],
        baseline_rate: float,
        least: float | None,
    ) -> list[ObjectiveCrossing]:
        verdicts: list[tuple[str, ObjectiveVerdict]] = []
        for result in response.results:
            if result.criterion_name in objectives:
                verdict = _verdict(result, response, baseline_rate, least)
                if verdict is not None:
                    verdicts.append((result.criterion_name, verdict))
        crossings: list[ObjectiveCrossing] = []
        repeating: list[str] = []
        tracks = self.tracks
        now_s = time.monotonic()
        too_many = False
        with tracks.lock:
            agent = tracks.agent(response.agent) if verdicts else None
            for criterion, verdict in verdicts:
                track = tracks.of(agent, criterion, objectives[criterion], now_s)
                if track is None:
                    too_many = True
                    continue
                self._current.add((agent, criterion, objectives[criterion]))
                crossing = track.add(verdict, now_s)
                if crossing is not None:
                    crossings.append(crossing)
                if track.begins_to_repeat():
                    repeating.append(criterion)
        # Both are reported without the lock.
        if too_many:
            self._broken("objectives", OverflowError("too many are watched"))
        for criterion in repeating:
            log.warning("conversations_repeat", part=criterion)
        return crossings

    def _report(self, crossing: ObjectiveCrossing, emitter: Emitter | None) -> None:
        breached = crossing.kind == "breached"
        function = self.settings.on_breach if breached else self.settings.on_recovery
        if function is not None:
            self._callbacks.submit(function, crossing)
        if self._announce is not None:
            self._announce(
                StateChange(
                    "objective",
                    crossing.criterion,
                    crossing.agent,
                    is_bad=breached,
                    at_ns=crossing.at_ns,
                    crossing=crossing,
                )
            )
        if emitter is not None:
            event = EVENT_BREACHED if breached else EVENT_RECOVERED
            emitter.emit_event(
                event,
                span=crossing.span,
                body=str(crossing),
                attributes=attributes_of(crossing),
                warn=breached,
            )

    def _callback_failed(self, kind: str, error: BaseException) -> None:
        if kind == "breached":
            self._broken("on_breach", error)
        else:
            self._broken("on_recovery", error)


def _verdict(
    result: EvaluationResult,
    response: Response,
    baseline_rate: float,
    least_probability: float | None,
) -> ObjectiveVerdict | None:
    if result.passed is None or result.status != "scored":
        return None
    if result.probability is None or result.probability < LEAST_COUNTED:
        # It stands for an unknown number of answers: counted as one it could cause a false alarm,
        # and counted as very many it would blind the detector.
        log.warning(
            "verdict_left_out", part=result.criterion_name, why="its probability is unknown"
        )
        return None
    # Bets must be small enough for the least likely answer, also before one was seen.
    least = least_probability_of(result, least_probability, baseline_rate)
    ended_ns = result.ended_ns or time.time_ns()
    cause = None if result.passed else result.reason_code
    return ObjectiveVerdict(
        result.passed,
        result.probability,
        least,
        response.span,
        ended_ns,
        response.sampling_clustered,
        response.unit,
        cause,
    )

"""One criterion as one judge scores it.

Its agreement by each check and its scores decide whether it is trusted.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from agenteval_otel.engine.capabilities.judge_health.scores import Counts, ScoreWindow
from agenteval_otel.engine.capabilities.judge_health.settings import JudgeHealthSettings
from agenteval_otel.engine.objectives.track import (
    BreachSettings,
    LastVerdicts,
    ObjectiveVerdict,
    Track,
)
from agenteval_otel.models import EvaluationResult
from agenteval_otel.semconv import CANARY, DRIFT

_RECOVER_AFTER = 50
_LOOK_EVERY = 50
_ENOUGH = 10
"""Canaries needed to attribute a drift to changed answers instead of the judge."""


class Change(NamedTuple):
    """Tells that a check distrusts the judge from now on, or trusts it again.

    `value` is the agreement, or the drift.
    """

    check: str
    distrusts: bool
    value: float


class JudgedCriterion:
    """Watches one criterion as one judge scores it.

    It is used under the lock of `JudgeHealth`. Distrust follows evidence that may be looked at at
    any time (`Track`).
    """

    def __init__(
        self,
        settings: JudgeHealthSettings,
        criterion: str,
        model: str,
        version: str | None,
        reference: Counts | None,
    ) -> None:
        self.criterion = criterion
        self.model = model
        self.version = version
        self._settings = settings
        self.scores = ScoreWindow(settings.window, reference)
        self.agreement: dict[str, LastVerdicts] = {}
        self.states: dict[str, bool] = {}
        """Whether each check distrusts it. Checks that never did are missing."""
        self._tracks: dict[str, Track] = {}
        self._compared: dict[str, int] = {}
        self._scored = 0

    @property
    def is_trusted(self) -> bool:
        return not any(self.states.values())

    def compare(self, check: str, agrees: bool) -> Change | None:
        """Add a comparison, and return the change that it causes."""
        if check not in self._tracks:
            breach = BreachSettings(
                false_alarm_every=self._settings.false_alarm_every,
                recover_after=_RECOVER_AFTER,
                remind_s=None,
            )
            self._tracks[check] = Track(breach, self._settings.least(check))
            self.agreement[check] = LastVerdicts(self._settings.window)
        self.agreement[check].add(agrees, 1.0)
        self._compared[check] = self._compared.get(check, 0) + 1
        crossing = self._tracks[check].add(ObjectiveVerdict(agrees), time.monotonic())
        if crossing is None:
            return None
        return self._changed(check, crossing.kind == "breached", crossing.rate)

    def add_score(
        self, score: float, weight: float, length: int, unit: str | None = None
    ) -> tuple[bool, Change | None]:
        """Add a score of an answer of this unit (`unit_of`).

        Return whether it completes the reference, and the change that it causes.
        """
        # As a number: ids may be long.
        number = None if unit is None else hash(unit)
        is_reference = self.scores.add(score, weight, length, number)
        self._scored += 1
        drift = self.scores.drift() if self._scored % _LOOK_EVERY == 0 else None
        if drift is None:
            return is_reference, None
        drifted = (
            drift.psi >= self._settings.drift
            and drift.psi > drift.by_chance
            and not self._is_cleared()
        )
        if drifted is self.states.get(DRIFT, False):
            return is_reference, None
        return is_reference, self._changed(DRIFT, drifted, drift.psi)

    def _is_cleared(self) -> bool:
        return self._compared.get(CANARY, 0) >= _ENOUGH and not self.states.get(CANARY, False)

    def _changed(self, check: str, distrusts: bool, value: float) -> Change:
        self.states[check] = distrusts
        return Change(check, distrusts, value)


def agree(result: EvaluationResult, other: EvaluationResult, tolerance: float) -> bool | None:
    """Tell whether two results agree. Return None if they cannot be compared."""
    if result.passed is not None and other.passed is not None:
        return result.passed is other.passed
    if result.normalized is not None and other.normalized is not None:
        return abs(result.normalized - other.normalized) <= tolerance
    if isinstance(result.score, str) and isinstance(other.score, str):
        return result.score == other.score
    return None

"""The settings of judge health."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agenteval_otel.components.explained import IS_FILE, FriendlyErrors
from agenteval_otel.semconv import CANARY, PEOPLE

Share = Annotated[float, Field(gt=0, lt=1)]


class JudgeHealthSettings(BaseModel, metaclass=FriendlyErrors):
    """How judges are watched.

    What costs calls of the judge is off until it is set: `canaries` and `repeat_share`.

    Attributes:
        enabled: False watches nothing.
        canaries: File of questions with known answers, JSONL: the fields of an input, and
            ``labels``, the known score of each criterion. Each judge gets those with labels for its
            criteria.
        every_s: Time between two rounds of canaries, in seconds, at least 1, in each process that
            judges answers.
        repeat_share: Share of the judged answers, 0 to 1, that are judged a second time. If the
            judge compares answer and reference, every other repeat has them in reverse order.
        canary_agreement: Share of canaries on which a judge has to agree with the known answers,
            above 0 and below 1. Below it the judge is not trusted with the criterion.
        repeat_agreement: The same for repeats, in either order.
        human_agreement: The same for human feedback.
        feedback: The criterion that feedback is about, by the name of the feedback
            (``user_feedback: Relevance``). Feedback with the name of a criterion needs no entry.
        tolerance: Two scores agree if both pass or both fail. Without verdicts they agree if they
            differ by at most this much on the scale from 0 to 1.
        window: Number of latest values from which the reported agreement, correlation and drift are
            computed.
        drift: Population stability index from which on scores count as drifted, if chance does not
            explain it.
        reference: JSON file that keeps the distribution of each criterion's first `window` scores
            between runs. Without one each process begins with its own.
        false_alarm_every: At most one false alarm per this many comparisons, on average, if a judge
            just agrees enough.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True
    )

    enabled: bool = True
    canaries: Annotated[Path | None, IS_FILE] = None
    every_s: float = Field(default=3_600.0, ge=1)
    repeat_share: float = Field(default=0.0, ge=0, le=1)
    canary_agreement: Share = 0.8
    repeat_agreement: Share = 0.8
    human_agreement: Share = 0.6
    feedback: dict[str, str] = {}
    tolerance: float = Field(default=0.1, ge=0, le=1)
    window: int = Field(default=500, ge=100, le=10_000)
    drift: float = Field(default=0.2, gt=0)
    reference: Annotated[Path | None, IS_FILE] = None
    false_alarm_every: int = Field(default=10_000, ge=100)

    @property
    def asks(self) -> bool:
        """Tell whether judges are asked anything on top."""
        return self.canaries is not None or self.repeat_share > 0.0

    def least(self, check: str) -> float:
        """Return the agreement that a check demands."""
        shares = {CANARY: self.canary_agreement, PEOPLE: self.human_agreement}
        return shares.get(check, self.repeat_agreement)

"""BreachSettings: when a criterion counts as below its objective, and as recovered."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from agenteval_otel.components import Explained


class BreachSettings(BaseModel, metaclass=Explained):
    """When a criterion counts as below its objective, and as recovered: docs/thresholds.md.

    Attributes:
        enabled: False watches no objective in the process: no event, no callback.
        false_alarm_every: Mean number of verdicts, at least, between two false alarms of a criterion of an agent that
            just meets its objective. A larger number alarms later.
        minimum: Verdicts before the first alarm, and from each change to the next.
        recover_after: Mean number of verdicts, at least, before an agent that stays at the objective or below it counts
            as recovered; one whose answers all pass recovers after at most so many.
        window: The reported rate is that of the last so many verdicts.
        remind_s: A lasting breach is reported again after so many seconds, with the next verdict; null reports it once.
        timeout_s: Time limit of one call of `on_breach` or `on_recovery`, in seconds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    enabled: bool = True
    false_alarm_every: int = Field(default=10_000, ge=100)
    minimum: int = Field(default=20, ge=1)
    recover_after: int = Field(default=300, ge=20)
    window: int = Field(default=50, ge=10, le=10_000)
    remind_s: float | None = Field(default=14_400.0, gt=0)
    timeout_s: float = Field(default=10.0, gt=0, le=600)

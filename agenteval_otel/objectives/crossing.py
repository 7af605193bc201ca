"""ObjectiveCrossing: the report that a criterion's rate has crossed its objective; no content."""

from __future__ import annotations

from typing import Any, Literal

from agenteval_otel import semconv as names
from agenteval_otel.capture.text import clean
from agenteval_otel.models import SpanReference
from agenteval_otel.models.value import Value


class ObjectiveCrossing(Value):
    """A criterion that breached its objective, or recovered. Frozen; `model_dump_json` gives JSON.

    Attributes:
        kind: ``breached`` or ``recovered``.
        criterion: The criterion's name.
        agent: The agent's; ``_other`` for those beyond the limit on agents.
        objective: The share of results that should pass, 0 to 1.
        rate: The share that passes: of the last verdicts (`BreachSettings.window`), each weighted by 1 / its
            probability.
        low, high: Its 95 % interval.
        count: Number of verdicts behind the rate.
        since_ns: When the breach was detected, in nanoseconds since the epoch.
        at_ns: Time of this report.
        reminder: A repeat: the breach was reported before and lasts.
        clustered: The handler has many calls in one trace, which are sampled together: the interval is too narrow.
        span: The evaluated span of the last verdict that failed; None where there was none.
    """

    kind: Literal["breached", "recovered"]
    criterion: str
    agent: str | None = None
    objective: float
    rate: float
    low: float
    high: float
    count: int
    since_ns: int
    at_ns: int
    reminder: bool = False
    clustered: bool = False
    span: SpanReference | None = None

    @property
    def trace_id(self) -> str | None:
        """The trace of the last verdict that failed, in hexadecimal digits."""
        return None if self.span is None else self.span.trace_id

    def __str__(self) -> str:
        state = "still breached" if self.reminder else self.kind
        whose = f" of {self.agent}" if self.agent else ""
        return (
            f"objective {state}: {self.criterion}{whose} passes {self.rate * 100:.1f} % ({self.low * 100:.1f} to "
            f"{self.high * 100:.1f}) of {self.count}, objective {self.objective * 100:g} %"
        )  # fmt: skip


def attributes_of(crossing: ObjectiveCrossing) -> dict[str, Any]:
    """The attributes of its event."""
    attributes: dict[str, Any] = {
        names.EVALUATION_NAME: clean(crossing.criterion),
        names.OBJECTIVE: crossing.objective,
        names.OBJECTIVE_RATE: crossing.rate,
        names.OBJECTIVE_LOW: crossing.low,
        names.OBJECTIVE_HIGH: crossing.high,
        names.OBJECTIVE_COUNT: crossing.count,
        names.OBJECTIVE_SINCE: crossing.since_ns / 1e9,
    }
    if crossing.agent is not None:
        attributes[names.AGENT_NAME] = clean(crossing.agent)
    if crossing.reminder:
        attributes[names.OBJECTIVE_REMINDER] = True
    if crossing.clustered:
        attributes[names.SAMPLING_CLUSTERED] = True
    return attributes

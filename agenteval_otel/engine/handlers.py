"""Handlers: what runs for which agent, by the settings for all, for single agents, and in code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from agenteval_otel.engine.agent_settings import AgentSettings, load_set, merged
from agenteval_otel.engine.aggregation import Aggregation
from agenteval_otel.engine.handler import AgentSpan
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.evaluators.ground_truth import GroundTruthStore
from agenteval_otel.models import EvaluationCriteria
from agenteval_otel.sampling import Escalation, Sampler
from agenteval_otel.semconv import OTHER
from agenteval_otel.telemetry.emitter import Emitter

_NOTHING_WRITTEN = AgentSettings()


class Handlers:
    """Holds the handlers of one pipeline, as they are written down.

    `Pipeline.handler` makes of it what runs.

    Args:
        sampler: The sampler of handlers that have none of their own.
        evaluators: The evaluators of handlers that have none of their own.
        criteria: The criteria of handlers that have none of their own.
        escalation: Which answers the more expensive evaluators see, for handlers that say nothing
            else.
        agents: What differs for single agents, by the agent's name.
        storage: Where results are kept.
        telemetry: Emits the results of handlers whose storage names no emitter: anything with an
            `emitter`.
        telemetry_off: No signal can leave: handlers whose results are neither stored nor watched
            count as disabled.
        agent_span: Which calls outside of any trace get an ``invoke_agent`` span: ``sampled``,
            ``always`` or ``never``.
        ground_truth: Where reference answers are looked up.
        aggregation: How results become an overall score.
        metric_dimensions: Attributes of annotations that metrics have too, with the number of
            values of each.
    """

    def __init__(
        self,
        *,
        sampler: Sampler,
        evaluators: Sequence[Evaluator],
        criteria: Sequence[EvaluationCriteria] = (),
        escalation: Escalation | Literal[False] | None = None,
        agents: Mapping[str, AgentSettings] | None = None,
        storage: Sequence[Any] = (),
        telemetry: object = None,
        telemetry_off: bool = False,
        agent_span: AgentSpan = "sampled",
        ground_truth: GroundTruthStore | None = None,
        aggregation: Aggregation | None = None,
        metric_dimensions: Mapping[str, int] | None = None,
    ) -> None:
        self.defaults = AgentSettings(
            evaluators=tuple(evaluators) or None,
            criteria=load_set(criteria),
            sampler=sampler,
            escalation=escalation,
        )
        self.agents = dict(agents or {})
        self.storage = tuple(storage)
        self.telemetry = telemetry
        self.telemetry_off = telemetry_off
        self.agent_span = agent_span
        self.ground_truth = ground_truth
        self.aggregation = aggregation
        self.metric_dimensions = metric_dimensions

    def __repr__(self) -> str:
        return f"<Handlers agents={', '.join(self.agents) or 'all'}>"

    @property
    def emitter(self) -> Emitter | None:
        """Return the emitter of handlers whose storage names none, or None if there is none."""
        emitter: Emitter | None = getattr(self.telemetry, "emitter", None)
        return emitter

    def written_for(self, agent: str, in_code: AgentSettings = _NOTHING_WRITTEN) -> AgentSettings:
        """Return the settings of one handler: those in code, then the agent's, then those for all."""
        return merged(in_code, self.agents.get(agent, _NOTHING_WRITTEN), self.defaults)

    def name_of(self, agent: str) -> str:
        """Return the agent's name if the settings name it, else ``_other``.

        Agents that are not known in this process, as those of received spans, share the settings
        of ``_other``.
        """
        return agent if agent in self.agents else OTHER

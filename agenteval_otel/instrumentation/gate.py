"""The gate: what a handler's pipeline says to each call, worked out once."""

from __future__ import annotations

from typing import Final

from agenteval_otel.pipeline import Pipeline, Plan
from agenteval_otel.sampling import SamplingDecision
from agenteval_otel.sampling.base import DRAW_RANGE
from agenteval_otel.sampling.ratio import DrawRule, draw_from
from agenteval_otel.sampling.unit import CallRandomness

__all__ = ["Gate"]


class Gate:
    """One object that is replaced as a whole when another pipeline is configured, so that no call meets two halves.

    Attributes:
        plan: What the handler wants of the pipeline.
        pipeline: Its `enabled` is read with every call: the kill switch.
        restraint: The pipeline's; its `keep` is read with every sampled call.
        cell, tally: The agent's outcomes.
        bound, taken: Of a sampler that looks at the draw alone: draws from `bound` on are ``not_sampled``, others
            `taken`. Where the sampler has to be asked `taken` is None and the bound lies beyond every draw.
        never: Every call goes by, and none wants a span: nothing has to be looked at.
        keeps_memo: The sampler is asked several times about a call, and remembers.
        spans, spans_always: Calls outside of any trace may want a span of their own; also those that go by.
        by_trace, draw_from: The trace's randomness decides; else `draw_from` gives each call its own.
        upstream_attribute: The attribute of the evaluated span that carries the share sampled upstream.
        decide: The sampler's.
        submit: The pipeline's.
    """

    __slots__ = (
        "bound", "by_trace", "cell", "decide", "draw_from", "keeps_memo", "never", "pipeline", "plan",
        "restraint", "spans", "spans_always", "submit", "taken", "tally", "upstream_attribute",
    )  # fmt: skip

    def __init__(self, agent: str, plan: Plan, pipeline: Pipeline) -> None:
        self.plan, self.pipeline, self.restraint = plan, pipeline, pipeline.restraint
        self.submit, self.decide = pipeline.submit, plan.sampler.decide
        rule: DrawRule | None = getattr(plan.sampler, "by_draw", None)
        self.bound: Final = _BEYOND if rule is None else rule.bound
        self.taken: Final[SamplingDecision | None] = None if rule is None else rule.taken
        sampling = pipeline.sampled.settings
        self.by_trace, self.upstream_attribute = sampling.unit == "trace", sampling.upstream_attribute
        self.draw_from: Final = draw_from if self.by_trace else CallRandomness()
        self.keeps_memo: bool = getattr(plan.sampler, "keeps_memo", False)
        self.spans, self.spans_always = plan.own_span != "never", plan.own_span == "always"
        self.never = self.bound == 0 and not self.spans_always
        self.cell, self.tally = pipeline.accounting.cell(agent), pipeline.accounting.tally(agent)


_BEYOND: Final = DRAW_RANGE

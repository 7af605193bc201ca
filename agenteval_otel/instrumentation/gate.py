"""The gate: what a handler's pipeline says to each call, worked out once."""

from __future__ import annotations

from typing import Final

from agenteval_otel.pipeline import Pipeline, Plan
from agenteval_otel.sampling import SamplingDecision
from agenteval_otel.sampling.base import DRAW_RANGE
from agenteval_otel.sampling.ratio import DrawRule

__all__ = ["Gate"]


class Gate:
    """One object that is replaced as a whole when another pipeline is configured, so that no call meets two halves.

    Attributes:
        plan: What the handler wants of the pipeline.
        pipeline: Its `enabled` is read with every call: the kill switch.
        load_shedder: The pipeline's; its `keep` is read with every sampled call.
        cell, tally: The agent's outcomes.
        bound, taken: Of a sampler that looks at the draw alone: draws from `bound` on are ``not_sampled``, others
            `taken`. Where the sampler has to be asked `taken` is None and the bound lies beyond every draw.
        never: Every call goes by, and none wants a span: nothing has to be looked at.
        keeps_memo: The sampler is asked several times about a call, and remembers.
        spans, spans_always: Calls outside of any trace may want a span of their own; also those that go by.
        decide: The sampler's.
        submit: The pipeline's.
    """

    __slots__ = (
        "bound", "cell", "decide", "keeps_memo", "load_shedder", "never", "pipeline", "plan", "spans", "spans_always",
        "submit", "taken", "tally",
    )  # fmt: skip

    def __init__(self, agent: str, plan: Plan, pipeline: Pipeline) -> None:
        self.plan, self.pipeline, self.load_shedder = plan, pipeline, pipeline.load_shedder
        self.submit, self.decide = pipeline.submit, plan.sampler.decide
        rule: DrawRule | None = getattr(plan.sampler, "by_draw", None)
        self.bound: Final = _BEYOND if rule is None else rule.bound
        self.taken: Final[SamplingDecision | None] = None if rule is None else rule.taken
        self.keeps_memo: bool = getattr(plan.sampler, "keeps_memo", False)
        self.spans, self.spans_always = plan.own_span != "never", plan.own_span == "always"
        self.never = self.bound == 0 and not self.spans_always
        self.cell, self.tally = pipeline.accounting.cell(agent), pipeline.accounting.tally(agent)


_BEYOND: Final = DRAW_RANGE

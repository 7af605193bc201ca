"""SamplingSettings: what is sampled as a whole, and which share of the responses comes this far at all."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from agenteval_otel.components import Explained

__all__ = ["SamplingSettings"]


class SamplingSettings(BaseModel, metaclass=Explained):
    """What samplers choose between, and what was sampled before: docs/sampling.md.

    Attributes:
        unit: ``trace``: all calls of a handler in one trace are evaluated, or none. ``call``: each call on its own, for
            jobs and loops with many calls in one trace.
        upstream_ratio: Share of all responses, above 0 to 1, that reaches this process; 1 where nothing is sampled
            before it. Left out, ``ot=th`` in the trace state says it, else nothing is known.
        upstream_attribute: Name of the attribute of the evaluated span that carries this share; it goes before
            `upstream_ratio`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    unit: Literal["trace", "call"] = "trace"
    upstream_ratio: float | None = Field(default=None, gt=0, le=1)
    upstream_attribute: str | None = Field(default=None, min_length=1)

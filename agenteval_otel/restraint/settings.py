"""RestraintSettings: how much of its host's process the package may take."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from agenteval_otel.components import Explained

__all__ = ["RestraintSettings"]


class RestraintSettings(BaseModel, metaclass=Explained):
    """The limits past which sampling steps down. A limit of null is none; what is measured is exported all the same.

    Attributes:
        enabled: False measures and never steps down.
        queue_share: Share of the queue, by items or by bytes, above 0 to 1, from which on it must not rise so that it
            would be full within ten seconds; below it, within two.
        pool_cpu_share: CPU time of the pool's thread, which competes with the host for the interpreter, as a share of
            one core.
        cpu_share: CPU time of the pool's thread, of the threads and processes of evaluators together, as a
            share of one core.
        loop_lag_s: Lateness of the host's event loop, in seconds, of which nine in ten measurements of the last five
            seconds stay below; it counts only while the package itself is at work.
        added_latency_s: What a sampled call costs its caller, in seconds: the median of the last ten seconds.
        least_share: Share of the sampled responses, above 0 to 1, that still goes on before evaluators that call a
            model sit out.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    enabled: bool = True
    queue_share: float | None = Field(default=0.5, gt=0, le=1)
    pool_cpu_share: float | None = Field(default=0.5, gt=0)
    cpu_share: float | None = Field(default=1.5, gt=0)
    loop_lag_s: float | None = Field(default=0.05, gt=0)
    added_latency_s: float | None = Field(default=0.001, gt=0)
    least_share: float = Field(default=1 / 64, gt=0, le=1)

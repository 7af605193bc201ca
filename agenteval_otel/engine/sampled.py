"""The record of how an answer was sampled: its probability, and among which answers."""

from __future__ import annotations

from typing import Any

from agenteval_otel.capture.calls import CapturedCall
from agenteval_otel.runtime.log import log
from agenteval_otel.sampling.trace import CallsPerTrace, SamplingSettings, Upstream, upstream_of
from agenteval_otel.scoring.probability import probability_of
from agenteval_otel.semconv import SCOPE_RECEIVED


class SamplingRecord:
    """One pipeline's record; on the background thread."""

    def __init__(self, settings: SamplingSettings) -> None:
        self.settings = settings
        self.calls = CallsPerTrace()

    def of(self, call: CapturedCall) -> tuple[float | None, Upstream, dict[str, Any]]:
        """The probability among the responses of this process, what came before it, and the facts of the result."""
        decision, by_trace = call.decision, self.settings.unit == "trace"
        probability = probability_of(decision) if decision else None
        # A decision with randomness of its own (a conversation's) is independent of what the trace's decided.
        nests = by_trace and (decision is None or decision.randomness is None)
        upstream = upstream_of(call.span_context, self.settings, call.upstream, by_trace=nests)
        received = probability is not None and upstream.probability is None
        return probability, upstream, {
            "sampling_probability": upstream.applied(probability),
            "sampling_reason": decision.reason if decision else None,
            "sampling_scope": SCOPE_RECEIVED if received else None,
            "sampling_clustered": nests and self._is_clustered(call),
        }  # fmt: skip

    def _is_clustered(self, call: CapturedCall) -> bool:
        if call.span_context is not None and self.calls.add(call.agent, call.span_context.trace_id):
            log.warning(
                "handler_repeats_in_trace", part=call.agent,
                why="all calls of a trace are sampled together, so intervals are too narrow: set sampling.unit: call",
            )  # fmt: skip
        return call.agent in self.calls.repeating

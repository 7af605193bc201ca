"""The engine of an application whose answers are evaluated in the sidecar: captured calls in,
events out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from agenteval_otel.capture.calls import CapturedCall
from agenteval_otel.capture.spans.forwarded import Attributes, Sampled, attributes_of
from agenteval_otel.engine.live import Done, Engine
from agenteval_otel.semconv import PIPELINE_FAILED, SENT
from agenteval_otel.telemetry.forward import EventStream


class ForwardingEngine(Engine):
    """Builds the input of each call and sends it, where `Engine` would evaluate it.

    A call's outcome is counted when the sidecar has acknowledged it, or when it is lost.

    Args:
        events: Where it goes; what crosses a network is redacted before.
    """

    def __init__(self, events: EventStream, **parts: Any) -> None:
        super().__init__(**parts)
        self._events = events

    def _evaluate(self, begun: list[Any], done: Done, pause: Callable[[], None]) -> None:
        for emitter in self.emitters:
            with contextlib.suppress(Exception):  # it is tried again with the next list
                emitter.prepare()
        # Feedback is there already: it goes out as in every other process.
        super()._evaluate(
            [evaluation for evaluation in begun if evaluation.call.recorded], done, pause
        )
        for evaluation in begun:
            if not evaluation.call.recorded:
                done(evaluation.call, self._send(evaluation))
                pause()
        self.present = None

    def _send(self, evaluation: Any) -> str:
        call: CapturedCall = evaluation.call
        self.present = evaluation
        try:
            evaluation.ensure_agent_span()
            self.end_span(call)
            attributes = self._attributes_of(evaluation)
            # This thread was held up in a redactor: another one goes on, or the call is settled.
            if not evaluation.claim():
                return PIPELINE_FAILED
            call.settled = True
            self._events.put(call.agent, attributes, call.span_context, call.ended_ns)
            return SENT
        except Exception as error:
            call.settled = False
            self.end_span(call)
            self.broken("sidecar", error)
            return PIPELINE_FAILED

    def _attributes_of(self, evaluation: Any) -> Attributes:
        call: CapturedCall = evaluation.call
        probability, upstream, facts = self.sampled.of(call)
        sampled = Sampled(
            probability,
            facts["sampling_reason"],
            call.randomness,
            upstream.probability,
            upstream.same_randomness,
            facts["sampling_clustered"],
            self.sampled.least_of(call.settings, upstream, self.shedding.keep),
        )
        is_local = self._events.is_local
        sent = evaluation.input if is_local else self.redaction.input(evaluation.input)
        return attributes_of(sent, sampled, call.call_id)

"""Forwarding: answers go to the sidecar, which evaluates them, instead of being evaluated here."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from agenteval_otel.capture.spans.forwarded import Attributes, attributes_of
from agenteval_otel.engine.capability import Capability, Host, MakeCapability
from agenteval_otel.engine.task import Task
from agenteval_otel.models import EvaluationInput
from agenteval_otel.semconv import PIPELINE_FAILED
from agenteval_otel.telemetry.forward import EventStream


class Forwarding(Capability):
    """Sends each answer to the sidecar.

    Its outcome is counted when the sidecar has acknowledged it, or when it is lost. What
    crosses a network is redacted before.
    """

    name = "sidecar"
    takes_answers = True

    @classmethod
    def made_by(cls, events: EventStream) -> MakeCapability:
        """Return what makes it for a pipeline."""
        return lambda host: cls(events, host)

    def __init__(self, events: EventStream, host: Host) -> None:
        self._events = events
        self._host = host
        events.prepare(self._count)

    def __repr__(self) -> str:
        return f"<Forwarding {self._events!r}>"

    @property
    def exporters(self) -> Sequence[Any]:
        """Return the stream, which is closed when no pipeline uses it any more."""
        return (self._events,)

    @property
    def waiting(self) -> int:
        """Return how many answers the sidecar has not acknowledged yet."""
        return self._events.waiting

    def on_answer(self, task: Task, evaluation_input: EvaluationInput) -> bool:
        """Send the answer, and take it over. Blocks while redactors run."""
        try:
            attributes = self._attributes_of(task, evaluation_input)
        except Exception as error:
            self._fail(task, error, has_end=task.take_end())
            return False
        # A task that was settled while a redactor held this thread up is not sent.
        if task.take_end():
            try:
                self._events.put(task.agent, attributes, task.target, task.ended_ns)
            except Exception as error:
                self._fail(task, error, has_end=True)
        return False

    def _attributes_of(self, task: Task, evaluation_input: EvaluationInput) -> Attributes:
        if task.settings.emitter is not None:
            with contextlib.suppress(Exception):  # it is tried again with the next answer
                task.settings.emitter.prepare()
        is_local = self._events.is_local
        sent = evaluation_input if is_local else self._host.redaction.input(evaluation_input)
        sampled = self._host.sampling_of(task).sent(task.randomness)
        return attributes_of(sent, sampled, task.call_id)

    def _fail(self, task: Task, error: Exception, *, has_end: bool) -> None:
        self._host.broken("sidecar", error)
        if has_end:
            task.finish(PIPELINE_FAILED)

    def _count(self, agent: str, outcome: str) -> None:
        self._host.accounting.outcome_counts(agent)[outcome] += 1

    def flush(self, timeout_s: float) -> bool:
        """Tell whether the sidecar has acknowledged everything since the last flush."""
        return self._events.flush(timeout_s)

    def close(self, timeout_s: float) -> bool:
        """Send what waits, and count the rest as dropped."""
        return self._events.shutdown(timeout_s)

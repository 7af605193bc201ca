"""Events for the sidecar: where they go, how they become requests, and what became of each of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from opentelemetry.trace import INVALID_SPAN_CONTEXT, SpanContext

from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.masking import mask_text
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.runtime.version import scope_version
from agenteval_otel.runtime.worker import Flusher
from agenteval_otel.semconv import (
    DROPPED_SHUTDOWN,
    DROPPED_UNSENT,
    EVENT_ANSWER,
    SENT,
)
from agenteval_otel.telemetry.target import RequestSender, Signal, direct_sender

if TYPE_CHECKING:
    from agenteval_otel.telemetry.private import Exporter

_DEBUG: Final = 5  # the severity that the conventions ask for
_MAX_AGE_S: Final = 60.0


class SidecarAddress(NamedTuple):
    """Where the sidecar listens.

    Attributes:
        is_local: It can be reached on this machine alone.
        token: Sent to it.
        ca: File with the authorities that sign its certificate. None for those that are known.
    """

    endpoint: str
    is_http: bool
    is_local: bool
    token: str | None = None
    ca: str | None = None

    def sender(self, signal: Signal) -> RequestSender:
        return direct_sender(
            signal, self.endpoint, is_http=self.is_http, token=self.token, ca=self.ca
        )


class EventStream:
    """Sends events in batches, to the sidecar alone.

    It ignores environment variables, proxies and netrc of the process.

    While the sidecar is unreachable, a batch is retried for a minute. If there is no room, the
    oldest are dropped. Each event has one outcome: ``sent`` once the sidecar has acknowledged it,
    else ``dropped_unsent``, or ``dropped_shutdown`` at the end.

    Args:
        resource: Gives the application's resource, or None.
    """

    def __init__(
        self, address: SidecarAddress, *, resource: Callable[[], Any] = lambda: None
    ) -> None:
        self._address = address
        self._resource = resource
        self.is_local = address.is_local
        self._on_outcome: Callable[[str, str], object] = lambda agent, outcome: None
        self._flusher = Flusher(self._flush_here)
        self._forget()
        reset_in_child(self._forget)

    def __repr__(self) -> str:
        return f"<EventStream {mask_text(self._address.endpoint)} waiting={self.waiting}>"

    def _forget(self) -> None:  # in a forked child
        self._exporter: Exporter | None = None
        self._signal: _EventSignal | None = None
        self.waiting = 0
        self._lost = self._reported = 0

    def prepare(self, on_outcome: Callable[[str, str], object]) -> None:
        """Import at start what sending needs.

        Opens no connection. `on_outcome` gets an agent's name and the outcome of one of its
        events, on any thread.
        """
        self._on_outcome = on_outcome
        import agenteval_otel.telemetry.private  # noqa: F401

        scope_version()
        self._address.sender(_EventSignal(self._resource)).close()

    def put(
        self,
        agent: str,
        attributes: Mapping[str, Any],
        span_context: SpanContext | None,
        ended_ns: int,
    ) -> None:
        """Take an event. Never blocks for the network. Called on the background thread."""
        signal = self._signal or _EventSignal(self._resource)
        self._signal = signal
        event = signal.event(attributes, span_context, ended_ns)
        exporter = self._exporter or self._build(signal)
        self.waiting += 1
        exporter.put(signal.name, (agent, event), signal.size_of(attributes))

    def flush(self, timeout_s: float) -> bool:
        """Tell whether the sidecar has acknowledged everything since the last flush.

        Blocks for at most `timeout_s`.
        """
        return self._flusher.flush(timeout_s)

    def shutdown(self, timeout_s: float) -> bool:
        """Send the waiting events, then count the rest as dropped, including those under way.

        Return False if the sidecar has not acknowledged everything since the last flush.
        """
        acknowledged = self.flush(timeout_s)
        if (exporter := self._exporter) is not None:
            exporter.abandon()
        return acknowledged

    async def close(self) -> None:
        """Send the waiting events as far as the sidecar takes them, and end the thread.

        Blocks the calling thread. A later event starts another thread.
        """
        exporter = self._exporter
        self._exporter = None
        if exporter is not None:
            exporter.close()

    def _flush_here(self) -> bool:
        complete = self._exporter is None or self._exporter.flush()
        lost = self._lost
        reported = self._reported
        self._reported = lost
        return complete and lost == reported

    def _build(self, signal: _EventSignal) -> Any:
        from agenteval_otel.telemetry import private

        exporter = private.Exporter(
            _no_telemetry, memory=MEMORY.events, max_age_s=_MAX_AGE_S, on_over=self._over
        )
        exporter.add(signal, self._address.sender(signal))
        self._exporter = exporter
        return exporter

    def _over(self, agents: Sequence[Any], reason: str | None) -> None:
        """Count the events of these agents: sent without a reason, else lost for it. Any thread."""
        if reason is None:
            outcome = SENT
        elif reason == "shutdown":
            outcome = DROPPED_SHUTDOWN
        else:
            outcome = DROPPED_UNSENT
        # Computed first: a call within `-=` could let another thread's addition be lost.
        count = len(agents)
        self.waiting -= count
        if reason is not None:
            self._lost += count
            log.warning("answers_not_sent", part="sidecar", reason=reason, lost=count)
        for agent in agents:
            self._on_outcome(agent, outcome)


def _no_telemetry(signal: str, reason: str, count: int) -> None:
    """Ignore the loss, because it is no loss of telemetry. Each answer has its outcome instead."""


class _EventSignal(Signal):
    """Events as requests of OTLP, with the application's resource."""

    def __init__(self, resource: Callable[[], Any]) -> None:
        super().__init__("LOGS")
        from agenteval_otel.telemetry import messages

        self._resource = resource
        self._messages = messages
        self._known: object = None  # the resource that `_encode` is for
        self._own: object = None  # the resource of a process whose application has none
        self._encode: Callable[[Sequence[Any]], Any] = list
        self.size_of = messages.size_of
        self.name = "SIDECAR"
        self.encode = self._request_of
        self.owner_of = itemgetter(0)

    def event(
        self, attributes: Mapping[str, Any], span_context: SpanContext | None, ended_ns: int
    ) -> Any:
        """Build an event that waits for its message."""
        place = span_context or INVALID_SPAN_CONTEXT
        return self._messages.Event(
            name=EVENT_ANSWER,
            span_context=place,
            time_ns=ended_ns,
            observed_ns=time.time_ns(),
            severity=_DEBUG,
            severity_text="",
            body=None,
            attributes=attributes,
        )

    def _request_of(self, items: Sequence[Any]) -> Any:
        from agenteval_otel.telemetry.private import own_resource

        resource = self._resource()
        if resource is None:
            self._own = self._own or own_resource()
            resource = self._own
        if resource is not self._known:
            self._encode = self._encoder(resource)
            self._known = resource
        return self._encode([event for _, event in items])

    def _encoder(self, resource: Any) -> Callable[[Sequence[Any]], Any]:
        envelope = self._messages.envelope_of(self, resource)
        return self._messages.Encoder(envelope, self.records, None)

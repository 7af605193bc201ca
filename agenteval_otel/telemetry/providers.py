"""The OpenTelemetry providers that the signals go to, and how much they still take.

Each signal's provider is resolved late: an explicit provider, else the application's real global
one, else (an OTLP endpoint is configured) a private one with the application's resource, built on
the background thread, else none. The globals are never replaced. A private provider's signal is
*delivered*: its exporter knows what the receiver took. The signal of an application's provider is
*handed over*.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

from opentelemetry import _logs, metrics, trace

from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.version import scope_version
from agenteval_otel.runtime.worker import Flusher
from agenteval_otel.semconv import SCHEMA_URL, SCOPE_NAME
from agenteval_otel.telemetry.spans import EventLog, OwnTracerProviders
from agenteval_otel.telemetry.target import SIGNALS, OtlpTarget, is_off, not_obeyed, sdk_disabled

T = TypeVar("T")
# By name: some of them are private to the interface.
_PLACEHOLDERS: Final = (
    "ProxyTracerProvider",
    "ProxyLoggerProvider",
    "_ProxyMeterProvider",
    "NoOpTracerProvider",
    "NoOpLoggerProvider",
    "NoOpMeterProvider",
)
# So many items go out in this time if a queue cannot be seen: they are the SDK's default batch and delay.
_UNSEEN_ITEMS: Final = 512
_UNSEEN_DELAY_S: Final = 5.0
_STUCK_S: Final = 5.0  # how long a queue is full without a change until it counts as stuck
_NUDGE_S: Final = 0.1  # how long after the last item one more may wake the SDK's thread


class Tracers(NamedTuple):
    """Holds the tracers of agent spans and of all other spans.

    With the application's provider both are the same.
    """

    agents: trace.Tracer
    evaluations: trace.Tracer


class Providers:
    """Resolves tracers, event log and meter.

    Keeps those that were built, and looks for missing ones again next time.

    Attributes:
        on_lost: Called with signal, reason and number of what is lost, on any thread.
        on_host: Called when a provider of the application's is first used, on any thread.
        lost: How many items are lost, by signal and reason.
        warns: Log which signals go nowhere.
        wanted: The signals that are emitted.
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        logger_provider: _logs.LoggerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        target: OtlpTarget | None = None,
    ) -> None:
        self._explicit = {
            "TRACES": tracer_provider,
            "LOGS": logger_provider,
            "METRICS": meter_provider,
        }
        self._target = target or OtlpTarget()
        self.on_lost: Callable[[str, str, int], object] = lambda signal, reason, count: None
        self.on_host: Callable[[], object] = lambda: None
        self.lost: dict[tuple[str, str], int] = {}
        self.warns = True
        self.wanted: Collection[str] = SIGNALS
        self._flusher = Flusher(self._flush_here)
        self._result_flusher = Flusher(partial(self._flush_here, with_metrics=False))
        self._forget()
        reset_in_child(self._forget)

    def __repr__(self) -> str:
        return f"<Providers resolved={sorted(self._resolved)} private={sorted(self._private)}>"

    def reach(self) -> dict[str, str]:
        """Return who has each signal's data after a flush.

        It is the receiver, or only the application's provider.
        """
        private = self._private
        return {
            signal.lower(): "delivered" if signal in private else "handed_over"
            for signal in list(self._resolved)
        }

    def lose(self, signal: str, reason: str, count: int = 1) -> None:
        """Count items that will not arrive, for ``agenteval.export.lost``.

        The next flush returns False.
        """
        key = (signal, reason)
        # In two steps: several threads meet here, and a call between the load and the store would
        # lose counts.
        self.lost.setdefault(key, 0)
        self.lost[key] += count
        self._losses += count
        self.on_lost(signal, reason, count)

    def are_ours(self) -> bool:
        """Tell whether only our own providers receive what is emitted, once they are known."""
        return bool(self._resolved) and not self._hosts

    def resource(self) -> Any | None:
        """Return the application's resource, None if it has none."""
        return getattr(self._of_host("TRACES"), "resource", None)

    def _of_host(self, signal: str) -> Any | None:
        return self._explicit[signal] or _global_provider(signal)

    def _forget(self) -> None:  # in a forked child
        self.lost.clear()
        self._exporter: Any = None
        self._resolved: dict[str, Any] = {}
        self._hosts: dict[str, Any] = {}
        self._private: dict[str, Any] = {}
        self._unbuildable: set[str] = set()
        self._losses = self._reported_losses = 0
        self._warned = False
        self.backpressure = Backpressure()
        # The provider and the processors that were looked at last, and what `takes_late_spans` said.
        self._late: tuple[Any, Any, bool] = (None, (), False)
        self._sums: Any = None

    def prepare(self) -> None:
        """Import at start what private providers will need, if an endpoint is configured.

        Builds nothing yet.
        """
        if sdk_disabled():
            return
        scope_version()  # reads a file, which the first answer's thread must not
        for signal in SIGNALS:
            if self._explicit[signal] is None and self._target.is_configured(signal):
                try:
                    import agenteval_otel.telemetry.private  # noqa: F401

                    self._target.preload(signal)
                except Exception as error:
                    log.warning(
                        "wrong_telemetry", part=signal.lower(), error_type=type(error).__name__
                    )

    def is_gone(self, signal: str) -> bool:
        """Tell whether the application has shut its provider down. If so, one loss is counted."""
        host = self._hosts.get(signal)
        if host is None and signal not in self._private:
            host = self._of_host(signal)
        if host is None or not is_shut_down(host) or sdk_disabled():
            return False
        self.lose(signal.lower(), "provider_shut_down")
        log.warning("provider_shut_down", part=signal.lower())
        return True

    def tracer(self) -> trace.Tracer | None:
        """Return the tracer of run spans and what belongs to them.

        As for `events` and `meter`, it is None if no provider is available. May build a provider:
        background thread only.
        """
        tracers = self._tracers()
        return None if tracers is None else tracers.evaluations

    def agent_tracer(self) -> trace.Tracer | None:
        """Return the tracer of agent spans. None as for `tracer`. Background thread only."""
        tracers = self._tracers()
        return None if tracers is None else tracers.agents

    def agent_tracer_now(self) -> trace.Tracer | None:
        """Return the tracer of agent spans if it is there already or costs no time to get.

        For the caller's thread.
        """
        tracers: Tracers | None = self._resolved.get("TRACES")
        if tracers is None and self._of_host("TRACES") is not None:
            tracers = self._tracers()
        return None if tracers is None else tracers.agents

    def _tracers(self) -> Tracers | None:
        return None if self.is_gone("TRACES") else self._resolve("TRACES", _tracers_of)

    def takes_late_spans(self) -> bool:
        """Tell whether a span may end later, on another thread.

        It may not with foreign processors, which may act on it in the handler.
        """
        own = self._private.get("TRACES")
        provider = self._explicit["TRACES"]
        if not provider:
            provider = trace.get_tracer_provider() if own is None else own.agents
        processors = processors_of(provider)
        seen_provider, seen_processors, takes_late = self._late
        if provider is not seen_provider or processors is not seen_processors:
            takes_late = processors is not None and all(map(is_batch_processor, processors))
            self._late = (provider, processors, takes_late)
        return takes_late

    def has_room(self) -> bool:
        """Tell whether the host's span and log processors take what the next answer emits.

        Also True if they have been full for seconds. Background thread only.
        """
        hosts = [host for signal, host in self._hosts.items() if signal != "METRICS"]
        return self.backpressure.has_room(hosts) or self.backpressure.is_stuck()

    def has_room_for_spans(self) -> bool:
        """Return False while the host's processors have been full for seconds.

        Our own spans are then left out.
        """
        return not self.backpressure.is_stuck()

    def events(self) -> EventLog | None:
        return None if self.is_gone("LOGS") else self._resolve("LOGS", EventLog)

    def meter(self) -> metrics.Meter | None:
        return self._resolve("METRICS", _meter_of)

    def collect_soon(self) -> None:
        """Have a private meter provider show new series before its next export is due."""
        if self._exporter is not None:
            self._exporter.collect_soon()

    def flush(self, timeout_s: float, *, with_metrics: bool = True) -> bool:
        """Have the providers export what they hold, in a thread of its own.

        The SDK does not keep its own time limits.

        False when the time ran out, something waits for a receiver that is away, anything was lost
        since the last flush, or a processor of the application's is full, shut down or absent. A
        flush under way is waited for.
        """
        flusher = self._flusher if with_metrics else self._result_flusher
        return not self._resolved or flusher.flush(timeout_s)

    def _flush_here(self, *, with_metrics: bool = True) -> bool:
        complete = self._exporter is None or self._exporter.flush(with_metrics=with_metrics)
        for signal, host in list(self._hosts.items()):
            if with_metrics or signal != "METRICS":
                # The call comes first: each provider is flushed, also after one that failed.
                complete = _handed_over(host) and complete
        # What was lost since the last flush was not exported.
        losses = self._losses
        reported = self._reported_losses
        self._reported_losses = losses
        return complete and losses == reported

    def close(self) -> None:
        """Shut the private providers down on this thread, however long the SDK takes.

        They are built anew if needed.
        """
        private = self._private
        self._private = {}
        self._resolved = {}
        self._hosts = {}
        exporter = self._exporter
        self._exporter = None
        if exporter is not None:
            exporter.close()
        for provider in private.values():
            provider.shutdown()

    def _resolve(self, signal: str, make: Callable[[Any], T]) -> T | None:
        known: T | None = self._resolved.get(signal)
        if known is not None or sdk_disabled():
            return known
        provider = self._of_host(signal)
        if provider is None and self._target.is_configured(signal):
            provider = self._build(signal)
        if provider is None:
            self._warn_once()
            return None
        resolved = make(provider)
        self._resolved[signal] = resolved
        if signal not in self._private:
            self._hosts[signal] = provider
            self.on_host()
        return resolved

    def _build(self, signal: str) -> Any:
        """Build a private provider.

        Return None, for good, if it cannot be built: an invalid endpoint or protocol.
        """
        if signal in self._unbuildable:
            return None
        try:
            from agenteval_otel.telemetry import private

            self._exporter = self._exporter or self._new_exporter()
            # Jaeger warns of clock skew unless parent and child name the same host.
            self._private[signal] = private.private_provider(
                signal, self._target, self._exporter, self.resource(), self._sums_of(private)
            )
        except Exception as error:
            self._unbuildable.add(signal)
            log.warning(
                "wrong_telemetry",
                part=signal.lower(),
                error_type=type(error).__name__,
                fix="check the endpoint and the protocol, and whether the process is ending",
            )
        return self._private.get(signal)

    def _sums_of(self, private: Any) -> Any:
        """Return what the counters have exported, also by providers that were closed since."""
        if self._sums is None:
            self._sums = private.SumDeltas(private.OF_PROCESS)
        return self._sums

    def _new_exporter(self) -> Any:
        from agenteval_otel.telemetry import private

        if ignored := not_obeyed():
            log.warning("variables_not_obeyed", part="telemetry", variables=", ".join(ignored))
        return private.Exporter(self.lose)

    def _warn_once(self) -> None:
        """Say which signals go nowhere, and the fix: one warning for all of them."""
        if self._warned or self._unbuildable or not self.warns:
            return
        self._warned = True
        missing: list[str] = []
        for signal in SIGNALS:
            if signal not in self.wanted or self._of_host(signal) is not None:
                continue
            if not is_off(signal) and not self._target.is_configured(signal):
                missing.append(signal.lower())
        if missing:
            log.warning(
                "no_telemetry",
                signals=", ".join(missing),
                fix="set OTEL_EXPORTER_OTLP_ENDPOINT, an OpenTelemetry provider, or telemetry.endpoint in the "
                "settings, or see the scores with AGENTEVAL_STORAGE=console",
            )


def _tracers_of(provider: trace.TracerProvider | OwnTracerProviders) -> Tracers:
    if isinstance(provider, OwnTracerProviders):
        return Tracers(_tracer_of(provider.agents), _tracer_of(provider.evaluations))
    tracer = _tracer_of(provider)
    return Tracers(tracer, tracer)


def _tracer_of(provider: trace.TracerProvider) -> trace.Tracer:
    return provider.get_tracer(SCOPE_NAME, scope_version(), schema_url=SCHEMA_URL)


def _meter_of(provider: metrics.MeterProvider) -> Any:
    return provider.get_meter(SCOPE_NAME, scope_version(), schema_url=SCHEMA_URL)


def _handed_over(provider: object) -> bool:
    """Tell whether the application's provider can take what is ours, and has flushed it.

    It has flushed unless it says that it has not.
    """
    try:
        processors = processors_of(provider)
        force_flush = getattr(provider, "force_flush", None)
        if processors:
            can_take = not any(
                _is_shut_down(processor) or _is_full(processor) for processor in processors
            )
        else:
            takes_processors = hasattr(provider, "add_span_processor") or hasattr(
                provider, "add_log_record_processor"
            )
            can_take = not takes_processors and not is_shut_down(provider)  # a meter provider
        return can_take and (force_flush is None or force_flush() is not False)
    except Exception:
        return False


def _global_provider(signal: str) -> Any | None:
    """Return the application's provider. None if it has set no real one."""
    provider: object
    if signal == "TRACES":
        provider = trace.get_tracer_provider()
    elif signal == "LOGS":
        provider = _logs.get_logger_provider()
    else:
        provider = metrics.get_meter_provider()
    # Subclasses count: an application may silence the interface with its own.
    is_placeholder = any(kind.__name__ in _PLACEHOLDERS for kind in type(provider).__mro__)
    return None if is_placeholder else provider


def processors_of(provider: object) -> tuple[Any, ...] | None:
    """Return the processors of an SDK provider of spans or logs. None if they cannot be seen.

    The SDK shows neither them nor how full they are. A batch processor that is full drops the
    host's own spans: where it is seen, evaluations wait instead.
    """
    processors = _processors_in(provider)
    if processors is None:  # Logfire's provider wraps the SDK's
        return _processors_in(getattr(provider, "provider", None))
    return processors


def _processors_in(provider: object) -> tuple[Any, ...] | None:
    of_spans = getattr(provider, "_active_span_processor", None)
    processors = getattr(of_spans, "_span_processors", None)
    if type(processors) is tuple:
        return processors
    of_logs = getattr(provider, "_multi_log_record_processor", None)
    processors = getattr(of_logs, "_log_record_processors", None)
    return processors if type(processors) is tuple else None


def is_batch_processor(processor: object) -> bool:
    """Tell whether it is the SDK's own batch processor, or that of our private providers.

    Neither acts on a span's start.
    """
    return _is_ours(processor) or _is_of_sdk(processor)


def _is_ours(processor: object) -> bool:
    return type(processor).__module__.startswith("agenteval_otel.")


def _is_of_sdk(processor: object) -> bool:
    kind = type(processor)
    names = ("BatchSpanProcessor", "BatchLogRecordProcessor")
    return kind.__module__.startswith("opentelemetry.sdk.") and kind.__name__ in names


class _WatchedQueue(NamedTuple):
    """Holds a processor's queue, and from which lengths on it counts as full and as half full."""

    queue: Any
    limit: int
    half: int


class Backpressure:
    """Says whether the processors behind some providers have room. Background thread only.

    The SDK's batch processors evict the oldest item of a full queue, the host's or ours: emission
    waits while one is more than a quarter full. Where a queue, a private part of the SDK, cannot be
    seen, 512 items go out per delay.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._processors: list[tuple[Any, ...] | None] = []
        self._queues: list[_WatchedQueue] = []
        self._unseen = False
        self._sent = 0
        self._since = clock()
        self._full_since: float | None = None
        self._asked_at = 0.0
        self._least_over = 0

    def has_room(self, providers: Sequence[Any]) -> bool:
        """Tell whether all of their processors take what one more answer emits."""
        processors = [processors_of(provider) for provider in providers]
        if processors != self._processors:
            self._look_at(processors)
        # By how many items the fullest queue is over its limit. Below 0: none is full.
        over = max((len(seen.queue) - seen.limit for seen in self._queues), default=-1)
        within_rate = not self._unseen or self._within_rate()
        if over < 0 and within_rate:
            self._full_since = None
            return True
        now = self._clock()
        if self._full_since is None or over < self._least_over:
            self._full_since = self._asked_at = now
            self._least_over = over
        # The SDK's thread can miss the wake-up of a full batch; the next item wakes it again.
        is_quiet = within_rate and now - self._asked_at >= _NUDGE_S
        if is_quiet and all(len(seen.queue) < seen.half for seen in self._queues):
            self._asked_at = now
            return True
        return False

    def is_stuck(self) -> bool:
        """Tell whether they have been full for five seconds without getting rid of anything."""
        return self._full_since is not None and self._clock() - self._full_since > _STUCK_S

    def sent(self, items: int) -> None:
        """Count what was emitted, for processors whose queues cannot be seen."""
        self._sent += items

    def _look_at(self, processors: list[tuple[Any, ...] | None]) -> None:
        self._processors = processors
        self._queues = []
        self._unseen = None in processors
        for processor in chain.from_iterable(filter(None, processors)):
            batches = getattr(processor, "_batch_processor", None)
            queue = getattr(batches, "_queue", None)
            capacity = getattr(batches, "_max_queue_size", None)
            batch = getattr(batches, "_max_export_batch_size", None)
            if hasattr(queue, "__len__") and type(capacity) is int and type(batch) is int:
                half = capacity // 2
                # The SDK's thread wakes up for a whole batch: a limit below that would wait for its
                # schedule.
                limit = max(capacity // 4, batch)
                limit = max(1, min(limit, half))
                self._queues.append(_WatchedQueue(queue, limit, half))
            elif _is_of_sdk(processor):
                self._unseen = True

    def _within_rate(self) -> bool:
        now = self._clock()
        if now - self._since >= _UNSEEN_DELAY_S:
            self._sent = 0
            self._since = now
        return self._sent < _UNSEEN_ITEMS


def is_shut_down(provider: object) -> bool:
    """Tell whether the provider is shut down, as far as it says. Cheap: called for every answer."""
    try:
        processors = processors_of(provider)
        if not processors:
            return getattr(provider, "_shutdown", False) is True  # a meter provider
        for processor in processors:  # noqa: SIM110 - a third less than `all`, on the caller's thread
            if not _is_shut_down(processor):
                return False
        return True
    except Exception:  # of the host's own processor
        return False


def _is_shut_down(processor: object) -> bool:
    batches = getattr(processor, "_batch_processor", processor)  # of the SDK's batch processors
    return getattr(batches, "_shutdown", False) is True


def _is_full(processor: object) -> bool:
    batches = getattr(processor, "_batch_processor", None)
    return len(getattr(batches, "_queue", ())) >= getattr(batches, "_max_queue_size", sys.maxsize)

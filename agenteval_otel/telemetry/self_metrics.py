"""Load metrics: drain time, the lag of the host's event loop, the sampling level, and what export delivers and loses.

All are read when the exporter asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from agenteval_otel import semconv as names

__all__ = ["observe_lost", "observe_reach", "observe_self"]

_GAUGES: Final = {
    "drain_time": names.METRIC_QUEUE_DRAIN_TIME,
    "loop_lag": names.METRIC_LOOP_LAG,
    "level": names.METRIC_SAMPLING_LEVEL,
}


def observe_self(meter: metrics.Meter, read: Callable[[], Mapping[str, float]]) -> None:
    """Create the gauges on a meter.

    Args:
        meter: Where they are created.
        read: Gives ``drain_time`` and ``loop_lag`` in seconds and ``level``, those that are known; called on the
            exporter's thread.
    """
    for key, instrument in _GAUGES.items():
        meter.create_observable_gauge(
            instrument.name, [_reader(key, read)], unit=instrument.unit, description=instrument.description
        )


def observe_lost(meter: metrics.Meter, read: Callable[[], Mapping[tuple[str, str], int]]) -> None:
    """Create the counter of what was lost on the way out.

    Args:
        meter: Where it is created.
        read: Gives the items by signal and reason; called on the exporter's thread.
    """
    instrument = names.METRIC_EXPORT_LOST

    def observe(_: CallbackOptions) -> Iterable[Observation]:
        # Every series starts at 0, so that its first loss is an increase.
        counts = dict.fromkeys(_LOST, 0) | dict(read())
        return [
            Observation(count, {names.EXPORT_SIGNAL: signal, names.EXPORT_REASON: reason})
            for (signal, reason), count in counts.items()
        ]

    meter.create_observable_counter(
        instrument.name, [observe], unit=instrument.unit, description=instrument.description
    )


def observe_reach(meter: metrics.Meter, read: Callable[[], Mapping[str, str]]) -> None:
    """Create the gauge that says of each emitted signal whether it is delivered or handed over.

    Args:
        meter: Where it is created.
        read: Gives ``delivered`` or ``handed_over`` by signal; called on the exporter's thread.
    """
    instrument = names.METRIC_EXPORT_SIGNALS

    def observe(_: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(1, {names.EXPORT_SIGNAL: signal, names.EXPORT_REACH: reach}) for signal, reach in read().items()
        ]

    meter.create_observable_gauge(instrument.name, [observe], unit=instrument.unit, description=instrument.description)


_SIGNALS: Final = ("traces", "logs", "metrics")
_LOST: Final = tuple((signal, reason) for signal in _SIGNALS for reason in names.LOST_REASONS)


def _reader(key: str, read: Callable[[], Mapping[str, float]]) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        value = read().get(key)
        return [] if value is None else [Observation(value)]

    return observe

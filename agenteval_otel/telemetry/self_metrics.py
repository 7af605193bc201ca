"""Load metrics: drain time, the lag of the host's event loop and the sampling level; read when the exporter asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from agenteval_otel import semconv as names

__all__ = ["observe_self"]

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


def _reader(key: str, read: Callable[[], Mapping[str, float]]) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        value = read().get(key)
        return [] if value is None else [Observation(value)]

    return observe

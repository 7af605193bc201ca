"""Instruments: histograms and observable instruments from their rows in `semconv`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from agenteval_otel.semconv import Instrument

Labels = tuple[tuple[str, str], ...]
"""Attributes of one series, as a key."""


def histogram(meter: metrics.Meter, instrument: Instrument) -> Any:
    """Create a histogram with the instrument's boundaries."""
    return meter.create_histogram(
        instrument.name, unit=instrument.unit, description=instrument.description,
        explicit_bucket_boundaries_advisory=list(instrument.boundaries or ()),
    )  # fmt: skip


def observe(meter: metrics.Meter, instrument: Instrument, read: Callable[[], Mapping[Labels, Any]]) -> None:
    """Create an observable instrument.

    Args:
        meter: Where it is created.
        instrument: A counter, up-down counter or gauge.
        read: Returns the value of each series; called on the exporter's thread.
    """

    def observations(_: CallbackOptions) -> Iterable[Observation]:
        # A copy: the background thread may add to the totals while the exporter reads.
        return [Observation(value, dict(labels)) for labels, value in dict(read()).items()]

    create = getattr(meter, f"create_observable_{instrument.kind}")
    create(instrument.name, [observations], unit=instrument.unit, description=instrument.description)


def observe_keys(
    meter: metrics.Meter, instruments: Mapping[str, Instrument], read: Callable[[], Mapping[str, float | None]]
) -> None:
    """Create an observable instrument without attributes for each key of `read`; a missing or None value is absent."""
    for key, instrument in instruments.items():

        def value_of(key: str = key) -> dict[Labels, float]:
            value = read().get(key)
            return {} if value is None else {(): value}

        observe(meter, instrument, value_of)

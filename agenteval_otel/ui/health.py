"""What the page `health` shows of a process that evaluates: its own metrics, as they are now."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from agenteval_otel import semconv as names
from agenteval_otel.offline.reports.figures import percent
from agenteval_otel.semconv import Instrument

Metrics = Mapping[Instrument, Mapping[tuple[tuple[str, str], ...], float]]
"""Values of the series of each instrument, by their attributes."""

_SECTIONS: Final = {
    "agenteval.responses": "Calls", "agenteval.answers": "Calls", "agenteval.conversations": "Calls",
    "agenteval.spans": "Spans", "agenteval.evaluate.requests": "Requests for an evaluation",
    "agenteval.queue": "Queue and sampling", "agenteval.sampling": "Queue and sampling",
    "agenteval.host": "Queue and sampling", "agenteval.last_success": "Queue and sampling",
    "agenteval.judge": "Judges", "agenteval.objective": "Objectives", "agenteval.export": "Export",
}  # fmt: skip
"""By the beginnings of the metrics' names. What is not here stands on other pages."""
_MIB: Final = 1024.0**2


class HealthRow(NamedTuple):
    """Holds one metric with its series.

    Attributes:
        values: Of each series, its attributes as text and its value.
        zeros: The attributes of the series that are 0.
    """

    metric: str
    description: str
    values: list[tuple[str, str]]
    zeros: list[str]


def sections(metrics: Metrics) -> dict[str, list[HealthRow]]:
    """Return the metrics by the titles of the sections.

    The series of a metric are in the order of their attributes.
    """
    made: dict[str, list[HealthRow]] = {title: [] for title in _SECTIONS.values()}
    for instrument, by_labels in metrics.items():
        title = _title_of(instrument)
        if title is None:
            continue
        row = HealthRow(instrument.name, instrument.description, [], [])
        for labels, value in sorted(by_labels.items()):
            series = ", ".join(text for _, text in labels)
            if value == 0 and len(by_labels) > 1 and instrument.kind == "counter":
                row.zeros.append(series)
            else:
                row.values.append((series, _text(instrument, value)))
        if instrument is names.METRIC_ANSWERS:
            row.values.extend(_shares_without_id(by_labels))
        made[title].append(row)
    return {title: rows for title, rows in made.items() if rows}


def _title_of(instrument: Instrument) -> str | None:
    for start, title in _SECTIONS.items():
        if instrument.name.startswith(start):
            return title
    return None


def _shares_without_id(
    by_labels: Mapping[tuple[tuple[str, str], ...], float],
) -> list[tuple[str, str]]:
    """Return the share of answers that name no conversation or session, once there are any."""
    named = sum(
        value
        for labels, value in by_labels.items()
        if dict(labels)[names.UNIT] in ("conversation", "session")
    )
    total = sum(by_labels.values())
    if not total:
        return []
    share = percent((total - named) / total)
    return [("without the id of a conversation or session", share)]


def _text(instrument: Instrument, value: float) -> str:
    if instrument is names.METRIC_LAST_SUCCESS:
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if instrument.unit == "By":
        return f"{value / _MIB:,.1f} MiB"
    if instrument.unit == "{USD}":
        return f"${value:,.4f}"
    text = f"{value:,.0f}" if value == int(value) else f"{value:,.3f}"
    return f"{text} s" if instrument.unit == "s" else text

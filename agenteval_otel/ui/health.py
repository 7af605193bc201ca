"""What the page `health` shows of a process that evaluates: its own metrics, as they are now."""

from __future__ import annotations

from collections import defaultdict
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
_LOST: Final = {
    names.DROPPED_QUEUE_FULL: "for a full queue",
    names.DROPPED_UNSENT: "not sent",
    names.DROPPED_SHUTDOWN: "at the end of the process",
    names.CAPTURE_FAILED: "not understood",
    names.PIPELINE_FAILED: "by an error of the package",
}
"""What an answer can be lost by, with its words."""
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


class Tile(NamedTuple):
    """Says one thing about the process in words.

    Attributes:
        state: ``good``, ``bad``, or empty where neither can be said.
    """

    title: str
    value: str
    words: str
    state: str = ""


def tiles(metrics: Metrics, exports_to: str, now_s: float) -> list[Tile]:
    """Return what a reader asks first: answers in, evaluated, lost, the last score, the export."""
    outcomes = _by_label(metrics.get(names.METRIC_RESPONSES, {}), names.OUTCOME)
    seen = sum(outcomes.values())
    evaluated = outcomes[names.EVALUATED]
    not_wanted = sum(outcomes[name] for name in names.NOT_WANTED)
    under_load = outcomes[names.SHED] + outcomes[names.RATE_LIMITED]
    lost = {words: outcomes[name] for name, words in _LOST.items() if outcomes[name]}
    wanted = seen - not_wanted
    share = f"{percent(evaluated / wanted)} of those wanted" if wanted else "none was wanted so far"
    losses = [f"{count:,.0f} {words}" for words, count in lost.items()]
    if under_load:
        losses.append(f"{under_load:,.0f} left out under load, which is no loss")
    why = ", ".join(losses) or "each answer is accounted for"
    total = sum(lost.values())
    of_answers = [
        Tile("Answers in", f"{seen:,.0f}", f"{not_wanted:,.0f} of them not selected"),
        Tile("Evaluated", f"{evaluated:,.0f}", share, "good" if evaluated else ""),
    ]
    of_losses = Tile("Lost", f"{total:,.0f}", why, _state_of_losses(seen, total))
    return [*of_answers, of_losses, _last_score(metrics, now_s), _export(metrics, exports_to)]


def _state_of_losses(seen: float, lost: float) -> str:
    if lost:
        return "bad"
    return "good" if seen else ""


def _last_score(metrics: Metrics, now_s: float) -> Tile:
    moment = max(metrics.get(names.METRIC_LAST_SUCCESS, {}).values(), default=None)
    if moment is None:
        return Tile("Last score", "none yet", "since this process started")
    at = datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return Tile("Last score", ago(now_s - moment), at)


def ago(seconds: float) -> str:
    """Return how long ago a moment was, in one unit. One that is to come was just now."""
    for unit_s, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds // unit_s:,.0f} {unit} ago"
    return f"{max(0.0, seconds):.0f} s ago"


def _export(metrics: Metrics, exports_to: str) -> Tile:
    signals = metrics.get(names.METRIC_EXPORT_SIGNALS, {})
    lost = sum(metrics.get(names.METRIC_EXPORT_LOST, {}).values())
    if not signals:
        return Tile("Export", "off", exports_to)
    kinds = sorted({dict(labels)[names.EXPORT_SIGNAL] for labels in signals})
    words = f"{', '.join(kinds)} to {exports_to}"
    if lost:
        return Tile("Export", f"{lost:,.0f} lost", words, "bad")
    return Tile("Export", "nothing lost", words, "good")


def _by_label(
    series: Mapping[tuple[tuple[str, str], ...], float], label: str
) -> defaultdict[str, float]:
    totals: defaultdict[str, float] = defaultdict(float)
    for labels, value in series.items():
        totals[dict(labels)[label]] += value
    return totals


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

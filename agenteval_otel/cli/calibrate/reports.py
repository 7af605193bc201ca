"""The figures of a calibration: for people, for programs, and for a pull request."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from agenteval_otel.cli.calibrate.collected import Collected
from agenteval_otel.models.intervals import Estimate
from agenteval_otel.offline.calibration.agreement import Agreement
from agenteval_otel.offline.calibration.measure import Group, Measurement
from agenteval_otel.offline.calibration.record import CalibrationRecord
from agenteval_otel.offline.calibration.shift import Shifts
from agenteval_otel.offline.reports.figures import (
    DASH,
    count_of,
    frequencies,
    markdown_text,
    with_interval,
)
from agenteval_otel.offline.reports.label_shifts import shift_sentences
from agenteval_otel.offline.reports.totals import estimate_json
from agenteval_otel.runtime.masking import printable
from agenteval_otel.runtime.text import aligned

Reported = Sequence[tuple[Collected, Measurement, CalibrationRecord]]
_MEANS = {
    "judge alone": "what the judge says, right or wrong",
    "labels alone": "what people say of the answers that have a label",
    "corrected": "the judge's share, corrected for how often it errs (Rogan-Gladen)",
    "prediction-powered": "people's labels, and the judge on all other answers (PPI++)",
}
_FEW_LABELS = 30


def table(reported: Reported) -> str:
    return "\n\n".join("\n".join(_lines(*entry)) for entry in reported)


def _lines(
    collected: Collected, measurement: Measurement, record: CalibrationRecord
) -> Iterator[str]:
    agreement = measurement.agreement
    yield f"{collected.criterion}: {collected.evaluator_id} beside people on {count_of(agreement.rows, 'answer')}"
    yield f"  {_run(collected)}"
    if measurement.threshold is not None:
        yield (
            f"  threshold {measurement.threshold:g}, chosen on {count_of(measurement.choosing, 'other row')}. "
            "Set it, because the record is of the evaluator with it"
        )
    for reason, count in measurement.left_out.items():
        yield f"  left out: {count_of(count, 'label')}, {reason}"
    yield ""
    yield from _indented(aligned(_confusion(agreement)))
    yield ""
    yield from _indented(aligned(_agreement_rows(agreement)))
    yield ""
    yield from (f"  {line}" for line in _of_shifts(measurement))
    yield f"  Pass rate of {'all answers' if measurement.judged is not None else 'the answers with a label'}"
    estimates = [
        (name, _rate(estimate), _MEANS[name]) for name, estimate in measurement.estimates.items()
    ]
    yield from _indented(aligned(estimates), 4)
    yield from _warnings(collected, measurement)
    groups = measurement.groups
    if len(groups) > 1 or (groups and groups[0].kind != "system"):
        yield ""
        yield from _indented(aligned([_HEAD, *map(_group_row, groups)]))


_HEAD = ("by", "value", "judged", "labels", "kappa", "sensitivity", "specificity", "people pass")


def _run(collected: Collected) -> str:
    parts = [f"{collected.attempted:,} judged"]
    if collected.failed:
        parts.append(f"{collected.failed.total():,} failed ({frequencies(collected.failed)})")
    if collected.skipped:
        parts.append(f"{collected.skipped.total():,} left out ({frequencies(collected.skipped)})")
    if collected.latency_s is not None:
        parts.append(f"{collected.latency_s:.2g} s each")
    if collected.cost_usd is not None:
        parts.append(f"{collected.cost_usd:.4g} US dollars each")
    if collected.models:
        parts.append(f"models: {', '.join(sorted(collected.models))}")
    return ", ".join(parts)


def _of_shifts(measurement: Measurement, shown: Callable[[str], str] = printable) -> Iterator[str]:
    """Yield what makes every corrected figure doubtful if the labels are of other answers."""
    yield from shift_sentences(measurement.shifts, shown=shown)
    if measurement.shifts:
        yield "Label a random part of today's answers (--next)."


def _shifts_json(shifts: Shifts) -> dict[str, Any]:
    rate: dict[str, Any] | None = None
    if shifts.rate is not None:
        fields = shifts.rate._asdict()
        rate = {name: estimate_json(estimate) for name, estimate in fields.items()}
    age: dict[str, Any] | None = None
    if shifts.age is not None:
        age = {"labelled_median": shifts.age.labelled_s, "others_median": shifts.age.others_s}
    releases = [
        {
            "name": shift.name,
            "value": shift.value,
            "labelled": estimate_json(shift.labelled),
            "others": estimate_json(shift.others),
        }
        for shift in shifts.releases
    ]
    return {"label_shift": rate, "label_age": age, "label_releases": releases}


def _confusion(agreement: Agreement) -> list[tuple[str, ...]]:
    counts = [f"{share * agreement.rows:,.0f}" for share in agreement.shares]
    return [
        ("", "people pass", "people fail"),
        ("judge passes", *counts[:2]),
        ("judge fails", *counts[2:]),
    ]


def _agreement_rows(agreement: Agreement) -> list[tuple[str, ...]]:
    return [
        ("agreement", _rate(agreement.agreement), "both say the same"),
        ("kappa", with_interval(agreement.kappa), "agreement beyond chance: 0 none, 1 all"),
        ("sensitivity", _rate(agreement.sensitivity), "of what people pass, the judge passes"),
        ("specificity", _rate(agreement.specificity), "of what people fail, the judge fails"),
    ]


def _warnings(collected: Collected, measurement: Measurement) -> Iterator[str]:
    agreement = measurement.agreement
    if not agreement.can_correct:
        yield (
            "  No corrected rate: with these labels the judge does not tell good answers from bad ones, or there are "
            "fewer than five of a kind."
        )
    if len(collected.models) > 1:
        yield f"  Several models judged: {frequencies(collected.models)}. The record holds for them together."
    large: list[Agreement] = []
    for group in measurement.groups:
        if group.agreement and group.agreement.rows >= _FEW_LABELS:
            large.append(group.agreement)
    for name in ("sensitivity", "specificity"):
        rates = [getattr(of_group, name) for of_group in large]
        if rates and max(rate.low for rate in rates) > min(rate.high for rate in rates):
            yield f"  The judge's {name} differs between groups: correct the rate of each by its own labels."


def _group_row(group: Group) -> tuple[str, ...]:
    agreement = group.agreement
    if agreement is None:
        return (group.kind, group.value, f"{group.judged:,}", "0", DASH, DASH, DASH, DASH)
    rates = (agreement.sensitivity, agreement.specificity, agreement.pass_rate)
    shown = (DASH if rate.scores == 0 else _rate(rate) for rate in rates)
    kappa = with_interval(agreement.kappa) if agreement.rows > 1 else DASH
    return (group.kind, group.value, f"{group.judged:,}", f"{agreement.rows:,}", kappa, *shown)


def _rate(estimate: Estimate) -> str:
    return with_interval(estimate, rate=True)


def _indented(lines: Sequence[str], by: int = 2) -> Iterator[str]:
    return (f"{' ' * by}{line}".rstrip() for line in lines)


def as_json(reported: Reported) -> str:
    entries: list[dict[str, Any]] = []
    for collected, measurement, record in reported:
        estimates = measurement.estimates
        pass_rate = {name: estimate_json(estimate) for name, estimate in estimates.items()}
        entry = {
            "criterion": collected.criterion,
            "evaluator": collected.evaluator_id,
            "record": record.model_dump(mode="json"),
            "figures": measurement.agreement.figures(),
            "threshold": measurement.threshold,
            "pass_rate": pass_rate,
            "groups": [_group_json(group) for group in measurement.groups],
            "failed": dict(collected.failed),
            "skipped": dict(collected.skipped),
            "left_out": dict(measurement.left_out),
            **_shifts_json(measurement.shifts),
        }
        entries.append(entry)
    return json.dumps(entries, indent=2, ensure_ascii=False)


def _group_json(group: Group) -> dict[str, Any]:
    agreement = group.agreement
    return {
        "by": group.kind,
        "value": group.value,
        "judged": group.judged,
        "labels": agreement.rows if agreement else 0,
        "figures": agreement.figures() if agreement else None,
    }


def markdown(reported: Reported) -> str:
    parts = []
    for collected, measurement, _ in reported:
        rows = [
            f"| {name} | {figure} | {means} |"
            for name, figure, means in _agreement_rows(measurement.agreement)
        ]
        rows += [
            f"| {name} | {_rate(estimate)} | {_MEANS[name]} |"
            for name, estimate in measurement.estimates.items()
        ]
        answers = count_of(measurement.agreement.rows, "answer")
        title = f"**{collected.criterion}** beside people on {answers}, {_run(collected)}"
        lines = [title, ""]
        for warning in _of_shifts(measurement, markdown_text):
            lines += [warning, ""]
        lines += ["| | 95 % interval in brackets | |", "|---|---|---|", *rows]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


REPORTS: dict[str, Callable[[Reported], str]] = {
    "table": table,
    "json": as_json,
    "markdown": markdown,
}

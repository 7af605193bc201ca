"""A criterion in words: who judges it, and how that judge agrees with people.

The agreement is known if it was measured.
"""

from __future__ import annotations

from agenteval_otel.config.load import load_settings
from agenteval_otel.config.settings import Settings
from agenteval_otel.evaluators.base import Evaluator
from agenteval_otel.evaluators.llm_judge.rubric import names, rubric_fields
from agenteval_otel.offline.calibration.record import DEFAULT_PATH, NOT_MEASURED, load_records
from agenteval_otel.offline.reports.figures import with_interval

_MEASURE = "`agenteval-otel judge check` measures it on a hundred labelled rows, `agenteval-otel calibrate` on all"


def known_criteria(settings: str | None) -> list[str]:
    """Return the criteria of the settings and of the catalogue."""
    return list(dict.fromkeys([*_evaluators(load_settings(settings).settings), *names()]))


def criterion_in_words(name: str, settings: str | None) -> list[str] | None:
    """Return who judges the criterion, and how well.

    The result is None if neither the settings nor the catalogue has the criterion.
    """
    loaded = load_settings(settings).settings
    evaluators = _evaluators(loaded).get(name, [])
    if not evaluators and name not in names():
        return None
    records = load_records(loaded.calibration or DEFAULT_PATH, missing_ok=True)
    lines = [str(rubric_fields(name, {})["description"])] if name in names() else []
    for evaluator in evaluators:
        record = records.find(name, evaluator.label)
        if record is None:
            lines.append(f"Judged by {evaluator.label}: {NOT_MEASURED}. {_MEASURE}.")
            continue
        lines.append(f"Judged by {evaluator.label}: {record.sentence}.")
        lines.append(
            f"It passes {with_interval(record.sensitivity, rate=True)} of what people pass, and fails "
            f"{with_interval(record.specificity, rate=True)} of what they fail."
        )
        why = record.expired_because(evaluator_version=evaluator.fingerprint)
        if why is not None:
            lines.append(f"The record has expired: {why}. {_MEASURE}.")
    if not evaluators:
        lines.append(f"No evaluator of the settings judges it: {NOT_MEASURED}. {_MEASURE}.")
    return lines


def _evaluators(settings: Settings) -> dict[str, list[Evaluator]]:
    """Return the evaluators of all agents by the criteria that they score."""
    by_name: dict[str, list[Evaluator]] = {}
    everything = [*settings.evaluators]
    for agent in settings.agents.values():
        everything += agent.evaluators or ()
    for evaluator in everything:
        for criterion in evaluator.criteria():
            by_name.setdefault(criterion.name, []).append(evaluator)
    return by_name

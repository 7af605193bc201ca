"""``agenteval-otel calibrate``: measure the judge against people.

Prints how the judge agrees with people, and the true pass rate once its errors are known.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agenteval_otel.cli.calibrate.collected import Collected
from agenteval_otel.cli.calibrate.reports import REPORTS
from agenteval_otel.cli.calibrate.sources import PROBABILITY, ROUND, USER_FEEDBACK, collect
from agenteval_otel.cli.figures import whole_number
from agenteval_otel.cli.lines import note
from agenteval_otel.config.load import load_settings
from agenteval_otel.errors import ConfigurationError, EvaluationError
from agenteval_otel.evaluators import LLMJudge
from agenteval_otel.evaluators.base import Evaluator
from agenteval_otel.offline.calibration.measure import Measurement, measure
from agenteval_otel.offline.calibration.next_labels import next_labels
from agenteval_otel.offline.calibration.record import (
    DEFAULT_PATH,
    CalibrationRecord,
    CalibrationRecords,
    load_records,
)
from agenteval_otel.offline.reports.figures import count_of
from agenteval_otel.runtime.masking import printable

DESCRIPTION = (
    "Measure your judge against people. Of the rows of a file, some have a label, which is a person's verdict. The "
    "evaluators of the settings judge all of them. Prints the confusion table, kappa, and the true pass rate of all "
    "answers as the judge's errors and the labels allow, with 95 % intervals, by system and by slice. Writes a "
    "calibration record, which reports, dashboards and alerts use until the judge changes. Of stored results (the "
    "agenteval.db of the storage sqlite, or JSON lines) the labels are the recorded feedback, and no judge is asked."
)
_EXIT_CODES = (
    "Exit code 0: measured. Exit code 2: it could not run, because of wrong settings, labels of one kind only, or "
    "nothing judged."
)
_EXAMPLES = """
examples:
  agenteval-otel calibrate labels.jsonl --settings agenteval.yaml --criterion polite
      the column label has true, false, or nothing where no person has judged
  agenteval-otel calibrate labels.csv --settings agenteval.yaml --label polite=anna --positive good --slice topic
      the labels of polite are in the column anna, where "good" passes, with figures for each topic
  agenteval-otel calibrate labels.jsonl --settings agenteval.yaml --criterion helpful --choose-threshold
      the threshold is chosen on one half of the prompts, and reported on the other
  agenteval-otel calibrate labels.jsonl --settings agenteval.yaml --criterion polite --next 50 > to-label.jsonl
      the fifty answers whose labels tell most, to be labelled and added to the file
  agenteval-otel calibrate agenteval.db --criterion helpful --feedback user_feedback
      stored results of the judge beside the thumbs of users
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = textwrap.fill(DESCRIPTION, 78)
    parser.epilog = f"{textwrap.fill(_EXIT_CODES, 78)}\n{_EXAMPLES}"
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="answers, some with a label, as `evaluate` reads "
        "them, or stored results with feedback among them",
    )
    add = parser.add_argument_group("what judges").add_argument
    add(
        "--settings",
        metavar="FILE",
        help="the settings file (default: the file that AGENTEVAL_SETTINGS names)",
    )
    add("--profile", metavar="NAME", help="a profile of the settings file")
    add("--agent", metavar="NAME", help="use the evaluators and criteria of this agent")
    add_labels(parser)
    add = parser.add_argument_group("what comes out").add_argument
    add(
        "--choose-threshold",
        action="store_true",
        help="choose the score from which on an answer passes, on half of "
        "the prompts. All figures are of the other half",
    )
    add(
        "--next",
        type=whole_number,
        metavar="N",
        help="print the N answers to label next as JSON lines, instead of "
        f"the report. {PROBABILITY} and {ROUND} have to stay in them",
    )


def add_labels(parser: argparse.ArgumentParser) -> None:
    """Add the options that `judge check` has too."""
    add = parser.add_argument_group("labels").add_argument
    add(
        "--criterion",
        action="append",
        default=[],
        metavar="NAME",
        help="only this criterion (repeatable)",
    )
    add(
        "--label",
        action="append",
        default=[],
        metavar="[CRITERION=]COLUMN",
        help="the column of people's labels (default: label, repeatable)",
    )
    add(
        "--positive",
        action="append",
        default=[],
        metavar="WORD",
        help="a label that passes. With one, all others "
        "fail. Without: true, pass, yes, 1, or a score that reaches the criterion's threshold",
    )
    add(
        "--feedback",
        metavar="NAME",
        help="of stored results: the name of the feedback that is the label (default: "
        f"the criterion's, as `agenteval-otel ui` labels it, else {USER_FEEDBACK})",
    )
    add(
        "--column",
        action="append",
        default=[],
        metavar="FIELD=COLUMN",
        help="the column, or name in JSON, of a field: response=answer (repeatable)",
    )
    add(
        "--id",
        default="id",
        metavar="COLUMN",
        help="what names an answer (default: %(default)s, else its texts)",
    )
    add(
        "--system",
        default="model",
        metavar="COLUMN",
        help="which system answered (default: %(default)s)",
    )
    add(
        "--slice",
        action="append",
        default=[],
        metavar="COLUMN",
        help="figures for each of its values (repeatable)",
    )
    add(
        "--cluster",
        metavar="COLUMN",
        help="rows that share it are no independent evidence (default: the "
        "conversation, else the prompt)",
    )
    add("--limit", type=whole_number, metavar="N", help="only the first N rows")
    add(
        "--concurrency",
        type=whole_number,
        default=8,
        metavar="N",
        help="judged at once (default: %(default)s)",
    )
    add(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="of the halves and of --next (default: %(default)s)",
    )
    add(
        "--record",
        metavar="FILE",
        help=f"where the record goes (default: `calibration` of the settings, else {DEFAULT_PATH})",
    )
    add(
        "--report",
        choices=tuple(REPORTS),
        default="table",
        help="table, json or markdown (default: %(default)s)",
    )
    add("--quiet", action="store_true", help="no progress on standard error")


def run(arguments: argparse.Namespace) -> int:
    """Measure, print and write the record."""
    everything = collect(arguments)
    path = record_path(arguments)
    records = load_records(path, missing_ok=True)
    if arguments.next is not None:
        return _print_next(everything, arguments)
    source = ", ".join(Path(file).name for file in arguments.files)
    reported: list[tuple[Collected, Measurement, CalibrationRecord]] = []
    for collected in everything:
        if not collected.answers:
            raise EvaluationError(
                f"nothing was judged by {collected.evaluator_id}: {counts_of(collected)}"
            )
        measurement = measured(collected, records, arguments)
        record = record_of(collected, measurement, source=source)
        old = records.find(record.criterion, record.evaluator_id)
        if old is not None:
            why = old.expired_because(evaluator_version=record.evaluator_version)
            if why:
                note(f"the record of {old.made[:10]} had expired: {why}")
        records = records.with_record(record)
        reported.append((collected, measurement, record))
    print(printable_lines(REPORTS[arguments.report](reported)))
    records.save(path)
    note(f"{count_of(len(reported), 'record')} written to {path}")
    return 0


def record_path(arguments: argparse.Namespace) -> str:
    """Return the path of the record.

    The path is --record, else the settings' `calibration`, else the default name.
    """
    if arguments.record is not None:
        return str(arguments.record)
    configured = load_settings(arguments.settings, profile=arguments.profile).settings.calibration
    return DEFAULT_PATH if configured is None else str(configured)


def measured(
    collected: Collected, records: CalibrationRecords, arguments: argparse.Namespace
) -> Measurement:
    """Return the measurement, without the rows that have chosen the present threshold."""
    old = records.find(collected.criterion, collected.evaluator_id)
    chosen_by: tuple[str, ...] = ()
    if old is not None and old.threshold == collected.threshold:
        chosen_by = old.threshold_prompts
    choose = getattr(arguments, "choose_threshold", False)
    try:
        return measure(
            collected.answers, choose_threshold=choose, chosen_by=chosen_by, seed=arguments.seed
        )
    except ConfigurationError as error:
        raise error.with_prefix(collected.criterion) from None


def record_of(
    collected: Collected, measurement: Measurement, *, source: str = ""
) -> CalibrationRecord:
    """Return the record of a measurement.

    If a threshold was chosen, the record is of the evaluator with that threshold.
    """
    threshold = collected.threshold if measurement.threshold is None else measurement.threshold
    evaluator = collected.evaluator
    version = next(reversed(collected.versions), "")
    if evaluator is not None and threshold != collected.threshold:
        version = with_threshold(evaluator, collected.criterion, threshold).fingerprint
    judge = getattr(evaluator, "judge", None)
    judge_name = None if judge is None else f"{judge.type}:{judge.model}"
    judge_fingerprint = None if judge is None else judge.fingerprint
    return CalibrationRecord(
        **measurement.agreement.model_dump(),
        criterion=collected.criterion,
        evaluator_id=collected.evaluator_id,
        evaluator_version=version,
        judge=judge_name,
        judge_fingerprint=judge_fingerprint,
        models=tuple(sorted(collected.models)),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        source=source,
        threshold=threshold,
        threshold_prompts=measurement.choosing_prompts,
        malformed_rate=collected.malformed_rate,
        cost_usd=collected.cost_usd,
        latency_s=collected.latency_s,
    )


def with_threshold(evaluator: Evaluator, criterion: str, threshold: float | None) -> Evaluator:
    """Return the evaluator as its settings will have it with this threshold."""
    if isinstance(evaluator, LLMJudge) and evaluator.rubrics:
        rubrics = []
        for rubric in evaluator.rubrics:
            if rubric.criterion_name == criterion:
                rubric = rubric.model_copy(update={"threshold": threshold})
            rubrics.append(rubric)
        return evaluator.model_copy(update={"rubrics": tuple(rubrics)})
    return evaluator.model_copy(update={"threshold": threshold})


def counts_of(collected: Collected) -> str:
    """Return failures and skips by their reasons, in words."""
    parts: list[str] = []
    for kind, reasons in (("failed", collected.failed), ("skipped", collected.skipped)):
        for reason, count in reasons.items():
            parts.append(f"{count:,} {kind} ({reason})")
    return ", ".join(parts) or "no results"


def _print_next(everything: Sequence[Collected], arguments: argparse.Namespace) -> int:
    if len(everything) > 1:
        names = ", ".join(collected.criterion for collected in everything)
        raise ConfigurationError(
            f"several criteria are judged ({names}): name one with --criterion", path="--next"
        )
    collected = everything[0]
    rounds = (_round_of(original) for original in collected.originals.values())
    number = max(rounds, default=0) + 1
    picks = next_labels(
        collected.answers, arguments.next, threshold=collected.threshold, seed=arguments.seed
    )
    label = arguments.label[0].rpartition("=")[2] if arguments.label else "label"
    for pick in picks:
        # Without the judge's verdict: people who have seen it agree with it.
        row: dict[str, Any] = {**collected.originals[pick.answer.key], label: None}
        row |= {PROBABILITY: round(pick.probability, 6), ROUND: number}
        print(json.dumps(row, ensure_ascii=False))
    waiting = sum(answer.person is None for answer in collected.answers)
    note(
        f"{count_of(len(picks), 'answer')} of {waiting:,} without a label, round {number}, seed {arguments.seed}"
    )
    return 0


def _round_of(original: Mapping[str, Any]) -> int:
    metadata = original.get("metadata") or {}
    value = metadata.get(ROUND) or 0
    return int(float(value))


def printable_lines(text: str) -> str:
    return "\n".join(map(printable, text.splitlines()))

"""The sources of verdicts and labels.

A source is a file that the evaluators judge now, or results that were stored.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any, NamedTuple

from agenteval_otel.cli.calibrate.collected import (
    Collected,
    Labelled,
    label_of,
    labelled_row,
    release_of,
    value_of,
    values_of,
)
from agenteval_otel.cli.evaluate import configuration_of
from agenteval_otel.cli.evaluate.dataset import Dataset, columns_of, is_database
from agenteval_otel.cli.file_kinds import Kind, check_kinds, kind_of
from agenteval_otel.components.explained import known_choices
from agenteval_otel.errors import ConfigurationError, StorageError
from agenteval_otel.evaluators.base import Evaluator
from agenteval_otel.evaluators.shadow import declared_criteria
from agenteval_otel.models import (
    AggregatedEvaluationResult,
    EvaluationCriteria,
    EvaluationInput,
    EvaluationResult,
)
from agenteval_otel.offline.calibration.measure import digest
from agenteval_otel.offline.config import EvaluationRunConfig
from agenteval_otel.offline.run import run_evaluations
from agenteval_otel.storage.label_history import LabelHistory, is_withdrawal
from agenteval_otel.storage.read import place_of

PROBABILITY = "label_probability"
ROUND = "label_round"
USER_FEEDBACK = "user_feedback"
_HUMAN = "human"


class _Judged(NamedTuple):
    """A judge's result, its answer, and the names by which a label belongs to it."""

    result: EvaluationResult
    aggregated: AggregatedEvaluationResult
    names: list[str]


def collect(arguments: argparse.Namespace) -> list[Collected]:
    """Return each evaluator of each criterion, with verdicts and labels."""
    check_kinds(arguments.files, arguments.command)
    if _are_results(arguments.files):
        return _stored(arguments)
    return asyncio.run(_judged_now(arguments))


# --- a file of labels, judged now ---


async def _judged_now(arguments: argparse.Namespace) -> list[Collected]:
    config = _configuration(arguments)
    subjects = _subjects(config, arguments.criterion)
    columns = _label_columns(arguments.label, list(subjects))
    subjects = {name: subjects[name] for name in columns}
    rows: list[tuple[EvaluationInput, dict[str, Labelled]]] = []
    with Dataset(
        arguments.files,
        limit=arguments.limit,
        columns=columns_of(arguments.column),
        check=lambda item: _check_labels(item, columns, subjects, arguments),
    ) as dataset:
        if dataset.check() == 0:
            raise ConfigurationError(f"no rows in {', '.join(dataset.names)}")
        newest = max((_round(row.evaluation_input) for row in dataset), default=0)
        for row in dataset:
            item = row.evaluation_input
            rows.append((item, _rows_of(item, columns, subjects, newest, arguments)))
    _check_labelled(rows, columns, dataset.names)
    chosen: dict[int, Evaluator] = {}  # each once, by its identity
    collected: dict[tuple[str, str], Collected] = {}
    for criterion, evaluators in subjects.values():
        for evaluator in evaluators:
            chosen[id(evaluator)] = evaluator
            key = (criterion.name, evaluator.label)
            collected[key] = Collected(criterion.name, evaluator.label, evaluator)
    run_config = config.model_copy(update={"evaluators": tuple(chosen.values())})

    def add(position: int, aggregated: AggregatedEvaluationResult) -> None:
        for result in aggregated.results:
            of_criterion = collected.get((result.criterion_name, result.evaluator_id or ""))
            if of_criterion is not None:
                of_criterion.add(result, rows[position][1][result.criterion_name])

    with redirect_stdout(sys.stderr):  # what evaluators print
        await run_evaluations(
            [item for item, _ in rows],
            run_config,
            concurrency=arguments.concurrency,
            on_result=add,
            keep_results=False,
            progress=not arguments.quiet,
        )
    return list(collected.values())


def _configuration(arguments: argparse.Namespace) -> EvaluationRunConfig:
    make = getattr(arguments, "config", None)  # of `judge check`
    if make is not None:
        made: EvaluationRunConfig = make(arguments)
        return made
    arguments.tags = []
    arguments.execution = []
    arguments.cache = None
    return configuration_of(arguments)[0]


Subjects = dict[str, tuple[EvaluationCriteria, list[Evaluator]]]


def _subjects(config: EvaluationRunConfig, named: Sequence[str]) -> Subjects:
    """Return the criteria by their names, as the configuration defines them, with their evaluators."""
    configured = {criterion.name: criterion for criterion in config.criteria}
    subjects: Subjects = {}
    for evaluator in config.selection.evaluators:
        for criterion in declared_criteria(evaluator):
            definition = configured.get(criterion.name, criterion)
            _, evaluators = subjects.setdefault(criterion.name, (definition, []))
            evaluators.append(evaluator)
    wrong = [name for name in named if name not in subjects]
    if wrong:
        raise ConfigurationError(
            f"no evaluator scores {wrong[0]!r}{known_choices(wrong[0], subjects)}",
            path="--criterion",
        )
    return {name: subject for name, subject in subjects.items() if not named or name in named}


def _label_columns(texts: Sequence[str], criteria: Sequence[str]) -> dict[str, str]:
    """Return the column of the labels of each criterion."""
    columns: dict[str, str] = {}
    for text in texts:
        name, separator, column = text.rpartition("=")
        if separator and name not in criteria:
            raise ConfigurationError(
                f"no criterion {name!r} is judged{known_choices(name, criteria)}", path="--label"
            )
        columns |= dict.fromkeys([name] if separator else criteria, column)
    if not texts and len(criteria) > 1:
        raise ConfigurationError(
            f"{len(criteria)} criteria are judged ({', '.join(criteria[:5])}): name one with --criterion, or the "
            "columns of their labels with --label CRITERION=COLUMN"
        )
    return columns or dict.fromkeys(criteria, "label")


def _check_labels(
    item: EvaluationInput,
    columns: Mapping[str, str],
    subjects: Subjects,
    arguments: argparse.Namespace,
) -> None:
    for name, column in columns.items():
        try:
            label_of(_cell(item, column), subjects[name][0], arguments.positive)
        except ConfigurationError as error:
            raise error.with_prefix(column) from None
    _probability(item)
    _round(item)


def _rows_of(
    item: EvaluationInput,
    columns: Mapping[str, str],
    subjects: Subjects,
    newest: int,
    arguments: argparse.Namespace,
) -> dict[str, Labelled]:
    # Rows of earlier rounds count once; rows of the newest round also represent the answers that
    # were not picked.
    weight = 1.0 / _probability(item) if _round(item) == newest else 1.0
    original = item.model_dump(mode="json", exclude_unset=True, exclude={"criteria"})
    rows: dict[str, Labelled] = {}
    for name, column in columns.items():
        criterion, _ = subjects[name]
        rows[name] = labelled_row(
            item,
            label_of(_cell(item, column), criterion, arguments.positive),
            id_field=arguments.id,
            cluster=arguments.cluster,
            system=arguments.system,
            slices=arguments.slice,
            label_weight=weight,
            original=original,
        )
    return rows


def _cell(item: EvaluationInput, column: str) -> Any:
    return (item.metadata or {}).get(column)


def _probability(item: EvaluationInput) -> float:
    return _number(
        item, PROBABILITY, 1.0, "a probability above 0 up to 1", lambda value: 0.0 < value <= 1.0
    )


def _round(item: EvaluationInput) -> int:
    expected = "a whole number from 0"
    number = _number(item, ROUND, 0.0, expected, lambda value: value >= 0 and value == int(value))
    return int(number)


def _number(
    item: EvaluationInput, column: str, default: float, expected: str, fits: Callable[[float], bool]
) -> float:
    cell = _cell(item, column)
    if cell is None or cell == "":
        return default
    try:
        value = float(cell)
        if fits(value):
            return value
    except (TypeError, ValueError, OverflowError):
        pass
    raise ConfigurationError(f"expected {expected}, found {str(cell)[:40]!r}", path=column)


def _check_labelled(
    rows: Sequence[tuple[EvaluationInput, Mapping[str, Labelled]]],
    columns: Mapping[str, str],
    names: Sequence[str],
) -> None:
    """Refuse a run that would pay judges for nothing."""
    for criterion, column in columns.items():
        own = [row[criterion] for _, row in rows]
        if not any(row.person is not None for row in own):
            raise ConfigurationError(
                f"no row of {', '.join(names)} has a label of {criterion!r}: expected them in the column {column!r} "
                "(--label names another)"
            )
        keys: dict[str, int] = defaultdict(int)
        for row in own:
            keys[row.key] += 1
        twice = [key for key, count in keys.items() if count > 1]
        if twice:
            raise ConfigurationError(
                f"{len(twice):,} answers stand there more than once, by their id, or prompt and response: "
                f"{', '.join(twice[:3])}. Keep one row of each (--id names the column of the ids)"
            )


# --- results that were stored, with feedback of people among them ---


def _are_results(files: Sequence[str]) -> bool:
    kinds = {_is_results(file) for file in files}
    if len(kinds) > 1:
        raise ConfigurationError(
            "some files are stored results, and others rows with labels. Name one kind"
        )
    return kinds == {True}


def _is_results(file: str) -> bool:
    return kind_of(file) in (Kind.DATABASE, Kind.RESULTS)


class _StoredResults(NamedTuple):
    """Collects the judges' results that are stored, and the labels among them.

    Attributes:
        judged: The judges' results.
        verdicts: By the name of the feedback, people's verdicts by each name of the answer.
        feedback: By the name of the feedback, the names of the answer of each label.
    """

    judged: list[_Judged]
    verdicts: dict[str, dict[str, bool]]
    feedback: dict[str, list[list[str]]]


def _read_stored(files: Sequence[str]) -> _StoredResults:
    stored = _StoredResults([], {}, defaultdict(list))
    histories: dict[tuple[str, str], LabelHistory[bool]] = defaultdict(LabelHistory)
    for identifier, aggregated in _results_in(files):
        # A label that is stored alone is of another evaluation, whose names it has besides its own id.
        is_alone = all(result.evaluator_kind == _HUMAN for result in aggregated.results)
        names = _names_of("" if is_alone else identifier, aggregated)
        for result in aggregated.results:
            if result.evaluator_kind != _HUMAN:
                stored.judged.append(_Judged(result, aggregated, names))
                continue
            verdict = _verdict_of(result)
            for name in names:
                history = histories[result.criterion_name, name]
                if is_withdrawal(result):
                    history.withdraw(aggregated.user_id)
                elif verdict is not None:
                    history.add(aggregated.user_id, verdict)
            if verdict is not None:
                stored.feedback[result.criterion_name].append(names)
    for (criterion, name), history in histories.items():
        if history.last is not None:
            stored.verdicts.setdefault(criterion, {})[name] = history.last
    return stored


def _stored(arguments: argparse.Namespace) -> list[Collected]:
    judged, by_name, feedback = _read_stored(arguments.files)
    known = {result.criterion_name for result, *_ in judged}
    labels: dict[str, dict[str, bool]] = {}
    used: set[str] = set()
    for criterion in known:
        label = _label_name(criterion, by_name, arguments)
        if label is not None:
            labels[criterion] = by_name[label]
            used.add(label)
    if not labels:
        raise _without_feedback(by_name, arguments)
    unknown = [name for name in arguments.criterion if name not in known]
    if unknown:
        wrong = f"no result of {unknown[0]!r}{known_choices(unknown[0], sorted(known))}"
        raise ConfigurationError(wrong, path="--criterion")
    matched = [
        collected
        for collected in _stored_by_evaluator(judged, labels, arguments)
        if any(answer.person is not None for answer in collected.answers)
    ]
    places: list[list[str]] = []
    for label in used:
        places += feedback[label]
    if not matched:
        raise ConfigurationError(
            f"none of {len(places):,} labels belongs to an answer with a judge's result"
        )
    answered: set[str] = set()
    for item in judged:
        answered.update(item.names)
    unmatched = sum(answered.isdisjoint(names) for names in places)
    if unmatched:
        print(
            f"{unmatched:,} of {len(places):,} labels are of answers without a result",
            file=sys.stderr,
        )
    return matched


def _without_feedback(recorded: Iterable[str], arguments: argparse.Namespace) -> ConfigurationError:
    """Return the error for results among which no feedback labels a criterion."""
    names = ", ".join(sorted(recorded))
    others = f". Found: {names}" if names else ""
    files = ", ".join(arguments.files)
    if arguments.feedback:
        return ConfigurationError(
            f"no feedback of people named {arguments.feedback!r} is in {files}{others}",
            path="--feedback",
        )
    return ConfigurationError(
        f"no feedback of people named as a criterion or {USER_FEEDBACK!r} is in {files}{others}. "
        "`agenteval-otel ui` has a queue in which people label answers"
    )


def _label_name(
    criterion: str, labels: Mapping[str, object], arguments: argparse.Namespace
) -> str | None:
    """Return the name of the feedback that labels a criterion, or None.

    The name is --feedback if that is set, else the criterion's own name (the pages' labels), else
    users' thumbs.
    """
    names = [arguments.feedback] if arguments.feedback else [criterion, USER_FEEDBACK]
    return next((name for name in names if name in labels), None)


def _stored_by_evaluator(
    judged: Sequence[_Judged],
    labels: Mapping[str, Mapping[str, bool]],
    arguments: argparse.Namespace,
) -> list[Collected]:
    """Return the results of each evaluator's newest version.

    Earlier versions are of another judge.
    """
    by_name: dict[tuple[str, str], Collected] = {}
    newest = {
        _evaluator_of(result): result.evaluator_version
        for result, *_ in judged
        if result.status == "scored"
    }
    for item in judged:
        result = item.result
        if arguments.criterion and result.criterion_name not in arguments.criterion:
            continue
        name = _evaluator_of(result)
        collected = by_name.setdefault(name, Collected(*name))
        if result.status == "scored" and result.evaluator_version != newest[name]:
            collected.skipped["judged by an earlier version"] += 1
            continue
        collected.add(result, _stored_row(item, labels.get(result.criterion_name, {}), arguments))
    return list(by_name.values())


def _evaluator_of(result: EvaluationResult) -> tuple[str, str]:
    return result.criterion_name, result.evaluator_id or result.evaluator_type


def _verdict_of(result: EvaluationResult) -> bool | None:
    if result.passed is not None or result.normalized is None:
        return result.passed
    return result.normalized >= 0.5


def _stored_row(
    item: _Judged, labels: Mapping[str, bool], arguments: argparse.Namespace
) -> Labelled:
    _, aggregated, names = item
    snapshot = aggregated.input_snapshot
    prompt = snapshot.prompt if snapshot is not None else None
    key = names[0] if names else digest(aggregated.timestamp, aggregated.started_ns, prompt)
    person = next((labels[name] for name in names if name in labels), None)
    cluster = aggregated.conversation_id or ""
    if arguments.cluster:
        cluster = value_of(aggregated, arguments.cluster)
    if not cluster and aggregated.span is not None:
        cluster = aggregated.span.trace_id
    response = None if snapshot is None else snapshot.text_at("response")
    original = {"prompt": prompt, "response": response, "id": key}
    return Labelled(
        key,
        digest(key if prompt is None else prompt),
        person,
        1.0,
        cluster,
        value_of(aggregated, arguments.system),
        values_of(aggregated, arguments.slice),
        original,
        _answered_s(aggregated),
        release_of(aggregated),
    )


def _answered_s(aggregated: AggregatedEvaluationResult) -> float | None:
    """Return when the answer was given, else when it was evaluated, Unix time."""
    time_ns = (
        aggregated.response_ended_ns or aggregated.ended_ns or aggregated.timestamp * 1_000_000
    )
    return time_ns / 1e9 if time_ns else None


def _names_of(identifier: str, aggregated: AggregatedEvaluationResult) -> list[str]:
    """Return the names by which a label and an answer are known to belong together.

    The pages label by the evaluation's id.
    """
    names: list[str] = []
    if aggregated.span is not None:
        names.append(f"{aggregated.span.trace_id}:{aggregated.span.span_id}")
    if aggregated.response_id:
        names.append(aggregated.response_id)
    if identifier:
        names.append(identifier)
    return names


def _results_in(files: Sequence[str]) -> Iterator[tuple[str, AggregatedEvaluationResult]]:
    """Yield the evaluations with their ids, which are empty in files."""
    for file in files:
        is_file = not is_database(file)
        try:
            for identifier, aggregated in place_of(file).results():
                yield "" if is_file else identifier, aggregated
        except StorageError as error:
            raise ConfigurationError(str(error)) from None

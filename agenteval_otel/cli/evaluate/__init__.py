"""``agenteval-otel evaluate``: score a dataset with the evaluators of the live answers.

The outcome is in the reports and the exit code.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

from agenteval_otel.capture.redaction.outgoing import Redaction
from agenteval_otel.cli.evaluate.answering import Answering
from agenteval_otel.cli.evaluate.baseline import EarlierRun
from agenteval_otel.cli.evaluate.conversations import DatasetConversations
from agenteval_otel.cli.evaluate.dataset import Dataset, DatasetRow, columns_of
from agenteval_otel.cli.evaluate.emitted import EmittedSuite, emitter_of, name_of_suite
from agenteval_otel.cli.evaluate.reports import RESULTS, ReportWriter, opened, places_of
from agenteval_otel.cli.evaluate.totals import FailUnder, Summary, check_names, targets_of
from agenteval_otel.cli.evaluator_filters import add_evaluator_filters
from agenteval_otel.cli.figures import whole_number
from agenteval_otel.cli.file_kinds import check_kinds
from agenteval_otel.cli.lines import note
from agenteval_otel.cli.ui import check_extra, open_results
from agenteval_otel.components.explained import known_choices, suggestion
from agenteval_otel.config.files import read_file
from agenteval_otel.config.load import Loaded, load_settings, located
from agenteval_otel.config.process import build_loaded, run_fields
from agenteval_otel.config.tree import Tree
from agenteval_otel.errors import ConfigurationError, EvaluationError
from agenteval_otel.evaluators.judges import CacheSettings, Judge
from agenteval_otel.evaluators.shadow import declared_criteria
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationCriteria, EvaluationInput
from agenteval_otel.models.judge_calls import observed_by
from agenteval_otel.offline.calibration.record import CalibrationRecords, load_records
from agenteval_otel.offline.config import EvaluationRunConfig
from agenteval_otel.offline.reports.figures import count_of
from agenteval_otel.offline.reports.totals import TargetOutcome, Totals
from agenteval_otel.offline.run import ANSWER, run_evaluations
from agenteval_otel.semconv import SHADOW
from agenteval_otel.storage.otlp import OtlpStorageProvider

_RUN_CONFIGURATION = ("evaluatorConfigs", "evaluator_configs")
_LIVE = ("enabled", "sample_rate", "sampler")
DESCRIPTION = (
    "Evaluate recorded answers, or those that --run makes: a regression test for CI. The evaluators are those of a "
    "settings file, which score live answers too. Each line of a JSONL file, each object of a JSON list and each row "
    "of a CSV file is an evaluation input: response, and whatever else the evaluators need (prompt, ground_truth, "
    "tool_calls, ...), in snake_case or camelCase. For evaluators of conversations a row is a turn with its "
    "conversation_id, or holds a conversation. Stored results (JSON lines, or the agenteval.db of the storage sqlite) "
    "give the inputs that were stored with them."
)
_EXIT_CODES = (
    "Exit code 0: success. Exit code 1: a criterion's objective or a --fail-under was missed, a criterion is "
    "significantly lower than in the --baseline, or --run failed for an input (named on standard error). Exit code 2: "
    "it could not run: wrong settings or dataset (with the line), or nothing was scored. Exit code 130: interrupted."
)
_EXAMPLES = """
examples:
  agenteval-otel evaluate answers.csv --settings agenteval.yaml --profile ci --fail-under 0.8
      exit code 1 when the mean overall score is below 0.8
  agenteval-otel evaluate *.jsonl --execution inline,thread --report junit=results.xml --report markdown=comment.md
      without the evaluators that call a model, with a report for the CI server, one for the pull request and a
      table here
  agenteval-otel evaluate questions.csv --run myapp:answer --column prompt=question --column ground_truth=expected
      the answers of the function answer in myapp.py (the file's columns are question and expected)
  agenteval-otel evaluate questions.csv --run myapp:answer --baseline main.jsonl --cache verdicts.db
      exit code 1 when a criterion is significantly lower than in the results of main (judges are asked only about
      what changed)
  jq -c '.rows[]' export.json | agenteval-otel evaluate - --fail-under tone=0.9 --report json
      from standard input, where the mean of the criterion tone must reach 0.9
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = textwrap.fill(DESCRIPTION, 78)
    parser.epilog = f"{textwrap.fill(_EXIT_CODES, 78)}\n{_EXAMPLES}"
    add = parser.add_argument
    add(
        "datasets",
        nargs="+",
        metavar="FILE",
        help="inputs, .jsonl, .json or .csv, or stored results, read in this "
        "order (- for standard input)",
    )
    add(
        "--column",
        action="append",
        default=[],
        metavar="FIELD=COLUMN",
        help="the column, or name in JSON, of a field: response=answer (repeatable)",
    )
    add("--limit", type=whole_number, metavar="N", help="evaluate only the first N inputs")
    add = parser.add_argument_group("what runs").add_argument
    add(
        "--run",
        metavar="MODULE:FUNCTION",
        help="make the answers by this function, sync or async, instead of reading "
        "them: it gets the prompt, or the EvaluationInput if its argument is so annotated",
    )
    add(
        "--settings",
        metavar="FILE",
        help="a settings file (see `agenteval-otel check`), or a JSON or YAML file with "
        "evaluatorConfigs (default: the file that AGENTEVAL_SETTINGS names)",
    )
    add("--profile", metavar="NAME", help="a profile of the settings file")
    add("--agent", metavar="NAME", help="use the evaluators and criteria of this agent")
    add_evaluator_filters(add)
    add(
        "--concurrency",
        type=whole_number,
        default=8,
        metavar="N",
        help="inputs answered and evaluated at the same time (default: %(default)s)",
    )
    add(
        "--cache",
        metavar="FILE",
        help="keep judges' verdicts in this SQLite file: a later run judges only what "
        "changed: answers, evaluators, models",
    )
    add = parser.add_argument_group("what comes out").add_argument
    add(
        "--report",
        action="append",
        default=[],
        metavar="KIND[=FILE]",
        help="table (default), json, junit or markdown (repeatable, each but one with a file)",
    )
    add(
        "--output",
        metavar="FILE",
        help="file for the report without one (default: standard output)",
    )
    add(
        "--results",
        metavar="FILE",
        help="write each input's result as a JSON line (- for standard output)",
    )
    add(
        "--open",
        action="store_true",
        help="show the results in the browser afterwards, as `agenteval-otel ui` does, "
        "until it is interrupted. Needs --results FILE and the extra ui",
    )
    add(
        "--results-format",
        choices=tuple(RESULTS),
        default="full",
        help="full, or the JSON form of AgentDock (default: %(default)s)",
    )
    add(
        "--fail-under",
        action="append",
        default=[],
        metavar="[CRITERION=]LIMIT",
        help="exit code 1 when the mean of "
        "the criterion (without one: of the overall scores) is below this (0 to 1, repeatable)",
    )
    add(
        "--fail-under-lower",
        action="append",
        default=[],
        metavar="[CRITERION=]LIMIT",
        help="exit code 1 when the lower end of that mean's 95 %% interval is below this (0 to 1, "
        "repeatable). It takes enough inputs to be sure of the mean, at least 20",
    )
    add(
        "--baseline",
        metavar="FILE",
        help="compare with the --results of an earlier run (any source of "
        "`agenteval-otel compare`), by input: exit code 1 when a criterion has dropped significantly",
    )
    add(
        "--telemetry",
        action="store_true",
        help="emit the results too, as spans and events of a test suite and its cases, to "
        "OTEL_EXPORTER_OTLP_ENDPOINT or the telemetry.endpoint of the settings",
    )
    add(
        "--suite",
        metavar="NAME",
        help="the name of the test suite in telemetry (default: the names of the files)",
    )
    add("--quiet", action="store_true", help="no progress on standard error")


def run(arguments: argparse.Namespace) -> int:
    """Evaluate a dataset and write the reports. Return the exit code.

    The code is 0, or 1 if a target was missed or the function of --run failed for an input.
    """
    limits = [FailUnder.parse(text) for text in arguments.fail_under]
    limits += [FailUnder.parse(text, lower=True) for text in arguments.fail_under_lower]
    check_kinds(arguments.datasets, "evaluate")
    places = places_of(arguments)
    _check_open(arguments)
    earlier = None if arguments.baseline is None else EarlierRun(arguments.baseline)
    config, unscored = configuration_of(arguments)
    records = _records(arguments)
    criteria = _scored_criteria(config)
    check_names(limits, [part.name for part in criteria if not part.name.endswith(SHADOW)])
    answering: Answering | None = None
    if arguments.run is not None:
        with redirect_stdout(sys.stderr):  # the module may print when it is imported
            answering = Answering(arguments.run, arguments.concurrency)
    dataset = Dataset(
        arguments.datasets,
        limit=arguments.limit,
        columns=columns_of(arguments.column),
        needs_response=not answering,
        check=answering.check if answering else config.check_input,
    )
    rows = _rows(dataset, config, answering)
    with dataset, answering or nullcontext():
        count = rows.check()
        if dataset.erased:
            note(f"left out: {count_of(dataset.erased, 'result')} whose answers were erased")
        if dataset.with_own_criteria:
            results = count_of(dataset.with_own_criteria, "stored result")
            note(f"not used: criteria that {results} had for themselves. Those of this run count")
        if count == 0:
            raise ConfigurationError(
                f"no inputs in {', '.join(dataset.names)}: there is nothing to evaluate"
            )
        if config.selection.left_out:
            note(f"left out: {', '.join(config.selection.left_out)}")
        if dataset.unknown_names:
            note(f"unknown fields, kept in metadata: {', '.join(dataset.unknown_names)}")
        totals = Totals(criteria, records)
        began = time.monotonic()
        with opened(places) as reports, _emitted(arguments, config) as emitted:
            reports += emitted
            # The reports have standard output. What evaluators print goes to standard error.
            with redirect_stdout(sys.stderr), observed_by(totals.judges):
                receivers = [*reports, earlier] if earlier else reports
                flow = _InOrder(rows, totals, receivers)
                asyncio.run(_evaluate(flow, config, arguments, answering))
            targets = list(targets_of(totals, limits))
            compared = earlier.comparison() if earlier and totals.scored else None
            duration_s = time.monotonic() - began
            summary = Summary(totals, dataset.names, limits, targets, duration_s, compared)
            for report in reports:
                report.finish(summary)
    code = _exit_code(totals, summary.missed, unscored, earlier)
    _show_results(arguments)
    return code


@contextmanager
def _emitted(
    arguments: argparse.Namespace, config: EvaluationRunConfig
) -> Iterator[list[EmittedSuite]]:
    """Yield the report that emits the results if --telemetry asks for it, and close it."""
    if not arguments.telemetry:
        yield []
        return
    emitter = emitter_of(_telemetry_of(arguments))
    name = arguments.suite or name_of_suite(arguments.datasets)
    with EmittedSuite(name, emitter, Redaction(config.redactors)) as suite:
        yield [suite]


def _telemetry_of(arguments: argparse.Namespace) -> OtlpStorageProvider:
    """Return the telemetry of the settings, or of the environment for a run configuration."""
    if _run_configuration(arguments.settings) is not None:
        return OtlpStorageProvider()
    return load_settings(arguments.settings, profile=arguments.profile).settings.telemetry


def _check_open(arguments: argparse.Namespace) -> None:
    if not arguments.open:
        return
    check_extra()
    if not _can_be_shown(arguments):
        raise ConfigurationError(
            "needs --results FILE in the full format, which it shows", path="--open"
        )


def _show_results(arguments: argparse.Namespace) -> None:
    """Show the results in the browser, or say how that is done."""
    if arguments.open:
        open_results(arguments.results)
    elif _can_be_shown(arguments) and not arguments.quiet:
        note(
            f"results in {arguments.results}. In the browser: agenteval-otel ui {arguments.results}"
        )


def _can_be_shown(arguments: argparse.Namespace) -> bool:
    return arguments.results not in (None, "-") and arguments.results_format == "full"


def _rows(
    dataset: Dataset, config: EvaluationRunConfig, answering: Answering | None
) -> Dataset | DatasetConversations:
    """Return the dataset, or its conversations if there are evaluators of conversations.

    The answers are evaluated besides the conversations if evaluators score them.
    """
    units = {evaluator.evaluates for evaluator in config.selection.evaluators}
    if "conversation" not in units:
        return dataset
    if answering is not None:
        wrong = "makes single answers, and evaluators of conversations need recorded ones"
        raise ConfigurationError(wrong, path="--run")
    return DatasetConversations(dataset, with_answers="answer" in units)


class _InOrder:
    """Yields the inputs of a dataset, and passes their results on in the dataset's order.

    The totals and the reports receive the results.
    """

    def __init__(
        self,
        dataset: Dataset | DatasetConversations,
        totals: Totals,
        reports: Sequence[ReportWriter],
    ) -> None:
        self._dataset = dataset
        self._totals = totals
        self._reports = reports
        self._rows: dict[int, DatasetRow] = {}
        self._ready: dict[int, AggregatedEvaluationResult] = {}  # the runner bounds how many wait
        self._next = 0

    def __len__(self) -> int:
        return len(self._dataset)

    def __iter__(self) -> Iterator[EvaluationInput]:
        for position, row in enumerate(self._dataset):
            self._rows[position] = row
            yield row.evaluation_input

    def add(self, position: int, aggregated: AggregatedEvaluationResult) -> None:
        self._ready[position] = aggregated
        while self._next in self._ready:
            row = self._rows.pop(self._next)
            ready = self._ready.pop(self._next)
            self._next += 1
            self._totals.add(ready, place=row.place, criteria=row.evaluation_input.criteria)
            for report in self._reports:
                report.add(row, ready)


async def _evaluate(
    flow: _InOrder,
    config: EvaluationRunConfig,
    arguments: argparse.Namespace,
    answering: Answering | None,
) -> None:
    try:
        await run_evaluations(
            flow,
            config,
            concurrency=arguments.concurrency,
            on_result=flow.add,
            keep_results=False,
            progress=not arguments.quiet,
            answer=answering,
        )
    finally:
        if hasattr(config.storage, "close"):
            await config.storage.close()


def _exit_code(
    totals: Totals,
    missed: Sequence[TargetOutcome],
    unscored: Sequence[str],
    earlier: EarlierRun | None,
) -> int:
    """Return the exit code. If it is not 0, the reason is on standard error."""
    if earlier is not None:
        earlier.check()
    if unscored:
        note(f"criteria that no evaluator scores: {', '.join(unscored)}")
    if totals.judges:
        note(str(totals.judges))
    for label, count in totals.run_errors.items():
        note(f"{label} failed for {count_of(count, 'input')}, first {totals.first_errors[label]}")
    for line in missed:
        note(f"missed: {line}")
    if not missed and not totals.scored:
        details = [f"{criterion.name}: {criterion}" for criterion in totals.criteria]
        raise EvaluationError(". ".join(["nothing was scored", *details]))
    return 1 if missed or totals.run_errors[ANSWER] else 0


def configuration_of(arguments: argparse.Namespace) -> tuple[EvaluationRunConfig, list[str]]:
    """Return the configuration, and the criteria it names that no evaluator scores."""
    chosen: dict[str, Any] = {
        "tags": tuple(arguments.tags),
        "execution": tuple(arguments.execution),
    }
    tree = _run_configuration(arguments.settings)
    if tree is None:
        fields, loaded = fields_of_settings(arguments)
        named: Sequence[EvaluationCriteria] = loaded.settings.criteria_of(arguments.agent)
        config = EvaluationRunConfig(**fields, **chosen)
    else:
        for option in ("profile", "agent"):
            if getattr(arguments, option) is not None:
                raise ConfigurationError(
                    "only applies to settings files, not to run configurations", path=f"--{option}"
                )
        tree.values.pop("$schema", None)
        overrides = {name: value for name, value in chosen.items() if value}
        try:
            config = EvaluationRunConfig.model_validate({**tree.values, **overrides})
        except ConfigurationError as error:
            raise located(error, tree) from None
        named = config.criteria
    if arguments.cache is not None:
        config = _with_cache(config, Path(arguments.cache))
    scored: set[str] = set()
    for evaluator in config.evaluators:
        scored.update(criterion.name for criterion in declared_criteria(evaluator))
    names = dict.fromkeys(criterion.name for criterion in named)
    unscored = [name for name in names if name not in scored]
    choices = sorted(scored)
    return config, [f"{name}{suggestion(name, choices)}" for name in unscored]


def _records(arguments: argparse.Namespace) -> CalibrationRecords | None:
    """Return the calibration records that the settings name. None means that they name none."""
    if arguments.settings is not None and _run_configuration(arguments.settings) is not None:
        return None
    path = load_settings(arguments.settings, profile=arguments.profile).settings.calibration
    return None if path is None else load_records(path, missing_ok=True)


def _with_cache(config: EvaluationRunConfig, path: Path) -> EvaluationRunConfig:
    """Return the configuration with this file as the cache of all judges.

    The other cache settings of the judges stay as they are.
    """
    evaluators = []
    for evaluator in config.evaluators:
        judge = getattr(evaluator, "judge", None)
        if isinstance(judge, Judge):
            cache = judge.cache or CacheSettings()
            cache = cache.model_copy(update={"path": path})
            judge = judge.model_copy(update={"cache": cache})
            evaluator = evaluator.model_copy(update={"judge": judge})
        evaluators.append(evaluator)
    copied = config.model_copy(update={"evaluators": tuple(evaluators)})
    copied.__dict__.pop("selection", None)  # cached, of the previous evaluators
    return copied


def _run_configuration(path: str | None) -> Tree | None:
    """Return the file's mapping if it is a run configuration and not a settings file, else None."""
    if path is None:
        return None
    if not os.path.exists(path):
        raise ConfigurationError("there is no such file", path=path)
    try:
        tree = read_file(path)
    except ConfigurationError:
        return None  # `load_settings` reports it together with everything else that is wrong
    if not any(name in tree.values for name in _RUN_CONFIGURATION):
        return None
    # An agent's definition says there, too, whether and how often it is evaluated live.
    values = {name: value for name, value in tree.values.items() if name not in _LIVE}
    return tree._replace(values=values)


def fields_of_settings(arguments: argparse.Namespace) -> tuple[dict[str, Any], Loaded]:
    """Return the parts that score, by --settings, --profile and --agent, and what was loaded."""
    loaded = load_settings(arguments.settings, profile=arguments.profile)
    settings = loaded.settings
    agent = arguments.agent
    if agent is not None and agent not in settings.agents:
        raise ConfigurationError(
            f"no agent {agent!r}{known_choices(agent, sorted(settings.agents))}", path="--agent"
        )
    return run_fields(settings, build_loaded(loaded), agent), loaded


def _scored_criteria(config: EvaluationRunConfig) -> list[EvaluationCriteria]:
    """Return the criteria that the chosen evaluators score, each once.

    The configuration's definition of a criterion replaces the evaluator's.
    """
    configured = {criterion.name: criterion for criterion in config.criteria}
    declared: dict[str, EvaluationCriteria] = {}
    for evaluator in config.selection.evaluators:
        for criterion in declared_criteria(evaluator):
            declared.setdefault(criterion.name, configured.get(criterion.name, criterion))
    return list(declared.values())

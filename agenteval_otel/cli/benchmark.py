"""``agenteval-otel benchmark``: run a named benchmark for a version, or show its history."""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from agenteval_otel.cli import evaluate
from agenteval_otel.cli.figures import json_for_terminals
from agenteval_otel.components.explained import known_choices
from agenteval_otel.config.benchmarks import BenchmarkSettings
from agenteval_otel.config.load import load_settings
from agenteval_otel.errors import ConfigurationError, EvaluationError
from agenteval_otel.models.intervals import Estimate
from agenteval_otel.offline.comparison import Answer, ComparedSource, compare
from agenteval_otel.offline.comparison.compare import means_of
from agenteval_otel.offline.reports.figures import BAD, DASH, GOOD, interval_notes, with_interval
from agenteval_otel.offline.reports.table import console_for, fitting
from agenteval_otel.offline.reports.totals import estimate_json
from agenteval_otel.runtime.masking import printable
from agenteval_otel.telemetry.spans import own_service_version

DESCRIPTION = (
    "Run a benchmark for a version of the agent, and compare it with the run before. A benchmark of the settings "
    "(benchmarks: NAME) is a dataset, an agent's evaluators and objectives. Or show its history: each version's means "
    "with 95 % intervals."
)
_EXIT_CODES = (
    "Exit code 0: success. Exit code 1: an objective was missed, or a criterion has dropped significantly since the "
    "run before. Exit code 2: it could not run."
)
_EXAMPLES = """
examples:
  agenteval-otel benchmark run faq --settings agenteval.yaml --version 1.4.0
  agenteval-otel benchmark history faq
"""
_NO_NAME = re.compile(r"[^\w.+-]")  # characters that a file's name does not get
_FILE = re.compile(r"(\d{4,})-(.+)\.jsonl")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = textwrap.fill(DESCRIPTION, 78)
    parser.epilog = f"{textwrap.fill(_EXIT_CODES, 78)}\n{_EXAMPLES}"
    add = parser.add_argument
    add("action", choices=("run", "history"))
    add("name", metavar="NAME", help="of the benchmark")
    add(
        "--settings",
        metavar="FILE",
        help="the settings file (default: the file that AGENTEVAL_SETTINGS names)",
    )
    add("--profile", metavar="NAME", help="a profile of the settings file")
    add(
        "--version",
        metavar="TEXT",
        help="of the agent (default: service.version of OTEL_RESOURCE_ATTRIBUTES)",
    )
    add(
        "--folder",
        metavar="FOLDER",
        default=".agenteval/benchmarks",
        help="where the results of all runs are kept, "
        "with inputs and answers (default: %(default)s)",
    )
    add("--cache", metavar="FILE", help="keep judges' verdicts in this file, as evaluate does")
    add(
        "--telemetry",
        action="store_true",
        help="emit the run too, as evaluate does, as a test suite of the benchmark's name",
    )
    add("--json", action="store_true", help="the history as JSON")


class BenchmarkRun(NamedTuple):
    """A run that is kept."""

    number: int
    version: str
    path: Path


def run(arguments: argparse.Namespace) -> int:
    folder = Path(arguments.folder) / arguments.name
    runs = _kept_runs(folder)
    if arguments.action == "run":
        return _run(arguments, folder, runs)
    return _history(arguments, runs)


def _kept_runs(folder: Path) -> list[BenchmarkRun]:
    """Return the runs that the folder holds, in order. A folder that does not exist has none."""
    if not folder.is_dir():
        return []
    runs: list[BenchmarkRun] = []
    for path in folder.iterdir():
        match = _FILE.fullmatch(path.name)
        if match is not None:
            runs.append(BenchmarkRun(int(match[1]), match[2], path))
    return sorted(runs)


def _run(arguments: argparse.Namespace, folder: Path, runs: list[BenchmarkRun]) -> int:
    benchmark = _benchmark(arguments)
    version = arguments.version or own_service_version()
    if version is None:
        raise ConfigurationError(
            "expected the version of the agent that is measured", path="--version"
        )
    folder.mkdir(parents=True, exist_ok=True)
    before = runs[-1] if runs else None
    number = 1 if before is None else before.number + 1
    version_name = _NO_NAME.sub("_", version)
    path = folder / f"{number:04d}-{version_name}.jsonl"
    part = path.with_suffix(".part")  # half a run is no version, also where the process is killed
    options = {
        "--settings": arguments.settings,
        "--profile": arguments.profile,
        "--agent": benchmark.agent,
        "--run": benchmark.run,
        "--cache": arguments.cache,
        "--results": str(part),
        "--baseline": None if before is None else str(before.path),
    }
    words: list[str] = []
    for option, value in options.items():
        if value is not None:
            words += [option, value]
    for field, column in benchmark.columns.items():
        words += ["--column", f"{field}={column}"]
    for name, limit in benchmark.objectives.items():
        words += ["--fail-under", f"{name}={limit}"]
    if arguments.telemetry:
        words += ["--telemetry", "--suite", arguments.name]
    parser = argparse.ArgumentParser()
    evaluate.add_arguments(parser)
    try:
        code = evaluate.run(parser.parse_args([*benchmark.dataset, *words]))
        part.replace(path)
        return code
    finally:
        part.unlink(missing_ok=True)


def _benchmark(arguments: argparse.Namespace) -> BenchmarkSettings:
    known = load_settings(arguments.settings, profile=arguments.profile).settings.benchmarks
    if arguments.name not in known:
        raise ConfigurationError(
            f"no benchmark {arguments.name!r}{known_choices(arguments.name, known)}",
            path="benchmarks",
        )
    return known[arguments.name]


class Version(NamedTuple):
    """A run's figures, and by criterion whether it dropped or gained since the run before."""

    run: BenchmarkRun
    at: datetime
    answers: int
    means: dict[str, Estimate]
    outcomes: dict[str, str]


def _history(arguments: argparse.Namespace, runs: list[BenchmarkRun]) -> int:
    if not runs:
        raise ConfigurationError(
            f"no run of {arguments.name!r} is kept there", path=arguments.folder
        )
    versions = list(_versions(runs))
    if arguments.json:
        print(json_for_terminals([_as_json(version) for version in versions]))
        return 0
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    names: dict[str, None] = {}  # in the order of the versions
    means: list[Estimate] = []
    for version in versions:
        names |= dict.fromkeys(version.means)
        means += version.means.values()
    for title in ("version", "evaluated", "answers", *names):
        table.add_column(printable(title), no_wrap=True)
    for version in versions:
        cells = [_cell(version, name) for name in names]
        table.add_row(
            printable(version.run.version),
            f"{version.at:%Y-%m-%d %H:%M}",
            f"{version.answers:,}",
            *cells,
        )
    console = console_for(sys.stdout)
    console.print(fitting(table))
    console.print(
        Text(
            f"\nMeans with 95 % intervals. {BAD} {GOOD}: significantly lower or higher than before. "
            "?: the evaluator is another one.",
            style="dim",
        )
    )
    for words in interval_notes(means):
        console.print(Text(": ".join(words), style="dim"))
    return 0


def _versions(runs: list[BenchmarkRun]) -> Iterator[Version]:
    before: list[Answer] = []
    for each in runs:
        answers = list(ComparedSource(str(each.path)).answers())
        means = {name: mean.estimate() for name, mean in means_of(answers).items()}
        newest_s = max((answer.at for answer in answers), default=0.0)
        at = datetime.fromtimestamp(newest_s, UTC)
        yield Version(each, at, len(answers), means, _outcomes(before, answers))
        before = answers


def _outcomes(before: list[Answer], answers: list[Answer]) -> dict[str, str]:
    if not before:
        return {}
    try:
        comparison = compare(before, answers)
    except EvaluationError:  # nothing in common
        return {}
    return {item.name: item.outcome for item in comparison.criteria}


_SIGNS = {"drop": f" {BAD}", "gain": f" {GOOD}", "evaluator changed": " ?"}
"""The sign of an outcome. Other outcomes have none."""


def _cell(version: Version, name: str) -> str:
    mean = version.means.get(name)
    if mean is None:
        return DASH
    outcome = version.outcomes.get(name, "")
    return with_interval(mean) + _SIGNS.get(outcome, "")


def _as_json(version: Version) -> dict[str, Any]:
    return {
        "version": version.run.version,
        "file": str(version.run.path),
        "evaluated_at": version.at.isoformat(),
        "answers": version.answers,
        "outcomes": version.outcomes,
        "criteria": {name: estimate_json(mean) for name, mean in version.means.items()},
    }

"""``agenteval-otel replay``: score recorded answers again.

The recorded scores are shown beside the new ones.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from agenteval_otel.cli.evaluator_filters import add_evaluator_filters
from agenteval_otel.cli.figures import json_for_terminals, whole_number
from agenteval_otel.cli.file_kinds import Kind, check_kinds, kind_of
from agenteval_otel.cli.lines import note
from agenteval_otel.config.load import load_settings
from agenteval_otel.config.process import build_loaded, run_fields
from agenteval_otel.errors import ConfigurationError, EvaluationError
from agenteval_otel.models.intervals import Estimate
from agenteval_otel.models.judge_calls import observed_by
from agenteval_otel.offline.config import EvaluationRunConfig
from agenteval_otel.offline.replay.backends import Backend, Jaeger, Tempo
from agenteval_otel.offline.replay.files import OtlpFiles
from agenteval_otel.offline.replay.recorded import AnswerFilter, RecordedSource
from agenteval_otel.offline.replay.results_file import ResultsFile
from agenteval_otel.offline.replay.run import Replay
from agenteval_otel.offline.replay.side_by_side import RescoredCriterion
from agenteval_otel.offline.replay.stored import StoredAnswers
from agenteval_otel.offline.reports.figures import DASH, count_of, frequencies, percent
from agenteval_otel.offline.reports.table import console_for, fitting, grid_of, tables_of
from agenteval_otel.runtime.masking import printable
from agenteval_otel.runtime.reentrancy import PROCESS
from agenteval_otel.storage.otlp import OtlpStorageProvider

ConfigOf = Callable[[str], EvaluationRunConfig | None]
SERVICE_NAME: Final = "agenteval-replay"
_TRY_AGAIN: Final = ("windows that could not be read", "traces that could not be read")
_FILE_KINDS: Final = {"file": "replay", "sql": "replay --from sql"}
_TOKEN: Final = "AGENTEVAL_REPLAY_TOKEN"
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
DESCRIPTION = (
    "Score recorded answers again, with other evaluators or other versions of them. They are read from files with "
    "OTLP as the Collector's file exporter writes them, from Jaeger, from Tempo, or from the database of the storage "
    "`sql`. The recorded scores and the new ones stand side by side. New results link to the original spans, are "
    "marked agenteval.evaluation.replayed, and are in no metric and no objective. The same command goes on where it "
    "was ended, and scores nothing twice."
)
_EXIT_CODES = (
    "Exit code 0: all was scored. Exit code 1: some of it could not be read, or its telemetry was not delivered. The "
    "same command tries that again. Exit code 2: it could not run, or there was no answer. Exit code 130: interrupted."
)
_EXAMPLES = """
examples:
  agenteval-otel replay otlp.jsonl --settings new.yaml
      every answer of a file of the Collector, by the evaluators of new.yaml
  agenteval-otel replay --from jaeger http://jaeger:16686 --service shop --since 7d --below tone=0.5
      answers of the last week that tone scored below 0.5
  agenteval-otel replay agenteval.db --agent support --dataset failing.jsonl
      the inputs of failing answers become a dataset: agenteval-otel evaluate failing.jsonl
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = textwrap.fill(DESCRIPTION, 78)
    parser.epilog = f"{textwrap.fill(_EXIT_CODES, 78)}\n{_EXAMPLES}"
    add = parser.add_argument
    add(
        "places",
        nargs="+",
        metavar="PLACE",
        help="files with OTLP, the address of Jaeger or Tempo, an SQLite file or a database's address",
    )
    add(
        "--from",
        dest="kind",
        choices=("file", "jaeger", "tempo", "sql"),
        help="what the places are (default: sql for a database, file for others. jaeger and tempo have to be named)",
    )
    add(
        "--header",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="sent to Jaeger or Tempo, such as X-Scope-OrgID=team (repeatable). The variable AGENTEVAL_REPLAY_TOKEN is "
        "sent as a bearer token",
    )
    _add_selection(parser)
    add = parser.add_argument_group("what runs").add_argument
    add(
        "--settings",
        metavar="FILE",
        help="the settings file (default: the file that AGENTEVAL_SETTINGS names). An "
        "agent that it names has its own evaluators",
    )
    add("--profile", metavar="NAME", help="a profile of the settings file")
    add_evaluator_filters(add)
    add(
        "--concurrency",
        type=whole_number,
        default=8,
        metavar="N",
        help="answers evaluated at the same time (default: %(default)s)",
    )
    add = parser.add_argument_group("what comes out").add_argument
    add(
        "--results",
        metavar="FILE",
        default="replay.jsonl",
        help="each answer's result as a JSON line, and what a "
        "second start goes on from. New for each replay (default: %(default)s)",
    )
    add(
        "--dataset",
        metavar="FILE",
        help="the inputs of answers that fail a criterion now, redacted, for `evaluate`",
    )
    add(
        "--report",
        choices=("table", "json"),
        default="table",
        help="on standard output (default: %(default)s)",
    )
    add(
        "--no-telemetry",
        action="store_true",
        help="emit nothing. Else results go where OTEL_EXPORTER_OTLP_ENDPOINT or the settings say",
    )
    add("--quiet", action="store_true", help="no progress on standard error")


def _add_selection(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("which answers").add_argument
    add(
        "--since",
        metavar="TIME",
        help="that began at this time or later: 2026-03-01, 2026-03-01T12:00Z, or an age: "
        "7d, 12h, 30m. Needed for jaeger and tempo",
    )
    add("--until", metavar="TIME", help="that began before then (default: now)")
    add(
        "--service",
        action="append",
        default=[],
        metavar="NAME",
        help="of this service (repeatable)",
    )
    add("--agent", action="append", default=[], metavar="NAME", help="of this agent (repeatable)")
    add(
        "--below",
        action="append",
        default=[],
        metavar="CRITERION=LIMIT",
        help="whose recorded score of the criterion is below (0 to 1, repeatable, all must hold)",
    )
    add(
        "--at-least",
        action="append",
        default=[],
        metavar="CRITERION=LIMIT",
        help="whose recorded score is so high or higher",
    )
    add("--limit", type=whole_number, metavar="N", help="the first N of them")
    add(
        "--nested-agents",
        action="store_true",
        help="agents below another one too, where they have their own name",
    )


def run(arguments: argparse.Namespace) -> int:
    PROCESS.rests = False
    if "service.name=" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        os.environ.setdefault("OTEL_SERVICE_NAME", SERVICE_NAME)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    now_ns = time.time_ns()
    since_ns = _time_of(arguments.since, "--since", now_ns)
    until_ns = _time_of(arguments.until, "--until", now_ns)
    below = _limits(arguments.below, "--below")
    at_least = _limits(arguments.at_least, "--at-least")
    if arguments.kind is None:
        arguments.kind = _kind_of_places(arguments.places)
    if arguments.kind in _FILE_KINDS:
        check_kinds(arguments.places, _FILE_KINDS[arguments.kind])
    config_of, telemetry, described = _configurations(arguments)
    options = [
        arguments.kind,
        arguments.places,
        arguments.since,
        arguments.until,
        arguments.service,
        arguments.agent,
        arguments.below,
        arguments.at_least,
        arguments.nested_agents,
        arguments.tags,
        arguments.execution,
        described,
    ]
    if arguments.kind in ("jaeger", "tempo"):
        until_ns = until_ns or now_ns
    dataset = Path(arguments.dataset) if arguments.dataset else None
    results = ResultsFile(Path(arguments.results), options, (since_ns, until_ns), dataset)
    selection = AnswerFilter(
        *results.window,
        frozenset(arguments.service),
        frozenset(arguments.agent),
        below,
        at_least,
    )
    began = time.monotonic()
    with closing(_source(arguments, selection)) as source, results:
        # The original traces are over, so run spans have traces of their own.
        emitter = None if arguments.no_telemetry else telemetry.offline_emitter("linked")
        replay = Replay(
            source,
            selection,
            config_of,
            results,
            emitter=emitter,
            concurrency=arguments.concurrency,
            limit=arguments.limit,
            progress=not arguments.quiet,
        )
        try:
            with redirect_stdout(sys.stderr), observed_by(replay.totals.judges):
                asyncio.run(replay.run())
        except KeyboardInterrupt:
            note(f"{count_of(replay.scored, 'answer')} scored. The same command goes on from there")
            raise
        finally:
            if emitter is not None:
                emitter.close()
        notes = list(source.notes()) if isinstance(source, Backend | StoredAnswers) else []
    return _end(arguments, replay, source, notes, time.monotonic() - began)


def _end(
    arguments: argparse.Namespace,
    replay: Replay,
    source: RecordedSource,
    notes: Sequence[str],
    duration_s: float,
) -> int:
    """Print the report on standard output and what was left out on standard error.

    Return the exit code.
    """
    answers = replay.scored + replay.earlier
    for line in notes:
        note(line)
    for reason, count in source.counts.items():
        note(f"{reason}: {count:,}")
    if replay.unselected:
        note(f"other answers, left out: {replay.unselected:,}")
    if replay.totals.judges:
        note(str(replay.totals.judges))
    for label, count in replay.totals.run_errors.items():
        first = replay.totals.first_errors[label]
        note(f"{label} failed for {count_of(count, 'answer')}, first {first}")
    if answers == 0:
        raise EvaluationError(f"no answer to score in {', '.join(arguments.places)}")
    before = f", {replay.earlier:,} of them before" if replay.earlier else ""
    heading = f"{count_of(answers, 'answer')} scored{before}, in {duration_s:,.1f} s"
    if arguments.report == "json":
        compared = [item.as_json() for item in replay.compared]
        left_out = {**source.counts, "unselected": replay.unselected}
        report = {
            "answers": answers,
            "earlier": replay.earlier,
            "with_recorded_scores": replay.compared.answers,
            "failing": replay.failing,
            "compared": compared,
            "left_out": left_out,
            "notes": list(notes),
            "undelivered": replay.undelivered,
            "new": replay.totals.as_json(),
        }
        print(json_for_terminals(report))
    else:
        _print_tables(replay, heading)
    if arguments.dataset:
        note(
            f"{count_of(replay.failing, 'failing answer')} in {arguments.dataset}: "
            f"agenteval-otel evaluate {arguments.dataset}"
        )
    if replay.undelivered:
        note(
            f"not delivered as telemetry: the results of {count_of(replay.undelivered, 'answer')}. The same command "
            "sends them again"
        )
    has_unread = any(map(source.counts.get, _TRY_AGAIN))
    return 1 if replay.undelivered or has_unread else 0


def _print_tables(replay: Replay, heading: str) -> None:
    console = console_for(sys.stdout)
    for part in tables_of(heading, replay.totals, width=console.width):
        console.print(part)
    compared = [
        item
        for item in replay.compared
        if item.new.scored or item.new_failed or item.recorded_failed
    ]
    console.print("")
    if not compared:
        console.print(Text("No recorded scores of these criteria.", style="dim"))
        return
    console.print(Text("Recorded and new, of the answers that have both", style="bold"))
    console.print("")
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("criterion", overflow="fold", min_width=12)
    for name in ("answers", "mean", "new", "passed", "new", "now pass", "now fail", "differ"):
        table.add_column(name, justify="right", no_wrap=True)
    for item in compared:
        table.add_row(printable(item.name), *_cells(item))
    console.print(fitting(table))
    versions: list[tuple[str, str]] = []
    failures: list[tuple[str, str]] = []
    for item in compared:
        if item.recorded_versions:
            recorded = frequencies(item.recorded_versions)
            versions.append((item.name, f"{recorded}  ->  {frequencies(item.new_versions)}"))
        if item.recorded_failed or item.new_failed:
            counts = f"failed when recorded {item.recorded_failed:,}, fails now {item.new_failed:,}"
            failures.append((item.name, counts))
    for rows in (versions, failures):
        if rows:
            console.print("")
            console.print(grid_of(rows))


def _cells(item: RescoredCriterion) -> Iterator[str]:
    def mean(estimate: Estimate | None) -> str:
        return DASH if estimate is None else f"{estimate.mean:.2f}"

    def rate(estimate: Estimate | None) -> str:
        return DASH if estimate is None else percent(estimate.mean)

    yield f"{item.new.scored:,}"
    yield mean(item.recorded.mean)
    yield mean(item.new.mean)
    yield rate(item.recorded.pass_rate)
    yield rate(item.new.pass_rate)
    yield f"{item.now_pass:,}"
    yield f"{item.now_fail:,}"
    yield f"{item.differ:,}"


def _configurations(arguments: argparse.Namespace) -> tuple[ConfigOf, OtlpStorageProvider, Any]:
    """Return the configuration of an agent, the telemetry, and a description of the evaluators.

    The first is a function that gives the configuration of an agent by its name. The second tells
    where telemetry is sent. The description distinguishes these evaluators from others.
    """
    loaded = load_settings(arguments.settings, profile=arguments.profile)
    settings = loaded.settings
    pipeline = build_loaded(loaded)
    chosen = {"tags": tuple(arguments.tags), "execution": tuple(arguments.execution)}
    configs: dict[str, EvaluationRunConfig | None] = {}
    for agent in ("", *settings.agents):
        try:
            configs[agent] = _config_of({**run_fields(settings, pipeline, agent), **chosen})
        except ConfigurationError as error:
            configs[agent] = None
            if not agent and not settings.agents:
                raise
            note(f"answers of {agent or 'other agents'} are left out: {error}")
    if not any(configs.values()):
        raise ConfigurationError("nothing is left to run", path="evaluators")
    default = configs[""]
    if default is not None and default.selection.left_out:
        note(f"left out: {', '.join(default.selection.left_out)}")
    described = {agent: _scoring_of(config) for agent, config in configs.items()}
    return lambda agent: configs.get(agent, configs[""]), settings.telemetry, described


def _scoring_of(config: EvaluationRunConfig | None) -> list[Any] | None:
    """Return the fingerprints of the evaluators, and the criteria."""
    if config is None:
        return None
    fingerprints = [evaluator.fingerprint for evaluator in config.selection.evaluators]
    criteria = [criterion.model_dump(mode="json") for criterion in config.criteria]
    return [fingerprints, criteria]


def _config_of(fields: dict[str, Any]) -> EvaluationRunConfig:
    answers = tuple(item for item in fields["evaluators"] if item.evaluates != "conversation")
    if not answers:
        raise ConfigurationError(
            "no evaluator of answers, and conversations are not replayed", path="evaluators"
        )
    return EvaluationRunConfig(**{**fields, "evaluators": answers})


def _kind_of_places(places: Sequence[str]) -> str:
    """Return what places are that --from does not name."""
    first = places[0]
    if first.startswith(("http://", "https://")):
        raise ConfigurationError(
            "an address is of Jaeger or of Tempo: --from jaeger, or --from tempo", path=first
        )
    is_address = first.startswith(("sqlite:", "postgresql:", "postgresql+"))
    return "sql" if is_address or kind_of(first) is Kind.DATABASE else "file"


def _source(arguments: argparse.Namespace, selection: AnswerFilter) -> RecordedSource:
    nested = arguments.nested_agents
    if arguments.kind == "file":
        return OtlpFiles(
            arguments.places, nested_agents=nested, say=note, progress=not arguments.quiet
        )
    if len(arguments.places) > 1:
        raise ConfigurationError(
            "expected one place, several are for files", path=f"--from {arguments.kind}"
        )
    [place] = arguments.places
    if arguments.kind == "sql":
        return StoredAnswers(place, selection)
    headers = _headers(arguments.header)
    token = os.environ.get(_TOKEN, "").strip()
    if token:
        headers.setdefault("authorization", f"Bearer {token}")
    kind = Jaeger if arguments.kind == "jaeger" else Tempo
    return kind(place, selection, headers=headers, nested_agents=nested, say=note)


def _headers(texts: Sequence[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for text in texts:
        name, _, value = map(str.strip, text.partition("="))
        is_name = re.fullmatch(r"[A-Za-z0-9-]+", name) is not None
        is_value = bool(value) and value.isascii() and value.isprintable()
        if not (is_name and is_value):
            raise ConfigurationError(
                "expected NAME=VALUE such as X-Scope-OrgID=team", path="--header"
            )
        headers[name.lower()] = value
    return headers


def _limits(texts: Sequence[str], path: str) -> Mapping[str, float]:
    limits: dict[str, float] = {}
    for text in texts:
        name, _, limit = map(str.strip, text.rpartition("="))
        try:
            limits[name] = float(limit)
        except ValueError:
            limits[name] = -1.0
        if not name or not 0 <= limits[name] <= 1:
            raise ConfigurationError(
                f"expected CRITERION=LIMIT, from 0 to 1, found {text!r}", path=path
            )
    return limits


def _time_of(text: str | None, path: str, now_ns: int) -> int | None:
    """Return the nanoseconds since the epoch of a moment, or of a duration ago.

    Without a text they are None.
    """
    if text is None:
        return None
    age = re.fullmatch(r"(\d{1,6})([smhdw])", text.strip())
    if age is not None:
        age_s = int(age[1]) * _UNITS[age[2]]
        return now_ns - age_s * 1_000_000_000
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        wrong = f"expected 2026-03-01, 2026-03-01T12:00Z, or 7d, 12h, 30m ago, found {text!r}"
        raise ConfigurationError(wrong, path=path) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1e6) * 1_000

"""``agenteval-otel ui``: stored results in the browser."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import sys
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agenteval_otel.cli.figures import number_between
from agenteval_otel.cli.lines import say
from agenteval_otel.components.database.target import Target
from agenteval_otel.config.load import load_settings
from agenteval_otel.config.process import build_loaded, configure, default_pipeline, shutdown
from agenteval_otel.config.settings import Settings
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.offline.reports.figures import count_of
from agenteval_otel.runtime.masking import printable
from agenteval_otel.storage.read import database_of

if TYPE_CHECKING:
    from agenteval_otel.engine.pipeline import Pipeline
    from agenteval_otel.ui.app import UiSettings
    from agenteval_otel.ui.columns import ResultColumns

PORT = number_between(0, 65_535, "a port, 0 to 65535", int)
DESCRIPTION = (
    "Look at stored scores and answers in the browser, without any other program. Pages show criteria with weighted "
    "pass rates and intervals, answers with every score, conversations, and a queue for labelling. Listens on "
    "127.0.0.1. The address that it prints and opens has a token, and without it nothing is shown. Labels are stored "
    "beside the results. Exit codes: 0 ended, 2 could not run."
)
_EXTRA = ("starlette", "jinja2", "uvicorn", "sqlalchemy")
_ENDPOINTS = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "places",
        metavar="PLACE",
        nargs="*",
        default=["agenteval.db"],
        help="an SQLite file, postgresql://user@host/database, or a file of JSON lines (default: agenteval.db, where "
        "storage: sqlite writes). Several files of `evaluate --results` are runs, compared side by side",
    )
    parser.add_argument(
        "--port",
        metavar="PORT",
        type=PORT,
        default=8629,
        help="default: %(default)s, 0: a free one",
    )
    parser.add_argument(
        "--no-open", action="store_true", help="print the address, and open no browser"
    )
    parser.add_argument(
        "--settings",
        metavar="FILE",
        help="a settings file, whose objectives the pages show in place of stored ones",
    )
    add_trace_url(parser)
    parser.add_argument(
        "--export",
        metavar="FILE",
        help="write the overview, or the comparison of "
        "the first run with the last one, as one HTML file, and serve nothing",
    )
    parser.add_argument(
        "--export-labels",
        metavar="FILE",
        help="write the labels that count, as JSON lines if it ends in .jsonl, else as CSV, and serve nothing",
    )
    parser.add_argument(
        "--import-labels",
        metavar="FILE",
        help="store the labels of such a file that are not there yet, and serve nothing",
    )


def add_trace_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trace-url",
        metavar="URL",
        help="where Jaeger, Grafana, Phoenix or another program shows a trace, such as "
        "http://localhost:16686/trace/{trace_id}. {span_id} may be part of it too",
    )


def run(arguments: argparse.Namespace) -> int:
    check_extra()
    from agenteval_otel.ui.app import UiSettings
    from agenteval_otel.ui.columns import ResultColumns
    from agenteval_otel.ui.serve import prepare
    from agenteval_otel.ui.traces import check_trace_url

    check_trace_url(arguments.trace_url, "--trace-url")
    objectives = _objectives(arguments.settings)
    place, database, runs = _opened(arguments.places)
    if database is not None and database.path is not None and not database.path.is_file():
        raise ConfigurationError(
            f"there is no {place.name}: `agenteval-otel demo --storage agenteval.db` makes one with invented "
            "answers, AGENTEVAL_STORAGE=sqlite one with those of your application",
            path="PLACE",
        )
    made = [] if database is None else prepare(database)
    if made:
        say(f"indices    made: {', '.join(made)}")
    columns = ResultColumns(place, runs=runs)
    columns.refresh(progress=_progress)
    say(f"results    {count_of(columns.count, 'result')} of {place.name}")
    settings = UiSettings(
        place,
        place.name,
        objectives,
        arguments.trace_url,
        can_label=database is not None,
        runs=runs,
    )
    if arguments.export:
        return _export(arguments.export, settings, columns)
    if arguments.export_labels:
        return _export_labels(arguments.export_labels, columns)
    if arguments.import_labels:
        return _import_labels(arguments.import_labels, settings, columns, database)
    return _serve(arguments, settings, columns, database)


def _opened(places: Sequence[str]) -> tuple[Any, Target | None, Any]:
    """Return the place to show, the database in which labels can be stored, and the runs.

    There are runs only if several files are named.
    """
    from agenteval_otel.ui.runs import opened_runs
    from agenteval_otel.ui.serve import opened

    if len(places) == 1:
        return *opened(places[0]), None
    runs = opened_runs(places)
    return runs.place, None, runs


def _serve(
    arguments: argparse.Namespace,
    settings: UiSettings,
    columns: ResultColumns,
    database: Target | None,
) -> int:
    from agenteval_otel.ui.access import Access
    from agenteval_otel.ui.app import Pages, application
    from agenteval_otel.ui.serve import index_beside, listener, serve

    keeps_comments = database is not None and _configure(database)
    listening = listener(arguments.port)
    access = Access(listening.getsockname()[1], page="/compare" if settings.runs else "/")
    settings = settings._replace(keeps_comments=keeps_comments)

    def on_start() -> None:
        say(f"open       {access.address}")
        say("end        with Ctrl-C")
        if not arguments.no_open:
            with contextlib.suppress(webbrowser.Error):
                webbrowser.open(access.address)

    stop_indexing = None if database is None else index_beside(database)
    try:
        serve(application(Pages(settings, columns, access)), listening, on_start)
    finally:
        if stop_indexing is not None:
            stop_indexing()
        shutdown()
    return 0


def open_results(file: str) -> None:
    """Show a file of results in the browser, until the process is interrupted."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    run(parser.parse_args([file, "--port", "0"]))


def open_beside(
    settings: Settings, port: int, exports_to: str, trace_url: str | None = None
) -> tuple[str, Callable[[], None]]:
    """Serve the pages beside the process's own evaluation, with its health.

    `exports_to` says where its telemetry is sent, and `trace_url` where a trace is shown. Return
    the address, and a function that stops the pages. Raises `ConfigurationError` if the settings
    store nothing in a database, and for an address that leads to no trace.
    """
    check_extra()
    from agenteval_otel.storage import SqlStorageProvider
    from agenteval_otel.ui.access import Access
    from agenteval_otel.ui.app import Pages, UiSettings, application
    from agenteval_otel.ui.columns import ResultColumns
    from agenteval_otel.ui.serve import index_beside, listener, prepare, serve_beside
    from agenteval_otel.ui.traces import check_trace_url

    check_trace_url(trace_url, "--trace-url")
    databases = [part.target for part in settings.storage if isinstance(part, SqlStorageProvider)]
    if not databases:
        wrong = "the pages show what is stored in a database, and the settings name none: add storage: sqlite"
        raise ConfigurationError(wrong, path="--ui")
    listening = listener(port, "--ui")
    prepare(databases[0])
    place = database_of(databases[0])
    access = Access(listening.getsockname()[1])
    keeps_comments = settings.telemetry.emitter.content != "no_content"
    shown = UiSettings(
        place,
        place.name,
        objectives_of(settings, default_pipeline()),
        trace_url,
        keeps_comments=keeps_comments,
        metrics=_metrics,
        exports_to=exports_to,
    )
    pages = Pages(shown, ResultColumns(place), access)
    stop_pages = serve_beside(application(pages), listening)
    stop_indexing = index_beside(databases[0])

    def stop() -> None:
        stop_pages()
        stop_indexing()

    return access.address, stop


def _metrics() -> Any:
    """Return the metrics of this process, of the pipeline that is in force now."""
    emitter = default_pipeline().handlers.emitter
    return {} if emitter is None else emitter.readings.current()


def check_extra() -> None:
    """Raise `ConfigurationError` if a package of the extra is missing."""
    missing = [name for name in _EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(f'{", ".join(missing)} missing: pip install "agenteval-otel[ui]"')


def _configure(target: Target) -> bool:
    """Have labels stored in the database, and emitted if an endpoint is set.

    Return True if comments are stored too. Comments are content. Without an endpoint they stay in
    the database, so they are kept.
    """
    storage: dict[str, Any] = {"type": "sql"}
    if target.path is not None:
        storage["path"] = str(target.path)
    else:
        storage["url"] = target.url
    if any(map(os.environ.get, _ENDPOINTS)):
        settings = configure(storage=[storage], evaluate_in="process")
        return settings.telemetry.emitter.content != "no_content"
    configure(
        storage=[storage],
        evaluate_in="process",
        telemetry={"signals": [], "content": "span_and_event"},
    )
    return True


def _objectives(file: str | None) -> dict[str, float]:
    if file is None:
        return {}
    loaded = load_settings(file)
    return objectives_of(loaded.settings, build_loaded(loaded))


def objectives_of(settings: Settings, pipeline: Pipeline) -> dict[str, float]:
    """Return the objectives of the criteria by their names, the highest where agents differ.

    They are those of criteria sets, of agents and of evaluators, as the alerts have them.
    """
    from agenteval_otel.provisioning.plan import MonitoringPlan

    objectives: dict[str, float] = {}
    for planned in MonitoringPlan.of(pipeline, functions_of=settings.functions_of).criteria:
        if planned.objective is not None and not planned.is_shadow:
            before = objectives.get(planned.name, 0.0)
            objectives[planned.name] = max(before, planned.objective)
    return objectives


def _export(file: str, settings: UiSettings, columns: ResultColumns) -> int:
    from agenteval_otel.ui.app import Pages
    from agenteval_otel.ui.report import single_file

    pages = Pages(settings, columns)
    show = pages.compare if settings.runs else pages.overview
    page = show({}, is_static=True)
    Path(file).write_text(single_file(page), encoding="utf-8", errors="replace")
    say(f"written    {file}")
    return 0


def _export_labels(file: str, columns: ResultColumns) -> int:
    from agenteval_otel.ui.exports import csv_text
    from agenteval_otel.ui.label_files import exported_labels, lines_of_labels, rows_of_labels
    from agenteval_otel.ui.labels import Labels

    labels = Labels(columns.place, columns).all()
    exported = exported_labels(labels, columns.place)
    parts = csv_text(rows_of_labels(exported))
    if file.endswith(".jsonl"):
        parts = lines_of_labels(exported)
    try:
        with Path(file).open("wb") as written:
            written.writelines(parts)
    except OSError as error:
        raise ConfigurationError(f"cannot be written: {error.strerror}", path=file) from None
    say(f"written    {file}: {count_of(len(labels), 'label')}")
    return 0


def _import_labels(
    file: str, settings: UiSettings, columns: ResultColumns, database: Target | None
) -> int:
    """Store the labels of a file. Return 1 if a line of it was not taken."""
    from agenteval_otel.ui.app import Pages
    from agenteval_otel.ui.label_files import import_labels

    if database is None:
        raise ConfigurationError("labels need a database: this is a file", path="PLACE")
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror}", path=file) from None
    _configure(database)
    pages = Pages(settings, columns)
    try:
        imported = import_labels(content, pages.labels.all(), columns.place, pages.label_criteria())
    finally:
        shutdown()
    say(f"labels     {imported.sentence}")
    for reason in imported.reasons:
        say(f"           {printable(reason)}")
    is_whole = imported.wrong + imported.unknown + imported.lost == 0
    return 0 if is_whole else 1


def _progress(count: int, total: int) -> None:
    if total > 100_000 and sys.stderr.isatty():
        end = "\n" if count >= total else ""
        print(f"\rread {count:,} of {total:,} results", end=end, file=sys.stderr, flush=True)

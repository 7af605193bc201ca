"""``agenteval-otel serve``: the sidecar."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from agenteval_otel.cli.lines import say
from agenteval_otel.cli.ui import PORT, add_trace_url, open_beside
from agenteval_otel.config.process import accounting, configure, default_pipeline, reload
from agenteval_otel.config.settings import Settings
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.offline.reports.figures import count_of
from agenteval_otel.runtime.masking import mask_text
from agenteval_otel.runtime.reentrancy import PROCESS
from agenteval_otel.sidecar.serve import SettingsWatch, Sidecar, evaluate_files, kept_key

DESCRIPTION = (
    "Receive spans and events of agents over OTLP, and evaluate the answers that they show. It is the sidecar of an "
    "application, or of many, in any language. Scores go where OTEL_EXPORTER_OTLP_ENDPOINT says, each into its "
    "answer's trace. The settings file is watched: a change is in force within seconds, a wrong one changes nothing. "
    "SIGTERM evaluates and exports what was taken, then ends. Exit codes: 0 ended as asked, 2 could not run."
)
_SIGNALS: Final = ("TRACES", "METRICS", "LOGS")
_LOOK_S: Final = 2.0
_SWITCH_S: Final = 0.02
SERVICE_NAME: Final = "agenteval-sidecar"
_FIELDS: Final = ("host", "grpc_port", "http_port", "durable")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--settings", metavar="FILE", help="the settings file (default: AGENTEVAL_SETTINGS)"
    )
    parser.add_argument(
        "--profile", metavar="NAME", help="a profile of it (default: AGENTEVAL_PROFILE)"
    )
    parser.add_argument(
        "--host",
        metavar="ADDRESS",
        help="default: 127.0.0.1. Another one needs AGENTEVAL_SIDECAR__TOKEN or client certificates, and TLS",
    )
    parser.add_argument(
        "--grpc-port",
        metavar="PORT",
        type=PORT,
        help="OTLP over gRPC (default: 4327, 0: a free one)",
    )
    parser.add_argument(
        "--http-port",
        metavar="PORT",
        type=PORT,
        help="OTLP over HTTP (default: 4328, 0: a free one)",
    )
    parser.add_argument(
        "--durable",
        metavar="DIR",
        help="acknowledge a request once it is written there, and read it again after a crash",
    )
    parser.add_argument(
        "--ui",
        metavar="PORT",
        nargs="?",
        type=PORT,
        const=8629,
        help="serve the pages of `agenteval-otel ui` too, on 127.0.0.1 (default port: %(const)s, 0: a free one), with "
        "this process's health. Needs the extra ui, and storage: sqlite or sql in the settings",
    )
    add_trace_url(parser)
    parser.add_argument(
        "--once",
        metavar="FILE",
        nargs="+",
        help="evaluate files with OTLP instead of listening, then end: protobuf, or JSON as the Collector writes it",
    )


def run(arguments: argparse.Namespace) -> int:
    PROCESS.rests = False
    _name_process()
    for name in _FIELDS:
        value = getattr(arguments, name)
        if value is not None:
            # A variable, unlike an argument of `configure`, leaves the other fields of `sidecar` as
            # the file has them.
            os.environ[f"AGENTEVAL_SIDECAR__{name.upper()}"] = str(value)
    # The applications' settings may be in the same file: they are the ones that send.
    settings = configure(arguments.settings, profile=arguments.profile, evaluate_in="process")
    if arguments.once:
        _print_end(evaluate_files(settings.sidecar, arguments.once), settings)
        return 0
    if settings.sidecar.durable is not None and settings.sampling.key is None:
        # A variable again: it stays in force when the settings are read anew.
        os.environ["AGENTEVAL_SAMPLING__KEY"] = kept_key(Path(settings.sidecar.durable))
        settings = configure(arguments.settings, profile=arguments.profile, evaluate_in="process")
    file = arguments.settings or os.environ.get("AGENTEVAL_SETTINGS")
    return _serve(settings, file, arguments.ui, arguments.trace_url)


def _name_process() -> None:
    """Set the service's name if there is none, and leave out gRPC's own log lines.

    Those lines repeat our errors.
    """
    if "service.name=" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        os.environ.setdefault("OTEL_SERVICE_NAME", SERVICE_NAME)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def _serve(settings: Settings, file: str | None, ui_port: int | None, trace_url: str | None) -> int:
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    if hasattr(signal, "SIGHUP"):  # not on Windows
        signal.signal(signal.SIGHUP, lambda *_: reload())
    _raise_limit()
    pages, stop_pages = _open_pages(settings, ui_port, trace_url)
    sidecar = Sidecar(settings.sidecar)
    addresses = sidecar.start()
    _tune_interpreter()
    watched = f"{file}, watched" if file else "none: every setting has its default"
    facts: dict[str, object] = {
        "OTLP/gRPC": addresses.grpc,
        "OTLP/HTTP": addresses.http,
        "settings": watched,
        "telemetry": _destination(settings),
    }
    if settings.sidecar.durable:
        facts["durable"] = settings.sidecar.durable
    if pages:
        facts["pages"] = pages
    for name, value in facts.items():
        say(f"{name:<10} {value}")
    count = sidecar.read_left(ending)
    if count:
        say(f"read again {count_of(count, 'request')} of an earlier process")
    say("ready")
    watch = SettingsWatch(Path(file), settings.sidecar) if file else None
    while not ending.wait(_LOOK_S) and sidecar.is_running:
        outcome = None if watch is None else watch.look()
        if outcome is not None:
            say(f"settings   {file}: {outcome}")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)  # a second one ends it at once
    say("ending: what was taken is evaluated and exported")
    stop_pages()
    _print_end(sidecar.stop(settings.sidecar.drain_s), settings)
    return 0


def _open_pages(
    settings: Settings, port: int | None, trace_url: str | None
) -> tuple[str | None, Callable[[], object]]:
    """Open the pages, if they have a port. Return their address, and what ends them."""
    if port is None and trace_url is not None:
        raise ConfigurationError("links of pages that are not served: add --ui", path="--trace-url")
    if port is None:
        return None, lambda: None
    return open_beside(settings, port, _destination(settings), trace_url)


def _tune_interpreter() -> None:
    """Tune the interpreter for throughput.

    Nothing in this process has to respond within milliseconds.

    The garbage collector skips what was imported at the start, too. Busy threads switch a quarter
    as often as by default, because the CPU caches are cold after each switch.
    """
    gc.freeze()
    sys.setswitchinterval(_SWITCH_S)


def _raise_limit() -> None:
    """Allow as many connections as the system lets this process have.

    Many systems begin with 1,024.
    """
    try:
        import resource
    except ModuleNotFoundError:  # on Windows
        return
    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if least != most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _destination(settings: Settings) -> str:
    variables = ["OTEL_EXPORTER_OTLP_ENDPOINT"]
    variables += [f"OTEL_EXPORTER_OTLP_{name}_ENDPOINT" for name in _SIGNALS]
    named = [settings.telemetry.endpoint, *map(os.environ.get, variables)]
    endpoints = dict.fromkeys(filter(None, named))
    if endpoints:
        return ", ".join(map(mask_text, endpoints))
    return "nowhere: set OTEL_EXPORTER_OTLP_ENDPOINT, for example to http://127.0.0.1:4317"


def _print_end(complete: bool, settings: Settings) -> None:
    outcomes = {outcome: count for outcome, count in accounting().items() if count}
    parts = " + ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items())
    answers = count_of(sum(outcomes.values()), "answer")
    say(f"{answers} = {parts}" if parts else answers)
    counts = default_pipeline().accounting
    spans = {outcome: count for outcome, count in counts.spans().items() if count}
    if spans:
        parts = " + ".join(f"{count:,} {outcome}" for outcome, count in spans.items())
        say(f"{count_of(sum(spans.values()), 'span')} = {parts}")
    requests = {outcome: count for outcome, count in counts.requests().items() if count}
    if requests:
        parts = " + ".join(f"{count:,} {outcome}" for outcome, count in requests.items())
        say(f"{count_of(sum(requests.values()), 'request')} for an evaluation = {parts}")
    for scope, count in counts.not_understood.items():
        say(f"not understood: {scope} ({count:,}). Another dialect needs a mapper of its own")
    for part, count in counts.failures.items():
        if part.removeprefix("spans:") not in spans:
            say(f"failed: {part} ({count:,}). See agenteval-otel explain {part.partition(':')[0]}")
    if not complete:
        say(f"not everything was delivered within {settings.sidecar.drain_s:g} s")

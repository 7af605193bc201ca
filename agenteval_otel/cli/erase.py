"""``agenteval-otel erase``: removes the data of a person or a conversation, or from before a time."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from agenteval_otel.config.erasure import (
    erase_caches,
    erase_off_peak,
    erase_stored,
    erasure_of,
    hidden_ids,
    judges_in,
    learn_conversations,
)
from agenteval_otel.config.load import load_settings
from agenteval_otel.config.settings import Settings
from agenteval_otel.errors import AgentEvalError, ConfigurationError
from agenteval_otel.offline.reports.figures import count_of
from agenteval_otel.runtime.masking import mask_text, printable
from agenteval_otel.storage.erasure import ErasedPlace, Erasure

DESCRIPTION = (
    "Remove the content and ids of one conversation, of one user, or of all before a time. Content is prompts, "
    "answers, reasoning, comments and corrections. Ids are those of users, conversations, responses and traces. "
    "Reached are the storage that the settings name (JSON lines and rotated files, SQLite, PostgreSQL), files with "
    "verdicts of judges, what waits in a running sidecar, and its journal. Scores stay, without what leads to "
    "anybody. What cannot be reached, such as traces in a backend, is listed by name. Nothing is changed before you "
    "have confirmed it, or with --yes. Exit code 0: erased, or counted with --dry-run. Exit code 1: something was "
    "left that could have been reached, or not confirmed. Exit code 2: could not run."
)
_TIMEOUT_S: Final = 300.0
_VARIABLES: Final = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    selection = parser.add_mutually_exclusive_group(required=True)
    selection.add_argument("--conversation", metavar="ID", help="its conversation_id or session_id")
    selection.add_argument(
        "--user",
        metavar="ID",
        help="as it was annotated, or as it is stored. The conversations that the user took part in go too",
    )
    selection.add_argument(
        "--before", metavar="TIME", help="2026-05-01, 2026-05-01T12:00+02:00 (UTC without a zone)"
    )
    parser.add_argument(
        "--settings", metavar="FILE", help="the settings file (default: AGENTEVAL_SETTINGS)"
    )
    parser.add_argument(
        "--profile", metavar="NAME", help="a profile of it (default: AGENTEVAL_PROFILE)"
    )
    parser.add_argument(
        "--url",
        action="append",
        default=[],
        metavar="URL",
        help="of a sidecar that runs, repeatable (default: the one of the settings, if it answers)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="count what is stored, and change nothing"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.epilog = "The sidecar's token is read from AGENTEVAL_SIDECAR__TOKEN, and the salt of user ids from settings."


def run(arguments: argparse.Namespace) -> int:
    loaded = load_settings(arguments.settings, profile=arguments.profile)
    settings = loaded.settings
    for warning in loaded.warnings:
        print(f"warning: {printable(warning)}", file=sys.stderr)
    selection: dict[str, Any] = {}
    for name in ("conversation", "user", "before"):
        value = getattr(arguments, name)
        if value:
            selection[name] = value
    erasure = erasure_of(selection, settings)
    problems = hidden_ids(settings, erasure)
    learn_conversations(settings.storage, erasure)
    if not arguments.yes:
        print("Stored")
        counted = _print(_stored(settings, erasure, dry_run=True))
        if arguments.dry_run:
            problems += counted
    if not arguments.dry_run:
        if not (arguments.yes or _is_confirmed()):
            print("nothing was changed")
            return 1
        print("Erased")
        waiting = _print(_waiting(settings, selection, erasure, arguments.url))
        problems += [*waiting, *_print(_stored(settings, erasure, dry_run=False))]
    for problem in problems:
        print(f"left: {printable(problem)}")
    print("Out of reach")
    for line in _out_of_reach(settings):
        print(f"  {printable(line)}")
    return 1 if problems else 0


def _is_confirmed() -> bool:
    if not sys.stdin.isatty():
        raise ConfigurationError(
            "there is no terminal to ask on: --dry-run counts, --yes erases", path="--yes"
        )
    return input("Erase this? It cannot be undone. [y/N] ").strip().lower() in ("y", "yes")


def _stored(settings: Settings, erasure: Erasure, *, dry_run: bool) -> Iterator[ErasedPlace]:
    for provider in settings.storage:
        for place in erase_stored([provider], erasure, dry_run=dry_run):
            if not place.is_out_of_reach:
                yield place
    yield from erase_off_peak(settings, erasure, dry_run=dry_run)
    yield from erase_caches(settings, erasure, dry_run=dry_run)


def _print(places: Iterable[ErasedPlace]) -> list[str]:
    """Print each place once it is done, and return the problems of the places that were not erased."""
    problems = []
    for place in places:
        unreadable = ""
        if place.unreadable:
            unreadable = f", {count_of(place.unreadable, 'unreadable record')}"
        print(f"  {printable(place.place)}: {place.removed:,}{unreadable}", flush=True)
        if place.problem:
            problems.append(f"{place.place}: {place.problem}")
    return problems


def _waiting(
    settings: Settings, selection: dict[str, Any], erasure: Erasure, urls: Sequence[str]
) -> Iterator[ErasedPlace]:
    """Erase what waits in the sidecars, or in the journal if no sidecar runs."""
    sidecar = settings.sidecar
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(sidecar.host, sidecar.host)
    if ":" in host:
        host = f"[{host}]"
    scheme = "http" if sidecar.certificate is None else "https"
    own = f"{scheme}://{host}:{sidecar.http_port}"
    learned = sorted(erasure.conversations - {selection.get("conversation")})
    for url in urls or [own]:
        place = f"sidecar at {mask_text(url)}"
        try:
            counts = _post(url, selection, sidecar.token)
            if learned:
                counts += _post(url, {"conversation": learned}, sidecar.token)
            yield ErasedPlace(place, counts)
        except HTTPError as refusal:
            with refusal:
                why = refusal.read(500).decode(errors="replace").strip()
            yield ErasedPlace(place, problem=f"refused: {refusal.code} {why}")
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            if not urls and isinstance(reason, ConnectionRefusedError):
                yield from _journal(settings, erasure)
            else:
                yield ErasedPlace(place, problem=f"cannot be reached: {reason}")


def _post(url: str, fields: dict[str, Any], token: str | None) -> int:
    headers = {"content-type": "application/json"}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    request = Request(f"{url.rstrip('/')}/v1/erase", json.dumps(fields).encode(), headers)
    with urlopen(request, timeout=_TIMEOUT_S) as reply:
        answer = json.load(reply)
    if not answer["delivered"]:
        raise URLError("what was being evaluated was not delivered in time: run this again")
    return sum(answer["erased"].values())


def _journal(settings: Settings, erasure: Erasure) -> Iterator[ErasedPlace]:
    folder = settings.sidecar.durable
    if folder is None or not Path(folder).is_dir():
        return
    from agenteval_otel.capture.otlp.body import OtlpMessages
    from agenteval_otel.sidecar.erasure import erase_from_journal
    from agenteval_otel.sidecar.journal import LOGS, TRACES, Journal
    from agenteval_otel.sidecar.quarantine import Quarantine

    place = f"{folder} (journal of the sidecar)"
    try:
        journal = Journal(Path(folder), settings.sidecar.durable_max_bytes)
        try:
            messages = {TRACES: OtlpMessages("trace"), LOGS: OtlpMessages("logs")}
            traces = erase_from_journal(journal, messages, erasure, nullcontext())
            files = Quarantine(Path(folder)).erase(erasure)
            yield ErasedPlace(place, len(traces) + files)
        finally:
            journal.close()
    except AgentEvalError as error:
        yield ErasedPlace(place, problem=str(error))


def _out_of_reach(settings: Settings) -> Iterator[str]:
    """Yield the places that are not erased, as the settings name them."""
    endpoints = [settings.telemetry.endpoint]
    endpoints += [part.endpoint for part in settings.storage if hasattr(part, "emitter")]
    endpoints += [os.environ.get(name) for name in _VARIABLES]
    shown = ", ".join(dict.fromkeys(mask_text(endpoint) for endpoint in endpoints if endpoint))
    content = settings.telemetry.emitter.content
    also = "ids and scores" if content == "no_content" else "ids, scores and content"
    yield f"telemetry ({shown or 'of the application'}): {also} in the Collector and what is behind it"
    unused = Erasure(conversations=["-"])
    for provider in settings.storage:
        for place in erase_stored([provider], unused, dry_run=True):
            if place.is_out_of_reach:
                yield f"{place.place}: {place.problem}"
    if settings.ground_truth is not None:
        yield f"ground truth ({settings.ground_truth}): yours"
    judges = dict.fromkeys(f"{judge.type}:{judge.model}" for judge in judges_in(settings))
    if judges:
        yield f"models that judged ({', '.join(judges)}): what their providers keep of requests"
    longest_s = max(settings.feedback_window_s, settings.conversations.idle_s)
    yield (
        f"processes that evaluate by themselves: call agenteval_otel.erase() there, or run this again "
        f"in {longest_s:,g} s (feedback_window_s, conversations.idle_s), when what waits in them is stored or gone"
    )
    yield "backups, replicas, snapshots, copies and log files, and in a database server dead rows, until VACUUM FULL"

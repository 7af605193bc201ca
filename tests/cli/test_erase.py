"""``agenteval-otel erase``: files, a running sidecar and its journal, and what it cannot reach."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.capture.otlp.body import OtlpMessages
from agenteval_otel.evaluators.judges.cache import VerdictCache
from agenteval_otel.judges import CacheSettings, Verdict
from agenteval_otel.sidecar.journal import TRACES, Journal
from agenteval_otel.storage import JsonFileStorageProvider, SqlStorageProvider
from tests.cli.conftest import CommandLine
from tests.sidecar.test_erasure import request_of
from tests.storage.test_erasure import CANARY, answer, save, stored

SETTINGS = """
storage:
  - {{type: json_file, path: {folder}/results.jsonl}}
  - {{type: sqlite, path: {folder}/results.db}}
  - {{type: langfuse, host: "http://langfuse:3000", public_key: p, secret_key: s}}
telemetry: {{endpoint: "http://collector:4317"}}
ground_truth: {{type: file, path: {folder}/truth.csv}}
sidecar: {{http_port: {port}, durable: {folder}/journal}}
user_id_salt: salt
"""


@pytest.fixture
def port() -> int:
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(autouse=True)
def _stored(cli: CommandLine, port: int) -> None:
    """Two answers in a file and in a database, and the settings that name these."""
    cli.file("truth.csv", "UserPrompt,ExpectedOutput,Category,Module\nq,a,,\n")
    for storage in providers(cli.folder):
        save(storage, answer("c-1"), answer("c-2", text="kept"))
    cli.settings(SETTINGS.format(folder=cli.folder, port=port))


ERASE = "erase --settings settings.yaml --conversation c-1"


def providers(folder: Path) -> tuple[Any, ...]:
    return JsonFileStorageProvider(path=folder / "results.jsonl"), SqlStorageProvider(
        path=folder / "results.db"
    )


def files_with(folder: Path, text: str = CANARY) -> list[str]:
    return sorted(
        str(file.relative_to(folder))
        for file in folder.rglob("*")
        if file.is_file() and text.encode() in file.read_bytes()
    )


def test_a_dry_run_counts_and_yes_erases(cli: CommandLine) -> None:
    """Places with their counts; and by name what cannot be reached."""
    cli(f"{ERASE} --dry-run")
    assert f"{cli.folder}/results.jsonl: 1\n" in cli.out
    assert "results.db" in "".join(files_with(cli.folder))
    cli(f"{ERASE} --yes")
    assert cli.out.count(": 1\n") == 2
    for name in (
        "http://collector:4317",
        "langfuse at http://langfuse:3000",
        "truth.csv",
        "backups",
        "erase() there",
    ):
        assert name in cli.out
    assert files_with(cli.folder) == []
    assert len(files_with(cli.folder, "kept")) == 2


def test_without_a_terminal_nothing_is_erased_unasked(cli: CommandLine) -> None:
    """It counts, and names the two options."""
    cli(ERASE, code=2)
    assert "--dry-run counts, --yes erases" in cli.err
    assert len(files_with(cli.folder)) == 2


@pytest.mark.parametrize(("reply", "code", "left"), [("y", 0, 0), ("", 1, 2), ("no", 1, 2)])
def test_a_terminal_is_asked(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, reply: str, code: int, left: int
) -> None:
    """Only yes is yes."""
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda _: reply)
    cli(ERASE, code=code)
    assert len(files_with(cli.folder)) == left


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "one of the arguments"),
        ("--user a --before 2026-01-01", "not allowed with"),
        ("--before soon", "2026-05-01"),
        ("--conversation ' '", "expected text"),
    ],
)
def test_what_is_asked_for_is_named(cli: CommandLine, options: str, message: str) -> None:
    """One of three, in a form that can be read."""
    cli(f"erase {options} --yes", code=2)
    assert message in cli.err


def test_an_id_that_redaction_has_changed_is_refused_by_name(cli: CommandLine) -> None:
    """Everybody's e-mail address is stored alike: no other person's results are touched."""
    for storage in providers(cli.folder):
        save(storage, answer("[EMAIL]", user="ann"), answer("[EMAIL]", user="bob", text="of bob"))
    erase = "erase --settings settings.yaml --yes"
    cli(f"{erase} --conversation ann@mail.example", code=1)
    assert "only --before" in cli.out
    assert "of bob" in (cli.folder / "results.jsonl").read_text()
    cli(f"{erase} --user ann")
    left = [value.model_dump_json() for value in stored(providers(cli.folder)[1])]
    assert ["of bob" in text for text in left].count(True) == 1


def test_verdicts_of_judges_go(cli: CommandLine) -> None:
    """They quote answers and name nobody: the file is emptied."""
    path = cli.folder / "verdicts.db"
    cache = VerdictCache(CacheSettings(path=path))
    cache.put("key", Verdict(answer={"reasoning": CANARY}, raw=CANARY, model="m"))
    assert asyncio.run(cache.get("key")) is not None
    cache.store.close()  # type: ignore[union-attr]
    text = Path("settings.yaml").read_text()
    judge = f"{{type: anthropic, model: m, cache: {{path: {path}}}}}"
    cli.settings(f"{text}\nevaluators: [{{type: Coherence, judge: {judge}}}]\n")
    cli(f"{ERASE} --yes")
    assert "verdicts.db (verdicts of judges): 1" in cli.out
    assert "models that judged (anthropic:m)" in cli.out
    assert files_with(cli.folder) == []


def test_the_journal_of_a_sidecar_that_does_not_run(cli: CommandLine) -> None:
    """The person's traces go from its requests; others, and numbers, stay."""
    requests = [
        request_of((1, "c-1"), (1, None), (2, "c-2")),
        request_of((1, None)),
        request_of((3, "c-3")),
    ]
    journal = Journal(cli.folder / "journal", 2**30)
    numbers = [journal.write(TRACES, request) for request in requests]
    journal.close()
    cli(f"{ERASE} --yes")
    assert "journal (journal of the sidecar): 1" in cli.out
    journal = Journal(cli.folder / "journal", 2**30)
    left = [(entry.number, traces_of(entry.data)) for entry in journal.left()]
    journal.close()
    assert left == [(numbers[0], [2]), (numbers[1], []), (numbers[2], [3])]


def traces_of(data: bytes) -> list[int]:
    request = OtlpMessages("trace").request.FromString(data)
    return [
        int.from_bytes(span.trace_id)
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


@pytest.mark.parametrize("place", ["results.db", "results.jsonl"])
def test_what_was_not_erased_can_be_evaluated(place: str, cli: CommandLine) -> None:
    """Stored results whose answers were erased are left out and counted; they are no error."""
    cli(f"{ERASE} --yes", code=None)
    cli(f"evaluate {place}")
    assert "left out: 1 result whose answers were erased" in cli.err
    assert "1 input from" in cli.out + cli.err
    cli("erase --settings settings.yaml --conversation c-2 --yes", code=None)
    cli(f"evaluate {place}", code=2)
    assert "left out: 2 results whose answers were erased" in cli.err
    assert "no inputs in" in cli.err

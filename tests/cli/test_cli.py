"""The command line."""

from __future__ import annotations

import ast
import gc
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import agenteval_otel
from agenteval_otel.cli import COMMANDS, demo, main, parser_of
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.telemetry.reference import ERROR_TYPES, FAILURES, OUTCOMES
from agenteval_otel.ui.serve import listener
from tests.cli.conftest import CommandLine
from tests.sources import package_sources


def test_the_help_lists_the_commands(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Running without a command shows the same, also as the entry point of the package calls it."""
    first = cli("--help")
    assert "demo" in first
    assert cli() == first
    monkeypatch.setattr(sys, "argv", ["agenteval-otel"])
    assert main() == 0
    assert "--calls" in cli("demo --help")
    assert cli("--version") == f"agenteval-otel {agenteval_otel.__version__}\n"
    assert re.match(r"\d+\.\d+", agenteval_otel.__version__)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_help_begins_with_one_short_sentence(command: str) -> None:
    _, commands, _ = parser_of(command)
    first, *_ = re.split(r"(?<=[.!?])\s", " ".join((commands[command].description or "").split()))
    assert 10 < len(first) <= 100, first


def test_version_and_help_import_no_command() -> None:
    """Nor anything else that is slow: a prompt that shows the version waits for none of it."""
    code = (
        "import json, sys\nfrom agenteval_otel.cli import main\n"
        "try: main(['--version'])\nexcept SystemExit: print(json.dumps(list(sys.modules)))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    modules = json.loads(shown.splitlines()[1])
    assert {
        name
        for name in modules
        if name.startswith(("agenteval_otel.", "pydantic", "opentelemetry", "rich"))
    } == {"agenteval_otel.cli", "agenteval_otel.runtime", "agenteval_otel.runtime.version"}


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ("chek a.yaml", "'check'"),
        ("--versio", "'--version'"),
        ("check a.yaml --profil ci", "'--profile'"),
        ("evaluate a.jsonl --fail-uder=1", "'--fail-under'"),
        ("evaluate a.jsonl --evaluators LLMJudge", "'--settings'"),
        ("evaluate a.jsonl --storage a.db", "'--results'"),
        ("run a.jsonl", "'evaluate'"),
        ("dashboard", "'ui'"),
    ],
)
def test_nothing_is_abbreviated(arguments: str, meant: str, cli: CommandLine) -> None:
    """An option that is new would change what an abbreviation means; the nearest name is suggested."""
    assert cli(arguments, code=2) == ""
    assert f"(did you mean {meant}?)" in cli.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_knows_commands_and_options(
    shell: str, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every command; without the extra its name is given."""
    shown = cli("completion", shell)
    assert all(word in shown for word in (*COMMANDS, "fail-under", "time-scale"))
    monkeypatch.setitem(sys.modules, "shtab", None)
    cli("completion", shell, code=2)
    assert 'pip install "agenteval-otel[completion]"' in cli.err


def test_no_text_refers_to_files_that_a_wheel_lacks(cli: CommandLine) -> None:
    """Neither the help, explanations and the schema, nor a message or docstring."""
    texts = [cli("schema"), str(OUTCOMES), str(FAILURES), str(ERROR_TYPES)]
    texts += [cli(name, "--help") for name in COMMANDS]
    for source in package_sources():
        # the files that it writes name the runbooks' place: --runbooks
        if "provisioning" in source.path.parts or "docs/" not in source.text:
            continue
        own = ast.get_docstring(source.tree, clean=False)
        for node in source.nodes_of(ast.Constant):
            if isinstance(node.value, str) and node.value != own:
                texts.append(node.value)
    assert [found for text in texts for found in re.findall(r"\S*docs/\S+", text)] == []


def test_init_writes_valid_settings_that_raise_alerts(cli: CommandLine) -> None:
    """So are its comments. The workflow has commands that exist; what is there is kept, both or
    none are written.
    """
    written, workflow = Path("agenteval.yaml"), Path(".github/workflows/evaluation.yaml")
    shown = cli("init --ci")
    for file in (written, workflow):
        assert f"wrote {file}" in shown
    assert "Warnings" not in cli("check agenteval.yaml")
    planned = cli("provision prometheus --settings agenteval.yaml")
    assert planned.count(": alerts on its objective of") == 4
    assert "no alert" not in planned
    cli.file(
        "answers.jsonl",
        '{"prompt": "Where is it?", "response": "On its way; reply here if not."}\n',
    )
    for step in yaml.safe_load(workflow.read_text())["jobs"]["evaluate"]["steps"]:
        program, _, words = step.get("run", "").partition(" ")
        if program == "agenteval-otel":
            cli(words.replace("tests/answers.jsonl", "answers.jsonl"))
    whole = re.sub(r"^( *)# ( *(?:- |\w+:).*)", r"\1\2", written.read_text(), flags=re.MULTILINE)
    for line in ("  - myapp.quality:names_the_price\n", "storage: [console]\n"):
        whole = whole.replace(line, "")
    cli.file("whole.yaml", whole)
    shown = cli("check whole.yaml")
    for line in (
        "support: 100 %",
        "LLMJudge [async, at most 10 % of all]: helpful",
        "sqlite: agenteval.db",
    ):
        assert line in shown
    written.write_text("mine")
    workflow.unlink()
    cli("init --ci", code=2)
    assert "agenteval.yaml: exists, and nothing was written. --force overwrites it" in cli.err
    assert not workflow.exists()
    cli("init --force")
    cli("init settings.toml", code=2)


@pytest.mark.parametrize(
    "arguments",
    [
        "nope",
        "demo --nope",
        "demo --calls 0",
        "demo --calls many",
        "demo --seconds 0",
        "demo --seconds nan",
        "demo --seconds 1e9",
        "demo extra",
        "--nope",
        "provision prometheus --time-scale 0",
        "provision prometheus --time-scale inf",
        "provision prometheus --time-scale fast",
        "evaluate a.jsonl --execution inline,dear",
        "evaluate a.jsonl --concurrency 0",
        "evaluate a.jsonl --limit many",
    ],
)
def test_wrong_use_is_2(arguments: str, cli: CommandLine) -> None:
    """Standard error shows the usage for an unknown command or option, or a wrong value."""
    assert cli(arguments, code=2) == ""
    assert "usage: agenteval-otel" in cli.err


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ConfigurationError("wrong", path="a.b"), 2, "agenteval-otel demo: a.b: wrong\n"),
        (OSError(28, "No space left"), 2, "agenteval-otel demo: [Errno 28] No space left\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (KeyError("nothing"), 2, "KeyError: 'nothing'\n"),
    ],
)
def test_errors_have_exit_codes(
    monkeypatch: pytest.MonkeyPatch, cli: CommandLine, error: BaseException, code: int, message: str
) -> None:
    """An interruption is 130, the rest 2, as 1 would mean a missed objective; only a bug shows a
    traceback.
    """

    def run(_: object) -> int:
        raise error

    monkeypatch.setattr(demo, "run", run)
    cli("demo", code=code)
    assert cli.err.endswith(message)
    assert ("Traceback" in cli.err) is isinstance(error, KeyError)


def test_the_collector_of_a_program_that_calls_it_stays_as_it_was(cli: CommandLine) -> None:
    """What the program had frozen stays frozen, and its thresholds come back."""
    gc.freeze()
    frozen, thresholds = gc.get_freeze_count(), gc.get_threshold()
    cli("init settings.yaml")
    assert gc.get_freeze_count() >= frozen
    assert gc.get_threshold() == thresholds


@pytest.mark.parametrize("command", ["--help", "completion bash", "evaluate a.jsonl"])
def test_a_closed_output_ends_it_quietly(cli: CommandLine, command: str) -> None:
    """1 where the reader left (`| head`), as Python advises; 0 where there was no output from the
    start (`>&-`).
    """
    cli.file("a.jsonl", '{"response": "a"}')
    line = f'"{sys.executable}" -m agenteval_otel {command}'
    script = f"{line}; echo $? >left; {line} >&-; echo $? >closed"
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as pipe:
        ended = subprocess.run(
            ["sh", "-c", script],
            stdout=pipe,
            stderr=subprocess.PIPE,
            env=environment,
            check=True,
            timeout=60,
        )
    assert [Path(name).read_text() for name in ("left", "closed")] == ["1\n", "0\n"]
    assert b"Error" not in ended.stderr


def test_pages_of_a_missing_file_and_on_a_taken_port(cli: CommandLine) -> None:
    """What is not there is not made; the error says how to go on."""
    cli("ui nope.db", code=2)
    assert "there is no nope.db" in cli.err
    assert "agenteval-otel demo --storage agenteval.db" in cli.err
    assert not list(Path().iterdir())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigurationError, match=f"127.0.0.1:{port} is taken: choose another port with --port"
        ):
            listener(port)

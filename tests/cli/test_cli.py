"""The command line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest

from agenteval_otel.cli import demo, main
from agenteval_otel.errors import ConfigurationError
from tests.cli.conftest import CommandLine


def test_the_help_lists_the_commands(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Running without a command shows the same, also as the entry point of the package calls it."""
    first = cli("--help")
    assert "demo" in first
    assert cli() == first
    monkeypatch.setattr(sys, "argv", ["agenteval-otel"])
    assert main() == 0
    assert "--calls" in cli("demo", "--help")
    assert re.fullmatch(r"agenteval-otel \d+\.\d+\S*\n", cli("--version"))


@pytest.mark.parametrize(
    "arguments",
    ["nope", "demo --nope", "demo --calls 0", "demo --calls many", "demo --seconds 0", "demo --seconds nan",
     "demo --seconds 1e9", "demo extra", "--nope", "check", "provision prometheus --time-scale 0",
     "provision prometheus --time-scale inf", "provision prometheus --time-scale fast",
     "evaluate a.jsonl --execution inline,dear", "evaluate a.jsonl --concurrency 0", "evaluate a.jsonl --limit many"],
)  # fmt: skip
def test_wrong_use_is_2(arguments: str, cli: CommandLine) -> None:
    """Standard error shows the usage for an unknown command or option, or a wrong value."""
    assert cli(*arguments.split(), code=2) == ""
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
    """An interruption is 130, the rest 2, as 1 would mean a missed objective; only a bug shows a traceback."""

    def run(_: object) -> int:
        raise error

    monkeypatch.setattr(demo, "run", run)
    cli("demo", code=code)
    assert cli.err.endswith(message)
    assert ("Traceback" in cli.err) is isinstance(error, KeyError)


@pytest.mark.parametrize("command", ["--help", "schema", "evaluate a.jsonl --settings settings.json"])
def test_a_closed_output_ends_it_quietly(cli: CommandLine, command: str) -> None:
    """1 where the reader left (`| head`), as Python advises; 0 where there was no output from the start (`>&-`)."""
    cli.file("a.jsonl", '{"response": "a"}')
    cli.file("settings.json", '{"evaluators": ["ResponseHealth"]}')
    line = f'"{sys.executable}" -m agenteval_otel {command}'
    reader, writer = os.pipe()
    os.close(reader)
    run: dict[str, Any] = {"stderr": subprocess.PIPE, "env": {**os.environ, "PYTHONUNBUFFERED": ""}, "timeout": 60}
    with open(writer, "wb") as pipe:
        left = subprocess.run(["sh", "-c", line], stdout=pipe, check=False, **run)
    closed = subprocess.run(["sh", "-c", f"{line} >&-"], check=False, **run)
    assert [left.returncode, closed.returncode] == [1, 0]
    assert [b"Error" in ended.stderr for ended in (left, closed)] == [False, False]

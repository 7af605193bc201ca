"""The command line."""

from __future__ import annotations

import re
import sys

import pytest

from agenteval_otel.cli import demo, main
from agenteval_otel.errors import ConfigurationError


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a command, and with --help, the commands are shown; the exit code is 0."""
    assert main([]) == 0
    first = capsys.readouterr().out
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == first
    assert "demo" in first
    with pytest.raises(SystemExit) as caught:
        main(["demo", "--help"])
    assert caught.value.code == 0
    assert "--calls" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["demo", "--nope"],
        ["demo", "--calls", "0"],
        ["demo", "--calls", "many"],
        ["demo", "extra"],
        ["--nope"],
    ],
)
def test_wrong_use_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown command or option, or a value that does not fit, is told on standard error with exit code 2."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "usage: agenteval-otel" in captured.err


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    """--version says name and version."""
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert re.fullmatch(r"agenteval-otel \d+\.\d+\S*\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ConfigurationError("wrong", path="a.b"), 2, "agenteval-otel demo: a.b: wrong"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_exit_codes_of_errors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, message: str
) -> None:
    """A wrong configuration is 2 with its path, an interruption 130; neither shows a traceback."""

    def run(_: object) -> int:
        raise error

    monkeypatch.setattr(demo, "run", run)
    assert main(["demo"]) == code
    assert capsys.readouterr().err == f"{message}\n"


def test_what_nobody_foresaw_is_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An error of ours is shown whole and ends with 2: 1 says that an objective was missed."""
    monkeypatch.setattr(demo, "run", lambda _: {}["nothing"])
    assert main(["demo"]) == 2
    assert "KeyError: 'nothing'" in capsys.readouterr().err


def test_the_arguments_come_from_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without arguments it is the process's own that are read."""
    monkeypatch.setattr(sys, "argv", ["agenteval-otel"])
    assert main() == 0
    assert "usage: agenteval-otel" in capsys.readouterr().out

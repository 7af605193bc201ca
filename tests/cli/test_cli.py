"""The command line."""

from __future__ import annotations

import re
import sys

import pytest

from agenteval_otel.cli import demo, main
from agenteval_otel.errors import ConfigurationError


def test_the_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """Running without a command shows the same, with exit code 0."""
    assert main([]) == 0
    first = capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert capsys.readouterr().out == first
    assert "demo" in first
    with pytest.raises(SystemExit, match="0"):
        main(["demo", "--help"])
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
    """Standard error shows the usage for an unknown command or option, or a wrong value."""
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "usage: agenteval-otel" in captured.err


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """--version prints name and version."""
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert re.fullmatch(r"agenteval-otel \d+\.\d+\S*\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ConfigurationError("wrong", path="a.b"), 2, "agenteval-otel demo: a.b: wrong"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_errors_have_exit_codes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, message: str
) -> None:
    """A wrong configuration is 2 with its path, an interruption 130; neither shows a traceback."""

    def run(_: object) -> int:
        raise error

    monkeypatch.setattr(demo, "run", run)
    assert main(["demo"]) == code
    assert capsys.readouterr().err == f"{message}\n"


def test_a_bug_is_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its traceback is shown. 1 would mean that an objective was missed."""
    monkeypatch.setattr(demo, "run", lambda _: {}["nothing"])
    assert main(["demo"]) == 2
    assert "KeyError: 'nothing'" in capsys.readouterr().err


def test_arguments_default_to_those_of_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The entry point of the package passes none."""
    monkeypatch.setattr(sys, "argv", ["agenteval-otel"])
    assert main() == 0
    assert "usage: agenteval-otel" in capsys.readouterr().out

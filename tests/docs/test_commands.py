"""The commands of ours that documents show are commands that there are."""

from __future__ import annotations

import contextlib
import importlib
import re
import shlex
from pathlib import Path

import pytest

from agenteval_otel import cli

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("*/*.md")])
_OURS = re.compile(r"(?:^|[$&|;] ?)(?:uv run )?(agenteval-otel(?: [^&|;#\n]*)?)")


def commands() -> list[tuple[str, str]]:
    """Every `agenteval-otel ...` in a console block, with its document."""
    actual = []
    for document in DOCUMENTS:
        for block in re.findall(
            r"^```console\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE
        ):
            lines = block.replace("\\\n", " ").splitlines()
            actual += [
                (document.name, command.strip())
                for line in lines
                for command in _OURS.findall(line)
            ]
    return sorted(set(actual))


@pytest.mark.parametrize(("document", "command"), commands())
def test_a_documented_command_is_understood(
    document: str, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is taken by the command line with these options; what explains words is run, the rest
    only parsed.
    """
    arguments = shlex.split(command)[1:]
    runs = arguments[:1] == ["explain"] and "--from" not in arguments
    parsed: list[object] = []
    for name in () if runs else cli.COMMANDS:
        module = importlib.import_module(f"agenteval_otel.cli.{name}")
        monkeypatch.setattr(module, "run", lambda value: parsed.append(value) or 0)
    with contextlib.suppress(SystemExit):  # of wrong use too, but then nothing is parsed or printed
        assert cli.main(arguments) == 0
    assert parsed or capsys.readouterr().out


def test_the_quick_start_starts_what_is_shipped() -> None:
    """The images of the quick start, their versions included, are those of
    collector-config/compose.yaml.
    """
    image = re.compile(r"\b[a-z]+/[a-z-]+:v?\d+\.\d+\.\d+")
    quick_start, shipped = (
        (ROOT / name).read_text()
        for name in ("docs/quick-start.md", "collector-config/compose.yaml")
    )
    assert len(set(image.findall(quick_start))) == 3
    assert set(image.findall(quick_start)) <= set(image.findall(shipped))

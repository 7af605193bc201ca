"""What a file or a page says never steers the terminal that shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agenteval_otel.cli import main
from agenteval_otel.runtime.masking import printable

EVIL = "\x1b[31mred\x1b]0;title\x07\u202e\x9b2J\r\nall is right"


def _said(capsys: pytest.CaptureFixture[str]) -> str:
    found = capsys.readouterr()
    text = found.out + found.err
    assert [char for char in text if not char.isprintable() and char != "\n"] == []
    assert "\nall is right" not in text
    return text


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"agents": {EVIL: {"sample_rate": 0.5}}, "profiles": {EVIL: {"sample_rate": 0.1}}}, 0),
        ({"agents": {EVIL: {"sample_rate": 5}}, EVIL: 1}, 1),
        ({"profiles": {EVIL: 3}}, 1),
        ({"plugins": [EVIL]}, 1),
    ],
    ids=["right", "wrong", "profiles", "plugins"],
)
def test_check_shows_names_without_their_controls(
    settings: dict[str, object], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names of agents, profiles and fields, in reports, in errors and as JSON, which still says them exactly."""
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(settings))
    assert main(["check", str(file)]) == code
    assert "red" in _said(capsys)
    assert main(["check", str(file), "--format", "json"]) == code
    told = json.loads(_said(capsys))
    assert told["valid"] is (code == 0)
    if code == 0:
        assert EVIL in told["agents"]


def test_errors_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The name of a file that is not there, in no encoding of this world, is shown as far as it can be."""
    assert main(["check", str(tmp_path / "a\x1b[31m\udcff.yaml")]) == 2
    assert "a?[31m?.yaml: there is no such file" in _said(capsys)


def test_explain_shows_a_pages_labels_without_their_controls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Agents, outcomes, criteria and error types come from elsewhere."""
    page = tmp_path / "page.txt"
    evil = EVIL.replace("\r\n", "\\n")
    page.write_text(
        f'agenteval_responses_total{{gen_ai_agent_name="{evil}",agenteval_outcome="{evil}"}} 5\n'
        f'agenteval_responses_total{{gen_ai_agent_name="b",agenteval_outcome="evaluated"}} 5\n'
    )
    assert main(["explain", "--from", str(page)]) == 0
    assert "red" in _said(capsys)


def test_what_can_be_seen_stays() -> None:
    """Letters of every script are shown as they are."""
    assert printable("Straße, 東京, ok 🙂") == "Straße, 東京, ok 🙂"

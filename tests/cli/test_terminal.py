"""Names from files and pages are shown without control characters, which would steer the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agenteval_otel.cli import main
from agenteval_otel.runtime.masking import printable

EVIL = "\x1b[31mred\x1b]0;title\x07\u202e\x9b2J\r\nall is right"


def _shown(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    text = captured.out + captured.err
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
    ids=["valid", "wrong", "profiles", "plugins"],
)
def test_check_shows_names_without_control_characters(
    settings: dict[str, object], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reports and errors replace them; JSON escapes them."""
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(settings))
    assert main(["check", str(file)]) == code
    assert "red" in _shown(capsys)
    assert main(["check", str(file), "--format", "json"]) == code
    report = json.loads(_shown(capsys))
    assert report["valid"] is (code == 0)
    if code == 0:
        assert EVIL in report["agents"]


def test_errors_show_file_names_without_control_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that is no UTF-8 is shown as far as possible."""
    assert main(["check", str(tmp_path / "a\x1b[31m\udcff.yaml")]) == 2
    assert "a?[31m?.yaml: there is no such file" in _shown(capsys)


def test_explain_shows_labels_without_control_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Agents, outcomes, criteria and error types come from the page."""
    page = tmp_path / "page.txt"
    evil = EVIL.replace("\r\n", "\\n")
    page.write_text(
        f'agenteval_responses_total{{gen_ai_agent_name="{evil}",agenteval_outcome="{evil}"}} 5\n'
        f'agenteval_responses_total{{gen_ai_agent_name="b",agenteval_outcome="evaluated"}} 5\n'
    )
    assert main(["explain", "--from", str(page)]) == 0
    assert "red" in _shown(capsys)


def test_printable_text_stays() -> None:
    """Letters of every script are printable."""
    assert printable("Straße, 東京, ok 🙂") == "Straße, 東京, ok 🙂"

"""Names from files and pages are shown without control characters, which would steer the terminal."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import CommandLine

EVIL = "\x1b[31mred\x1b]0;title\x07\u202e\x9b2J\r\nall is right"


def _assert_harmless(cli: CommandLine) -> None:
    text = cli.out + cli.err
    assert [char for char in text if not char.isprintable() and char != "\n"] == []
    assert "\nall is right" not in text
    assert "red" in text


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
    settings: dict[str, object], code: int, cli: CommandLine
) -> None:
    """Reports and errors replace them."""
    cli("check", cli.file("settings.json", json.dumps(settings)), code=code)
    _assert_harmless(cli)


def test_errors_show_file_names_without_control_characters(cli: CommandLine) -> None:
    """A name that is no UTF-8 is shown as far as possible, and letters of every script stay."""
    cli("check", "a\x1b[31mred\udcffß東🙂.yaml", code=2)
    assert "a?[31mred?ß東🙂.yaml: there is no such file" in cli.err


def test_explain_shows_labels_without_control_characters(cli: CommandLine) -> None:
    """Agents, outcomes, criteria and error types come from the page."""
    evil = EVIL.replace("\r\n", "\\n")
    page = cli.file(
        "page.txt",
        f'agenteval_responses_total{{gen_ai_agent_name="{evil}",agenteval_outcome="{evil}"}} 5\n'
        f'agenteval_responses_total{{gen_ai_agent_name="b",agenteval_outcome="evaluated"}} 5\n',
    )
    cli("explain", "--from", page)
    _assert_harmless(cli)

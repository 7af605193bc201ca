"""The console: a line a result."""

from __future__ import annotations

import io

import pytest

from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage import ConsoleStorageProvider, EvaluationStorageProvider
from agenteval_otel.testing import check_component, check_storage
from tests.storage.samples import aggregated, failed, save, scored, skipped


def console(*results: AggregatedEvaluationResult) -> str:
    stream = io.StringIO()
    save(ConsoleStorageProvider(stream=stream), *results)
    return stream.getvalue()


def test_a_line_shows_every_outcome() -> None:
    """A line has agent, overall score and each criterion's outcome, failures and skips included."""
    shown = console(
        aggregated(
            scored(),
            scored("length", label="fail", reason_code="too_long"),
            scored("raw", label=None, score=0.123),
            failed("slow"),
            skipped(),
        )
    )
    assert shown == (
        "support  overall 0.50  tone pass  length fail (too_long)  raw 0.12  slow failed (timeout)  facts skipped\n"
    )
    assert console(aggregated(overall_score=None, agent=None)).startswith("evaluation  overall -  ")


def test_no_control_character_reaches_the_terminal() -> None:
    """Escape sequences, line breaks and marks that turn the direction are shown as question marks."""
    shown = console(
        aggregated(scored(label="\x1b[31mred\x07\r\n\u202etxt"), agent="a\x1b]0;title\x07")
    )
    assert shown.count("\n") == 1
    assert all(char.isprintable() for char in shown.rstrip("\n"))
    assert "?[31mred????txt" in shown


def test_the_console_writes_to_the_present_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without a stream, lines go to standard error: the host's output stays its own. The contract
    holds.
    """
    save(ConsoleStorageProvider(), aggregated())
    captured = capsys.readouterr()
    assert (captured.out, captured.err[:21]) == ("", "support  overall 0.50")
    check_storage(ConsoleStorageProvider())
    check_component(ConsoleStorageProvider(), EvaluationStorageProvider)

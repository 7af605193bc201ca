"""The benchmarks judge fairly: what a goal says, what a table shows, what a receiver counts."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

from benchmarks.goals import holds
from benchmarks.harness import Bench, Figure, numbers_of
from benchmarks.speed.receiver import receiver
from benchmarks.speed.report import as_markdown, as_text
from benchmarks.speed.rows import ROWS
from benchmarks.speed.subjects import TITLES
from benchmarks.tables import show, summary


def bench(*figures: Figure) -> tuple[Bench, list[Figure]]:
    return Bench("case", "Cases", (), lambda actual: [], notes=("A note.",)), list(figures)


def test_the_table_says_what_is_missed() -> None:
    """A row beyond its goal says MISSED; the summary names it in full, wherever it stands in its
    group.
    """
    same = Figure("the same: counted", "calls", {"ours": 4.0}, holds("all", False))
    parts: list[Any] = [bench(Figure("a burst: evaluated", "calls", {"ours": 5.0}), same)]
    assert "MISSED" in next(line for line in show(parts).splitlines() if "the same" in line)
    assert "- A note." in show(parts)
    assert "- a burst: counted: 4 calls (goal all)" in summary(parts)


@pytest.mark.parametrize("as_table", [as_text, as_markdown])
def test_the_speed_table_judges_medians_of_one_run(as_table: Any) -> None:
    """Medians are compared with the subjects of the same run, and the ranges of the rounds are
    shown.
    """
    sync = [{"sync us": value, "async us": 10.0} for value in (10.0, 30.0, 12.0)]
    measured = {"agent_span": {"ours": sync, "raw": [{"sync us": 10.0, "async us": 10.0}]}}
    text = as_table(measured, {})
    assert "MISSED" in text  # 12 is more than 1.15 x 10
    assert text.count("met") == 1  # async
    assert "raw span 1.20" in text
    assert "12 (10-30)" in text


def test_a_goal_against_a_subject_that_did_not_run_is_not_met() -> None:
    """Without the rival the verdict says so, and the reason stands under the table."""
    measured = {"agent_span": {"ours": [{"sync us": 1.0, "async us": 1.0}]}}
    text = as_text(measured, {"agent_span of raw": "it ended with exit code 1"})
    assert text.count("not measured") == 2
    assert "NOT MEASURED: agent_span of raw: it ended with exit code 1" in text


def test_every_row_names_subjects_of_the_table() -> None:
    """A subject that is measured or that cannot run has a column's title, and ours is in every row."""
    for row in ROWS.values():
        assert {*row.subjects, *row.without} <= TITLES.keys()
        assert "ours" in row.subjects
        assert not {*row.subjects} & row.without.keys()


def test_the_receiver_counts_each_span_once() -> None:
    """A batch that an exporter sends again adds nothing."""
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("host")
    spans = [
        tracer.start_span(name) for name in ("invoke_agent a", "invoke_agent b", "application")
    ]
    ended = [span for span in spans if isinstance(span, ReadableSpan)]
    for span in spans:
        span.end()
    with receiver() as sink:
        exporter = OTLPSpanExporter(f"{sink.address}/v1/traces")
        for _ in range(2):
            exporter.export(ended)
        exporter.shutdown()
        assert sink.arrived().counts == {"invoke_agent": 2, "application": 1}


def test_a_measurement_gives_every_figure_of_its_row() -> None:
    """The process of a row prints all numbers that the table shows, and few calls arrive in full."""
    numbers = numbers_of(
        [sys.executable, "-m", "benchmarks.speed", "otlp", "late", "quick"], "otlp of late"
    )
    assert {line.number for line in ROWS["otlp"].lines} <= numbers.keys()
    assert [numbers[what] for what in ("agent spans", "events", "own")] == [1.0] * 3

"""The page `health`: what it computes from a process's metrics."""

from __future__ import annotations

import pytest

from agenteval_otel import semconv as names
from agenteval_otel.ui.health import Metrics, ago, sections, tiles

NOW_S = 1_780_000_000.0


def responses(**outcomes: int) -> Metrics:
    """The metrics of a process whose answers came to these outcomes, of two agents."""
    return {
        names.METRIC_RESPONSES: {
            ((names.AGENT_NAME, agent), (names.OUTCOME, outcome)): count / 2
            for agent in ("a", "b")
            for outcome, count in outcomes.items()
        }
    }


def test_what_became_of_answers_is_in_words() -> None:
    """Lost are those that were wanted. Those that were not selected, or left out under load, are
    not.
    """
    metrics = responses(
        evaluated=80, not_sampled=90, shed=10, dropped_queue_full=8, capture_failed=2
    )
    came_in, evaluated, lost, *_ = tiles(metrics, "", NOW_S)
    assert (came_in.value, came_in.words) == ("190", "90 of them not selected")
    assert (evaluated.value, evaluated.words) == ("80", "80 % of those wanted")
    assert (lost.value, lost.state) == ("10", "bad")
    assert (
        lost.words
        == "8 for a full queue, 2 not understood, 10 left out under load, which is no loss"
    )
    assert tiles(responses(evaluated=3), "", NOW_S)[2].state == "good"


@pytest.mark.parametrize("metrics", [{}, responses()])
def test_before_the_first_answer_nothing_is_good_or_bad(metrics: Metrics) -> None:
    assert {tile.state for tile in tiles(metrics, "nowhere", NOW_S)} == {""}
    values = {tile.title: tile.value for tile in tiles(metrics, "nowhere", NOW_S)}
    assert values == {
        "Answers in": "0",
        "Evaluated": "0",
        "Lost": "0",
        "Last score": "none yet",
        "Export": "off",
    }


@pytest.mark.parametrize(("lost", "state"), [(0, "good"), (12, "bad")])
def test_the_export_says_where_and_what_was_lost(lost: int, state: str) -> None:
    metrics = {
        names.METRIC_LAST_SUCCESS: {(): NOW_S - 4},
        names.METRIC_EXPORT_SIGNALS: {
            ((names.EXPORT_SIGNAL, signal), (names.EXPORT_REACH, "delivered")): 1
            for signal in ("traces", "metrics")
        },
        names.METRIC_EXPORT_LOST: {
            ((names.EXPORT_SIGNAL, "traces"), (names.EXPORT_REASON, "refused")): lost
        },
    }
    *_, last, export = tiles(metrics, "http://collector:4317", NOW_S)
    assert last.value == "4 s ago"
    assert (export.words, export.state) == ("metrics, traces to http://collector:4317", state)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0 s ago"),
        (119, "119 s ago"),
        (120, "2 min ago"),
        (7_300, "2 h ago"),
        (9e5, "10 d ago"),
    ],
)
def test_how_long_ago_is_in_one_unit(seconds: float, words: str) -> None:
    assert ago(seconds) == words


def test_the_share_of_answers_without_an_id_is_shown() -> None:
    """Of all agents together: traces and lone answers beside conversations and sessions."""

    def of(agent: str, kind: str) -> tuple[tuple[str, str], ...]:
        return ((names.AGENT_NAME, agent), (names.UNIT, kind))

    counts = {of("a", "conversation"): 60, of("b", "session"): 20, of("b", "trace"): 15}
    counts[of("a", "answer")] = 5
    (row,) = sections({names.METRIC_ANSWERS: counts})["Calls"]
    assert row.values[-1] == ("without the id of a conversation or session", "20 %")
    assert sections({names.METRIC_ANSWERS: {}})["Calls"][0].values == []

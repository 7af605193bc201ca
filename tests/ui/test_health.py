"""The page `health`: what it computes from a process's metrics."""

from __future__ import annotations

from agenteval_otel import semconv as names
from agenteval_otel.ui.health import sections


def test_the_share_of_answers_without_an_id_is_shown() -> None:
    """Of all agents together: traces and lone answers beside conversations and sessions."""

    def of(agent: str, kind: str) -> tuple[tuple[str, str], ...]:
        return ((names.AGENT_NAME, agent), (names.UNIT, kind))

    counts = {of("a", "conversation"): 60, of("b", "session"): 20, of("b", "trace"): 15}
    counts[of("a", "answer")] = 5
    (row,) = sections({names.METRIC_ANSWERS: counts})["Calls"]
    assert row.values[-1] == ("without the id of a conversation or session", "20 %")
    assert sections({names.METRIC_ANSWERS: {}})["Calls"][0].values == []

"""The plan of the demo's traffic."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel.cli.demo.script import plan_turns


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 300), st.floats(0.5, 60), st.integers(), st.booleans())
def test_a_plan_keeps_its_promises(calls: int, seconds: float, seed: int, drop: bool) -> None:
    """Exactly so many turns, in the order of time, within the time, each conversation one turn after another."""
    turns = plan_turns(calls=calls, seconds=seconds, seed=seed, drop=drop)
    assert len(turns) == calls
    assert turns == plan_turns(calls=calls, seconds=seconds, seed=seed, drop=drop)
    assert [turn.at_s for turn in turns] == sorted(turn.at_s for turn in turns)
    assert 0 <= turns[0].at_s <= turns[-1].at_s <= seconds
    places: dict[int, int] = {}
    for turn in turns:
        assert turn.place == places.get(turn.conversation, 0)
        places[turn.conversation] = turn.place + 1
        assert (turn.release == 2) == (turn.at_s >= seconds / 2)
        assert turn.trace_id != 0


def test_lifelike_traffic_has_everything() -> None:
    """Streams that are read and left, slow answers, failing tools, conversations of several turns, two prompts."""
    turns = plan_turns(calls=600, seconds=20, seed=7)
    assert {turn.release for turn in turns} == {1, 2}
    assert {turn.mood for turn in turns} >= {"good", "vague", "long", "refused", "empty", "failed", "cut"}
    assert max(turn.place for turn in turns) == 3
    for share, found in (
        (0.28, [turn.streamed for turn in turns]), (0.05, [turn.leave_after is not None for turn in turns]),
        (0.05, [turn.slow for turn in turns]), (0.05, [turn.tool_fails for turn in turns]),
    ):  # fmt: skip
        assert share / 2 < sum(found) / len(found) < share * 2
    assert plan_turns(calls=50, seconds=20, seed=8) != plan_turns(calls=50, seconds=20, seed=7)

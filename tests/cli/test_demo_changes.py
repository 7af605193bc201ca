"""What the demo calls a drop: found where one is, not found where none is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

import pytest

from agenteval_otel import EvaluationInput
from agenteval_otel.cli.demo.answers import MOODS, SHARES_V1, SHARES_V2, TOPICS, answer_text
from agenteval_otel.cli.demo.changes import Drop, Point, align, common_time, find_drops
from agenteval_otel.cli.demo.criteria import demo_evaluators
from agenteval_otel.cli.demo.script import Turn, plan_turns
from agenteval_otel.errors import EvaluationSkipped

RATIO_BOUND = 1 << 63  # half of the draws: the demo's ratio for answers that are neither slow nor failed


def coin(seed: int, *, before: float, after: float, length: int = 300, change: float = 0.5) -> list[Point]:
    """Verdicts, one a tenth of a second, whose rate changes once."""
    rng = random.Random(seed)
    return [
        Point(number / 10, rng.random() < (before if number < length * change else after), rng.choice((1.0, 2.0)))
        for number in range(length)
    ]


class Judge:
    """The demo's evaluators on scripted answers; each different answer is judged once."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner, self._evaluators = runner, demo_evaluators(max_characters=320)
        self.verdicts = cache(self._verdicts)

    def _verdicts(self, question: str, text: str, tool_fails: bool = False) -> tuple[tuple[str, bool], ...]:
        tool = {"name": "lookup_order", "result": {"error": "timeout"} if tool_fails else {"status": "ok"}}
        asked = EvaluationInput(prompt=question, response=text, tool_calls=[tool] if text else None)
        return tuple(self._runner.run(self._judge(asked)))

    async def _judge(self, asked: EvaluationInput) -> list[tuple[str, bool]]:
        said = []
        for evaluator in self._evaluators:
            with suppress(EvaluationSkipped):
                said += await evaluator.evaluate(asked, evaluator.criteria())
        return [(result.criterion_name, result.passed) for result in said if result.passed is not None]

    def series(self, turns: list[Turn]) -> dict[str, list[Point]]:
        """The verdicts on a plan's turns that the demo's sampler takes, dated by the plan: no clock, no chance."""
        series: dict[str, list[Point]] = {}
        for turn in turns:
            if turn.mood == "failed" or not (turn.slow or turn.trace_id % (1 << 64) < RATIO_BOUND):
                continue
            text = answer_text(turn.mood, turn.topic, turn.choice)
            for name, passed in self.verdicts(turn.question.partition("#")[0], text, turn.tool_fails):
                series.setdefault(name, []).append(Point(turn.at_s, passed, 1.0 if turn.slow else 2.0))
        return series


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with asyncio.Runner() as runner:
        yield Judge(runner)


@pytest.fixture(scope="module")
def found(judge: Judge) -> list[tuple[list[Drop], float | None]]:
    """What twenty seeds of the demo's traffic show, and when it began."""
    shown = []
    for seed in range(20):
        series = judge.series(plan_turns(calls=600, seconds=20, seed=seed))
        drops = find_drops(series)
        shown.append((drops, common_time(drops, series)))
    return shown


@pytest.mark.parametrize("seed", range(20))
def test_the_planted_drop_is_found(found: list[tuple[list[Drop], float | None]], seed: int) -> None:
    """Whatever the seed, 20 s of the demo's traffic show what the second prompt spoiled, and about when."""
    drops, at_s = found[seed]
    assert {"next_step", "names_the_topic"} <= {drop.criterion for drop in drops}
    assert all(drop.after.mean < drop.before.mean and drop.p_value < 0.05 for drop in drops)
    assert at_s is not None
    assert 7.5 < at_s < 12.5


def test_what_the_second_prompt_did_not_spoil_is_left_alone(found: list[tuple[list[Drop], float | None]]) -> None:
    """Criteria that it does not touch are accused in one seed of twenty at most."""
    accused = [drop for drops, _ in found for drop in drops if drop.criterion in ("courtesy", "tools_worked")]
    assert len(accused) <= 1


def test_where_none_is_planted_none_is_found(judge: Judge) -> None:
    """Of 20 seeds whose second prompt is as good as the first, at most one reports a drop."""
    plans = [plan_turns(calls=600, seconds=20, seed=seed, drop=False) for seed in range(20)]
    assert sum(bool(find_drops(judge.series(plan))) for plan in plans) <= 1


@pytest.mark.parametrize("rate", [0.7, 0.95])
def test_false_alarms_are_as_rare_as_promised(rate: float) -> None:
    """Six criteria whose rates never change, a hundred times: no more than five false alarms."""
    alarms = 0
    for run in range(100):
        series = {str(number): coin(1000 * run + number, before=rate, after=rate, length=150) for number in range(6)}
        alarms += bool(find_drops(series))
    assert alarms <= 5


def test_the_deepest_fall_comes_first() -> None:
    """Several drops are told by depth; the p-value counts every place and criterion that was tried."""
    series = {"little": coin(1, before=0.95, after=0.6), "much": coin(2, before=0.95, after=0.2)}
    drops = find_drops(series)
    assert [drop.criterion for drop in drops] == ["much", "little"]
    alone = find_drops({"little": series["little"]})
    assert alone[0].p_value == drops[1].p_value  # the surer one is found first, so only this one is left to try
    with_others = {**series, "steady": coin(3, before=0.9, after=0.9), "better": coin(4, before=0.4, after=0.9)}
    assert find_drops(with_others)[1].p_value == pytest.approx(3 * drops[1].p_value)
    assert abs(drops[0].place - 150) < 15
    assert drops[0].at_s == series["much"][drops[0].place].at_s


def test_drops_are_told_from_their_common_moment() -> None:
    """Aligned, a drop keeps its p-value and tells before and after that moment; a rise there changes nothing."""
    series = coin(1, before=0.95, after=0.6)
    (drop,) = find_drops({"little": series})
    moved = align(drop, series, 15.0)
    assert (moved.place, moved.at_s, moved.p_value) == (150, 15.0, drop.p_value)
    assert moved.before.scores == moved.after.scores == 150
    assert align(drop, coin(5, before=0.2, after=0.9), 15.0) == drop
    assert align(drop, series, 99.0) == drop


def test_a_rise_is_no_drop() -> None:
    """What got better is not reported."""
    assert find_drops({"better": coin(3, before=0.4, after=0.95)}) == []


def test_too_few_verdicts_say_nothing() -> None:
    """Below twenty verdicts on either side nothing is claimed, however clear it looks."""
    sure = [Point(float(number), number < 19, 1.0) for number in range(38)]
    assert find_drops({"few": sure}) == []
    assert find_drops({}) == []
    assert common_time([], {}) is None


def test_the_second_prompt_breaks_nothing_that_a_dashboard_shows() -> None:
    """Either prompt fails and breaks off as often: only what the answers say gets worse."""
    for mood in ("failed", "cut", "empty"):
        index = MOODS.index(mood)
        assert abs(SHARES_V1[index] - SHARES_V2[index]) <= 1
    assert sum(SHARES_V1) == sum(SHARES_V2) == 100


def test_every_mood_has_the_flaw_that_it_is_named_for(judge: Judge) -> None:
    """A good answer passes everything; each flaw is seen by the criterion that is there for it."""
    topic = TOPICS[0]
    flaws = {
        "good": set(), "vague": {"names_the_topic", "next_step"}, "long": {"short_enough"}, "open_ended": {"next_step"},
        "refused": {"response_health", "names_the_topic", "next_step"},
        "empty": {"response_health", "names_the_topic", "courtesy"},
    }  # fmt: skip
    for mood, expected in flaws.items():
        for choice in range(12):
            said = judge.verdicts(topic.question, answer_text(mood, topic, choice))
            failed = {name for name, passed in said if not passed}
            assert failed == expected, (mood, choice)

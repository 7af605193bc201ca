"""Comparisons: what is paired, what is claimed, and what makes a comparison doubtful."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from agenteval_otel.errors import EvaluationError
from agenteval_otel.offline.comparison import Answer, Options, compare, shadow_sides
from tests.comparison.support import answer, answer_of_record, answers, record

GOOD = [1.0] * 45 + [0.0] * 5


def live(share: float, count: int, *, seed: int = 1, turns: int = 1, **fields: Any) -> list[Answer]:
    """Answers of live traffic, `turns` in a conversation."""
    draw = random.Random(seed)
    return [
        answer(
            float(draw.random() < share),
            place=f"l:{number}",
            conversation_id=f"{seed}-{number // turns}",
            span={"trace_id": f"{number:032x}"},
            timestamp=1e12 + number,
            **fields,
        )
        for number in range(count)
    ]


def test_equal_inputs_are_compared_in_pairs() -> None:
    """Twelve of fifty score lower: a drop, with the inputs that it is made of, the worst first."""
    result = compare(answers(GOOD), answers([0.0] * 12 + GOOD[12:]))
    (tone,) = result.criteria
    assert (tone.outcome, tone.pairs, tone.lower, tone.higher) == ("drop", 50, 12, 0)
    assert tone.difference.value == pytest.approx(-0.24)
    assert tone.difference.high < 0
    assert (result.exit_code, len(result.regressions)) == (1, 10)
    assert all((item.before, item.after) == (1.0, 0.0) for item in result.regressions)
    assert result.regressions[0].b.content == ("q1", "an answer")


def test_noise_is_no_drop_and_pairs_are_what_shows_a_small_one() -> None:
    """Two of fifty changed each way pass. Nine of 300 that fell are a drop in pairs, and chance as
    two samples.
    """
    noisy = [0.0, 0.0, *GOOD[2:-2], 1.0, 1.0]
    assert compare(answers(GOOD), answers(noisy)).exit_code == 0
    before = GOOD * 6
    after = [0.0] * 9 + before[9:]
    assert compare(answers(before), answers(after)).exit_code == 1
    assert compare(answers(before), answers(after), Options(pairs=False)).exit_code == 0


def test_changed_inputs_are_named() -> None:
    before, after = answers(GOOD), answers([*GOOD, 1.0])[1:]
    after[0] = answer(1.0, place="b:2", prompt="q2", response="another answer")
    changed = compare(before, after).changed
    assert changed is not None
    assert [item.place for item in (*changed.only_a, *changed.only_b)] == ["a:1", "a:51"]
    assert (changed.matched, changed.answers) == (49, 1)


def test_an_id_names_an_input_and_repeated_ones_are_averaged() -> None:
    """By `metadata.id`, whatever its text; two answers to one input are one pair."""
    before = [answer(1.0, metadata={"id": number}) for number in range(20)]
    after = [answer(score, metadata={"id": number}) for number in range(20) for score in (0.0, 1.0)]
    result = compare(before, after)
    assert result.criteria[0].pairs == 20
    assert result.criteria[0].difference.value == pytest.approx(-0.5)
    assert any("20 inputs are there more than once" in note for note in result.notes)


def test_live_traffic_is_two_samples_by_conversation() -> None:
    """Equal questions of two users are no pair; the interval is that of the conversations."""
    a, b = live(0.9, 400, prompt="hi"), live(0.7, 400, seed=2, prompt="hi")
    result = compare(a, b)
    assert (result.changed, result.exit_code) == (None, 1)
    whole = [item._replace(cluster=str(number // 50)) for number, item in enumerate(b)]
    assert compare(a, whole).criteria[0].difference.error != result.criteria[0].difference.error


def test_sampled_answers_stand_for_others() -> None:
    """Failures that are sampled twenty times as often lower no mean."""
    uneven = []
    for number, item in enumerate(live(0.9, 2_000, seed=3)):
        score = item.scores["tone"]
        if not score.value:
            uneven.append(item)
        elif number % 20 == 0:
            uneven.append(item._replace(scores={"tone": score._replace(weight=20.0)}))
    (tone,) = compare(live(0.9, 1_000), uneven).criteria
    assert tone.outcome == "not significant"
    assert tone.b.mean == pytest.approx(0.9, abs=0.03)


@pytest.mark.parametrize(("baseline", "outcome"), [(4, "not significant"), (40, "drop")])
def test_few_baseline_answers_are_no_evidence(baseline: int, outcome: str) -> None:
    """Of failures that were all evaluated, and few of the other answers, nothing is claimed of the
    traffic.
    """
    preferred = live(0.0, 200, seed=3, probability=1.0, least_probability=0.02)
    others = live(0.0, baseline, seed=4, probability=0.02)
    comparison = compare(live(1.0, 400), [*preferred, *others])
    (tone,) = comparison.criteria
    assert (tone.outcome, tone.b.baseline) == (outcome, baseline)
    is_said = any(
        "preferred all answers but 400 of A and 4 of B" in note for note in comparison.notes
    )
    assert is_said is (baseline == 4)


def test_many_criteria_need_stronger_evidence() -> None:
    """The same drop is one of a single criterion, and chance among thirty."""

    def many(scores: list[float], others: int) -> list[Answer]:
        same = answer(1.0).scores["tone"]
        more = {f"c{index}": same for index in range(others)}
        return [item._replace(scores={**item.scores, **more}) for item in answers(scores)]

    before, after = [1.0] * 60, [0.0] * 8 + [1.0] * 52
    assert compare(many(before, 0), many(after, 0)).exit_code == 1
    result = compare(many(before, 30), many(after, 30))
    assert result.exit_code == 0
    assert result.criteria[0].corrected == pytest.approx(31 * result.criteria[0].p)


def test_another_evaluator_is_no_difference_of_answers() -> None:
    """Its criterion is not compared, and says why; without any other one there is no comparison."""
    after = answers([0.0] * 50, evaluator_version="2")
    result = compare(answers(GOOD, evaluator_version="1"), after)
    assert (result.criteria[0].outcome, result.exit_code) == ("evaluator changed", 2)
    assert "tone: the evaluators differ (T 1 and T 2)" in result.notes[0]


def with_tried(tried: list[list[dict[str, Any]]]) -> tuple[list[Answer], list[Answer]]:
    """The two sides of answers that the present evaluator scores 1, and a tried one as given."""
    present = record(1.0)["results"]
    both = [
        answer_of_record({"results": present + more}, f"a:{number}")
        for number, more in enumerate(tried)
    ]
    return shadow_sides(both)


TRIED = Options(pairs=True, same_evaluators=False)


def test_evaluators_that_are_tried_beside_the_present_ones() -> None:
    """The same answers, by the same evaluator's name without `.shadow`."""
    worse, same = (record(score, name="tone.shadow")["results"] for score in (0.0, 1.0))
    (tone,) = compare(*with_tried([worse] * 20 + [same] * 20), TRIED).criteria
    assert (tone.name, tone.pairs, tone.lower, tone.outcome) == ("tone", 40, 20, "drop")


def test_failures_of_a_tried_evaluator_are_said() -> None:
    """Those answers have no score of it, so only the note can say that it breaks on half of them."""
    broken = [{"criterion_name": "tone.shadow", "evaluator_type": "T", "error": "overloaded"}]
    present, tried = with_tried([broken, record(1.0, name="tone.shadow")["results"]] * 50)
    result = compare(present, tried, TRIED)
    assert (len(present), len(tried), result.criteria[0].pairs) == (100, 100, 50)
    assert "tone: 0.0% and 50.0% of the evaluations failed" in result.notes[0]


def test_one_failure_among_two_evaluators_of_a_criterion_is_no_other_evaluator() -> None:
    """A criterion that two evaluators score is compared, although one of them failed once."""

    def both(scores: list[float], failing: int | None = None) -> list[Answer]:
        made = []
        for n, score in enumerate(scores):
            item = record(score, prompt=f"q{n}")
            outcome = {"error": "overloaded"} if n == failing else {"normalized": score}
            item["results"].append({"criterion_name": "tone", "evaluator_type": "U", **outcome})
            made.append(answer_of_record(item, f"a:{n}"))
        return made

    after = both([0.0] * 20 + GOOD[20:], failing=3)
    result = compare(both(GOOD), after, Options(pairs=False))
    assert (result.criteria[0].outcome, result.exit_code) == ("drop", 1)


def test_longer_conversations_are_no_imbalance() -> None:
    """Units count and not their answers, also where weights differ; an answer without a score says
    nothing of them.
    """
    a = live(0.9, 300, turns=2, probability=0.1)
    b = live(0.9, 450, seed=2, turns=3, probability=0.1)
    a[0] = a[0]._replace(scores={})
    heavy = {"tone": b[0].scores["tone"]._replace(weight=5.0)}
    uneven = [item._replace(scores=heavy) for item in b[:3]]
    for after in (b, [*uneven, *b[3:]]):
        balance = compare(a, after, Options(share=0.5)).balance
        assert balance is not None
        assert not balance.mismatch


def test_arms_out_of_balance_are_no_experiment() -> None:
    """Where a half each was assigned, 500 and 320 answers are an error, and no result."""
    options = Options(sequential=True, share=0.5)
    even = compare(live(0.9, 500), live(0.7, 520, seed=2), options)
    assert even.balance is not None
    assert (even.balance.mismatch, even.exit_code) == (False, 1)
    few = compare(live(0.9, 500), live(0.7, 320, seed=2), options)
    assert few.exit_code == 2
    assert "out of balance" in few.notes[0]


def test_looking_often_finds_nothing_where_nothing_is() -> None:
    """Twenty experiments that are looked at after every fifty answers; one look each would call
    every fourth.
    """
    called = 0
    options = Options(sequential=True)
    for seed in range(20):
        a, b = live(0.9, 500, seed=seed), live(0.9, 500, seed=100 + seed)
        called += any(compare(a[:seen], b[:seen], options).drops for seen in range(50, 501, 50))
    assert called <= 1


def test_failures_are_no_scores_and_are_said() -> None:
    """What broke is in no mean; where more of one side broke, the comparison says so. NaN is no
    number.
    """
    broken = {"results": [{"criterion_name": "tone", "evaluator_type": "T", "error": "timeout"}]}
    odd = record(math.nan)
    after = answers([1.0] * 40) + [
        answer_of_record(item, "b:9") for item in (broken, odd) for _ in range(10)
    ]
    result = compare(answers([1.0] * 60), after)
    assert result.criteria[0].b.scores == 40
    assert any("33.3% of the evaluations failed" in note for note in result.notes)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ([], answers([1.0]), "A: no answers"),
        (answers([1.0]), [], "B: no answers"),
        (
            answers([1.0]),
            answers([1.0], name="other"),
            "no criterion has scores on both sides: there are tone and other",
        ),
        (answers([1.0]), [answer(None, prompt="q1")], "there are tone and none"),
    ],
)
def test_what_cannot_be_compared(before: list[Answer], after: list[Answer], message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        compare(before, after)


def test_pairs_that_are_demanded_have_to_be_there() -> None:
    with pytest.raises(EvaluationError, match="nothing can be paired"):
        compare(answers([1.0]), [answer(1.0)], Options(pairs=True))


def test_pass_rates() -> None:
    """Shares that pass, of the results with a verdict."""
    before, after = answers([0.6] * 30, passed=True), answers([0.6] * 30, passed=False)
    assert compare(before, after).exit_code == 0
    assert compare(before, after, Options(pass_rate=True)).criteria[0].difference.value == -1.0


def test_the_same_answers_give_the_same_figures() -> None:
    """Permutations are drawn alike in every run."""
    a, b = live(0.9, 60), live(0.75, 60, seed=2)
    assert compare(a, b).criteria == compare(a, b).criteria

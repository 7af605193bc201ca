"""Measuring a judge on labelled answers: halves, groups, and what is refused."""

from __future__ import annotations

import random
from typing import Any

import pytest

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models.intervals import estimate_of
from agenteval_otel.offline.calibration.measure import JudgedAnswer, clustered_estimate, measure
from agenteval_otel.offline.calibration.next_labels import next_labels


def answers(count: int, labelled: int, seed: int = 0) -> list[JudgedAnswer]:
    """Answers to half as many prompts, of two systems; a good one scores 4 on average, a bad one 2."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        good = draw.random() < 0.7
        score = min(5.0, max(1.0, float(round(draw.gauss(4.0 if good else 2.2, 0.8)))))
        person = good if number < labelled else None
        system = ("one", "two")[number % 2]
        made.append(
            JudgedAnswer(str(number), f"p{number // 2}", score, score >= 3, person, system=system)
        )
    return made


def test_a_measurement_has_both_corrections_and_every_group() -> None:
    measurement = measure(answers(2_000, 300))
    assert list(measurement.estimates) == [
        "judge alone",
        "labels alone",
        "corrected",
        "prediction-powered",
    ]
    for name in ("labels alone", "corrected", "prediction-powered"):
        estimate = measurement.estimates[name]
        assert estimate.low <= 0.7 <= estimate.high, name
    assert [(group.kind, group.value, group.judged) for group in measurement.groups] == [
        ("system", "one", 1_000),
        ("system", "two", 1_000),
    ]
    assert measurement.agreement.clusters == 150  # two answers to each prompt
    assert measurement.overlap == pytest.approx(0.15)


def test_a_difference_that_may_be_chance_is_no_shift() -> None:
    """The judge passes 68 % of the labelled answers, and 78 % of the others."""
    draw, made = random.Random(4), answers(200, 200)
    for number in range(200, 1_200):
        passed = draw.random() < 0.78
        made.append(JudgedAnswer(str(number), f"p{number}", float(passed), passed))
    assert measure(made).shifts.rate is None


def test_labels_that_were_picked_by_verdict_are_no_shift() -> None:
    """Their probabilities are known, so that they stand for all answers."""
    draw, made = random.Random(5), []
    for answer in answers(5_000, 5_000):
        probability = 0.05 if answer.passed else 0.3
        if draw.random() < probability:
            made.append(answer._replace(label_weight=1 / probability))
        else:
            made.append(answer._replace(person=None))
    assert not measure(made).shifts


def test_without_other_answers_there_are_the_labels_alone() -> None:
    assert list(measure(answers(200, 200)).estimates) == ["labels alone"]


def test_a_threshold_is_chosen_on_prompts_that_no_figure_has() -> None:
    """Both answers to a prompt stand in one half; the record's prompts are then left out for good."""
    everything = answers(400, 400)
    measurement = measure(everything, choose_threshold=True)
    assert measurement.threshold in (3.0, 4.0)
    assert len(measurement.choosing_prompts) + measurement.agreement.clusters == 200
    assert measurement.choosing + measurement.agreement.rows == 400
    again = measure(everything, chosen_by=measurement.choosing_prompts)
    assert again.left_out == {"its prompt chose the threshold": measurement.choosing}
    assert again.agreement.rows == measurement.agreement.rows
    assert again.choosing_prompts == measurement.choosing_prompts  # for the runs after it too
    with pytest.raises(
        ConfigurationError, match=r"no answer has both a label and a verdict .*chose the threshold"
    ):
        measure(everything, chosen_by={answer.prompt for answer in everything})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"passed": None}, "60 left out because the judge gave no verdict"),
        ({"weight": float("nan")}, "answer '0' has the weight nan"),
        ({"label_weight": 0.0}, "answer '0' has the weight 0.0"),
        ({"key": "0"}, "1 answers stand there more than once: '0'"),
    ],
)
def test_what_gives_no_honest_figure_is_refused(change: dict[str, Any], message: str) -> None:
    """Answers without a verdict, weights that are none, and answers that are there twice."""
    changed = [answer._replace(**change) for answer in answers(60, 60)]
    with pytest.raises(ConfigurationError, match=message):
        measure(changed)


def test_too_few_rows_choose_no_threshold() -> None:
    with pytest.raises(ConfigurationError, match="Expected at least 10, of both classes"):
        measure(answers(12, 12), choose_threshold=True)


def test_an_estimate_of_clusters_is_as_wide_as_they_are_few() -> None:
    """Ten equal answers in each cluster are worth one; a cluster each are worth what they are."""
    verdicts = [n % 3 > 0 for n in range(300)]
    one_each = [JudgedAnswer(str(n), passed=passed) for n, passed in enumerate(verdicts)]
    in_tens = [
        JudgedAnswer(f"{n} {copy}", passed=passed, cluster=str(n))
        for n, passed in enumerate(verdicts[:30])
        for copy in range(10)
    ]
    plain, clustered = clustered_estimate(one_each), clustered_estimate(in_tens)
    assert plain == pytest.approx(estimate_of((float(passed), 1.0) for passed in verdicts))
    assert plain is not None
    assert clustered is not None
    assert clustered.mean == pytest.approx(plain.mean)
    assert clustered.effective == pytest.approx(plain.effective / 10, rel=0.05)
    assert clustered_estimate([]) is None


def test_the_next_labels_are_reproducible_and_fill_what_has_few() -> None:
    """The same answers and seed give the same picks in any order; borderline scores and a rare
    slice come first.
    """
    waiting = [
        answer._replace(slices={"topic": "rare" if n % 20 == 0 else "usual"})
        for n, answer in enumerate(answers(1_000, 200))
    ]

    def picked(of: list[JudgedAnswer], seed: int = 0) -> set[str]:
        return {pick.answer.key for pick in next_labels(of, 50, threshold=3.0, seed=seed)}

    mixed = random.Random(3).sample(waiting, len(waiting))
    assert picked(mixed) == picked(waiting) != picked(waiting, seed=1)
    picks = next_labels(waiting, 50, threshold=3.0)
    assert len(picks) == 50
    assert all(pick.answer.person is None and 0 < pick.probability <= 1 for pick in picks)
    rare = [pick for pick in picks if pick.answer.slices["topic"] == "rare"]
    assert len(rare) >= 3  # two of fifty at random
    assert share_near([pick.answer for pick in picks]) > share_near(waiting)
    assert len(next_labels(waiting, 5_000)) == 800


def share_near(of: list[JudgedAnswer]) -> float:
    """The share of answers with a score next to the threshold."""
    return sum(abs((answer.score or 0) - 3) <= 1 for answer in of) / len(of)


def test_labels_of_picked_answers_still_stand_for_all() -> None:
    """Weighted by 1 / probability, their mean is that of the answers they were picked from, over
    many seeds: 100 picks of 60 scores have a standard error of 0.015.
    """
    waiting = answers(600, 0)
    means = []
    for seed in range(100):
        weights, total = 0.0, 0.0
        for pick in next_labels(waiting, 60, threshold=3.0, seed=seed):
            weights += 1 / pick.probability
            total += (pick.answer.score or 0.0) / pick.probability
        means.append(total / weights)
    expected = sum(answer.score or 0.0 for answer in waiting) / len(waiting)
    assert sum(means) / len(means) == pytest.approx(expected, abs=0.03)

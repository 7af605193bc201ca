"""Labels of other answers than those that they are to stand for: by the judge's rate, age and release."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime

import pytest

from agenteval_otel.offline.calibration.measure import JudgedAnswer, Measurement, measure
from agenteval_otel.offline.calibration.shift import Shifts
from agenteval_otel.offline.reports.label_shifts import shift_sentences

DAY_S = 86_400.0
NEW_S = datetime(2026, 11, 20, tzinfo=UTC).timestamp()


def answered(
    number: int,
    draw: random.Random,
    *,
    labelled: bool,
    rate: float = 0.9,
    at_s: float = NEW_S,
    conversation: int = 1,
    **release: str,
) -> JudgedAnswer:
    """An answer that the judge passes at this rate, and on which people mostly agree with it."""
    passed = draw.random() < rate
    agrees = draw.random() < 0.9
    return JudgedAnswer(
        str(number),
        f"p{number}",
        float(passed),
        passed,
        (passed == agrees) if labelled else None,
        cluster=f"c{number // conversation}",
        answered_s=at_s,
        release=release,
    )


def older_release(rate: float, *, spread_s: float = 5 * DAY_S) -> Measurement:
    """200 labels of an older release beside 800 answers of the new one, as in the review's case."""
    draw, made = random.Random(4), []
    for number in range(1_000):
        is_old = number < 200
        at_s = NEW_S + draw.random() * spread_s - (20 * DAY_S if is_old else 0.0)
        made.append(
            answered(
                number,
                draw,
                labelled=is_old,
                rate=rate if is_old else 0.9,
                at_s=at_s,
                prompt_version="1" if is_old and number % 14 else "2",
                model="m" if number % 2 else "n",
            )
        )
    return measure(made)


def test_labels_of_an_older_release_are_told_by_rate_age_and_version() -> None:
    """The case of the review: the judge passes .6 of the labelled answers, and .9 of the others."""
    shifts = older_release(0.6).shifts
    assert shifts.rate is not None
    assert shifts.rate.labelled.high < shifts.rate.judged.low
    assert shifts.age is not None
    assert shifts.age.labelled_s < NEW_S < shifts.age.others_s
    assert [(shift.name, shift.value) for shift in shifts.releases] == [("prompt_version", "1")]
    first, second, third, *rest = shift_sentences(shifts)
    assert first.startswith("The judge passes 5")
    assert second.startswith("The labels are of older answers: half of them before 2026-11-0")
    assert third.startswith("92 % of the labels are of prompt version 1, which 0 % of the other")
    assert len(rest) == 1


def test_an_older_release_is_told_where_the_judge_passes_as_many() -> None:
    """The judge's rate cannot tell: age and version do."""
    shifts = older_release(0.9).shifts
    assert shifts.rate is None
    assert shifts.age is not None
    assert shifts.releases
    assert "is not known" in list(shift_sentences(shifts))[-1]


@pytest.mark.parametrize(("hours", "is_told"), [(0.5, False), (40.0, True)])
def test_a_difference_of_minutes_is_no_age(hours: float, is_told: bool) -> None:
    draw, made = random.Random(1), []
    for number in range(400):
        at_s = NEW_S + (hours * 3_600 if number >= 100 else 0.0) + draw.random()
        made.append(answered(number, draw, labelled=number < 100, at_s=at_s))
    assert (measure(made).shifts.age is not None) is is_told


def test_newer_labels_are_called_newer() -> None:
    draw, made = random.Random(1), []
    for number in range(400):
        at_s = NEW_S + (9 * DAY_S if number < 100 else 0.0) + draw.random() * DAY_S
        made.append(answered(number, draw, labelled=number < 100, at_s=at_s))
    (age, _) = shift_sentences(measure(made).shifts)
    assert age.startswith("The labels are of newer answers: half of them after 2026-11-29")


def test_a_small_difference_of_versions_is_left_out() -> None:
    """Of very many answers six in a hundred more are no chance, and too few to matter."""
    draw, made = random.Random(2), []
    for number in range(20_000):
        is_labelled = number < 6_000
        share = 0.56 if is_labelled else 0.5
        version = "1" if draw.random() < share else "2"
        made.append(answered(number, draw, labelled=is_labelled, prompt_version=version))
    assert not measure(made).shifts


def test_conversations_count_once() -> None:
    """Four of six labelled conversations have a version that a quarter of the others has."""
    draw, made = random.Random(3), []
    for number in range(1_000):
        unit = number // 10
        version = "1" if unit % 4 == 0 or unit in (1, 2) else "2"
        made.append(
            answered(number, draw, labelled=number < 60, conversation=10, prompt_version=version)
        )
    assert not measure(made).shifts.releases
    apart = [answer._replace(cluster="") for answer in made]
    assert measure(apart).shifts.releases, "as independent answers they would be told"


@pytest.mark.parametrize(("labels", "conversation"), [(5, 1), (20, 1), (100, 1), (50, 5)])
def test_labels_at_random_are_rarely_told(labels: int, conversation: int) -> None:
    """At a level of 1 %: of 300 draws at most nine, which more than twice the level would exceed."""
    draw, told = random.Random(labels), Counter[str]()
    for _ in range(300):
        shifts = random_labels(draw, labels, conversation)
        told["rate"] += shifts.rate is not None
        told["age"] += shifts.age is not None
        for shift in shifts.releases:
            told[shift.name] += 1
    assert all(count <= 9 for count in told.values()), told


def random_labels(draw: random.Random, labels: int, conversation: int) -> Shifts:
    units = 240 // conversation
    times = [NEW_S + draw.random() * 30 * DAY_S for _ in range(units)]
    versions = draw.choices("123", (0.9, 0.07, 0.03), k=units)
    labelled = set(draw.sample(range(units), labels // conversation))
    made = []
    for number in range(240):
        unit = number // conversation
        answer = answered(
            number,
            draw,
            labelled=unit in labelled,
            rate=0.5,
            at_s=times[unit],
            conversation=conversation,
            prompt_version=versions[unit],
        )
        made.append(answer)
    # of both classes, without which there is no figure at all
    of_people = [answer for answer in made if answer.person is not None]
    verdicts = [answer._replace(person=at % 2 == 0) for at, answer in enumerate(of_people)]
    by_key = {answer.key: answer for answer in verdicts}
    return measure([by_key.get(answer.key, answer) for answer in made]).shifts


def test_where_nothing_is_known_nothing_is_told() -> None:
    """Rows without moments and versions, as in files of labels."""
    draw = random.Random(5)
    made = [
        answered(number, draw, labelled=number < 50)._replace(answered_s=None)
        for number in range(200)
    ]
    assert list(shift_sentences(measure(made).shifts)) == []

"""Labels of other answers than those that they are to stand for: by the judge's rate, age and release."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime

import pytest

from agenteval_otel.offline.calibration.measure import JudgedAnswer, measure
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


def test_labels_of_an_older_release_are_told_by_rate_age_and_version() -> None:
    """The case of the review: the judge passes .6 of 200 labelled answers of an older release, and
    .9 of 800 others.
    """
    draw, made = random.Random(4), []
    for number in range(1_000):
        is_old = number < 200
        at_s = NEW_S + draw.random() * 5 * DAY_S - (20 * DAY_S if is_old else 0.0)
        made.append(
            answered(
                number,
                draw,
                labelled=is_old,
                rate=0.6 if is_old else 0.9,
                at_s=at_s,
                prompt_version="1" if is_old and number % 14 else "2",
                model="m" if number % 2 else "n",
            )
        )
    shifts = measure(made).shifts
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


@pytest.mark.parametrize(
    ("hours", "is_told"),
    [
        (0.5, None),
        (40.0, "older answers: half of them before 2026-11-20"),
        (-216.0, "newer answers: half of them after 2026-11-"),
    ],
)
def test_labels_of_another_time_are_told_and_minutes_are_not(
    hours: float, is_told: str | None
) -> None:
    """Labels of older or newer answers than the others, and by how much."""
    draw, made = random.Random(1), []
    for number in range(400):
        at_s = NEW_S + (hours * 3_600 if number >= 100 else 0.0) + draw.random()
        made.append(answered(number, draw, labelled=number < 100, at_s=at_s))
    shifts = measure(made).shifts
    if is_told is None:
        assert shifts.age is None
    else:
        assert f"The labels are of {is_told}" in next(iter(shift_sentences(shifts)))


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
    """At a level of 1 %: of 150 draws at most six, which is four times the level."""
    draw, told = random.Random(labels), Counter[str]()
    for _ in range(150):
        shifts = random_labels(draw, labels, conversation)
        told["rate"] += shifts.rate is not None
        told["age"] += shifts.age is not None
        told.update(shift.name for shift in shifts.releases)
    assert all(count <= 6 for count in told.values()), told


def random_labels(draw: random.Random, labels: int, conversation: int) -> Shifts:
    units = 240 // conversation
    times = [NEW_S + draw.random() * 30 * DAY_S for _ in range(units)]
    versions = draw.choices("123", (0.9, 0.07, 0.03), k=units)
    labelled = set(draw.sample(range(units), labels // conversation))
    made = []
    verdict = False
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
        if answer.person is not None:  # of both classes, without which there is no figure at all
            verdict = not verdict
            answer = answer._replace(person=verdict)
        made.append(answer)
    return measure(made).shifts


def test_where_nothing_is_known_nothing_is_told() -> None:
    """Rows without moments and versions, as in files of labels."""
    draw = random.Random(5)
    made = [answered(number, draw, labelled=number < 50) for number in range(200)]
    measurement = measure([answer._replace(answered_s=None) for answer in made])
    assert list(shift_sentences(measurement.shifts)) == []

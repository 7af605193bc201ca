"""Agreement between people: Cohen's kappa of two, Krippendorff's alpha of more."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenteval_otel.offline.calibration.people import people_agreement

Verdicts = list[dict[str | None, bool]]


def drawn(
    chance: random.Random, errors: Sequence[float], answers: int, *, missing: float = 0.0
) -> Verdicts:
    """Verdicts of people who err with these probabilities, each on a part of the answers."""
    verdicts: Verdicts = []
    for _ in range(answers):
        truth = chance.random() < 0.7
        labels: dict[str | None, bool] = {}
        for person, error in enumerate(errors):
            if chance.random() >= missing:
                labels[str(person)] = truth != (chance.random() < error)
        verdicts.append(labels)
    return verdicts


def alpha_of(verdicts: Verdicts) -> float:
    """Krippendorff's alpha by its definition: 1 - observed / expected disagreement."""
    shared = [list(labels.values()) for labels in verdicts if len(labels) > 1]
    count = sum(map(len, shared))
    passed = sum(map(sum, shared))
    observed = sum(
        2 * sum(labels) * (len(labels) - sum(labels)) / (len(labels) - 1) for labels in shared
    )
    return 1 - (count - 1) * observed / (2 * passed * (count - passed))


@given(st.integers(0, 10**6), st.integers(3, 5), st.floats(0.0, 0.6))
def test_alpha_is_that_of_its_definition(seed: int, people: int, missing: float) -> None:
    """Whoever has labelled which answers; answers with one label tell nothing."""
    verdicts = drawn(random.Random(seed), [0.1] * people, 60, missing=missing)
    agreement = people_agreement(verdicts)
    assert agreement is not None
    assert agreement.answers == sum(len(labels) > 1 for labels in verdicts)
    if agreement.coefficient is not None and agreement.people > 2:
        assert agreement.name == "Krippendorff's alpha"
        assert agreement.coefficient.mean == pytest.approx(alpha_of(verdicts))
        assert agreement.coefficient.low <= agreement.coefficient.mean
        assert agreement.coefficient.mean <= agreement.coefficient.high


def test_two_people_have_cohens_kappa() -> None:
    """Twenty answers both pass, five one alone, ten the other alone, fifteen neither: 0.4."""
    verdicts: Verdicts = [{"a": True, "b": True}] * 20 + [{"b": False, "a": True}] * 5
    verdicts += [{"a": False, "b": True}] * 10 + [{"a": False, "b": False}] * 15
    agreement = people_agreement([*verdicts, {"a": True}, {}, {"c": False}])
    assert agreement is not None
    assert (agreement.people, agreement.answers) == (2, 50)
    assert agreement.name == "Cohen's kappa"
    assert agreement.equal.mean == pytest.approx(0.7)
    assert agreement.coefficient is not None
    assert agreement.coefficient.mean == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("errors", "missing"), [((0.1, 0.1), 0.0), ((0.05, 0.1, 0.2), 0.3), ((0.1,) * 4, 0.4)]
)
def test_the_interval_holds_the_truth(errors: tuple[float, ...], missing: float) -> None:
    """Of 200 draws of 60 answers at least 92 % of the intervals hold the agreement of very many."""
    many = people_agreement(drawn(random.Random(1), errors, 30_000, missing=missing))
    assert many is not None
    assert many.coefficient is not None
    truth = many.coefficient.mean
    chance, hits = random.Random(2), 0
    for _ in range(200):
        agreement = people_agreement(drawn(chance, errors, 60, missing=missing))
        assert agreement is not None
        assert agreement.coefficient is not None
        hits += agreement.coefficient.low <= truth <= agreement.coefficient.high
    assert hits >= 184


def test_without_a_difference_nothing_is_claimed() -> None:
    """No shared answer has no agreement, and equal labels have no agreement beyond chance."""
    assert people_agreement([]) is None
    assert people_agreement([{"a": True}, {"b": True}, {}]) is None
    for people in (2, 3):
        agreement = people_agreement([{str(person): True for person in range(people)}] * 9)
        assert agreement is not None
        assert agreement.equal.mean == 1.0
        assert agreement.coefficient is None

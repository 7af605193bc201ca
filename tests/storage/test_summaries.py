"""The one sum of stored scores gives the figures of the running sums of a process."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agenteval_otel.models.intervals import UnitMean, UnitSums
from agenteval_otel.storage.summaries import GatheredScores, ScoreColumns, summarise

scores_of_groups = st.lists(
    st.tuples(
        st.floats(0, 1), st.floats(1, 20), st.integers(0, 6), st.booleans(), st.integers(0, 3)
    ),
    min_size=1,
    max_size=60,
)


def _equal(mean: UnitMean | None, of_sums: UnitMean | None) -> bool:
    if mean is None or of_sums is None:
        return mean is of_sums
    return mean.baseline == of_sums.baseline and mean[:-1] == pytest.approx(of_sums[:-1], abs=1e-6)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scores_of_groups)
def test_means_of_groups_are_those_of_their_scores(
    scores: list[tuple[float, float, int, bool, int]],
) -> None:
    """However many pairs of group and unit there are, where a group has no score at all, and by any
    name of groups and units. A score without a unit is one of its own.
    """
    gathered = GatheredScores(["never"])
    of_columns = [UnitSums() for _ in range(5)]
    of_names = {f"group {number}": UnitSums() for *_, number in scores}
    for value, weight, unit, is_baseline, group in scores:
        name, own_unit = f"group {group}", f"conversation {unit}" if unit else None
        gathered.add(value, weight, own_unit, group=name, is_baseline=is_baseline)
        of_names[name].add(value, weight, own_unit, is_baseline=is_baseline)
        of_columns[group].add(value, weight, unit, is_baseline=is_baseline)
    means = gathered.means()
    assert list(means) == list(of_names)
    assert all(_equal(means[name], sums.mean()) for name, sums in of_names.items())
    values, weights, units, baselines, groups = map(np.array, zip(*scores, strict=True))
    for spread in (1, 1_000):
        columns = ScoreColumns(values, weights, units * spread, baselines, groups)
        for mean, sums in zip(summarise(columns, 5), of_columns, strict=True):
            assert _equal(mean, sums.mean())


def test_nothing_gathered_has_no_mean() -> None:
    assert GatheredScores().mean() is None
    assert GatheredScores(["tone"]).means() == {}

"""Sums by unit for counters: exact for the units that are kept, in memory that does not grow."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenteval_otel.telemetry.metrics import UnitIncrements


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["tone", "length"]),
            st.one_of(st.none(), st.integers(0, 5)),
            st.floats(1, 20),
            st.booleans(),
            st.floats(0, 1),
        ),
        max_size=60,
    )
)
def test_what_is_added_makes_the_sums_over_units(
    scores: list[tuple[str, int | None, float, bool, float]],
) -> None:
    """The increments of a place add up to the sums over its units, whatever came between."""
    increments = UnitIncrements()
    totals: dict[str, list[float]] = {}
    units: dict[tuple[str, object], list[float]] = {}
    for number, (place, unit, weight, fails, score) in enumerate(scores):
        amounts = weight, weight * fails, weight * score
        added = increments.add(place, unit, *amounts)
        before = totals.setdefault(place, [0.0] * 6)
        totals[place] = [total + more for total, more in zip(before, added, strict=True)]
        own = units.setdefault((place, ("alone", number) if unit is None else unit), [0.0] * 3)
        for position, amount in enumerate(amounts):
            own[position] += amount
    for place, total in totals.items():
        of_place = [sums for (other, _), sums in units.items() if other == place]
        assert total == pytest.approx(
            [
                len(of_place),
                sum(w * w for w, _, _ in of_place),
                sum(f * w for w, f, _ in of_place),
                sum(f * f for _, f, _ in of_place),
                sum(y * w for w, _, y in of_place),
                sum(y * y for _, _, y in of_place),
            ],
            abs=1e-6,
        )


def test_new_units_take_no_more_memory_and_replace_the_oldest() -> None:
    """After 10,000 others nearly all are known, and after 100,000 none."""
    increments = UnitIncrements()
    increments.add("tone", "first", 1.0, 0.0, 1.0)
    for number in range(100_000):
        increments.add("tone", f"c-{number}", 1.0, 0.0, 1.0)
    tracemalloc.start()
    try:
        for number in range(100_000, 110_000):
            increments.add("tone", f"c-{number}", 1.0, 0.0, 1.0)
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 200_000  # 10,000 units with their sums would take 320,000; other threads some
    known = [
        not increments.add("tone", f"c-{number}", 1.0, 0.0, 1.0)[0]
        for number in range(99_900, 100_000)
    ]
    assert sum(known) > 85
    assert increments.add("tone", "first", 1.0, 0.0, 1.0)[0]

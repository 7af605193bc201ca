"""The steps down and up."""

from __future__ import annotations

import itertools

from agenteval_otel.restraint.ladder import CODE_ONLY, DOWN_EVERY_S, FULL, OFF, REDUCED, UP_EVERY_S, Ladder


def all_the_way_down(ladder: Ladder, now: float, deepest: int = OFF) -> tuple[float, list[tuple[int, float]]]:
    """Trouble until nothing moves any more; every place that was met."""
    met = []
    while True:
        now += DOWN_EVERY_S
        if not ladder.down(now, deepest):
            return now, met
        met.append((ladder.level, ladder.share))


def test_down_goes_by_halves_then_without_models_then_off() -> None:
    """Trouble without end leads through every step, in order, and stays at the last."""
    _, met = all_the_way_down(Ladder(1 / 8), 0.0)
    assert met == [(REDUCED, 1 / 2), (REDUCED, 1 / 4), (REDUCED, 1 / 8), (CODE_ONLY, 1 / 8), (OFF, 1 / 8)]


def test_trouble_of_some_measures_stops_before_off() -> None:
    """Where the deepest level is code only, it is the last."""
    ladder = Ladder(1 / 8)
    all_the_way_down(ladder, 0.0, CODE_ONLY)
    assert ladder.level == CODE_ONLY


def test_a_step_has_time_to_show() -> None:
    """Right after a step there is none down, and none up."""
    ladder = Ladder(1 / 64)
    assert ladder.down(0.0, OFF)
    assert not ladder.down(DOWN_EVERY_S / 2, OFF)
    assert not ladder.up(DOWN_EVERY_S)
    assert ladder.share == 1 / 2


def test_up_needs_a_second_of_well_being_without_a_break() -> None:
    """What interrupts it starts the second anew."""
    ladder = Ladder(1 / 64)
    ladder.down(0.0, OFF)
    ladder.up(1.0)
    ladder.hold()
    assert not ladder.up(1.9)
    assert not ladder.up(2.8)
    assert ladder.up(1.9 + UP_EVERY_S)


def test_up_doubles_and_creeps_where_trouble_was() -> None:
    """Far from the share of the last trouble it doubles; near it rises by tenths; beyond it doubles again."""
    ladder = Ladder(1 / 64)
    ladder.share, ladder.level = 0.4, REDUCED
    ladder.down(0.0, OFF)  # trouble at 0.4
    ladder.down(1.0, OFF)  # and at 0.2
    shares, now = [], 1.0
    while ladder.level != FULL:
        now += 0.25
        if ladder.up(now):
            shares.append(round(ladder.share, 3))
    assert shares[0] == 0.18
    assert all(0 < after - before < 0.03 for before, after in itertools.pairwise(shares) if after < 0.25)
    assert shares[-1] == 1.0
    assert shares[-2] >= 0.45  # at least one doubling after the slow stretch


def test_recovery_from_the_bottom_takes_less_than_half_a_minute() -> None:
    """From off to full, with all well."""
    ladder = Ladder(1 / 64)
    bottom, _ = all_the_way_down(ladder, 0.0)
    now = bottom
    while ladder.level != FULL:
        now += 0.25
        ladder.up(now)
    assert now - bottom <= 30.0
    assert ladder.share == 1.0


def test_trouble_that_comes_back_at_once_is_met_with_patience() -> None:
    """Each time that off is met again soon after it was left, the next try waits longer, up to eight seconds."""
    ladder = Ladder(1 / 2)
    now, _ = all_the_way_down(ladder, 0.0)
    waits = []
    for _ in range(6):
        since = now
        while not ladder.up(now):
            now += 0.25
        waits.append(now - since)
        now += 1.0
        assert ladder.down(now, OFF)
    assert waits == sorted(waits)
    assert waits[0] < waits[-1] <= 8.5

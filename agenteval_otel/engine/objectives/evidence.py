"""Evidence that an objective is breached, or met again.

It is valid at every look, whatever the turns of a conversation have in common.

A rolling rate with its interval is no alarm: a reader who looks often enough sees any rate leave
its interval by chance. This is an e-detector of the Shiryaev-Roberts kind (Shin, Ramdas and
Rinaldo, 2024): before each verdict a gambler with a wealth of 1 joins, and all bet, at odds that
are fair while the objective is met. While it is met, the wealth of all gamblers together grows by
at most 1 per verdict on average, so it takes at least A verdicts on average to reach A, however
often it is looked at. Once the objective is breached it grows exponentially.

Turns of one conversation are alike, so no gambler bets on one after the other as if they were new.
Each makes a single bet on each unit that begins after he joined: on the share that fails of its
first n verdicts. Verdicts of it that have not come count as passed, so that what a unit is worth
can only grow while it goes on, and a look in its middle is no better than one at its end. That is
why the bound holds for units that run beside each other, too (the proof: docs/thresholds-proof.md).

Weights: a verdict seen with probability p stands for 1/p answers, so the bet on it pays 1/p times
as much. Bets are as small as the least probability demands, so that no gambler can lose more than
his wealth.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf, log
from operator import mul
from typing import Final, NamedTuple

BETS: Final = 0.05, 0.1, 0.2, 0.5
"""Shares of the greatest fair bet. Each is the best one against a drop by about that share of the
objective.
"""
SLACK: Final = 0.5
"""How far a probability may lie below the least known one: the greatest bet is 0.5, so no wealth
gets negative.
"""
BLOCK: Final = 1_000
RUN_S: Final = 60.0
"""Failures of one cause that follow each other within this time are worth at most one unit."""
_LIMIT: Final = 1e280
_MOST_OF_UNIT: Final = 10
_UNITS_FOR_SIZE: Final = 32
_IDLE: Final = 16
"""A unit has ended once so many others have begun after its last verdict."""
_MOST_OPEN: Final = 64
_MOST_REMEMBERED: Final = 512


class UnitSize:
    """Learns how many verdicts of a unit are bet on.

    It is the mean number that the last 32 to 64 units had, at most 10. More would hardly add
    evidence, and delay it.

    Attributes:
        repeated: How many verdicts have come since a unit began.
    """

    __slots__ = ("_units", "_verdicts", "repeated", "value")

    def __init__(self) -> None:
        self.value = 1
        self._units = self._verdicts = self.repeated = 0

    def add(self, *, is_new: bool) -> None:
        """Count a verdict, which may be the first one of its unit."""
        if is_new and self._units >= _UNITS_FOR_SIZE:
            self.value = min(_MOST_OF_UNIT, round(self._verdicts / self._units))
            self._units = self._verdicts = 0
        self._units += is_new
        self._verdicts += 1
        self.repeated = 0 if is_new else self.repeated + 1


class _Unit:
    """Holds what gamblers bet on: the first `size` verdicts of a conversation.

    Attributes:
        left: How many of them have not come. 0 once it is settled.
        joined: The wealth, by bet, of the gamblers who joined between the start of the open unit
            before this one and the start of this one.
        factors: What multiplies that wealth, and the wealth of all who joined earlier, by bet. It
            is this unit's own result, times the results of the units that are settled and began
            between this one and the next open one.
        last: How many units had begun at its last verdict.
    """

    __slots__ = ("_settled", "_value", "factors", "joined", "last", "left", "size")

    def __init__(self, size: int, joined: list[float]) -> None:
        self.size = self.left = size
        self.joined = joined
        self.last = 0
        self._value = -1.0  # what a bet of 1 has brought, if all that have not come pass
        self._settled = [1.0] * len(BETS)
        self._set_factors()

    def take(self, paid: float) -> None:
        """Take a verdict on which a bet of 1 brings so much."""
        # A verdict that has not come is booked as a pass, which loses 1 / size. That is given back.
        self._value += (1.0 + paid) / self.size
        self.left -= 1
        self._set_factors()

    def settle(self) -> None:
        """Bet on no further verdict, and return what was booked for them."""
        self._value += self.left / self.size
        self.left = 0
        self._set_factors()

    def multiply(self, factors: list[float]) -> None:
        """Multiply the wealth of all gamblers who joined before it, whatever it brings itself."""
        self._settled = _product(self._settled, factors)
        self._set_factors()

    def _set_factors(self) -> None:
        value = self._value
        bets = zip(BETS, self._settled, strict=True)
        self.factors = [min((1.0 + bet * value) * settled, _LIMIT) for bet, settled in bets]


class _Run(NamedTuple):
    """Failures of one cause, one after the other.

    Attributes:
        most: The wealth, by bet, that they may lead to.
    """

    cause: str
    began_s: float
    most: list[float]


class Evidence:
    """Computes the mean wealth of gamblers who bet differently, at least 0.

    Args:
        worst: The greatest loss that a bet of 1 can bring at weight 1: 1 - objective for bets on
            "below", the objective for bets on "above".
        enough: The evidence from which `add` returns True. It is the least mean number of verdicts
            to a false alarm.
        size: How many verdicts of a unit are bet on.
    """

    __slots__ = (
        "_active",
        "_began",
        "_ended",
        "_enough",
        "_joined",
        "_open",
        "_run",
        "_size",
        "_worst",
    )

    def __init__(self, *, worst: float, enough: float, size: UnitSize | None = None) -> None:
        self._worst = worst
        self._enough = enough * len(BETS)
        self._size = UnitSize() if size is None else size
        self._joined = [0.0] * len(BETS)  # since the last open unit began
        self._open: list[_Unit] = []  # in the order in which they began
        self._active: dict[Hashable, _Unit] = {}  # in the order of their last verdicts
        self._ended: dict[Hashable, None] = {}
        self._began = 0
        self._run: _Run | None = None

    @property
    def value(self) -> float:
        return sum(self._wealth()) / len(BETS)

    @property
    def log_ratio(self) -> float:
        """Return the natural logarithm of `value` over `enough`: 0 and above is enough.

        It is never below that of a value of 1.
        """
        return log(max(sum(self._wealth()), len(BETS)) / self._enough)

    def add(
        self,
        gain: float,
        share: float = 1.0,
        *,
        unit: Hashable = None,
        cause: str | None = None,
        at_s: float = 0.0,
    ) -> bool:
        """Bet on one verdict, and tell whether there is enough evidence.

        Args:
            gain: What a bet of 1 brings at weight 1, at least -`worst`. It is 0 on average
                while the objective is just held.
            share: The least probability of verdicts divided by this one's, above 0 and at most 2.
            unit: The conversation that the verdict is of. None if it depends on no other.
            cause: Why it failed, where that is known.
            at_s: When, in seconds.
        """
        # At an objective of 1 a bet on "below" cannot lose, and one failure proves it.
        if self._worst > 0:
            paid = gain * share / self._worst
        elif gain > 0:
            paid = inf
        else:
            paid = 0.0
        self._follow_run(cause, at_s, paid)
        self._joined = [wealth + 1.0 for wealth in self._joined]
        if unit is None:
            self._multiply([1.0 + bet * paid for bet in BETS])
        else:
            self._bet_on(unit, paid)
        if self._run is not None:
            self._limit(self._run.most)
        return sum(self._wealth()) >= self._enough

    def _wealth(self) -> list[float]:
        """Return the wealth of all gamblers, by bet."""
        if not self._open:
            return self._joined
        wealth = [0.0] * len(BETS)
        for unit in self._open:
            wealth = [
                (before + joined) * factor
                for before, joined, factor in zip(wealth, unit.joined, unit.factors, strict=True)
            ]
        return [before + joined for before, joined in zip(wealth, self._joined, strict=True)]

    def _multiply(self, factors: list[float]) -> None:
        """Multiply the wealth of all gamblers."""
        self._joined = _product(self._joined, factors)
        if self._open:
            self._open[-1].multiply(factors)

    def _bet_on(self, key: Hashable, paid: float) -> None:
        if key in self._ended:
            self._ended[key] = self._ended.pop(key)  # the newest one again
            return
        unit = self._active.pop(key, None)
        self._size.add(is_new=unit is None)
        if unit is None:
            unit = _Unit(self._size.value, self._joined)
            self._joined = [0.0] * len(BETS)
            self._open.append(unit)
            self._began += 1
        self._active[key] = unit
        unit.last = self._began
        if unit.left:
            unit.take(paid)
            if not unit.left:
                self._settle(unit)
        self._end_idle()

    def _end_idle(self) -> None:
        """End the units that seem to be over, and settle the oldest ones of too many."""
        while self._active:
            key, unit = next(iter(self._active.items()))
            if unit.last + _IDLE > self._began and len(self._active) <= _MOST_REMEMBERED:
                break
            del self._active[key]
            self._ended[key] = None
            if unit.left:
                self._settle(unit)
        while len(self._open) > _MOST_OPEN:
            self._settle(self._open[0])
        while len(self._ended) > _MOST_REMEMBERED:
            del self._ended[next(iter(self._ended))]

    def _settle(self, unit: _Unit) -> None:
        """Take a unit out of the open ones: its bets no longer change."""
        unit.settle()
        at = self._open.index(unit)
        del self._open[at]
        if at:
            self._open[at - 1].multiply(unit.factors)
        joined = _product(unit.joined, unit.factors)
        if at < len(self._open):
            self._open[at].joined = _sum(self._open[at].joined, joined)
        else:
            self._joined = _sum(self._joined, joined)

    def _follow_run(self, cause: str | None, at_s: float, paid: float) -> None:
        run = self._run
        if cause is None or paid <= 0:
            self._run = None
        elif run is None or run.cause != cause or not 0 <= at_s - run.began_s < RUN_S:
            most = [
                (wealth + 1.0) * (1.0 + bet * paid)
                for wealth, bet in zip(self._wealth(), BETS, strict=True)
            ]
            self._run = _Run(cause, at_s, most)

    def _limit(self, most: list[float]) -> None:
        """Reduce the wealth of all gamblers where a bet has brought more than this."""
        wealth = self._wealth()
        if any(map(float.__gt__, wealth, most)):
            self._multiply([min(1.0, limit / own) for own, limit in zip(wealth, most, strict=True)])


def _product(left: list[float], right: list[float]) -> list[float]:
    # Limited for where too few verdicts were seen for an alarm.
    return [min(value, _LIMIT) for value in map(mul, left, right)]


def _sum(left: list[float], right: list[float]) -> list[float]:
    return [one_side + other for one_side, other in zip(left, right, strict=True)]


class LeastProbability:
    """Keeps the least probability of the last thousand or two verdicts.

    It is known before each verdict that is bet on. It is forgotten in blocks, so that one quiet or
    crowded hour does not make the bets small for good.
    """

    __slots__ = ("_count", "_now", "value")

    def __init__(self) -> None:
        self.value = self._now = 1.0
        self._count = 0

    def add(self, probability: float) -> bool:
        """Add one, and tell whether it shows that earlier bets were too large.

        It does if it lies far below the least one.
        """
        self._now = min(self._now, probability)
        fell = probability < self.value * SLACK
        if fell:
            self.value = probability
        self._count += 1
        if self._count >= BLOCK:
            self._count = 0
            self.value = self._now
            self._now = 1.0
        return fell

"""Evidence that a rate lies below, or above, an objective: a number that may be looked at after every verdict.

A rolling rate with its interval is no alarm: a reader who looks often enough sees any rate leave its interval by
chance. This is an e-detector of the Shiryaev-Roberts kind (Shin, Ramdas and Rinaldo, 2024): a gambler bets a share of
his wealth on each verdict, at odds that are fair while the objective is met, and receives 1 before each. While it is
met, his wealth grows by 1 per verdict on average, so it takes at least A verdicts on average to reach A, however often
it is looked at. Once the objective is breached it grows exponentially.

Weights: a verdict seen with probability p stands for 1/p answers, so the bet on it pays 1/p times as much. Bets are as
small as the least probability demands, so that no gambler can lose more than his wealth.
"""

from __future__ import annotations

from math import inf

_BETS = _A, _B, _C, _D = 0.05, 0.1, 0.2, 0.4
"""Shares of the greatest fair bet; each is the best one against a drop by about that share of the objective."""
_SLACK = 0.5
"""How far a probability may lie below the least known one: the greatest bet is 0.4, so no wealth gets negative."""
_NOTHING = 0.0, 0.0, 0.0, 0.0
_LIMIT = 1e280
_BLOCK = 1_000


class Evidence:
    """The mean wealth of several gamblers who bet differently; at least 0.

    Args:
        worst: The greatest loss that a bet of 1 can bring at weight 1: 1 - objective for bets on "below", the objective
            for bets on "above".
        enough: The evidence from which `add` returns True; the least mean number of verdicts to a false alarm.
    """

    __slots__ = ("_enough", "_wealth", "_worst")

    def __init__(self, *, worst: float, enough: float) -> None:
        self._worst, self._enough = worst, enough * len(_BETS)
        self._wealth = _NOTHING

    def __repr__(self) -> str:
        return f"<Evidence {self.value:.3g}>"

    @property
    def value(self) -> float:
        return sum(self._wealth) / len(_BETS)

    def add(self, gain: float, share: float = 1.0) -> bool:
        """Bet on one verdict; whether there is enough evidence.

        Args:
            gain: What a bet of 1 brings at weight 1, at least -`worst`; 0 on average while the objective is just held.
            share: The least probability of verdicts divided by this one's, above 0 and at most 2.
        """
        # At an objective of 1 a bet on "below" cannot lose, and one failure proves it.
        paid = gain * share / self._worst if self._worst > 0 else (inf if gain > 0 else 0.0)
        a, b, c, d = self._wealth  # one by one: a loop takes four times as long
        a, b = (a + 1.0) * (1.0 + _A * paid), (b + 1.0) * (1.0 + _B * paid)
        c, d = (c + 1.0) * (1.0 + _C * paid), (d + 1.0) * (1.0 + _D * paid)
        total = a + b + c + d
        if total > _LIMIT:  # no alarm yet, because too few verdicts were seen
            a, b, c, d = min(a, _LIMIT), min(b, _LIMIT), min(c, _LIMIT), min(d, _LIMIT)
        self._wealth = a, b, c, d
        return total >= self._enough

    def restart(self) -> None:
        self._wealth = _NOTHING


class LeastProbability:
    """The least probability of the last thousand or two verdicts: known before each verdict that is bet on.

    It is forgotten in blocks, so that one quiet or crowded hour does not make the bets small for good.
    """

    __slots__ = ("_count", "_now", "value")

    def __init__(self) -> None:
        self.value = self._now = 1.0
        self._count = 0

    def __repr__(self) -> str:
        return f"<LeastProbability {self.value:g}>"

    def add(self, probability: float) -> bool:
        """Add one; returns whether it lies so far below the least one that earlier bets were too large."""
        self._now = min(self._now, probability)
        fell = probability < self.value * _SLACK
        if fell:
            self.value = probability
        self._count += 1
        if self._count >= _BLOCK:
            self._count, self.value, self._now = 0, self._now, 1.0
        return fell

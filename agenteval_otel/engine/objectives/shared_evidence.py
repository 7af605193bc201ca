"""Evidence of one process that others can add theirs to.

It consists of sums that a rule of Prometheus turns into the wealth of gamblers who bet on the
verdicts of all processes.

`evidence` decides in the process, and starts anew at each breach. Here nothing starts anew: for
each bet there is a sum of what it gained and a sum of what it lost, as natural logarithms. A rule
takes what was added to the sums of all processes since it last looked (the proof:
docs/thresholds-processes.md).

A unit counts once, when it is settled: a fixed time after it began, whatever came of it. If it were
settled once its verdicts are complete, those that are settled late would be others than those that
are settled early, and the bets would not be fair. A verdict that depends on no other is settled at
once.

Not thread-safe: the lock of `Tracks` guards it.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import log
from typing import Final

from agenteval_otel.engine.objectives.evidence import BETS, RUN_S, UnitSize

SHORTEST_S: Final = 60.0
"""A unit is settled so long after it began."""
LONGEST_S: Final = 600.0
"""The same, where conversations last longer."""
_MOST_UNITS: Final = 2_000
_LEAST_REPEATED: Final = 64
# A bet of 0.5 can lose all of the wealth, where a probability was half of the least known one.
_LEAST_FACTOR: Final = 1e-9


class SharedSums:
    """Sums up what the bets on one criterion of one agent have brought.

    No sum ever falls.

    Attributes:
        began_s: When the sums began, in monotonic seconds.
        gains: By bet: the logarithms of all factors above 1.
        losses: By bet: those of all factors below 1, as positive numbers.
        run_gains: By bet: the gains of failures that began a run, which other processes may have
            too. They are not part of the other gains.
        verdicts: How many verdicts are settled. Each brings a gambler.
    """

    __slots__ = ("began_s", "gains", "losses", "run_gains", "verdicts")

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.gains = [0.0] * len(BETS)
        self.losses = [0.0] * len(BETS)
        self.run_gains = [0.0] * len(BETS)
        self.verdicts = 0

    def book(self, value: float, *, of_run: bool = False) -> None:
        """Add a unit on which a bet of 1 has brought so much."""
        for at, bet in enumerate(BETS):
            brought = log(max(1.0 + bet * value, _LEAST_FACTOR))
            if brought < 0:
                self.losses[at] -= brought
            elif of_run:
                self.run_gains[at] += brought
            else:
                self.gains[at] += brought

    def move_to_run(self, value: float) -> None:
        """Make a gain that is booked one of a run.

        The gain stays, because no sum falls: a loss of the same size cancels it.
        """
        for at, bet in enumerate(BETS):
            self.losses[at] += log(1.0 + bet * value)
        self.book(value, of_run=True)


class _OpenUnit:
    """Holds a unit of several verdicts that is not settled.

    Attributes:
        due_s: When it will be.
        left: How many further verdicts are bet on.
        value: What a bet of 1 brings if all that have not come pass.
        began_run: A failure in it began a run that went on.
        verdicts: How many it has had.
    """

    __slots__ = ("_size", "began_run", "due_s", "left", "value", "verdicts")

    def __init__(self, size: int, due_s: float) -> None:
        self.due_s = due_s
        self.left = self._size = size
        self.value = -1.0
        self.began_run = False
        self.verdicts = 0

    def take(self, paid: float) -> None:
        """Take a verdict on which a bet of 1 brings so much."""
        self.verdicts += 1
        if self.left:
            self.value += (1.0 + paid) / self._size
            self.left -= 1


class _Run:
    """Failures of one cause, one after the other, within a minute.

    Attributes:
        booked: What a bet of 1 brought on the first of them, where that is booked.
        unit: The unit of the first one, where that is not settled.
        goes_on: There was a second one.
    """

    __slots__ = ("began_s", "booked", "cause", "goes_on", "unit")

    def __init__(self, cause: str, began_s: float) -> None:
        self.cause = cause
        self.began_s = began_s
        self.booked = 0.0
        self.unit: _OpenUnit | None = None
        self.goes_on = False


class _Window:
    """Computes how long after its beginning a unit is settled.

    The time is longer where a quarter of its further verdicts would come too late. It is computed
    from earlier units alone, so it is known when a unit begins.
    """

    __slots__ = ("_early", "_late", "_repeated", "value_s")

    def __init__(self) -> None:
        self.value_s = SHORTEST_S
        self._early = self._late = self._repeated = 0

    def add(self, after_s: float) -> None:
        """Count a further verdict of a unit, which came so long after the first one."""
        self._repeated += 1
        self._late += after_s >= self.value_s
        self._early += after_s < self.value_s / 2
        if self._repeated < _LEAST_REPEATED:
            return
        if 4 * self._late > self._repeated:
            self.value_s = min(2 * self.value_s, LONGEST_S)
        elif 8 * self._early > 7 * self._repeated:
            self.value_s = max(self.value_s / 2, SHORTEST_S)
        self._early = self._late = self._repeated = 0


class SharedEvidence:
    """Books the verdicts of one track.

    Args:
        sums: Where they are booked.
        worst: 1 - objective, above 0.
    """

    __slots__ = ("_began", "_last_run_s", "_open", "_run", "_size", "_sums", "_window", "_worst")

    def __init__(self, sums: SharedSums, *, worst: float) -> None:
        self._sums = sums
        self._worst = worst
        self._size = UnitSize()
        self._window = _Window()
        self._open: dict[Hashable, _OpenUnit] = {}  # in the order in which they began
        self._began: dict[Hashable, float] = {}  # when the last units began, settled or not
        self._run: _Run | None = None
        self._last_run_s: float | None = None

    def add(
        self,
        gain: float,
        share: float,
        now_s: float,
        *,
        unit: Hashable = None,
        cause: str | None = None,
    ) -> None:
        """Bet on one verdict.

        Args:
            gain: The objective - 1 for a pass, the objective for a failure.
            share: The least probability of verdicts divided by this one's, above 0 and at most 2.
            now_s: The time, in monotonic seconds.
            unit: The conversation that the verdict is of. None if it depends on no other.
            cause: Why it failed, where that is known.
        """
        self.settle(now_s)
        paid = gain * share / self._worst
        begun = self._follow_run(cause, paid, now_s)
        if self._run is not None and begun is None:
            paid = 0.0  # the run is bet on already
        open_unit = self._open.get(unit)
        is_new = unit is None or unit not in self._began
        if unit is not None:
            self._count(unit, now_s, is_new=is_new)
        if open_unit is None and is_new and unit is not None and self._size.value > 1:
            open_unit = self._begin(unit, now_s)
            is_new = False
        if open_unit is not None:
            open_unit.take(paid)
            if begun is not None:
                begun.unit = open_unit
            return
        self._sums.verdicts += 1
        if is_new:
            self._sums.book(paid)
            if begun is not None:
                begun.booked = paid

    def settle(self, now_s: float) -> None:
        """Book the units whose time has come."""
        while self._open:
            key, unit = next(iter(self._open.items()))
            if unit.due_s > now_s:
                return
            del self._open[key]
            self._sums.verdicts += unit.verdicts
            self._sums.book(unit.value, of_run=unit.began_run)
            if self._run is not None and self._run.unit is unit:
                self._run.unit = None
                self._run.booked = unit.value

    def _begin(self, key: Hashable, now_s: float) -> _OpenUnit | None:
        """Open a unit. Return None if too many are open: it is not bet on."""
        if len(self._open) >= _MOST_UNITS:
            return None
        unit = _OpenUnit(self._size.value, now_s + self._window.value_s)
        self._open[key] = unit
        return unit

    def _count(self, key: Hashable, now_s: float, *, is_new: bool) -> None:
        """Learn how many verdicts units have until they are settled, and how long they last."""
        if is_new:
            self._began[key] = now_s
            self._size.add(is_new=True)
            if len(self._began) > _MOST_UNITS:
                del self._began[next(iter(self._began))]
            return
        after_s = now_s - self._began[key]
        if after_s < self._window.value_s:
            self._size.add(is_new=False)
        self._window.add(after_s)

    def _follow_run(self, cause: str | None, paid: float, now_s: float) -> _Run | None:
        """Follow the run of failures that the verdict may be of, and return it if it begins here."""
        run = self._run
        if cause is None or paid <= 0:
            self._run = None
            return None
        if run is None or run.cause != cause or not 0 <= now_s - run.began_s < RUN_S:
            self._run = _Run(cause, now_s)
            return self._run
        if not run.goes_on:
            run.goes_on = True
            self._share_run(run)
        return None

    def _share_run(self, run: _Run) -> None:
        """Make what the run has brought a gain that other processes may have, too.

        Later runs of the same minute are the process's own: an outage does not end and
        begin anew.
        """
        if self._last_run_s is not None and run.began_s - self._last_run_s < RUN_S:
            return
        self._last_run_s = run.began_s
        if run.unit is not None:
            run.unit.began_run = True
        elif run.booked > 0:
            self._sums.move_to_run(run.booked)

"""Labels of another population than the answers that they are to stand for.

They are of answers that the judge passes more or less often, of older answers, or of another
release.

Each test is at a level of 1 %, by intervals of units. A difference in shares below a tenth is left
out: no figure that it could spoil is that precise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Final, NamedTuple, TypeAlias

from agenteval_otel.models.intervals import Z95, Estimate, UnitMean
from agenteval_otel.offline.calibration.agreement import FEWEST

RELEASES: Final = ("prompt_version", "service_version", "evaluator_version", "model")
"""What tells one release of an application, or of its judge, from another."""
MOST_VALUES: Final = 20
"""Values of a release that are compared, those of most answers."""
QUARTERS: Final = (0.25, 0.5, 0.75)
_LEVEL: Final = 0.01
_LEAST_DIFFERENCE: Final = 0.1
_LEAST_AGE_S: Final = 3_600.0

Shares: TypeAlias = tuple[UnitMean | None, UnitMean | None]
"""The share of the answers with a label that have a property, and that of the others."""


class LabelShift(NamedTuple):
    """Holds the rates of labels that are of other answers than those that they are to stand for.

    Attributes:
        labelled: The share that the judge passes by the answers with a label, as they stand for
            all.
        judged: The share that it passes of all answers. It differs by more than chance.
    """

    labelled: Estimate
    judged: Estimate


class AgeShift(NamedTuple):
    """Holds the times of labels of older answers, or of newer ones.

    Attributes:
        labelled_s: The moment before which half of the answers with a label were given, Unix time.
        others_s: The same of the others.
    """

    labelled_s: float
    others_s: float


class ReleaseShift(NamedTuple):
    """Holds the shares of labels of another release.

    Attributes:
        name: Of `RELEASES`.
        value: The value whose shares differ most.
        labelled: The share of the answers with a label that have it.
        others: The share of the others.
    """

    name: str
    value: str
    labelled: Estimate
    others: Estimate


class Shifts(NamedTuple):
    """Holds how the answers with a label differ from those that the labels are to stand for."""

    rate: LabelShift | None = None
    age: AgeShift | None = None
    releases: tuple[ReleaseShift, ...] = ()

    def __bool__(self) -> bool:
        return self.rate is not None or self.age is not None or bool(self.releases)


NO_SHIFTS: Final = Shifts()


def rate_shift(labelled: UnitMean | None, judged: UnitMean | None) -> LabelShift | None:
    """Return the judge's shares where they differ by more than chance.

    However little it is: it moves every corrected rate by as much.
    """
    if labelled is None or judged is None:
        return None
    of_labelled = labelled.estimate()
    of_judged = judged.estimate()
    sizes = (of_labelled.effective, of_judged.effective)
    if not _is_beyond_chance((of_labelled, of_judged), sizes, tests=1):
        return None
    return LabelShift(of_labelled, of_judged)


def age_shift(
    medians: tuple[float, float], cuts: Sequence[float], shares_before: Callable[[float], Shares]
) -> AgeShift | None:
    """Return the medians where the answers with a label are older or newer by more than chance.

    Args:
        medians: Of the answers with a label, and of the others, Unix time.
        cuts: Moments that split all answers, such as their quarters.
        shares_before: Gives the shares of the answers before a moment.
    """
    if abs(medians[0] - medians[1]) < _LEAST_AGE_S:
        return None
    differs = any(_matters(shares_before(cut), tests=len(cuts)) for cut in cuts)
    return AgeShift(*medians) if differs else None


def release_shift(
    name: str, values: Sequence[str], shares_of: Callable[[str], Shares]
) -> ReleaseShift | None:
    """Return the value of a release whose shares differ most, where that is more than chance.

    Args:
        values: The values that answers have, without a missing one.
        shares_of: Gives the shares of the answers with a value.
    """
    shifts: list[ReleaseShift] = []
    for value in values:
        shares = shares_of(value)
        labelled, others = shares
        if labelled is not None and others is not None and _matters(shares, tests=len(values)):
            shifts.append(ReleaseShift(name, value, labelled.estimate(), others.estimate()))
    return max(shifts, key=_by_size, default=None)


def _matters(shares: Shares, *, tests: int) -> bool:
    labelled, others = shares
    if labelled is None or others is None:
        return False
    if abs(labelled.mean - others.mean) < _LEAST_DIFFERENCE:
        return False
    # All answers of a unit are of one release and one time: there are as many as there are units.
    sizes = (labelled.kish_units, others.kish_units)
    return _is_beyond_chance((labelled.estimate(), others.estimate()), sizes, tests=tests)


def _by_size(shift: ReleaseShift) -> tuple[float, bool]:
    """Return how large the difference is. Of two equal ones that of the labels' own release counts."""
    difference = shift.labelled.mean - shift.others.mean
    return round(abs(difference), 9), difference > 0


def _is_beyond_chance(
    shares: tuple[Estimate, Estimate], sizes: tuple[float, float], *, tests: int
) -> bool:
    """Tell whether two shares differ at the level, corrected for the number of tests.

    `sizes` are the effective numbers of answers, or of units, behind each share.

    Two standard errors have to say so. That of equal shares is too small where few answers have a
    rare property, and that of the intervals where all of few have a frequent one.
    """
    if min(sizes) < FEWEST:
        return False
    labelled, others = shares
    pooled = (sizes[0] * labelled.mean + sizes[1] * others.mean) / sum(sizes)
    of_equal = math.sqrt(pooled * (1 - pooled) * (1 / sizes[0] + 1 / sizes[1]))
    of_intervals = math.hypot(*((share.high - share.low) / (2 * Z95) for share in shares))
    limit = NormalDist().inv_cdf(1 - _LEVEL / (2 * tests))
    return abs(labelled.mean - others.mean) > limit * max(of_equal, of_intervals)

"""What reports and pages say before figures from labels that are of other answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from agenteval_otel.offline.calibration.shift import AgeShift, ReleaseShift, Shifts
from agenteval_otel.offline.reports.figures import percent, with_interval
from agenteval_otel.runtime.masking import printable


def shift_sentences(
    shifts: Shifts, *, all_answers: str = "all answers", shown: Callable[[str], str] = printable
) -> Iterator[str]:
    """Yield how the labelled answers are different, a sentence each, then what follows from it.

    Args:
        all_answers: Names the answers that the labels are to stand for.
        shown: Makes the value of a release, which is text of the application, fit for the report.
    """
    if shifts.rate is not None:
        labelled, judged = (with_interval(part, rate=True) for part in shifts.rate)
        yield (
            f"The judge passes {labelled} by the answers with a label, and {judged} of {all_answers}: more than "
            "chance."
        )
    if shifts.age is not None:
        yield _of_age(shifts.age)
    for shift in shifts.releases:
        yield _of_release(shift, shown)
    if shifts.rate is not None:
        yield (
            "The labels are of other answers, of an older release or picked ones, and say nothing of all, neither "
            "alone nor in a corrected rate."
        )
    elif shifts:
        yield (
            "Figures from these labels, corrected ones too, hold for answers like the labelled ones. Whether the "
            "others are like them is not known."
        )


def _of_age(shift: AgeShift) -> str:
    labelled = _minute_of(shift.labelled_s)
    others = _minute_of(shift.others_s)
    if shift.labelled_s < shift.others_s:
        return (
            f"The labels are of older answers: half of them before {labelled}, half of the others "
            f"after {others}."
        )
    return (
        f"The labels are of newer answers: half of them after {labelled}, half of the others "
        f"before {others}."
    )


def _of_release(shift: ReleaseShift, shown: Callable[[str], str]) -> str:
    name = shift.name.replace("_", " ")
    return (
        f"{percent(shift.labelled.mean)} of the labels are of {name} {shown(shift.value)}, which "
        f"{percent(shift.others.mean)} of the other answers have."
    )


def _minute_of(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")

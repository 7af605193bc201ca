"""Measuring a judge: its verdicts beside people's, and the true pass rate of all its answers.

The verdicts are compared by system and slice.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from statistics import median
from typing import Final, NamedTuple

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models.intervals import Estimate, UnitMean
from agenteval_otel.offline.calibration.agreement import (
    FEWEST,
    Agreement,
    LabelledRow,
    agreement_of,
)
from agenteval_otel.offline.calibration.shift import (
    MOST_VALUES,
    NO_SHIFTS,
    QUARTERS,
    RELEASES,
    AgeShift,
    ReleaseShift,
    Shares,
    Shifts,
    age_shift,
    rate_shift,
    release_shift,
)
from agenteval_otel.storage.summaries import GatheredScores

_MOST_GROUPS: Final = 50
_FEWEST_TO_CHOOSE: Final = 10


class JudgedAnswer(NamedTuple):
    """Holds one answer as the judge and, where there is a label, a person saw it.

    Attributes:
        key: Names the answer: its id, or a digest of prompt and response.
        prompt: Digest of the prompt: answers to one prompt stand in one half, and count as one
            cluster.
        score: The judge's score as a number on the criterion's scale. None where it has no such
            form.
        passed: The judge's verdict. None where it failed or gave none.
        person: A person's verdict. None without a label.
        weight: 1 / the probability with which the answer was judged, above 0.
        label_weight: 1 / the probability with which one that was judged was labelled, above 0.
        cluster: What it shares with others. If it is empty, the prompt counts.
        system: Which system answered.
        slices: Values by the names of slices.
        answered_s: When the answer was given, Unix time. None if that is unknown.
        release: What is known of the release, by the names of `RELEASES`.
    """

    key: str
    prompt: str = ""
    score: float | None = None
    passed: bool | None = None
    person: bool | None = None
    weight: float = 1.0
    label_weight: float = 1.0
    cluster: str = ""
    system: str = ""
    slices: Mapping[str, str] = {}
    answered_s: float | None = None
    release: Mapping[str, str] = {}


class Group(NamedTuple):
    """Holds the figures of one system, or of one value of a slice.

    `agreement` is None without a label.
    """

    kind: str
    value: str
    judged: int
    agreement: Agreement | None


class Measurement(NamedTuple):
    """Holds the figures of a judge beside people.

    Attributes:
        agreement: On the rows that are reported.
        judged: Share of all answers that the judge passes. None where all have a label.
        overlap: The share of those answers that have a label.
        groups: By system, and by each slice.
        threshold: The threshold that was chosen. None where none was.
        choosing: Rows that chose it.
        choosing_prompts: Digests of the prompts whose rows have chosen it, or the present
            threshold.
        left_out: Labelled rows that are in no figure, by the reason.
        shifts: How the answers with a label differ from the others. Empty where all have one.
    """

    agreement: Agreement
    judged: Estimate | None
    overlap: float
    groups: tuple[Group, ...]
    threshold: float | None
    choosing: int
    choosing_prompts: tuple[str, ...]
    left_out: Counter[str]
    shifts: Shifts = NO_SHIFTS

    @property
    def estimates(self) -> dict[str, Estimate]:
        """Return the pass rate by the judge, by the labels alone, and corrected in both ways.

        What cannot be estimated is left out.
        """
        if self.judged is None:
            return {"labels alone": self.agreement.pass_rate}
        estimates = {"judge alone": self.judged, "labels alone": self.agreement.pass_rate}
        corrected = self.agreement.corrected(self.judged, overlap=self.overlap)
        if corrected is not None:
            estimates["corrected"] = corrected
        powered = self.agreement.prediction_powered(self.judged, overlap=self.overlap)
        estimates["prediction-powered"] = powered
        return estimates


def measure(
    answers: Iterable[JudgedAnswer],
    *,
    choose_threshold: bool = False,
    chosen_by: Iterable[str] = (),
    seed: int = 0,
) -> Measurement:
    """Measure the judge's agreement with people, and the pass rate of all answers.

    Args:
        answers: Judged answers, labelled or not. Two answers with the same key are an error.
        choose_threshold: Choose the threshold on half of the prompts by the largest sensitivity +
            specificity - 1, and report on the other half.
        chosen_by: Digests of prompts whose rows have chosen the present threshold: they are in no
            figure.
        seed: Of the halves.

    Raises:
        ConfigurationError: Two answers have one key, there are no rows with both verdicts, people
            passed all or none of them, or too few rows to choose a threshold.
    """
    listed = _checked(answers)
    left_out: Counter[str] = Counter()
    chosen = frozenset(chosen_by)
    threshold = None
    choosing = 0
    if choose_threshold:
        labelled = [answer for answer in listed if answer.person is not None]
        half = [answer for answer in labelled if _half(answer.prompt, seed) == 0]
        chosen = frozenset(answer.prompt for answer in half)
        threshold = _best_threshold(half)
        choosing = len(half)
        listed = [_at_threshold(answer, threshold) for answer in listed]
    rows: list[JudgedAnswer] = []
    for answer in listed:
        if answer.person is None:
            continue
        if answer.passed is None:
            left_out["the judge gave no verdict"] += 1
        elif answer.prompt in chosen:
            left_out["its prompt chose the threshold"] += 1
        else:
            rows.append(answer)
    _check_classes(rows, left_out)
    agreement = _agreement(rows)
    # The judge's own rate is of all answers: those that chose the threshold are no random part of
    # them.
    everything = [answer for answer in listed if answer.passed is not None]
    others = [answer for answer in everything if answer.person is None]
    labelled_rows = _kish([row.weight * row.label_weight for row in rows])
    judged_rows = _kish([row.weight for row in everything])
    of_judge = _judged_mean(everything) if others else None
    return Measurement(
        agreement=agreement,
        judged=None if of_judge is None else of_judge.estimate(),
        overlap=min(1.0, labelled_rows / judged_rows),
        groups=tuple(_groups(rows, others)),
        threshold=threshold,
        choosing=choosing,
        choosing_prompts=tuple(sorted(chosen)),
        left_out=left_out,
        shifts=_shifts(rows, others, of_judge),
    )


def clustered_estimate(answers: Sequence[JudgedAnswer]) -> Estimate | None:
    """Return the weighted share that the judge passes, with its 95 % interval.

    None without answers. The answers of a cluster are one unit.
    """
    mean = _judged_mean(answers)
    return None if mean is None else mean.estimate()


def _judged_mean(answers: Sequence[JudgedAnswer], *, by_labels: bool = False) -> UnitMean | None:
    """Return the share by units.

    With `by_labels` the answers stand for all of them by the probability with which they were
    labelled, too.
    """
    scores = GatheredScores()
    for answer in answers:
        weight = answer.weight
        if by_labels:
            weight *= answer.label_weight
        scores.add(float(bool(answer.passed)), weight, _cluster(answer))
    return scores.mean()


def _shifts(
    rows: Sequence[JudgedAnswer], others: Sequence[JudgedAnswer], judged: UnitMean | None
) -> Shifts:
    """Return how the answers with a label differ from the others.

    Empty if no answer is without a label.
    """
    if not others:
        return NO_SHIFTS
    labelled = _judged_mean(rows, by_labels=True)
    releases = [_release_shift(name, rows, others) for name in RELEASES]
    return Shifts(
        rate_shift(labelled, judged),
        _age_shift(rows, others),
        tuple(shift for shift in releases if shift is not None),
    )


def _age_shift(rows: Sequence[JudgedAnswer], others: Sequence[JudgedAnswer]) -> AgeShift | None:
    rows = [row for row in rows if row.answered_s is not None]
    others = [row for row in others if row.answered_s is not None]
    if not rows or not others:
        return None
    moments = [row.answered_s or 0.0 for row in rows]
    of_others = [row.answered_s or 0.0 for row in others]
    together = sorted(chain(moments, of_others))
    cuts = [together[int(len(together) * quarter)] for quarter in QUARTERS]

    def shares_before(moment: float) -> Shares:
        return _shares_by_units(rows, others, lambda row: (row.answered_s or 0.0) < moment)

    return age_shift((median(moments), median(of_others)), cuts, shares_before)


def _release_shift(
    name: str, rows: Sequence[JudgedAnswer], others: Sequence[JudgedAnswer]
) -> ReleaseShift | None:
    counts = Counter(row.release.get(name, "") for row in chain(rows, others))
    del counts[""]
    values = [value for value, _ in counts.most_common(MOST_VALUES)]

    def shares_of(value: str) -> Shares:
        return _shares_by_units(rows, others, lambda row: row.release.get(name) == value)

    return release_shift(name, values, shares_of)


def _shares_by_units(
    rows: Sequence[JudgedAnswer],
    others: Sequence[JudgedAnswer],
    has_it: Callable[[JudgedAnswer], bool],
) -> Shares:
    labelled = GatheredScores()
    unlabelled = GatheredScores()
    for row in rows:
        labelled.add(float(has_it(row)), row.weight * row.label_weight, _cluster(row))
    for row in others:
        unlabelled.add(float(has_it(row)), row.weight, _cluster(row))
    return labelled.mean(), unlabelled.mean()


def digest(*parts: object) -> str:
    """Return twelve hexadecimal digits of some texts."""
    text = "\0".join(map(str, parts))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def _checked(answers: Iterable[JudgedAnswer]) -> list[JudgedAnswer]:
    listed = list(answers)
    counts = Counter(answer.key for answer in listed)
    twice = [key for key, count in counts.items() if count > 1]
    if twice:
        shown = ", ".join(map(repr, twice[:3]))
        raise ConfigurationError(
            f"{len(twice):,} answers stand there more than once: {shown}. Keep one row of each"
        )
    for answer in listed:
        for value in (answer.weight, answer.label_weight):
            if not (math.isfinite(value) and value > 0):
                raise ConfigurationError(
                    f"answer {answer.key!r} has the weight {value}. Expected a number above 0"
                )
    return listed


def _check_classes(rows: Sequence[JudgedAnswer], left_out: Counter[str]) -> None:
    details = ", ".join(
        f"{count:,} left out because {reason}" for reason, count in left_out.items()
    )
    if not rows:
        raise ConfigurationError(
            f"no answer has both a label and a verdict ({details or 'no labels'})"
        )
    passed = sum(bool(answer.person) for answer in rows)
    if passed in (0, len(rows)):
        seen, missing = ("pass", "fail") if passed else ("fail", "pass")
        ending = f". {details}" if details else ""
        raise ConfigurationError(
            f"all {len(rows):,} labels are {seen}, so how often the judge errs on answers that {missing} is unknown. "
            f"Label at least {FEWEST} that {missing} (--next picks likely ones){ending}"
        )


def _kish(weights: Sequence[float]) -> float:
    return math.fsum(weights) ** 2 / math.fsum(weight * weight for weight in weights)


def _best_threshold(half: Sequence[JudgedAnswer]) -> float:
    """Return the score with the largest Youden index. Of several equal scores it is the lowest."""
    scored = [answer for answer in half if answer.score is not None]
    classes = Counter(answer.person for answer in scored)
    if len(scored) < _FEWEST_TO_CHOOSE or len(classes) < 2:
        raise ConfigurationError(
            f"the half that chooses the threshold has {len(scored):,} labelled answers with a number as score, "
            f"people passed {classes[True]:,}. Expected at least {_FEWEST_TO_CHOOSE}, of both classes"
        )
    sums: dict[float, dict[bool, float]] = defaultdict(lambda: {True: 0.0, False: 0.0})
    for row in scored:
        of_score = sums[row.score or 0.0]
        of_score[bool(row.person)] += row.weight * row.label_weight
    totals: dict[bool, float] = {}
    for verdict in (True, False):
        totals[verdict] = math.fsum(of_score[verdict] for of_score in sums.values())
    best = min(sums)
    most = 0.0
    below = {True: 0.0, False: 0.0}
    for score in sorted(sums):
        youden = below[False] / totals[False] - below[True] / totals[True]
        if youden > most + 1e-12:
            best = score
            most = youden
        for verdict in below:
            below[verdict] += sums[score][verdict]
    return best


def _at_threshold(answer: JudgedAnswer, threshold: float) -> JudgedAnswer:
    passed = None if answer.score is None else answer.score >= threshold
    return answer._replace(passed=passed)


def _half(prompt: str, seed: int) -> int:
    return int(digest(seed, prompt), 16) % 2


def _cluster(answer: JudgedAnswer) -> str:
    return answer.cluster or answer.prompt or answer.key


def _agreement(rows: Sequence[JudgedAnswer]) -> Agreement:
    labelled: list[LabelledRow] = []
    for row in rows:
        weight = row.weight * row.label_weight
        labelled.append(LabelledRow(bool(row.passed), bool(row.person), weight, _cluster(row)))
    return agreement_of(labelled)


def _groups(rows: Sequence[JudgedAnswer], others: Sequence[JudgedAnswer]) -> Iterable[Group]:
    kinds: dict[str, Callable[[JudgedAnswer], str]] = {"system": lambda answer: answer.system}
    names: dict[str, None] = {}
    for answer in (*rows, *others):
        names.update(dict.fromkeys(answer.slices))
    for name in names:
        kinds[name] = partial(_value_of_slice, name)
    for kind, value_of in kinds.items():
        labelled: dict[str, list[JudgedAnswer]] = defaultdict(list)
        for row in rows:
            labelled[value_of(row)].append(row)
        counts = Counter(map(value_of, (*rows, *others)))
        del counts[""]
        for value, count in counts.most_common(_MOST_GROUPS):
            own = labelled.get(value)
            yield Group(kind, value, count, _agreement(own) if own else None)


def _value_of_slice(name: str, answer: JudgedAnswer) -> str:
    return answer.slices.get(name, "")

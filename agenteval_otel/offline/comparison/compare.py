"""The comparison of two sets of evaluated answers, criterion by criterion."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Literal, NamedTuple

import numpy as np

from agenteval_otel.errors import EvaluationError
from agenteval_otel.models.intervals import Estimate, UnitMean
from agenteval_otel.offline.comparison import statistics
from agenteval_otel.offline.comparison.answers import Answer
from agenteval_otel.offline.comparison.statistics import ALPHA, Difference, clusters_of
from agenteval_otel.semconv import SHADOW
from agenteval_otel.storage.summaries import GatheredScores

Outcome = Literal["drop", "gain", "not significant", "evaluator changed"]
_SEED = 20
_SHOWN = 10
_MATCHED = 0.5
_SAME_WEIGHTS = 1.001
_FAILURES_DIFFER = 3.0  # standard errors


class Options(NamedTuple):
    """Holds how two sides are compared.

    Attributes:
        pass_rate: Compare the shares that pass, instead of the means of the scores.
        pairs: Match equal inputs. None: if neither side is live traffic and half of the smaller's
            inputs match.
        sequential: Intervals and p-values that hold however often one looks, for an experiment that
            runs.
        detect: The difference for which the number of answers is worked out, 0 to 1.
        share: The share of an experiment's units that is assigned to B. None where nothing is
            assigned.
        same_evaluators: Compare only scores of equal evaluators. False to compare evaluators.
    """

    pass_rate: bool = False
    pairs: bool | None = None
    sequential: bool = False
    detect: float = 0.05
    share: float | None = None
    same_evaluators: bool = True


class CriterionComparison(NamedTuple):
    """Holds what is known of one criterion.

    Attributes:
        a: Its mean, or pass rate, on side A.
        b: The same on side B.
        difference: B minus A, with its 95 % interval, which is not corrected for the number of
            criteria.
        p: Two-sided p-value.
        corrected: The p-value after Holm, over all criteria.
        outcome: A drop or a gain where `corrected` is at most 0.05.
        detectable: The difference that such a comparison finds with a power of 80 %.
        needed: How many more answers a side are needed to find the difference `Options.detect`. 0
            where none are.
        pairs: How many inputs were matched. None where the sides are compared as two samples.
        lower: How many of the matched inputs score lower in B.
        higher: How many of them score higher in B.
    """

    name: str
    a: Estimate
    b: Estimate
    difference: Difference
    p: float
    corrected: float
    outcome: Outcome
    detectable: float
    needed: int
    pairs: int | None = None
    lower: int = 0
    higher: int = 0


class Regression(NamedTuple):
    """Holds an input that scores lower in B.

    If the sides are not paired, it is a low answer of B.
    """

    criterion: str
    before: float | None
    after: float
    a: Answer | None
    b: Answer


class Balance(NamedTuple):
    """Tells whether the units of an experiment are split as planned.

    A mismatch makes every comparison doubtful.

    Attributes:
        a: How many units are in A, as their weights say.
        b: How many are in B.
        share: The share of the units that should be in B, 0 to 1.
        p: Probability of a split that is at least as uneven by chance.
    """

    a: float
    b: float
    share: float
    p: float

    @property
    def mismatch(self) -> bool:
        return self.p < statistics.MISMATCH


class Changed(NamedTuple):
    """Holds inputs that are in one side only, and counts matched ones whose answer is another.

    `answers` is None where answers are not stored.
    """

    only_a: tuple[Answer, ...]
    only_b: tuple[Answer, ...]
    matched: int
    answers: int | None


class Comparison(NamedTuple):
    """Holds the result.

    `notes` are what makes it doubtful. `changed` is there if inputs were matched.
    """

    name_a: str
    name_b: str
    count_a: int
    count_b: int
    options: Options
    criteria: tuple[CriterionComparison, ...]
    regressions: tuple[Regression, ...]
    notes: tuple[str, ...]
    changed: Changed | None = None
    balance: Balance | None = None

    @property
    def drops(self) -> list[CriterionComparison]:
        """Return the criteria with a significant drop."""
        return [item for item in self.criteria if item.outcome == "drop"]

    @property
    def exit_code(self) -> int:
        """Return 0 for no significant drop, 1 for one, and 2 for no comparison.

        There is no comparison if nothing is comparable or the arms are out of balance.
        """
        if self.balance is not None and self.balance.mismatch:
            return 2
        if all(item.outcome == "evaluator changed" for item in self.criteria):
            return 2
        return 1 if self.drops else 0


def compare(
    a: Sequence[Answer],
    b: Sequence[Answer],
    options: Options | None = None,
    names: tuple[str, str] = ("A", "B"),
) -> Comparison:
    """Compare two sides, A before B. A drop is B below A. The same answers give the same figures.

    Raises:
        EvaluationError: A side has no answers, or no criterion is scored on both.
    """
    options = options or Options()
    for name, side in zip(names, (a, b), strict=True):
        if not side:
            raise EvaluationError(f"{name}: no answers, so there is nothing to compare")
    sides = (_Side(a, options), _Side(b, options))
    shared = [name for name in sides[0].scored if name in sides[1].scored]
    if not shared:
        listed = " and ".join(", ".join(side.scored) or "none" for side in sides)
        figure = "verdicts" if options.pass_rate else "scores"
        raise EvaluationError(f"no criterion has {figure} on both sides: there are {listed}")
    return _Comparing(sides, shared, options, names).result()


def means_of(answers: Sequence[Answer]) -> dict[str, UnitMean]:
    """Return the mean score of each criterion, from 0 to 1, by conversation, trace or answer."""
    side = _Side(answers, Options())
    return side.gathered(side.scored).means()


def shadow_sides(answers: Iterable[Answer]) -> tuple[list[Answer], list[Answer]]:
    """Return the scores of the present evaluators, and those of their shadows.

    Both have the same names.
    """
    present: list[Answer] = []
    tried: list[Answer] = []
    for answer in answers:
        of_tried = {
            name.removesuffix(SHADOW): score
            for name, score in answer.scores.items()
            if name.endswith(SHADOW)
        }
        failed_tried = [name for name in answer.failed if name.endswith(SHADOW)]
        failed = tuple(name.removesuffix(SHADOW) for name in failed_tried)
        criteria = {*of_tried, *failed}
        if not criteria:
            continue
        of_present = {name: score for name, score in answer.scores.items() if name in criteria}
        failed_present = tuple(name for name in answer.failed if name in criteria)
        key = answer.place
        present.append(answer._replace(key=key, scores=of_present, failed=failed_present))
        tried.append(answer._replace(key=key, scores=of_tried, failed=failed))
    return present, tried


class _Side:
    """Holds the answers of one side.

    Attributes:
        versions: The versions of the evaluators of each criterion.
        failed: How many answers the evaluator of each criterion failed on.
        scored: How many answers have a figure of each criterion.
        by_key: The numbers of the answers to each input. A number is a position in `answers`.
    """

    def __init__(self, answers: Sequence[Answer], options: Options) -> None:
        self.answers = answers
        self._pass_rate = options.pass_rate
        self.versions: dict[str, set[str]] = {}
        self.failed: Counter[str] = Counter()
        self.scored: Counter[str] = Counter()
        self.by_key: dict[str, list[int]] = {}
        for number, answer in enumerate(answers):
            self.failed.update(answer.failed)
            for name, score in answer.scores.items():
                if self.figure(number, name) is not None:
                    self.scored[name] += 1
                # Split the versions of a mean: an evaluator that failed on one answer has not
                # changed.
                self.versions.setdefault(name, set()).update(score.version.split(", "))
            if answer.key is not None:
                self.by_key.setdefault(answer.key, []).append(number)

    @property
    def is_live(self) -> bool:
        return any(answer.is_live for answer in self.answers)

    def figure(self, number: int, name: str) -> float | None:
        """Return an answer's score of a criterion, or 1 for a pass. None without one."""
        score = self.answers[number].scores.get(name)
        if score is None:
            return None
        if not self._pass_rate:
            return score.value
        return None if score.passed is None else float(score.passed)

    def responses(self, key: str) -> set[int | None]:
        """Return the hashes of the answers to an input. None stands for those that are not stored."""
        return {self.answers[number].response_hash for number in self.by_key[key]}

    def gathered(self, criteria: Iterable[str]) -> GatheredScores:
        """Return the figures of these criteria by conversation, trace or answer."""
        gathered = GatheredScores(criteria)
        wanted = set(criteria)
        for number, answer in enumerate(self.answers):
            unit = number if answer.cluster is None else answer.cluster
            for name in wanted & answer.scores.keys():
                figure = self.figure(number, name)
                score = answer.scores[name]
                if figure is not None:
                    gathered.add(
                        figure, score.weight, unit, group=name, is_baseline=score.is_baseline
                    )
        return gathered


class _Comparing:
    """Makes one comparison, step by step."""

    def __init__(
        self,
        sides: tuple[_Side, _Side],
        criteria: list[str],
        options: Options,
        names: tuple[str, str],
    ) -> None:
        self._sides = sides
        self._a, self._b = sides
        self._options = options
        self._names = names
        self._criteria = criteria
        self._column = {name: column for column, name in enumerate(criteria)}
        self._matched = [key for key in self._a.by_key if key in self._b.by_key]
        self._is_paired = self._pairs_inputs()
        self._random = np.random.default_rng(_SEED)
        self._changed: set[str] = set()
        if options.same_evaluators:
            for name in criteria:
                if self._a.versions[name] != self._b.versions[name]:
                    self._changed.add(name)

    def result(self) -> Comparison:
        rows = list(self._paired_rows() if self._is_paired else self._unpaired_rows())
        claims = [row for row in rows if row.name not in self._changed and _is_known(row)]
        claimed = [row.name for row in claims]
        p_values = statistics.holm([row.p for row in claims])
        corrected = dict(zip(claimed, p_values, strict=True))
        criteria = tuple(self._finished(row, corrected.get(row.name), len(claims)) for row in rows)
        balance = self._balance() if self._options.share is not None else None
        regressions = self._regressions(criteria)
        notes = [*self._notes(balance), *_unknown_notes(criteria)]
        name_a, name_b = self._names
        return Comparison(
            name_a=name_a,
            name_b=name_b,
            count_a=len(self._a.answers),
            count_b=len(self._b.answers),
            options=self._options,
            criteria=criteria,
            regressions=tuple(regressions),
            notes=tuple(notes),
            changed=self._changes(),
            balance=balance,
        )

    def _finished(
        self, row: CriterionComparison, corrected: float | None, claims: int
    ) -> CriterionComparison:
        outcome: Outcome = "evaluator changed" if row.name in self._changed else "not significant"
        if corrected is not None and corrected <= ALPHA and row.difference.value:
            outcome = "drop" if row.difference.value < 0 else "gain"
        detectable = statistics.detectable(row.difference, row.a, row.b, claims, pairs=row.pairs)
        needed = 0
        scores = min(row.a.scores, row.b.scores)
        if detectable > self._options.detect:
            times_as_many = (detectable / self._options.detect) ** 2
            needed = math.ceil(scores * (times_as_many - 1))
        return row._replace(
            corrected=1.0 if corrected is None else corrected,
            outcome=outcome,
            detectable=detectable,
            needed=needed,
        )

    def _pairs_inputs(self) -> bool:
        if self._options.pairs is not None:
            if self._options.pairs and not self._matched:
                raise EvaluationError(
                    "no input of one side is in the other, so nothing can be paired. Inputs are recognised by "
                    "metadata.id, else by prompt, history and ground truth, where they are stored"
                )
            return self._options.pairs
        fewest = min(len(self._a.by_key), len(self._b.by_key))
        is_live = self._a.is_live or self._b.is_live
        return not is_live and fewest > 0 and len(self._matched) >= _MATCHED * fewest

    # --- as two samples
    def _unpaired_rows(self) -> Iterator[CriterionComparison]:
        of_a = self._a.gathered(self._criteria)
        of_b = self._b.gathered(self._criteria)
        a_means = of_a.means()
        b_means = of_b.means()
        p_values = [1.0] * len(self._criteria)
        if not self._options.sequential:
            a = clusters_of(of_a.columns(), len(self._criteria))
            b = clusters_of(of_b.columns(), len(self._criteria))
            p_values = list(statistics.permuted_labels(a, b, self._random))
        for name, p_value in zip(self._criteria, p_values, strict=True):
            mean_a = a_means[name]
            mean_b = b_means[name]
            difference = statistics.unpaired(mean_a, mean_b)
            p = float(p_value)
            if self._options.sequential:
                units = min(mean_a.kish_units, mean_b.kish_units)
                difference, p = statistics.at_any_time(difference, units)
            yield _row(name, mean_a.estimate(), mean_b.estimate(), difference, p)

    # --- in pairs
    def _paired_rows(self) -> Iterator[CriterionComparison]:
        gaps = GatheredScores(self._criteria)
        of_a = GatheredScores(self._criteria)
        of_b = GatheredScores(self._criteria)
        lower: Counter[str] = Counter()
        higher: Counter[str] = Counter()
        for key in self._matched:
            cluster = self._cluster_of(key)
            for name in self._criteria:
                before = _mean_of(self._a, self._a.by_key[key], name)
                after = _mean_of(self._b, self._b.by_key[key], name)
                if before is None or after is None:
                    continue
                # nested choices: the smaller probability is that of the pair
                weight = max(before.weight, after.weight)
                gap = after.figure - before.figure
                gaps.add(gap, weight, cluster, group=name)
                of_a.add(before.figure, weight, cluster, group=name)
                of_b.add(after.figure, weight, cluster, group=name)
                lower[name] += gap < 0
                higher[name] += gap > 0
        of_gaps = gaps.means()
        a_means = of_a.means()
        b_means = of_b.means()
        if not of_gaps:
            raise EvaluationError("no criterion has scores for one input on both sides")
        of_pairs = clusters_of(gaps.columns(), len(self._criteria))
        p_values = statistics.flipped_signs(of_pairs, self._random)
        for name, gap_mean in of_gaps.items():
            column = self._column[name]
            a = a_means[name]
            b = b_means[name]
            difference = statistics.paired(gap_mean, of_pairs, column)
            p = float(p_values[column])
            if self._options.sequential:
                difference, p = statistics.at_any_time(difference, min(a.kish_units, b.kish_units))
            row = _row(name, a.estimate(), b.estimate(), difference, p)
            yield row._replace(pairs=gap_mean.scores, lower=lower[name], higher=higher[name])

    def _cluster_of(self, key: str) -> str:
        first = self._a.by_key[key][0]
        return self._a.answers[first].cluster or f"\0{key}"

    # --- beside the criteria
    def _balance(self) -> Balance:
        share = self._options.share or 0.0
        of_a = _unit_weights(self._a)
        of_b = _unit_weights(self._b)
        largest = max(max(of_a), max(of_b))
        smallest = min(min(of_a), min(of_b))
        if largest / smallest < _SAME_WEIGHTS:
            units = (float(len(of_a)), float(len(of_b)))
            variances = (0.0, 0.0)
        else:
            units = (math.fsum(of_a), math.fsum(of_b))
            variances = (math.fsum(map(_square, of_a)), math.fsum(map(_square, of_b)))
        p = statistics.balance(units, variances, share)
        return Balance(*units, share, p)

    def _changes(self) -> Changed | None:
        if not self._is_paired:
            return None
        only_a = _answers_of_one_side(self._a, self._b)
        only_b = _answers_of_one_side(self._b, self._a)
        changed = 0
        for key in self._matched:
            before = self._a.responses(key)
            after = self._b.responses(key)
            if None in before or None in after:
                # Where answers are not stored, it is not known whether they changed.
                return Changed(only_a, only_b, len(self._matched), None)
            changed += before != after
        return Changed(only_a, only_b, len(self._matched), changed)

    def _regressions(self, criteria: Iterable[CriterionComparison]) -> list[Regression]:
        """Return the worst of each criterion in turn.

        The criteria that dropped most come first.
        """
        compared = [item for item in criteria if item.outcome != "evaluator changed"]
        compared.sort(key=lambda item: (item.outcome != "drop", item.difference.value))
        worst: list[list[Regression]] = []
        for item in compared:
            lower = sorted(self._lower(item), key=lambda each: each.after - (each.before or 0.0))
            worst.append(lower[:_SHOWN])
        in_turn: list[Regression] = []
        for row in zip_longest(*worst):
            in_turn.extend(each for each in row if each is not None)
        return in_turn[:_SHOWN]

    def _lower(self, item: CriterionComparison) -> Iterator[Regression]:
        """Yield the inputs that score lower in B.

        If inputs are not matched, yield the answers of B below the mean of A, provided that
        the mean of B is lower.
        """
        if not self._is_paired:
            if item.difference.value < 0:
                yield from self._below_mean_of_a(item)
            return
        for key in self._matched:
            of_a = self._a.by_key[key]
            of_b = self._b.by_key[key]
            before = _mean_of(self._a, of_a, item.name)
            after = _mean_of(self._b, of_b, item.name)
            if before is None or after is None:
                continue
            if after.figure < before.figure:
                a = _lowest(self._a, of_a, item.name)
                b = _lowest(self._b, of_b, item.name)
                yield Regression(item.name, before.figure, after.figure, a, b)

    def _below_mean_of_a(self, item: CriterionComparison) -> Iterator[Regression]:
        for number, answer in enumerate(self._b.answers):
            figure = self._b.figure(number, item.name)
            if figure is not None and figure < item.a.mean:
                yield Regression(item.name, None, figure, None, answer)

    def _notes(self, balance: Balance | None) -> Iterator[str]:
        if balance is not None and balance.mismatch:
            yield (
                f"the arms are out of balance: {balance.a:,.0f} and {balance.b:,.0f} where {balance.share:.0%} of them "
                f"should be in {self._names[1]} (p = {balance.p:.1g}): find out why before anything is concluded"
            )
        for name in self._criteria:
            if name in self._changed:
                of_sides = [", ".join(sorted(side.versions[name])) for side in self._sides]
                versions = " and ".join(of_sides)
                yield f"{name}: the evaluators differ ({versions}). Score both sides with the same one to compare them"
        for side, other, name in (
            (self._a, self._b, self._names[0]),
            (self._b, self._a, self._names[1]),
        ):
            lone = [criterion for criterion in side.scored if criterion not in other.scored]
            if lone:
                yield f"only {name} has scores of {', '.join(lone)}"
            if self._is_paired:
                yield from _notes_of_pairing(side, name)
        yield from self._failure_notes()

    def _failure_notes(self) -> Iterator[str]:
        for name in self._criteria:
            failed = [side.failed[name] for side in self._sides]
            totals = [side.failed[name] + side.scored[name] for side in self._sides]
            shares = [failed[0] / totals[0], failed[1] / totals[1]]
            pooled = sum(failed) / sum(totals)
            error = math.sqrt(pooled * (1 - pooled) * (1 / totals[0] + 1 / totals[1]))
            if error and abs(shares[1] - shares[0]) > _FAILURES_DIFFER * error:
                yield (
                    f"{name}: {shares[0]:.1%} and {shares[1]:.1%} of the evaluations failed. Failures are in no mean, "
                    "so the difference may be one of what could be scored"
                )


def _notes_of_pairing(side: _Side, name: str) -> Iterator[str]:
    doubled = sum(len(numbers) > 1 for numbers in side.by_key.values())
    if doubled:
        yield f"{name}: {doubled:,} inputs are there more than once, and their scores are averaged"
    without = sum(answer.key is None for answer in side.answers)
    if without:
        yield f"{name}: {without:,} answers are left out: nothing of their input is stored"


def _answers_of_one_side(side: _Side, other: _Side) -> tuple[Answer, ...]:
    """Return the first answer to each input that the other side does not have."""
    return tuple(
        side.answers[numbers[0]] for key, numbers in side.by_key.items() if key not in other.by_key
    )


def _is_known(row: CriterionComparison) -> bool:
    return row.a.is_known and row.b.is_known


def _unknown_notes(criteria: Iterable[CriterionComparison]) -> Iterator[str]:
    for row in criteria:
        if not _is_known(row):
            of_a = _not_preferred(row.a)
            of_b = _not_preferred(row.b)
            yield (
                f"{row.name}: no difference is claimed: sampling preferred all answers but "
                f"{of_a:,} of A and {of_b:,} of B, which stand for most of them"
            )


def _not_preferred(estimate: Estimate) -> int:
    """Return the number of scores of answers that sampling did not prefer."""
    return estimate.scores if estimate.baseline is None else estimate.baseline


def _row(
    name: str, a: Estimate, b: Estimate, difference: Difference, p: float
) -> CriterionComparison:
    """Return a comparison that is not corrected yet. `_Comparing._finished` completes it."""
    return CriterionComparison(
        name,
        a,
        b,
        difference,
        p,
        corrected=p,
        outcome="not significant",
        detectable=1.0,
        needed=0,
    )


class _InputMean(NamedTuple):
    """Holds the mean figure of the answers to one input, and their mean weight."""

    figure: float
    weight: float


def _mean_of(side: _Side, numbers: Sequence[int], name: str) -> _InputMean | None:
    """Return the mean of the answers to one input, and its weight.

    None without answers with a figure.
    """
    values: list[_InputMean] = []
    for number in numbers:
        figure = side.figure(number, name)
        if figure is not None:
            values.append(_InputMean(figure, side.answers[number].scores[name].weight))
    if len(values) < 2:
        return values[0] if values else None
    total = math.fsum(weight for _, weight in values)
    mean = math.fsum(figure * weight for figure, weight in values) / total
    return _InputMean(mean, total / len(values))


def _lowest(side: _Side, numbers: Sequence[int], name: str) -> Answer:
    figures: dict[int, float] = {}
    for number in numbers:
        figure = side.figure(number, name)
        if figure is not None:
            figures[number] = figure
    lowest = min(figures, key=figures.__getitem__)
    return side.answers[lowest]


def _unit_weights(side: _Side) -> list[float]:
    """Return how many units each conversation, or answer without one, stands for.

    Those without a score stand for the mean.

    An answer's weight is the smallest of its criteria's, which include their own sampling rates.
    """
    units: dict[str | int, float] = {}
    for index, answer in enumerate(side.answers):
        least = min((score.weight for score in answer.scores.values()), default=0.0)
        unit = answer.cluster or index
        units[unit] = max(units.get(unit, 0.0), least)
    scored = [weight for weight in units.values() if weight]
    mean = math.fsum(scored) / len(scored) if scored else 1.0
    return [weight or mean for weight in units.values()]


def _square(value: float) -> float:
    return value * value

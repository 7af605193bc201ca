"""The comparison of two sets of evaluated answers, criterion by criterion."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Literal, NamedTuple

import numpy as np

from agenteval_otel.comparison import statistics
from agenteval_otel.comparison.answers import Answer
from agenteval_otel.comparison.statistics import ALPHA, Clusters, Difference
from agenteval_otel.errors import EvaluationError
from agenteval_otel.models.intervals import Estimate
from agenteval_otel.semconv import SHADOW
from agenteval_otel.storage.rows import ScoreOf

Outcome = Literal["drop", "gain", "not significant", "evaluator changed"]
_SEED = 20
_SHOWN = 10
_MATCHED = 0.5
_SAME_WEIGHTS = 1.001
_FAILURES_DIFFER = 3.0  # standard errors


class Options(NamedTuple):
    """How two sides are compared.

    Attributes:
        pass_rate: Compare the shares that pass, instead of the means of the scores.
        pairs: Match equal inputs; None: if neither side is live traffic and half of the smaller's
            inputs match.
        sequential: Intervals and p-values that hold however often one looks, for an experiment that
            runs.
        detect: The difference for which the number of answers is worked out, 0 to 1.
        share: The share of an experiment's units that is assigned to B; None where nothing is
            assigned.
        same_evaluators: Compare only scores of equal evaluators; False to compare evaluators.
    """

    pass_rate: bool = False
    pairs: bool | None = None
    sequential: bool = False
    detect: float = 0.05
    share: float | None = None
    same_evaluators: bool = True


class CriterionComparison(NamedTuple):
    """What is known of one criterion.

    Attributes:
        a: Its mean, or pass rate, on either side.
        difference: B minus A, with its 95 % interval, which is not corrected for the number of
            criteria.
        p: Two-sided p-value; `corrected` after Holm, over all criteria.
        outcome: A drop or a gain where `corrected` is at most 0.05.
        detectable: The difference that such a comparison finds with a power of 80 %.
        needed: How many more answers a side are needed to find the difference `Options.detect`; 0
            where none are.
        pairs: How many inputs were matched; None where the sides are compared as two samples.
        lower: How many of them score lower in B, and `higher`.
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
    """An input that scores lower in B, or where the sides are not paired a low answer of B."""

    criterion: str
    before: float | None
    after: float
    a: Answer | None
    b: Answer


class Balance(NamedTuple):
    """Whether the units of an experiment are split as planned; a mismatch makes every comparison
    doubtful.
    """

    a: float
    b: float
    share: float
    p: float

    @property
    def mismatch(self) -> bool:
        return self.p < statistics.MISMATCH


class Changed(NamedTuple):
    """Inputs that are in one side only, and matched ones whose answer is another; None where
    answers are not stored.
    """

    only_a: tuple[Answer, ...]
    only_b: tuple[Answer, ...]
    matched: int
    answers: int | None


class Comparison(NamedTuple):
    """The result; `notes` are what makes it doubtful, `changed` is there where inputs were matched."""

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
        """The criteria with a significant drop."""
        return [item for item in self.criteria if item.outcome == "drop"]

    @property
    def exit_code(self) -> int:
        """0 no significant drop, 1 a significant drop, 2 no comparison: nothing comparable, or arms
        out of balance.
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
    """Compare two sides, A before B; a drop is B below A. The same answers give the same figures.

    Raises:
        EvaluationError: A side has no answers, or no criterion is scored on both.
    """
    options = options or Options()
    for name, side in zip(names, (a, b), strict=True):
        if not side:
            raise EvaluationError(f"{name}: no answers, so there is nothing to compare")
    sides = _Side(a, options), _Side(b, options)
    shared = [name for name in sides[0].criteria if name in sides[1].criteria]
    if not shared:
        listed = " and ".join(f"{', '.join(side.criteria) or 'none'}" for side in sides)
        figure = "verdicts" if options.pass_rate else "scores"
        raise EvaluationError(f"no criterion has {figure} on both sides: there are {listed}")
    return _Comparing(sides, shared, options, names).result()


def shadow_sides(answers: Iterable[Answer]) -> tuple[list[Answer], list[Answer]]:
    """The scores of the present evaluators, and those of their shadow evaluators under the same
    names.
    """
    present, tried = [], []
    for answer in answers:
        of_tried = {
            name.removesuffix(SHADOW): score
            for name, score in answer.scores.items()
            if name.endswith(SHADOW)
        }
        failed = tuple(name.removesuffix(SHADOW) for name in answer.failed if name.endswith(SHADOW))
        if criteria := {*of_tried, *failed}:
            present.append(
                answer._replace(
                    key=answer.place,
                    scores={
                        name: score for name, score in answer.scores.items() if name in criteria
                    },
                    failed=tuple(name for name in answer.failed if name in criteria),
                )
            )
            tried.append(answer._replace(key=answer.place, scores=of_tried, failed=failed))
    return present, tried


class _Side:
    """The answers of one side with their figures by criterion."""

    def __init__(self, answers: Sequence[Answer], options: Options) -> None:
        self.answers = answers
        self.figures: list[dict[str, tuple[float, float]]] = [
            _figures(answer, options) for answer in answers
        ]
        self.criteria = list(dict.fromkeys(name for figures in self.figures for name in figures))
        self.versions: dict[str, set[str]] = {}
        self.failed: Counter[str] = Counter(name for answer in answers for name in answer.failed)
        self._preferred: Counter[str] = Counter()
        self.by_key: dict[str, list[int]] = {}
        for index, answer in enumerate(answers):
            for name, score in answer.scores.items():
                self._preferred[name] += not score.is_baseline
                # Split the versions of a mean: an evaluator that failed on one answer has not
                # changed.
                self.versions.setdefault(name, set()).update(score.version.split(", "))
            if answer.key is not None:
                self.by_key.setdefault(answer.key, []).append(index)

    @property
    def is_live(self) -> bool:
        return any(answer.is_live for answer in self.answers)

    def scores(self, name: str) -> int:
        return sum(name in figures for figures in self.figures)

    def baseline(self, name: str) -> int | None:
        """Return how many scores are of answers that were not preferred. None where all are."""
        preferred = self._preferred[name]
        return self.scores(name) - preferred if preferred else None


def _figures(answer: Answer, options: Options) -> dict[str, tuple[float, float]]:
    """The figure of each criterion, and its weight."""
    return {
        name: (figure, score.weight)
        for name, score in answer.scores.items()
        if (figure := _figure(score, options)) is not None
    }


def _figure(score: ScoreOf, options: Options) -> float | None:
    return (
        score.value
        if not options.pass_rate
        else None
        if score.passed is None
        else float(score.passed)
    )


class _Comparing:
    """One comparison, step by step."""

    def __init__(
        self,
        sides: tuple[_Side, _Side],
        criteria: list[str],
        options: Options,
        names: tuple[str, str],
    ) -> None:
        self._a, self._b = self._sides = sides
        self._options, self._names, self._criteria = options, names, criteria
        self._column = {name: column for column, name in enumerate(criteria)}
        self._matched = [key for key in self._a.by_key if key in self._b.by_key]
        self._is_paired = self._pairs_inputs()
        self._random = np.random.default_rng(_SEED)
        self._changed = {
            name
            for name in criteria
            if options.same_evaluators and self._a.versions[name] != self._b.versions[name]
        }

    def result(self) -> Comparison:
        rows = list(self._paired_rows() if self._is_paired else self._unpaired_rows())
        claims = [row for row in rows if row.name not in self._changed and _is_known(row)]
        claimed = {row.name for row in claims}
        corrected = iter(statistics.holm([row.p for row in claims]))
        criteria = tuple(
            self._finished(row, next(corrected) if row.name in claimed else None, len(claims))
            for row in rows
        )
        balance = self._balance() if self._options.share is not None else None
        return Comparison(
            *self._names,
            len(self._a.answers),
            len(self._b.answers),
            self._options,
            criteria,
            tuple(self._regressions(criteria)),
            (*self._notes(balance), *_unknown_notes(criteria)),
            self._changes(),
            balance,
        )

    def _finished(
        self, row: CriterionComparison, corrected: float | None, claims: int
    ) -> CriterionComparison:
        outcome: Outcome = "evaluator changed" if row.name in self._changed else "not significant"
        if corrected is not None and corrected <= ALPHA and row.difference.value:
            outcome = "drop" if row.difference.value < 0 else "gain"
        detectable = statistics.detectable(row.difference, row.a, row.b, claims, pairs=row.pairs)
        needed, scores = 0, min(row.a.scores, row.b.scores)
        if detectable > self._options.detect:
            needed = math.ceil(scores * ((detectable / self._options.detect) ** 2 - 1))
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
                    "no input of one side is in the other, so nothing can be paired; inputs are recognised by "
                    "metadata.id, else by prompt, history and ground truth, where they are stored"
                )
            return self._options.pairs
        fewest = min(len(self._a.by_key), len(self._b.by_key))
        is_live = self._a.is_live or self._b.is_live
        return not is_live and fewest > 0 and len(self._matched) >= _MATCHED * fewest

    # --- as two samples
    # -----------------------------------------------------------------------------------------------
    def _unpaired_rows(self) -> Iterator[CriterionComparison]:
        clusters = [self._clusters(side) for side in self._sides]
        p_values = [1.0] * len(self._criteria)
        if not self._options.sequential:
            p_values = list(statistics.permuted_labels(clusters[0], clusters[1], self._random))
        for name, column in self._column.items():
            a, b = (
                statistics.mean_of(of_side, column, self._squares(side, name))._replace(
                    baseline=side.baseline(name)
                )
                for of_side, side in zip(clusters, self._sides, strict=True)
            )
            difference, p = statistics.unpaired(a, b), float(p_values[column])
            if self._options.sequential:
                difference, p = statistics.at_any_time(difference, min(a.kish_units, b.kish_units))
            yield _row(name, a.estimate(), b.estimate(), difference, p)

    def _clusters(self, side: _Side) -> Clusters:
        rows: dict[str | int, int] = {}
        numbers = [
            rows.setdefault(index if answer.cluster is None else answer.cluster, len(rows))
            for index, answer in enumerate(side.answers)
        ]
        table = _Table(len(rows), len(self._criteria))
        for number, figures in zip(numbers, side.figures, strict=True):
            for name, (figure, weight) in figures.items():
                if (column := self._column.get(name)) is not None:
                    table.add(number, column, figure, weight)
        return table.clusters()

    @staticmethod
    def _squares(side: _Side, name: str) -> float:
        return math.fsum(figures[name][1] ** 2 for figures in side.figures if name in figures)

    # --- in pairs
    # -----------------------------------------------------------------------------------------------------
    def _paired_rows(self) -> Iterator[CriterionComparison]:
        clusters: dict[str, int] = {}
        numbers = [
            clusters.setdefault(self._cluster_of(key), len(clusters)) for key in self._matched
        ]
        gaps, of_a, of_b = (_Table(len(clusters), len(self._criteria)) for _ in range(3))
        squares, lower, higher, pairs = (np.zeros(len(self._criteria)) for _ in range(4))
        for number, key in zip(numbers, self._matched, strict=True):
            for name, column in self._column.items():
                before, after = (_mean_of(side, side.by_key[key], name) for side in self._sides)
                if before is None or after is None:
                    continue
                # nested choices: the smaller probability is that of the pair
                weight = max(before[1], after[1])
                gap = after[0] - before[0]
                gaps.add(number, column, gap, weight)
                of_a.add(number, column, before[0], weight)
                of_b.add(number, column, after[0], weight)
                squares[column] += weight * weight
                lower[column] += gap < 0
                higher[column] += gap > 0
                pairs[column] += 1
        of_pairs, sides = gaps.clusters(), (of_a.clusters(), of_b.clusters())
        used = [name for name, column in self._column.items() if pairs[column]]
        if not used:
            raise EvaluationError("no criterion has scores for one input on both sides")
        p_values = statistics.flipped_signs(of_pairs, self._random)
        for name in used:
            column = self._column[name]
            a, b = (statistics.mean_of(side, column, squares[column]) for side in sides)
            difference, p = (
                statistics.paired(of_pairs, column, squares[column]),
                float(p_values[column]),
            )
            if self._options.sequential:
                difference, p = statistics.at_any_time(difference, min(a.kish_units, b.kish_units))
            yield _row(name, a.estimate(), b.estimate(), difference, p)._replace(
                pairs=int(pairs[column]), lower=int(lower[column]), higher=int(higher[column])
            )

    def _cluster_of(self, key: str) -> str:
        return self._a.answers[self._a.by_key[key][0]].cluster or f"\0{key}"

    # --- beside the criteria
    # ------------------------------------------------------------------------------------------
    def _balance(self) -> Balance:
        share = self._options.share or 0.0
        sides = [_unit_weights(side) for side in self._sides]
        if max(map(max, sides)) / min(map(min, sides)) < _SAME_WEIGHTS:
            units, variances = (float(len(sides[0])), float(len(sides[1]))), (0.0, 0.0)
        else:
            units = math.fsum(sides[0]), math.fsum(sides[1])
            variances = math.fsum(map(_square, sides[0])), math.fsum(map(_square, sides[1]))
        return Balance(*units, share, statistics.balance(units, variances, share))

    def _changes(self) -> Changed | None:
        if not self._is_paired:
            return None
        lone = [
            tuple(
                side.answers[numbers[0]]
                for key, numbers in side.by_key.items()
                if key not in other.by_key
            )
            for side, other in (self._sides, self._sides[::-1])
        ]
        contents = [
            [[side.answers[number].content for number in side.by_key[key]] for side in self._sides]
            for key in self._matched
        ]
        stored = all(content is not None for pair in contents for side in pair for content in side)
        changed = sum(
            {content and content[1] for content in before}
            != {content and content[1] for content in after}
            for before, after in contents
        )
        return Changed(lone[0], lone[1], len(self._matched), changed if stored else None)

    def _regressions(self, criteria: Iterable[CriterionComparison]) -> list[Regression]:
        """The worst of each criterion in turn, of those that dropped most first."""
        ordered = sorted(
            (item for item in criteria if item.outcome != "evaluator changed"),
            key=lambda item: (item.outcome != "drop", item.difference.value),
        )
        worst = [
            sorted(self._lower(item), key=lambda each: each.after - (each.before or 0.0))
            for item in ordered
        ]
        in_turn = [
            each
            for row in zip_longest(*(items[:_SHOWN] for items in worst))
            for each in row
            if each
        ]
        return in_turn[:_SHOWN]

    def _lower(self, item: CriterionComparison) -> Iterator[Regression]:
        """The inputs that score lower in B; the answers of B below the mean of A, where inputs are
        not matched.
        """
        if not self._is_paired:
            for answer, figures in zip(self._b.answers, self._b.figures, strict=True):
                if (
                    item.name in figures
                    and figures[item.name][0] < item.a.mean
                    and item.difference.value < 0
                ):
                    yield Regression(item.name, None, figures[item.name][0], None, answer)
            return
        for key in self._matched:
            before, after = (_mean_of(side, side.by_key[key], item.name) for side in self._sides)
            if before is not None and after is not None and after[0] < before[0]:
                a, b = (_lowest(side, side.by_key[key], item.name) for side in self._sides)
                yield Regression(item.name, before[0], after[0], a, b)

    def _notes(self, balance: Balance | None) -> Iterator[str]:
        if balance is not None and balance.mismatch:
            yield (
                f"the arms are out of balance: {balance.a:,.0f} and {balance.b:,.0f} where {balance.share:.0%} of them "
                f"should be in {self._names[1]} (p = {balance.p:.1g}): find out why before anything is concluded"
            )
        for name in self._criteria:
            if name in self._changed:
                versions = " and ".join(
                    ", ".join(sorted(side.versions[name])) for side in self._sides
                )
                yield f"{name}: the evaluators differ ({versions}); score both sides with the same one to compare them"
        for side, other, name in (
            (self._a, self._b, self._names[0]),
            (self._b, self._a, self._names[1]),
        ):
            lone = [criterion for criterion in side.criteria if criterion not in other.criteria]
            if lone:
                yield f"only {name} has scores of {', '.join(lone)}"
            doubled = (
                sum(len(numbers) > 1 for numbers in side.by_key.values()) if self._is_paired else 0
            )
            if doubled:
                yield f"{name}: {doubled:,} inputs are there more than once; their scores are averaged"
            without = sum(answer.key is None for answer in side.answers) if self._is_paired else 0
            if without:
                yield f"{name}: {without:,} answers are left out: nothing of their input is stored"
        yield from self._failure_notes()

    def _failure_notes(self) -> Iterator[str]:
        for name in self._criteria:
            counts = [
                (side.failed[name], side.failed[name] + side.scores(name)) for side in self._sides
            ]
            shares = [failed / total for failed, total in counts]
            pooled = sum(failed for failed, _ in counts) / sum(total for _, total in counts)
            error = math.sqrt(pooled * (1 - pooled) * sum(1 / total for _, total in counts))
            if error and abs(shares[1] - shares[0]) > _FAILURES_DIFFER * error:
                yield (
                    f"{name}: {shares[0]:.1%} and {shares[1]:.1%} of the evaluations failed; failures are in no mean, "
                    "so the difference may be one of what could be scored"
                )


class _Table:
    def __init__(self, rows: int, columns: int) -> None:
        self._weights, self._sums = np.zeros((rows, columns)), np.zeros((rows, columns))
        self._counts = np.zeros((rows, columns), dtype=np.int64)

    def add(self, row: int, column: int, figure: float, weight: float) -> None:
        self._weights[row, column] += weight
        self._sums[row, column] += weight * figure
        self._counts[row, column] += 1

    def clusters(self) -> Clusters:
        return Clusters(self._weights, self._sums, self._counts)


def _is_known(row: CriterionComparison) -> bool:
    return row.a.is_known and row.b.is_known


def _unknown_notes(criteria: Iterable[CriterionComparison]) -> Iterator[str]:
    for row in criteria:
        if not _is_known(row):
            yield (
                f"{row.name}: no difference is claimed: sampling preferred all answers but "
                f"{row.a.baseline if row.a.baseline is not None else row.a.scores:,} of A and "
                f"{row.b.baseline if row.b.baseline is not None else row.b.scores:,} of B, which "
                "stand for most of them"
            )


def _row(
    name: str, a: Estimate, b: Estimate, difference: Difference, p: float
) -> CriterionComparison:
    return CriterionComparison(name, a, b, difference, p, p, "not significant", 1.0, 0)


def _mean_of(side: _Side, numbers: Sequence[int], name: str) -> tuple[float, float] | None:
    """The mean of the answers to one input, and its weight."""
    values = [side.figures[number][name] for number in numbers if name in side.figures[number]]
    if len(values) < 2:
        return values[0] if values else None
    total = math.fsum(weight for _, weight in values)
    return math.fsum(figure * weight for figure, weight in values) / total, total / len(values)


def _lowest(side: _Side, numbers: Sequence[int], name: str) -> Answer:
    scored = [number for number in numbers if name in side.figures[number]]
    return side.answers[min(scored, key=lambda number: side.figures[number][name][0])]


def _unit_weights(side: _Side) -> list[float]:
    """How many units a conversation, or an answer without one, stands for; the mean for those
    without a score.

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

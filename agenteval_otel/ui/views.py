"""The figures that the pages show.

They are of the criteria in a window of time, by agent, model, version, and of two sides.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np

from agenteval_otel.offline.comparison.compare import CriterionComparison, Outcome
from agenteval_otel.offline.comparison.statistics import ALPHA, Difference, holm, p_value, unpaired
from agenteval_otel.offline.reports.figures import count_of, interval_notes, with_interval
from agenteval_otel.storage.summaries import summarise
from agenteval_otel.ui.columns import (
    FAILED,
    NONE,
    SCORED,
    SKIPPED,
    By,
    Figure,
    ResultColumns,
    Rows,
)

WINDOWS: Final = {"1h": 3_600, "24h": 86_400, "7d": 7 * 86_400, "30d": 30 * 86_400, "all": 0}
"""Windows of time in seconds, which end with the newest result. 0 is all of it."""
DIMENSIONS: Final = (
    "run",
    "agent",
    "model",
    "prompt_version",
    "service_version",
    "evaluator_version",
    "environment",
    "arm",
    "reason",
)
VERSIONS: Final = ("service_version", "prompt_version", "evaluator_version")
"""Of these columns the chart of a criterion shows where a new name begins."""
_RELEASES: Final = ("service_version", "prompt_version")
"""Of these columns the trends of the overview do."""
SIDES: Final = DIMENSIONS[:-1]
"""What two sides of a comparison may differ in."""
_STEPS_S: Final = (
    *(1, 2, 5, 15, 30),
    *(60, 300, 900),
    *(3_600, 3 * 3_600, 6 * 3_600),
    *(86_400, 7 * 86_400, 30 * 86_400),
)
_MOST_POINTS: Final = 60
_MOST_GROUPS: Final = 12
_BINS: Final = 20
_NEVER: Final = np.uint32(2**32 - 1)
_PER_PAGE: Final = 50
_LAST_S: Final = 2**32 - 1  # the year 2106: no stored moment is later
_LONGEST_MOMENT: Final = 40


Shown: TypeAlias = Outcome | Literal["too few"]
"""What a page says of a change. Of fewer than 20 conversations or traces a side it claims nothing."""


class Window(NamedTuple):
    """Which results a page is of.

    Attributes:
        length: A name of `WINDOWS`.
        by: Which moment of a result counts. By the answer, results that came late are shown where
            the others of their time are.
        since: From this moment on, in seconds since the epoch.
        until: Before this moment.
    """

    length: str = "all"
    by: By = "answered"
    since: int | None = None
    until: int | None = None

    @property
    def is_range(self) -> bool:
        """Tell whether a beginning or an end was chosen."""
        return self.since is not None or self.until is not None

    def whole(self, length: str) -> Window:
        """Return the window of this length, without a chosen beginning or end."""
        return Window(length, self.by)


class Span(NamedTuple):
    """Holds a part of time, in seconds since the epoch. `end` is not in it."""

    start: int
    end: int
    by: By


class Series(NamedTuple):
    """A rate over time.

    Attributes:
        times: The beginnings of the steps, in seconds since the epoch.
        mean: What each step had. None without a score.
        end: The end of the last step.
    """

    times: list[int]
    mean: list[float | None]
    low: list[float | None]
    high: list[float | None]
    counts: list[int]
    end: int

    @property
    def has_seconds(self) -> bool:
        """Tell whether steps are shorter than a minute, so that their moments have seconds."""
        return self.end - self.times[-1] < 60

    @property
    def is_filling(self) -> bool:
        """Tell whether the last step is not over: its rate rests on a part of it alone."""
        return self.end > time.time() and bool(self.counts) and self.counts[-1] > 0


class NewVersion(NamedTuple):
    """A version that answers, prompts or evaluators did not have before.

    Attributes:
        column: One of `VERSIONS`.
        moment: Of the first result that has it, in seconds since the epoch.
    """

    column: str
    name: str
    moment: int

    @property
    def words(self) -> str:
        """Return what it is a version of, and its name."""
        return f"{self.column.replace('_', ' ')} {self.name}"


class Change(NamedTuple):
    """Compares the newer half of the window with the older half, or one side beside the other.

    The figures are pass rates, or means.
    """

    before: Figure
    after: Figure
    difference: Difference
    rate: bool
    # corrected for the number of criteria that are shown; None where the evaluators differ
    p: float | None

    @property
    def outcome(self) -> Shown:
        """Return the outcome as `comparison` names it.

        A different evaluator is not a change of the answers.
        """
        if self.p is None:
            return "evaluator changed"
        if not (self.before.estimate.has_interval and self.after.estimate.has_interval):
            return "too few"
        if self.p > ALPHA:
            return "not significant"
        return "gain" if self.difference.value > 0 else "drop"

    @property
    def is_clear(self) -> bool:
        return self.outcome in ("gain", "drop")


class CriterionView(NamedTuple):
    """A criterion in a window of time.

    Attributes:
        notes: What a reader has to know before the figures.
        releases: The versions of service and prompt that begin in the window, of all criteria.
    """

    name: str
    scored: int
    skipped: int
    failed: int
    passes: Figure | None
    mean: Figure | None
    series: Series
    change: Change | None
    objective: float | None
    is_human: bool
    notes: tuple[str, ...] = ()
    releases: tuple[NewVersion, ...] = ()

    @property
    def main(self) -> Figure | None:
        """Return what the row shows: the pass rate if there is one, else the mean."""
        return self.passes or self.mean

    @property
    def objective_met(self) -> bool | None:
        """Tell whether the pass rate meets the objective.

        The result is None if no rate may be shown.
        """
        if self.objective is None or self.passes is None or not self.passes.estimate.is_known:
            return None
        return self.passes.estimate.mean >= self.objective - 1e-9


class ListedCriteria(NamedTuple):
    """Those of the criteria that a page shows: all that have a text in their names, in pages.

    Attributes:
        shown: The criteria of the page.
        text: What they have in their names. Empty: any.
        page: From 1 on, of `pages`.
        is_long: There are so many criteria that one looks for them by name.
    """

    shown: list[CriterionView]
    text: str
    page: int
    pages: int
    is_long: bool

    @classmethod
    def of(cls, criteria: list[CriterionView], text: str, page: str) -> ListedCriteria:
        """Return a page of the criteria. A page that there is not is the nearest one."""
        wanted = [view for view in criteria if text.casefold() in view.name.casefold()]
        pages = max(1, -(-len(wanted) // _PER_PAGE))
        number = int(page) if page.isascii() and page.isdecimal() and len(page) < 9 else 1
        number = max(1, min(number, pages))
        shown = wanted[(number - 1) * _PER_PAGE : number * _PER_PAGE]
        return cls(shown, text, number, pages, len(criteria) > _PER_PAGE)


class ResultGroup(NamedTuple):
    """Holds the results of a criterion that share an agent, a model, a version or a reason.

    Attributes:
        share: Their share of all results, weighted.
    """

    name: str
    results: int
    share: float
    figure: Figure | None


def outcome_of(change: Change | CriterionComparison) -> Shown:
    """Return what the page says of a change, or of two runs."""
    if isinstance(change, Change):
        return change.outcome
    if change.outcome == "evaluator changed":
        return change.outcome
    return change.outcome if change.a.has_interval and change.b.has_interval else "too few"


def points(difference: Difference) -> str:
    """Return a difference with its interval, in hundredths."""
    value = 100 * difference.value
    low = 100 * difference.low
    high = 100 * difference.high
    return f"{value:+.1f} points ({low:+.1f} to {high:+.1f})".replace("-", "\N{MINUS SIGN}")


def moment_text(seconds: float, *, has_seconds: bool = False) -> str:
    time_format = "%H:%M:%S" if has_seconds else "%H:%M"
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):  # a file may hold any number
        return "at an unknown time"
    return moment.strftime(f"%Y-%m-%d {time_format} UTC")


def field_text(seconds: float | None) -> str:
    """Return a moment as a field of a form has it, in UTC. Empty for None."""
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def moment_in(text: str | None) -> int | None:
    """Return a moment of an address: seconds since the epoch, or what a field of a form sends.

    The result is None for a text that is neither, or a moment that no answer can have.
    """
    if not text or not text.isascii() or len(text) > _LONGEST_MOMENT:
        return None
    try:
        if text.isdecimal():
            seconds = int(text)
        else:
            moment = datetime.fromisoformat(text)
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
            seconds = int(moment.timestamp())
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds <= _LAST_S else None


def explained(figure: Figure, *, rate: bool) -> str:
    """Return how a figure was estimated, and from how many answers.

    Every figure of a page is shown beside this text.
    """
    estimate = figure.estimate
    what = "weighted mean of the normalized scores, 0 to 1"
    if rate:
        what = "weighted share of passing answers"
    if estimate.has_interval:
        what = f"{what}, with its 95 % interval"
    scored = count_of(estimate.scores, "scored answer")
    represents = f"{figure.represents:,.0f} (1 / probability)"
    parts = [
        f"{what}: {with_interval(estimate, rate=rate)}",
        f"from {scored}, standing for {represents}",
        f"as certain as {estimate.effective:,.0f} equally weighted independent ones",
    ]
    for word, meaning in interval_notes([estimate]):
        parts.append(f"{word}: {meaning}")
    if figure.mean.units < estimate.scores:
        parts.append(
            f"answers of one conversation or trace are taken together ({figure.mean.units:,} of them)"
        )
    if figure.unknown:
        parts.append(f"{figure.unknown:,} have an unknown probability and count once each")
    return ", ".join(parts)


def rows_in(
    columns: ResultColumns,
    window: Window,
    filters: Mapping[str, str] | None = None,
    *,
    with_shadows: bool = False,
) -> Rows:
    """Return the rows of a window that have all names of `filters`, a column to a name.

    Shadow results are left out, unless they are asked for, and labels that a later one replaced.
    """
    chosen = np.full(columns.count, True) if with_shadows else ~columns["is_shadow"]
    chosen[columns.replaced_rows()] = False
    seconds = WINDOWS[window.length]
    if seconds and columns.count:
        moments = columns[window.by]
        chosen &= moments > max(0, int(moments.max()) - seconds)
    if window.since is not None:
        chosen &= columns[window.by] >= window.since
    if window.until is not None:
        chosen &= columns[window.by] < window.until
    for column, name in (filters or {}).items():
        chosen &= columns[column] == columns.code(column, name)
    return np.flatnonzero(chosen).astype(np.int32)


def overview(
    columns: ResultColumns,
    window: Window,
    objectives: Mapping[str, float],
    filters: Mapping[str, str] | None = None,
) -> list[CriterionView]:
    """Return the criteria in a window: missed objectives, then clear changes, then by name.

    Labels of people are behind all others.
    """
    rows = rows_in(columns, window, filters)
    if not len(rows):
        return []
    parts = _by_criterion(columns, rows)
    span = span_of(columns, rows, window.by)
    names = columns.names("criterion")
    del rows  # the parts have them, and each copy is four megabytes of a million results
    views = []
    for part in parts:
        name = names[columns["criterion"][part[0]]]
        is_human = bool(columns["is_human"][part[0]])
        views.append(_criterion(columns, name, part, objectives, span, is_human=is_human))
    # Answers have their releases whatever they are scored for: one criterion tells them.
    most = max(parts, key=len)
    releases = tuple(new_versions(columns, most, window.by, _RELEASES))
    changes = _corrected(view.change for view in views)
    views = [
        view._replace(change=change, releases=releases)
        for view, change in zip(views, changes, strict=True)
    ]
    return sorted(
        views,
        key=lambda view: (
            view.is_human,
            view.objective_met is not False,
            not _is_clear_change(view.change),
            view.name,
        ),
    )


def _by_criterion(columns: ResultColumns, rows: Rows) -> list[Rows]:
    """Return the rows of each criterion, those of people apart, in the order of their codes."""
    # The criterion's code, and in the last bit whether a person scored. Two bytes sort fastest.
    key = columns["criterion"][rows] * np.int16(2) + columns["is_human"][rows]
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    ends = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    return np.split(rows[order], ends)


def criterion(
    columns: ResultColumns,
    name: str,
    window: Window,
    objectives: Mapping[str, float],
    filters: Mapping[str, str] | None = None,
) -> tuple[CriterionView, Rows] | None:
    """Return a criterion and its rows in a window, with only the scores of evaluators.

    The result is None if no result of the criterion is stored.
    """
    rows = rows_in(columns, window, {**(filters or {}), "criterion": name})
    rows = rows[~columns["is_human"][rows]]
    if columns.code("criterion", name) < 0:
        return None
    span = span_of(columns, rows, window.by)
    return _criterion(columns, name, rows, objectives, span, is_human=False), rows


def groups_of(
    columns: ResultColumns, rows: Rows, dimension: str, *, rate: bool
) -> list[ResultGroup]:
    """Return the largest groups of these rows by a column of names.

    All beyond a dozen are one group.
    """
    codes = columns[dimension][rows]
    counts = np.bincount(codes)
    largest = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    names = columns.names(dimension)
    weights = columns["weight"][rows]
    named = largest[:_MOST_GROUPS]
    parts = [(names[code] or "(none)", codes == code) for code in named]
    if len(largest) > _MOST_GROUPS:
        others = f"({len(largest) - _MOST_GROUPS:,} others)"
        parts.append((others, ~np.isin(codes, named)))
    groups: list[ResultGroup] = []
    for name, of_group in parts:
        results = int(np.count_nonzero(of_group))
        share = float(weights[of_group].sum() / weights.sum())
        figure = columns.figure(rows[of_group], rate=rate)
        groups.append(ResultGroup(name, results, share, figure))
    return groups


def new_versions(
    columns: ResultColumns, rows: Rows, by: By, of: Sequence[str] = VERSIONS
) -> list[NewVersion]:
    """Return the versions that begin within these rows, oldest first: the newest dozen of them.

    `of` are the columns whose versions count. The first version of a column is not new: it was there
    before.
    """
    moments = columns[by][rows]
    versions: list[NewVersion] = []
    for column in of:
        names = columns.names(column)
        if len(names) < 2:
            continue
        firsts = np.full(len(names), _NEVER, np.uint32)
        np.minimum.at(firsts, columns[column][rows], moments)
        begun = [
            NewVersion(column, name, int(first))
            for name, first in zip(names, firsts, strict=True)
            if name and first != _NEVER
        ]
        begun.sort(key=lambda version: (version.moment, version.name))
        versions += begun[1:]
    versions.sort(key=lambda version: version.moment)
    return versions[-_MOST_GROUPS:]


def histogram(columns: ResultColumns, rows: Rows) -> tuple[list[float], list[float]]:
    """Return where twenty equal ranges of the normalized scores begin, and their weighted shares."""
    values = columns["normalized"][rows]
    kept = ~np.isnan(values)
    weights = columns["weight"][rows][kept]
    counts, edges = np.histogram(values[kept], _BINS, (0.0, 1.0), weights=weights)
    total = float(counts.sum()) or 1.0
    starts = [round(float(edge), 4) for edge in edges[:-1]]
    shares = [round(float(count) / total, 6) for count in counts]
    return starts, shares


def verdict_shares(columns: ResultColumns, rows: Rows) -> tuple[float, float] | None:
    """Return the weighted shares that pass and fail, if every score is 0 or 1 and has a verdict.

    The result is None for scores on a scale: their distribution says more.
    """
    scored = rows[columns["status"][rows] == SCORED]
    values = columns["normalized"][scored]
    passed = columns["passed"][scored]
    if not len(scored) or not (values == passed).all():
        return None
    weights = columns["weight"][scored].astype(np.float64)
    share = float(weights[passed == 1].sum() / weights.sum())
    return share, 1.0 - share


def worst(columns: ResultColumns, rows: Rows, limit: int, by: By = "answered") -> Rows:
    """Return the rows with the lowest scores, those that did not pass first.

    The newest is first among equals.
    """
    scored = rows[columns["status"][rows] == SCORED]
    passed = columns["passed"][scored]
    values = np.nan_to_num(columns["normalized"][scored], nan=2.0)
    rank = np.where(passed == 0, values - 10.0, values)
    if len(rank) > 4 * limit:  # sorting a million takes longer than finding the lowest
        boundary = np.partition(rank, limit)[limit]
        is_low = rank <= boundary
        scored = scored[is_low]
        rank = rank[is_low]
    lowest: Rows = scored[np.lexsort((-columns.seconds(scored, by), rank))]
    return lowest[:limit]


def compare(
    columns: ResultColumns, window: Window, dimension: str, left: str, right: str
) -> list[tuple[str, Change | None]]:
    """Return the right side beside the left side for each criterion that both sides have.

    Clear differences are first.
    """
    sides = []
    for name in (left, right):
        views = overview(columns, window, {}, {dimension: name})
        sides.append({view.name: view for view in views if not view.is_human})
    left_views, right_views = sides
    names = sorted(left_views.keys() & right_views.keys())
    # that the evaluators differ is what is looked at
    of_evaluators = dimension == "evaluator_version"
    beside = [
        _beside(left_views[name], right_views[name], of_evaluators=of_evaluators) for name in names
    ]
    changes = zip(names, _corrected(beside), strict=True)
    return sorted(changes, key=lambda named: (not _is_clear_change(named[1]), named[0]))


def _is_clear_change(change: Change | None) -> bool:
    return change is not None and change.is_clear


def _beside(left: CriterionView, right: CriterionView, *, of_evaluators: bool) -> Change | None:
    if left.passes and right.passes:
        return _change(left.passes, right.passes, rate=True, of_evaluators=of_evaluators)
    if left.mean and right.mean:
        return _change(left.mean, right.mean, rate=False, of_evaluators=of_evaluators)
    return None


def _criterion(
    columns: ResultColumns,
    name: str,
    rows: Rows,
    objectives: Mapping[str, float],
    span: Span,
    *,
    is_human: bool,
) -> CriterionView:
    counts = np.bincount(columns["status"][rows], minlength=3)
    passes = columns.figure(rows, rate=True)
    mean = columns.figure(rows, rate=False)
    rate = passes is not None
    return CriterionView(
        name=name,
        scored=int(counts[SCORED]),
        skipped=int(counts[SKIPPED]),
        failed=int(counts[FAILED]),
        passes=passes,
        mean=mean,
        series=series(columns, rows, span, rate=rate),
        change=_halves(columns, rows, span, rate=rate),
        objective=objectives.get(name),
        is_human=is_human,
    )


def span_of(columns: ResultColumns, rows: Rows, by: By) -> Span:
    """Return the time from the first to the last of these rows."""
    if not len(rows):
        return Span(0, 1, by)
    moments = columns[by][rows]
    return Span(int(moments.min()), int(moments.max()) + 1, by)


def _halves(columns: ResultColumns, rows: Rows, span: Span, *, rate: bool) -> Change | None:
    is_newer = columns[span.by][rows] >= (span.start + span.end) / 2
    before = columns.figure(rows[~is_newer], rate=rate)
    after = columns.figure(rows[is_newer], rate=rate)
    if before is None or after is None:
        return None
    return _change(before, after, rate=rate)


def _change(before: Figure, after: Figure, *, rate: bool, of_evaluators: bool = False) -> Change:
    difference = unpaired(before.mean, after.mean)
    is_claimed = of_evaluators or before.evaluators == after.evaluators
    p = p_value(difference) if is_claimed else None
    return Change(before, after, difference, rate, p)


def _corrected(changes: Iterable[Change | None]) -> list[Change | None]:
    """Return the changes with p-values after Holm.

    So what is marked as better or worse is rarely marked by chance.
    """
    changes = list(changes)
    p_values = iter(holm([change.p for change in changes if change and change.p is not None]))
    corrected: list[Change | None] = []
    for change in changes:
        if change is not None and change.p is not None:
            change = change._replace(p=next(p_values))
        corrected.append(change)
    return corrected


def steps_of(span: Span) -> tuple[int, int]:
    """Return when the first of at most sixty equal steps begins, and the length of a step."""
    length_s = span.end - span.start
    step = next((step for step in _STEPS_S if length_s / step <= _MOST_POINTS), _STEPS_S[-1])
    return span.start - span.start % step, step


def series(columns: ResultColumns, rows: Rows, span: Span, *, rate: bool) -> Series:
    """Return the rate, or the mean, in at most sixty equal steps of the span.

    Each step has its interval.
    """
    start, step = steps_of(span)
    rows, values = columns.scored_values(rows, rate=rate)
    steps = (columns.seconds(rows, span.by) - start) // step
    step_count = max(1, (span.end - 1 - start) // step + 1)
    times = [start + step * index for index in range(step_count)]
    end = start + step * step_count
    result = Series(times, mean=[], low=[], high=[], counts=[], end=end)
    for mean in summarise(columns.scores(rows, values, steps), step_count):
        if mean is None:
            result.counts.append(0)
            result.mean.append(None)
            result.low.append(None)
            result.high.append(None)
            continue
        estimate = mean.estimate()
        result.counts.append(mean.scores)
        result.mean.append(round(estimate.mean, 4))
        result.low.append(round(estimate.low, 4))
        result.high.append(round(estimate.high, 4))
    return result


def figure_text(figure: Figure | None, *, rate: bool) -> str:
    return NONE if figure is None else with_interval(figure.estimate, rate=rate)

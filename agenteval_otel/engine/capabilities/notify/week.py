"""The weekly summary: what is counted for it, and its words."""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from agenteval_otel.engine.capabilities.notify.notices import (
    Notice,
    answers_link,
    moment,
    shown_name,
)
from agenteval_otel.engine.capability import Evaluated
from agenteval_otel.engine.signals import StateChange
from agenteval_otel.models import EvaluationResult
from agenteval_otel.models.intervals import Estimate, UnitSums
from agenteval_otel.models.scoring.probability import has_weight, weight
from agenteval_otel.runtime.fork import reset_in_child

MOST_PAIRS: Final = 64
"""Pairs of criterion and agent that are counted apart."""
_MOST_UNITS: Final = 250
_MOST_WORDS: Final = 32
_SHOWN_WORDS: Final = 3
_HOUR_S: Final = 3_600
_WEEK_S: Final = 7 * 24 * _HOUR_S

Pair = tuple[str, str | None]
BadPart = tuple[str, str, str | None]


class PairSums:
    """Counts the results of one criterion of one agent.

    Attributes:
        is_rate: They have verdicts. Else their mean is counted.
        reasons: Of verdicts that failed, by the reason code.
        errors: Of results that could not be had, by the error type.
    """

    def __init__(self) -> None:
        self.sums = UnitSums(most_units=_MOST_UNITS)
        self.is_rate: bool | None = None
        self.unknown = 0
        self.reasons: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()

    def add(self, result: EvaluationResult, unit: str | None) -> None:
        """Add a result of an answer of this unit."""
        if result.status == "failed":
            _count(self.errors, result.error_type or "failed")
            return
        value = result.normalized
        if self.is_rate is None:
            self.is_rate = result.passed is not None
        if self.is_rate:
            value = None if result.passed is None else float(result.passed)
        if value is None:
            return
        if not has_weight(result.probability):
            self.unknown += 1
            return
        is_baseline = result.least_probability is None
        # as a number: ids may be long
        number = None if unit is None else hash(unit)
        self.sums.add(value, weight(result.probability), number, is_baseline=is_baseline)
        if result.passed is False:
            _count(self.reasons, result.reason_code or "no reason code")


class Week:
    """Counts results since the last summary, with bounds.

    The background thread adds, and the thread of messages closes the week.
    """

    def __init__(self, since_s: float) -> None:
        self._lock = threading.RLock()  # a signal handler may call a monitored function meanwhile
        self._before: ClosedWeek | None = None
        self._begin(since_s)
        reset_in_child(self._reset)

    def _reset(self) -> None:  # a forked child counts its own answers
        self._lock = threading.RLock()
        self._before = None
        self._begin(time.time())

    def _begin(self, since_s: float) -> None:
        self._since_s = since_s
        self._pairs: dict[Pair, PairSums] = {}
        self._not_counted = 0
        self._answers = 0
        self._spent_usd = 0.0
        self._priced = 0
        self._unpriced = 0
        self._changes: Counter[BadPart] = Counter()

    def add(self, evaluated: Evaluated) -> None:
        """Add the results of an answer."""
        response = evaluated.response
        agent = response.agent
        with self._lock:
            self._answers += evaluated.task.is_fresh
            for result in response.results:
                if result.shadow or result.status == "skipped":
                    continue
                self._add_cost(result)
                pair = (result.criterion_name, agent)
                sums = self._pairs.get(pair)
                if sums is None and len(self._pairs) >= MOST_PAIRS:
                    self._not_counted += 1
                    continue
                if sums is None:
                    sums = self._pairs[pair] = PairSums()
                sums.add(result, response.unit)

    def _add_cost(self, result: EvaluationResult) -> None:
        judgement = result.judgement
        if judgement is None or judgement.from_cache:
            return
        if judgement.cost_usd is not None:
            self._spent_usd += judgement.cost_usd
            self._priced += 1
        elif judgement.input_tokens is not None:  # of the first of the call's criteria
            self._unpriced += 1

    def note(self, change: StateChange) -> None:
        """Note that something broke, or is well again."""
        if change.is_bad and (change.crossing is None or not change.crossing.reminder):
            with self._lock:
                _count(self._changes, (change.kind, change.part, change.agent))

    def close(self, now_s: float, broke: Mapping[str, int]) -> ClosedWeek:
        """Return what was counted until now, and begin the next week."""
        with self._lock:
            pairs = {pair: PairFigures.of(sums) for pair, sums in self._pairs.items()}
            closed = ClosedWeek(
                since_s=self._since_s,
                until_s=now_s,
                answers=self._answers,
                pairs=pairs,
                not_counted=self._not_counted,
                spent_usd=self._spent_usd if self._priced else None,
                unpriced=self._unpriced,
                changes=dict(self._changes),
                broke=broke,
                before=self._before,
            )
            self._before = closed._replace(before=None)
            self._begin(now_s)
        return closed


class PairFigures(NamedTuple):
    """Holds what a week had of one criterion of one agent.

    Attributes:
        estimate: Of the rate that passes, or of the mean score. None without a score.
        unknown: Scores of an unknown probability, which are in no estimate.
    """

    estimate: Estimate | None
    is_rate: bool
    unknown: int
    reasons: Mapping[str, int]
    errors: Mapping[str, int]

    @classmethod
    def of(cls, sums: PairSums) -> PairFigures:
        """Return the figures of running sums."""
        estimate = sums.sums.estimate()
        is_rate = bool(sums.is_rate)
        return cls(estimate, is_rate, sums.unknown, dict(sums.reasons), dict(sums.errors))

    @property
    def order(self) -> float:
        """Return what figures are sorted by: the worst come first."""
        return 2.0 if self.estimate is None else self.estimate.mean

    def in_words(self, before: PairFigures | None) -> str:
        """Return the figures as sentences, with the change to the week before, if there is one."""
        sentences = [self._level(before)]
        if self.reasons:
            sentences.append(f"Why they fail: {_most_frequent(self.reasons)}")
        if self.unknown:
            sentences.append(f"{self.unknown:,} more have an unknown probability and count nowhere")
        if self.errors:
            failed = sum(self.errors.values())
            words = _most_frequent(self.errors)
            sentences.append(f"{failed:,} could not be evaluated: {words}")
        return ". ".join(sentences) + "."

    def _level(self, before: PairFigures | None) -> str:
        estimate = self.estimate
        if estimate is None:
            return "no score"
        answers = f"{estimate.scores:,} answers"
        if estimate.units is not None and estimate.units != estimate.scores:
            answers += f" in {estimate.units:,} conversations or traces"
        if not estimate.is_known:
            return f"of {answers} too few are of the usual kind to tell a rate"
        mean = _amount(estimate.mean, self.is_rate)
        passes = " pass" if self.is_rate else ""
        if not estimate.has_interval:
            return f"{mean}{passes} of {answers}, too few for an interval"
        low = _amount(estimate.low, self.is_rate).removesuffix(" %")
        high = _amount(estimate.high, self.is_rate).removesuffix(" %")
        level = f"{mean}{passes} ({low} to {high}) of {answers}"
        return level if before is None else f"{level}, {self._change(estimate, before)}"

    def _change(self, estimate: Estimate, before: PairFigures) -> str:
        earlier = before.estimate
        if earlier is None or before.is_rate is not self.is_rate:
            return "not measured the week before"
        level = _amount(earlier.mean, self.is_rate)
        if not earlier.has_interval:
            return f"too few the week before to compare ({level})"
        value, low, high = difference(estimate, earlier)
        if low <= 0.0 <= high:
            return f"no clear change to the week before ({level})"
        word = "higher" if value > 0.0 else "lower"
        least, most = sorted((abs(low), abs(high)))
        unit = " points" if self.is_rate else ""
        scale = 100 if self.is_rate else 1
        digits = 1 if self.is_rate else 2
        by = f"{scale * abs(value):.{digits}f}{unit}"
        bounds = f"{scale * least:.{digits}f} to {scale * most:.{digits}f}"
        return f"{by} {word} than the week before ({level}, difference {bounds})"

    def facts(self) -> dict[str, Any]:
        """Return the figures as numbers."""
        facts: dict[str, Any] = {"is_rate": self.is_rate, "scores": 0}
        estimate = self.estimate
        if estimate is not None:
            facts |= {"scores": estimate.scores, "units": estimate.units}
        if estimate is not None and estimate.is_known:
            facts["mean"] = estimate.mean
        if estimate is not None and estimate.has_interval:
            facts |= {"low": estimate.low, "high": estimate.high}
        facts["unknown_probability"] = self.unknown
        facts |= {"reasons": dict(self.reasons), "errors": dict(self.errors)}
        return facts


NO_FIGURES: Final = PairFigures(None, False, 0, {}, {})
"""Of a pair that a week did not have."""


class ClosedWeek(NamedTuple):
    """Holds what was counted between two summaries.

    Attributes:
        not_counted: Results of further pairs of criterion and agent, beyond the limit.
        spent_usd: Of the judges' calls with a known price. None without any.
        unpriced: Calls without a known price.
        changes: How often something became bad, by its kind, part and agent.
        broke: What was lost or failed, by the outcome or the part.
        before: The week before. None where this is the first one.
    """

    since_s: float
    until_s: float
    answers: int
    pairs: Mapping[Pair, PairFigures]
    not_counted: int
    spent_usd: float | None
    unpriced: int
    changes: Mapping[BadPart, int]
    broke: Mapping[str, int]
    before: ClosedWeek | None

    @property
    def is_whole(self) -> bool:
        """Tell whether it is about a whole week, give or take an hour for a change of the clocks."""
        return self.until_s - self.since_s > _WEEK_S - 2 * _HOUR_S

    def notices(self, *, timezone: str, pages_url: str) -> list[Notice]:
        """Return the summary: what it is of, each criterion, the worst first, and what broke."""
        until_ns = int(self.until_s * 1e9)
        since_ns = int(self.since_s * 1e9)
        zone = ZoneInfo(timezone)
        title = f"Week of {_day(self.since_s, zone)} to {_day(self.until_s, zone)}"
        notices = [self._notice(title, self._head(title, zone), self._facts())]
        for (criterion, agent), figures in sorted(self.pairs.items(), key=_worst_first):
            earlier = self.before
            before = None if earlier is None else earlier.pairs.get((criterion, agent), NO_FIGURES)
            who = shown_name(criterion)
            if agent is not None:
                who += f" of {shown_name(agent)}"
            link = answers_link(
                pages_url, since_ns, until_ns, criterion=criterion, agent=agent, outcome="fail"
            )
            facts = {"criterion": criterion, "agent": agent, **figures.facts()}
            words = f"{who}: {figures.in_words(before)}"
            notices.append(self._notice(title, words, facts)._replace(url=link))
        return notices

    def _notice(self, title: str, words: str, facts: Mapping[str, Any]) -> Notice:
        at_ns = int(self.until_s * 1e9)
        return Notice(uuid.uuid4().hex, "summary", "summary", title, words, at_ns, facts=facts)

    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"answers": self.answers}
        facts["since"] = moment(int(self.since_s * 1e9))
        facts["until"] = moment(int(self.until_s * 1e9))
        facts |= {"spent_usd": self.spent_usd, "unpriced_calls": self.unpriced}
        facts["became_bad"] = [
            {"kind": kind, "part": part, "agent": agent, "times": times}
            for (kind, part, agent), times in self.changes.items()
        ]
        facts["lost_or_failed"] = dict(self.broke)
        return facts

    def _head(self, title: str, zone: ZoneInfo) -> str:
        sentences = [f"{title} ({zone.key}): {self.answers:,} answers were evaluated"]
        if not self.is_whole:
            sentences.append(f"Counted since {_minute(self.since_s, zone)} alone")
        if self.before is not None and not self.before.is_whole:
            since = _minute(self.before.since_s, zone)
            sentences.append(f"The week before is counted since {since} alone")
        bad = [f"{_bad_part(part)}{_times(times)}" for part, times in self.changes.items()]
        sentences.append(f"Became bad: {', '.join(bad) or 'nothing'}")
        sentences.append(f"Lost or failed: {_most_frequent(self.broke, most=8) or 'nothing'}")
        if self.spent_usd is not None:
            least = f", and {self.unpriced:,} calls have no known price" if self.unpriced else ""
            sentences.append(f"Calls of judges cost {self.spent_usd:,.2f} USD{least}")
        elif self.unpriced:
            sentences.append(f"{self.unpriced:,} calls of judges have no known price")
        if self.not_counted:
            sentences.append(
                f"{self.not_counted:,} results are left out: at most {MOST_PAIRS} pairs of "
                "criterion and agent are counted"
            )
        return ". ".join(sentences) + "."


def difference(after: Estimate, before: Estimate) -> tuple[float, float, float]:
    """Return how much higher a mean is than an independent one, with its 95 % interval.

    The interval is by the limits of both (MOVER): d -+ sqrt((m1 - l1)^2 + (u2 - m2)^2) and so on.
    R. G. Newcombe, Statistics in Medicine 17 (1998), method 10.
    """
    value = after.mean - before.mean
    down = math.hypot(after.mean - after.low, before.high - before.mean)
    up = math.hypot(after.high - after.mean, before.mean - before.low)
    return value, value - down, value + up


def _worst_first(item: tuple[Pair, PairFigures]) -> tuple[float, str, str]:
    (criterion, agent), figures = item
    return figures.order, criterion, agent or ""


def _amount(value: float, is_rate: bool) -> str:
    if not is_rate:
        return f"{value:.2f}"
    shown = 100 * value
    if 0.0 < value < 1.0:
        shown = min(max(shown, 0.1), 99.9)  # only exactly 0 and 1 are shown as 0 and 100
    return f"{shown:.1f} %"


def _most_frequent(counts: Mapping[str, int], most: int = _SHOWN_WORDS) -> str:
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    words = [f"{shown_name(word)} {times:,}" for word, times in ordered[:most]]
    if len(ordered) > most:
        words.append(f"{len(ordered) - most} more")
    return ", ".join(words)


def _bad_part(bad: BadPart) -> str:
    kind, part, agent = bad
    of_agent = "" if agent is None else f" of {shown_name(agent)}"
    return f"{kind} {shown_name(part)}{of_agent}"


def _times(times: int) -> str:
    return "" if times == 1 else f" ({times} times)"


def _day(at_s: float, zone: ZoneInfo) -> str:
    local = datetime.fromtimestamp(at_s, UTC).astimezone(zone)
    return f"{local.day} {local:%B}"


def _minute(at_s: float, zone: ZoneInfo) -> str:
    local = datetime.fromtimestamp(at_s, UTC).astimezone(zone)
    return f"{local.day} {local:%B %H:%M}"


def _count(counts: Counter[Any], word: Any) -> None:
    if word in counts or len(counts) < _MOST_WORDS:
        counts[word] += 1

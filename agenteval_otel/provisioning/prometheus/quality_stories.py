"""Stories about quality: shares of failures around each limit, too few verdicts, and means around thresholds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

from agenteval_otel import semconv as names
from agenteval_otel.provisioning.plan import MonitoringPlan, PlannedCriterion
from agenteval_otel.provisioning.prometheus.quality import BURNS, LEAST_SCORES
from agenteval_otel.provisioning.prometheus.recording import held_thresholds
from agenteval_otel.provisioning.prometheus.stories import DAY, HALF_HOUR, HOUR, STEPS, Series, Story, counter
from agenteval_otel.provisioning.promql import AGENT, CRITERION, LABEL

Labels = Mapping[str, str]

_FAST, _SLOW = BURNS
_FAST_ONLY, _SLOW_ONLY = frozenset({_FAST.name}), frozenset({_SLOW.name})
_BOTH = _FAST_ONLY | _SLOW_ONLY
_NONE: Final = frozenset[str]()
_NEAR: Final = 0.03
"""How near to a limit the stories go, of the way to the next one."""
_PLENTY: Final = 12.0
"""Verdicts a step, where that is enough for every minimum."""
_IN_BRIEF: Final = 4
"""Stories of a criterion when another of the same objective has had them all: those nearest to the limits, first."""

_HALF, _TWO, _SIX, _DAY = HALF_HOUR, 2 * HOUR, 6 * HOUR, DAY


def quality_stories(plan: MonitoringPlan) -> Iterator[Story]:
    """The stories of every criterion that has an alert."""
    thresholds, told_of = held_thresholds(plan), set[tuple[float | None, float | None]]()
    for number, one in enumerate(plan.criteria, 1):
        labels = {CRITERION: one.name, AGENT: _agent_of(one)}
        told: tuple[Story, ...] = ()
        if one.is_alerted and one.objective:
            told = _of_certainty(labels) if one.objective >= 1.0 else _of_objective(labels, one.objective)
        elif one in thresholds:
            told = _of_threshold(labels, thresholds[one])
        if (held := (one.objective, thresholds.get(one))) in told_of:
            told = told[:_IN_BRIEF]
        told_of.add(held)
        yield from (story._replace(job=f"criterion {number}: {story.job}") for story in told)
    if told_of - {(None, None)}:
        yield _of_another(plan)


def _of_another(plan: MonitoringPlan) -> Story:
    """All fails in a criterion of which the settings know nothing."""
    labels = {CRITERION: "-".join(("another", *plan.names)), AGENT: "any agent"}
    scored = counter(f"{names.METRIC_SCORE.prometheus_name}_count", labels, (_PLENTY, STEPS))
    worst = counter(f"{names.METRIC_SCORE.prometheus_name}_sum", labels)
    return Story("a criterion of another's", (*_verdicts(labels, (1.0, _PLENTY, STEPS)), scored, worst), _NONE)


def _agent_of(planned: PlannedCriterion) -> str:
    """An agent that the criterion is scored for; where that is every other, one that nobody has named."""
    if planned.agents:
        return planned.agents[0]
    name = "any agent"
    while name in planned.other_agents:
        name += "'"
    return name


def _of_objective(labels: Labels, objective: float) -> tuple[Story, ...]:
    fast, slow, allowed = _FAST.limit(objective), _SLOW.limit(objective), 1.0 - objective
    near = _NEAR * (fast - slow)
    above_slow, above_fast = slow + near, fast + near
    below_slow, below_fast = slow - near, fast - near
    outage = (1.0 + fast) / 2
    plenty = max(_PLENTY, *(2 * burn.verdicts(objective)[0] / _SIX for burn in BURNS))

    def story(job: str, fires: frozenset[str], *pieces: tuple[float, int], weights: tuple[Series, ...] = ()) -> Story:
        return Story(job, (*_verdicts(labels, *((share, plenty, steps) for share, steps in pieces)), *weights), fires)

    return (
        story("just below the slow limit", _NONE, (below_slow, STEPS)),
        story("just above the slow limit", _SLOW_ONLY, (above_slow, STEPS)),
        story("just below the fast limit", _SLOW_ONLY, (below_fast, STEPS)),
        story("just above the fast limit", _BOTH, (above_fast, STEPS)),
        story("all is well", _NONE, (0.0, STEPS)),
        story("just as the objective allows", _NONE, (allowed, STEPS)),
        story("nothing passes", _BOTH, (1.0, STEPS)),
        story("above the fast limit, but not over six hours", _SLOW_ONLY, *_after(below_fast, _SIX, above_fast, HOUR)),
        story("above the fast limit, but for the last half hour", _SLOW_ONLY, *_recent(outage, below_fast, _HALF)),
        story("above the slow limit, but not over a day", _NONE, *_after(below_slow, _DAY, above_slow, _TWO + _HALF)),
        story("above the slow limit, but for the last two hours", _NONE, *_recent(outage, below_slow, _TWO)),
        story("failures are sampled more", _NONE, (outage, STEPS), weights=_weights(labels, allowed / 2, plenty)),
        story("passes are sampled more", _BOTH, (allowed / 2, STEPS), weights=_weights(labels, outage, plenty)),
        story("a few stand for all", _NONE, (outage, STEPS), weights=_weights(labels, outage, 0.6)),
        Story("nobody asks", _verdicts(labels, (outage, 0.0, STEPS)), _NONE),
        *(Story(job, _verdicts(labels, *_spread(outage, parts)), fires) for job, parts, fires in _few(objective)),
    )


Parts = tuple[tuple[float, int], ...]


def _few(objective: float) -> Iterator[tuple[str, Parts, frozenset[str]]]:
    """Around each minimum, all in an outage: verdicts in how many steps up to the day's end, and what fires.

    What fires does so half an hour before the end too, since alerts wait: what comes last in the bursts makes up for
    what leaves the window then.
    """
    (six, half), (day, two) = (burn.verdicts(objective) for burn in BURNS)
    old, new, quiet = (0.4, _HALF), (0.26, _HALF), (0.0, _SIX - 2 * _HALF)
    for said, share, fires in (("too few", 0.68, _NONE), ("just enough", 0.76, _FAST_ONLY)):
        parts = (old, quiet, (share, _HALF), new)
        yield f"{said} in six hours", tuple((six * part, steps) for part, steps in parts), fires
    for said, share, fires in (("too few", 0.85, _FAST_ONLY), ("just enough", 0.91, _BOTH)):
        parts = ((0.2, _HALF), (0.0, _DAY - 2 * _HALF), (share, _HALF), (0.13, _HALF))
        yield f"{said} in a day", tuple((day * part, steps) for part, steps in parts), fires
    for said, rate in (
        ("too few in half an hour", 0.93 * half), ("just enough in half an hour", 1.05 * half),
        ("too few in two hours", 0.96 * two / 4), ("just enough in two hours", 1.03 * two / 4),
    ):  # fmt: skip
        fast = _FAST_ONLY if rate >= half and 12 * rate >= six else _NONE
        slow = _SLOW_ONLY if 4 * rate >= two and 48 * rate >= day else _NONE
        yield said, ((rate / _HALF * STEPS, STEPS),), fast | slow


def _recent(before: float, now: float, last: int) -> tuple[tuple[float, int], ...]:
    """A share, and another in the last steps."""
    return (before, STEPS - last), (now, last)


def _after(overall: float, window: int, now: float, last: int) -> tuple[tuple[float, int], ...]:
    """A share such that, with another one in the last steps, it is `overall` in the window."""
    seen = window - 1  # a window of so many measurements has one growth less
    return _recent((seen * overall - last * now) / (seen - last), now, last)


def _verdicts(labels: Labels, *pieces: tuple[float, float, int]) -> tuple[Series, ...]:
    """Both counters, of pieces of a share that fails, verdicts a step, and steps."""
    results = names.METRIC_RESULTS.prometheus_name
    fails = [(share * per_step, steps) for share, per_step, steps in pieces]
    passes = [((1.0 - share) * per_step, steps) for share, per_step, steps in pieces]
    return (
        counter(results, {**labels, LABEL: names.LABEL_FAIL}, *fails),
        counter(results, {**labels, LABEL: names.LABEL_PASS}, *passes),
    )


def _spread(share: float, parts: tuple[tuple[float, int], ...]) -> list[tuple[float, float, int]]:
    """Nothing until the parts begin: so many verdicts in so many steps, the last at the day's end."""
    quiet = STEPS - sum(steps for _, steps in parts)
    return [(0.0, 0.0, quiet), *((share, verdicts / steps, steps) for verdicts, steps in parts)]


def _weights(labels: Labels, fails: float, worth: float) -> tuple[Series, ...]:
    """Weights of which such a share failed, worth so many verdicts a step, whatever the counts say."""
    sums = ((names.METRIC_WEIGHT, 40.0), (names.METRIC_WEIGHT_SQUARED, 40.0**2 / worth))
    shares = ((names.LABEL_FAIL, fails), (names.LABEL_PASS, 1.0 - fails))
    return tuple(
        counter(one.prometheus_name, {**labels, LABEL: label}, (grown * share, STEPS))
        for one, grown in sums
        for label, share in shares
    )


def _of_certainty(labels: Labels) -> tuple[Story, ...]:
    results = names.METRIC_RESULTS.prometheus_name
    fired = frozenset({"AgentevalFailureSeen"})

    def story(job: str, fires: frozenset[str], failed: str) -> Story:
        passed = counter(results, {**labels, LABEL: names.LABEL_PASS}, (_PLENTY, STEPS))
        return Story(job, (passed, Series(results, {**labels, LABEL: names.LABEL_FAIL}, failed)), fires)

    return (
        story("one failed two hours ago", _NONE, f"0x{STEPS - 2 * HOUR} 1x{2 * HOUR - 1}"),
        story("one failed half an hour ago", fired, f"0x{STEPS - HALF_HOUR} 1x{HALF_HOUR - 1}"),
        story("all pass", _NONE, f"0x{STEPS}"),
        story("failed long ago", _NONE, f"5x{STEPS}"),
        story("comes back after two hours", _NONE, f"5x{STEPS - 3 * HOUR} _x{2 * HOUR} 5x{HOUR}"),
        story("begins with a failure", fired, f"_x{STEPS - HALF_HOUR} 1x{HALF_HOUR}"),
    )


def _of_threshold(labels: Labels, threshold: float) -> tuple[Story, ...]:
    fired, hourly = frozenset({"AgentevalMeanBelowThreshold"}), _PLENTY * HOUR

    def plain(job: str, fires: frozenset[str], mean: float, of_an_hour: float = hourly) -> Story:
        name = names.METRIC_SCORE.prometheus_name
        count = counter(f"{name}_count", labels, (of_an_hour / HOUR, STEPS))
        return Story(job, (count, counter(f"{name}_sum", labels, (mean * of_an_hour / HOUR, STEPS))), fires)

    def weighted(job: str, fires: frozenset[str], mean: float, *, plain_mean: float, worth: float = _PLENTY) -> Story:
        # Scores that are all the same: their mean is certain, whatever it is.
        weight, squared = 2 * _PLENTY, (2 * _PLENTY) ** 2 / worth
        sums = (
            (names.METRIC_WEIGHTED_SCORE, weight * mean), (names.METRIC_WEIGHTED_SCORE_W2, squared * mean),
            (names.METRIC_WEIGHTED_SCORE_SQUARED_W2, squared * mean * mean), (names.METRIC_WEIGHT, weight),
            (names.METRIC_WEIGHT_SQUARED, squared),
        )  # fmt: skip
        grown = tuple(counter(one.prometheus_name, labels, (each, STEPS)) for one, each in sums)
        return plain(job, fires, plain_mean)._replace(series=(*plain(job, fires, plain_mean).series, *grown))

    return (
        plain("the interval ends just below the threshold", fired, _mean_with_upper(threshold * (1 - _NEAR), hourly)),
        plain("the interval holds the threshold", _NONE, _mean_with_upper(threshold * (1 + _NEAR), hourly)),
        plain("above the threshold", _NONE, (1.0 + threshold) / 2),
        plain("too few scores", _NONE, 0.0, LEAST_SCORES - 2),
        plain("just enough scores", fired, 0.0, LEAST_SCORES + 2),
        plain("no scores", _NONE, 0.0, 0.0),
        weighted("weighted, just below", fired, threshold * (1 - _NEAR), plain_mean=1.0),
        weighted("weighted, just above", _NONE, threshold * (1 + _NEAR), plain_mean=0.0),
        weighted("a few stand for all", _NONE, 0.0, plain_mean=0.0, worth=0.9 * LEAST_SCORES / HOUR),
    )


def _mean_with_upper(end: float, count: float) -> float:
    """The mean whose interval ends there, of so many scores with the greatest variance that they can have."""
    low, high = 0.0, end
    for _ in range(60):
        mean = (low + high) / 2
        low, high = (mean, high) if mean + 1.96 * math.sqrt(mean * (1 - mean) / count) < end else (low, mean)
    return low

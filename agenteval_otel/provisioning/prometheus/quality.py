"""Alerts about quality: objectives that are missed, and means below their thresholds; with their scenarios.

The multi-window burn rate of service objectives, with factors that can fire where 1 to 50 of 100 answers may fail. The
scenarios lie close around each limit: shares of failures, numbers of verdicts, means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

from agenteval_otel import semconv as names
from agenteval_otel.provisioning.plan import MonitoringPlan, PlannedCriterion
from agenteval_otel.provisioning.prometheus.recording import (
    COUNT,
    FAIL_SHARE,
    HALF_WIDTH,
    MEAN,
    OBJECTIVE,
    THRESHOLD,
    VERDICTS,
    alerted_thresholds,
)  # fmt: skip
from agenteval_otel.provisioning.prometheus.rules import GROUP, Alert, figure, recorded, registered, window
from agenteval_otel.provisioning.prometheus.scenarios import (
    DAY,
    HALF_HOUR,
    HOUR,
    STEPS,
    Scenario,
    Series,
    counter,
    gauge,
    table,
)  # fmt: skip
from agenteval_otel.provisioning.promql import AGENT, CRITERION, LABEL


class Burn(NamedTuple):
    """One pair of windows in which the error budget may burn too fast.

    Attributes:
        factor: How many times the failures that the objective allows.
        towards_all: Upper bound of the limit, between the allowed share (0) and everything (1): where many answers may
            fail, the factor alone would ask for more failures than there are answers.
        least: Minimum of verdicts in both windows, the long one's first.
    """

    name: str
    severity: Literal["page", "ticket"]
    long: str
    short: str
    factor: float
    towards_all: float
    least: tuple[int, int]
    for_s: float

    def limit(self, objective: float) -> float:
        """The share of failures above which it fires: always above what the objective allows, and below 1."""
        allowed = 1.0 - objective
        return round(min(self.factor * allowed, allowed + self.towards_all * objective), 12)

    def verdicts(self, objective: float) -> tuple[int, int]:
        """Minimum of verdicts in both windows: `least`, and enough that chance does not pass the limit.

        A few failures are not enough, and the limit lies `_ERRORS` standard errors above what the objective allows.
        """
        limit, allowed = self.limit(objective), 1.0 - objective
        by_chance = _ERRORS**2 * allowed * objective / (limit - allowed) ** 2
        enough = math.ceil(round(max(_FEW_FAILURES / limit, by_chance), 6))
        return max(self.least[0], enough), self.least[1]


BURNS: Final = (
    Burn("AgentevalObjectiveBurnFast", "page", "6h", "30m", 6.0, 0.4, (50, 10), 120.0),
    Burn("AgentevalObjectiveBurnSlow", "ticket", "1d", "2h", 3.0, 0.2, (100, 20), 300.0),
)

LEAST_SCORES: Final = 30
_FEW_FAILURES = 5
_ERRORS = 3.3
_CRITERION = f"{{{{ $labels.{CRITERION} }}}}"
_AGENT = f"{{{{ $labels.{AGENT} }}}}"
_WHO = f"{_CRITERION} of {_AGENT} ({{{{ $labels.job }}}})"
_VALUE = "{{ $value | humanize }}"
_SHARE = "{{ $value | humanizePercentage }}"

# Of the scenarios: how near to a limit they go (as a share of the way to the next one); verdicts a step where that is
# enough for every minimum; how many scenarios a criterion has when another of the same objective has had them all:
# those nearest to the limits come first.
_NEAR: Final = 0.03
_PLENTY: Final = 12.0
_IN_BRIEF: Final = 4
_FAST, _SLOW = BURNS
_FAST_ONLY, _SLOW_ONLY, _NONE = frozenset({_FAST.name}), frozenset({_SLOW.name}), frozenset[str]()
_BOTH = _FAST_ONLY | _SLOW_ONLY
Labels = Mapping[str, str]


@registered
def _objectives(plan: MonitoringPlan) -> list[Alert]:
    """For each objective that is set anywhere: burning fast, burning slowly, or any failure where none is allowed."""
    alerts: list[Alert] = []
    for objective in sorted(
        {planned.objective for planned in plan.criteria if planned.is_alerted and planned.objective}
    ):
        having = [criterion for criterion in plan.criteria if criterion.is_alerted and criterion.objective == objective]
        if objective >= 1.0:
            alerts.append(_failure(plan, _scenarios(plan, having, _of_certainty)))
        else:
            scenarios = _scenarios(plan, having, lambda labels, at=objective: _of_objective(labels, at))  # type: ignore[misc]
            alerts += [_burning(burn, objective, scenarios) for burn in BURNS]
    return alerts


def _burning(burn: Burn, objective: float, scenarios: tuple[Scenario, ...]) -> Alert:
    limit = burn.limit(objective)
    times = limit / (1.0 - objective)
    shares, counts = [], []
    for size, least in zip((burn.long, burn.short), burn.verdicts(objective), strict=True):
        shares.append(f"{recorded(FAIL_SHARE, size)} > {figure(limit)}")
        counts.append(f"{recorded(VERDICTS, size)} >= {least}")
    is_set = f"{recorded(OBJECTIVE)} == {figure(objective)}"
    return Alert(
        name=burn.name, expression="\nand ".join([*shares, *counts, is_set]), for_s=burn.for_s,
        severity=burn.severity, labels={"objective": figure(objective)}, is_quality=True, scenarios=scenarios,
        summary=f"{_SHARE} of the answers fail {_WHO}; its objective allows {_percent(1.0 - objective)}",
        description=(
            f"In the last {burn.long} {_SHARE} of the answers failed the criterion {_CRITERION} of the agent {_AGENT}. "
            f"There and in the last {burn.short} it is more than {_percent(limit)}, {times:.3g} times what the "
            f"objective of {figure(objective)} allows."
        ),
    )  # fmt: skip


def _failure(plan: MonitoringPlan, scenarios: tuple[Scenario, ...]) -> Alert:
    """Any failure where none is allowed; a new counter that starts at one counts, one that reappears does not."""
    failures = f'{names.METRIC_RESULTS.prometheus_name}{{{LABEL}="{names.LABEL_FAIL}"}}'
    size = window(plan, "1h")
    new = f"({failures} > 0 unless present_over_time({failures}[{window(plan, '1d')}] offset {size}))"
    return Alert(
        name="AgentevalFailureSeen", for_s=0.0, severity="ticket", labels={"objective": "1"}, is_quality=True,
        scenarios=scenarios,
        expression=f"sum by ({', '.join(GROUP)}) (increase({failures}[{size}]) > 0 or {new})\n"
                   f"and {recorded(OBJECTIVE)} == 1",
        summary=f"An answer failed {_WHO}; its objective lets none fail",
        description=(
            f"In the last hour about {_VALUE} answers of the agent {_AGENT} failed the criterion {_CRITERION}, whose "
            "objective is 1: all have to pass."
        ),
    )  # fmt: skip


@registered
def _thresholds(plan: MonitoringPlan) -> list[Alert]:
    """For each threshold without an objective: the mean lies below it, and its 95 % interval too."""
    thresholds, alerts = alerted_thresholds(plan), list[Alert]()
    for threshold in sorted(set(thresholds.values())):
        text = figure(threshold)
        mean, half, count = (recorded(what, "1h") for what in (MEAN, HALF_WIDTH, COUNT))
        having = [criterion for criterion, at in thresholds.items() if at == threshold]
        alerts.append(Alert(
            name=_MEAN, for_s=600.0, severity="ticket", labels={"threshold": text}, is_quality=True,
            scenarios=_scenarios(plan, having, lambda labels, at=threshold: _of_threshold(labels, at)),  # type: ignore[misc]
            expression=f"{mean}\nand {mean} + {half} < {text}\nand {count} >= {LEAST_SCORES}\n"
                       f"and {recorded(THRESHOLD)} == {text}",
            summary=f"Mean score {_VALUE} in {_WHO}, below the threshold of {threshold:.4g}",
            description=(
                f"The mean of the last hour's normalized scores of the criterion {_CRITERION} of the agent {_AGENT} is "
                f"{_VALUE}. Its whole 95 % interval lies below {threshold:.4g}, the lowest score that passes: the "
                "typical answer fails."
            ),
        ))  # fmt: skip
    return alerts


_MEAN: Final = "AgentevalMeanBelowThreshold"


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"


# --- scenarios ---


def _scenarios(
    plan: MonitoringPlan, criteria: list[PlannedCriterion], make: Callable[[Labels], tuple[Scenario, ...]]
) -> tuple[Scenario, ...]:
    """The scenarios of the first criterion, in brief those of the others, and of a criterion that no setting names."""
    made = [_of_unknown(plan)]
    for criterion in criteria:
        number = plan.criteria.index(criterion) + 1
        agent = criterion.agents[0] if criterion.agents else "any agent"
        while agent in criterion.other_agents:
            agent += "'"
        scenarios = make({CRITERION: criterion.name, AGENT: agent})
        scenarios = scenarios if len(made) == 1 else scenarios[:_IN_BRIEF]
        made += [scenario._replace(job=f"criterion {number}: {scenario.job}") for scenario in scenarios]
    return tuple(made)


def _of_unknown(plan: MonitoringPlan) -> Scenario:
    labels = {CRITERION: "-".join(("another", *plan.names)), AGENT: "any agent"}
    scored = counter(f"{names.METRIC_SCORE.prometheus_name}_count", labels, (_PLENTY, STEPS))
    worst = counter(f"{names.METRIC_SCORE.prometheus_name}_sum", labels)
    return Scenario("a criterion of another's", (*_verdicts(labels, (1.0, _PLENTY, STEPS)), scored, worst))


def _of_objective(labels: Labels, objective: float) -> tuple[Scenario, ...]:
    fast, slow, allowed = _FAST.limit(objective), _SLOW.limit(objective), 1.0 - objective
    near = _NEAR * (fast - slow)
    below_slow, above_slow, below_fast, above_fast = slow - near, slow + near, fast - near, fast + near
    outage = (1.0 + fast) / 2
    plenty = max(_PLENTY, *(2 * burn.verdicts(objective)[0] / (6 * HOUR) for burn in BURNS))
    shares: tuple[tuple[str, frozenset[str], tuple[tuple[float, int], ...]], ...] = (
        ("just below the slow limit", _NONE, ((below_slow, STEPS),)),
        ("just above the slow limit", _SLOW_ONLY, ((above_slow, STEPS),)),
        ("just below the fast limit", _SLOW_ONLY, ((below_fast, STEPS),)),
        ("just above the fast limit", _BOTH, ((above_fast, STEPS),)),
        ("all is well", _NONE, ((0.0, STEPS),)),
        ("just as the objective allows", _NONE, ((allowed, STEPS),)),
        ("nothing passes", _BOTH, ((1.0, STEPS),)),
        ("above the fast limit, but not over six hours", _SLOW_ONLY, _after(below_fast, 6 * HOUR, above_fast, HOUR)),
        ("above the fast limit, but for the last half hour", _SLOW_ONLY, _recent(outage, below_fast, HALF_HOUR)),
        ("above the slow limit, but not over a day", _NONE, _after(below_slow, DAY, above_slow, 2 * HOUR + HALF_HOUR)),
        ("above the slow limit, but for the last two hours", _NONE, _recent(outage, below_slow, 2 * HOUR)),
    )
    weighted = (
        ("failures are sampled more", _NONE, outage, _weights(labels, allowed / 2, plenty)),
        ("passes are sampled more", _BOTH, allowed / 2, _weights(labels, outage, plenty)),
        ("a few stand for all", _NONE, outage, _weights(labels, outage, 0.6)),
    )
    return (
        *(Scenario(job, _verdicts(labels, *((share, plenty, steps) for share, steps in pieces)), fires)
          for job, fires, pieces in shares),
        *(Scenario(job, (*_verdicts(labels, (share, plenty, STEPS)), *weights), fires)
          for job, fires, share, weights in weighted),
        Scenario("nobody asks", _verdicts(labels, (outage, 0.0, STEPS))),
        *(Scenario(job, _verdicts(labels, *_spread(outage, parts)), fires) for job, parts, fires in _few(objective)),
    )  # fmt: skip


Parts = tuple[tuple[float, int], ...]


def _few(objective: float) -> Iterator[tuple[str, Parts, frozenset[str]]]:
    """Around each minimum, in an outage: verdicts in how many steps up to the day's end, and what fires.

    Alerts wait, so they must fire half an hour before the end too: the last part of each burst replaces what leaves
    the window then.
    """
    (six, half), (day, two) = (burn.verdicts(objective) for burn in BURNS)
    old, new, quiet = (0.4, HALF_HOUR), (0.26, HALF_HOUR), (0.0, 6 * HOUR - 2 * HALF_HOUR)
    for case, share, fires in (("too few", 0.68, _NONE), ("just enough", 0.76, _FAST_ONLY)):
        parts = (old, quiet, (share, HALF_HOUR), new)
        yield f"{case} in six hours", tuple((six * part, steps) for part, steps in parts), fires
    for case, share, fires in (("too few", 0.85, _FAST_ONLY), ("just enough", 0.91, _BOTH)):
        parts = ((0.2, HALF_HOUR), (0.0, DAY - 2 * HALF_HOUR), (share, HALF_HOUR), (0.13, HALF_HOUR))
        yield f"{case} in a day", tuple((day * part, steps) for part, steps in parts), fires
    for case, rate in (
        ("too few in half an hour", 0.93 * half), ("just enough in half an hour", 1.05 * half),
        ("too few in two hours", 0.96 * two / 4), ("just enough in two hours", 1.03 * two / 4),
    ):  # fmt: skip
        fast = _FAST_ONLY if rate >= half and 12 * rate >= six else _NONE
        slow = _SLOW_ONLY if 4 * rate >= two and 48 * rate >= day else _NONE
        yield case, ((rate / HALF_HOUR * STEPS, STEPS),), fast | slow


def _recent(before: float, now: float, last: int) -> tuple[tuple[float, int], ...]:
    """A share, and another in the last steps."""
    return (before, STEPS - last), (now, last)


def _after(overall: float, window: int, now: float, last: int) -> tuple[tuple[float, int], ...]:
    """A share such that, with another one in the last steps, it is `overall` in the window."""
    seen = window - 1  # a window of so many measurements has one growth less
    return _recent((seen * overall - last * now) / (seen - last), now, last)


def _verdicts(labels: Labels, *pieces: tuple[float, float, int]) -> tuple[Series, ...]:
    """Both counters: pieces of a share that fails, verdicts per step, and steps."""
    fails = [(share * per_step, steps) for share, per_step, steps in pieces]
    passes = [((1.0 - share) * per_step, steps) for share, per_step, steps in pieces]
    return (
        counter(names.METRIC_RESULTS, {**labels, LABEL: names.LABEL_FAIL}, *fails),
        counter(names.METRIC_RESULTS, {**labels, LABEL: names.LABEL_PASS}, *passes),
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
        counter(name, {**labels, LABEL: label}, (grown * share, STEPS))
        for name, grown in sums
        for label, share in shares
    )


def _of_certainty(labels: Labels) -> tuple[Scenario, ...]:
    def both(failed: str) -> tuple[Series, ...]:
        passed = counter(names.METRIC_RESULTS, {**labels, LABEL: names.LABEL_PASS}, (_PLENTY, STEPS))
        return passed, gauge(names.METRIC_RESULTS, failed, {**labels, LABEL: names.LABEL_FAIL})

    return table(
        "AgentevalFailureSeen", "{}",
        ("one failed two hours ago", False, both(f"0x{STEPS - 2 * HOUR} 1x{2 * HOUR - 1}")),
        ("one failed half an hour ago", True, both(f"0x{STEPS - HALF_HOUR} 1x{HALF_HOUR - 1}")),
        ("all pass", False, both(f"0x{STEPS}")),
        ("failed long ago", False, both(f"5x{STEPS}")),
        ("comes back after two hours", False, both(f"5x{STEPS - 3 * HOUR} _x{2 * HOUR} 5x{HOUR}")),
        ("begins with a failure", True, both(f"_x{STEPS - HALF_HOUR} 1x{HALF_HOUR}")),
    )  # fmt: skip


def _of_threshold(labels: Labels, threshold: float) -> tuple[Scenario, ...]:
    hourly, score = _PLENTY * HOUR, names.METRIC_SCORE.prometheus_name
    just_below, just_above = threshold * (1 - _NEAR), threshold * (1 + _NEAR)

    def plain(mean: float, per_hour: float = hourly) -> tuple[Series, ...]:
        count = counter(f"{score}_count", labels, (per_hour / HOUR, STEPS))
        return count, counter(f"{score}_sum", labels, (mean * per_hour / HOUR, STEPS))

    def weighted(mean: float, *, plain_mean: float, worth: float = _PLENTY) -> tuple[Series, ...]:
        # All scores are the same, so that their mean is certain.
        weight, squared = 2 * _PLENTY, (2 * _PLENTY) ** 2 / worth
        sums = (
            (names.METRIC_WEIGHTED_SCORE, weight * mean), (names.METRIC_WEIGHTED_SCORE_W2, squared * mean),
            (names.METRIC_WEIGHTED_SCORE_SQUARED_W2, squared * mean * mean), (names.METRIC_WEIGHT, weight),
            (names.METRIC_WEIGHT_SQUARED, squared),
        )  # fmt: skip
        return *plain(plain_mean), *(counter(metric, labels, (growth, STEPS)) for metric, growth in sums)

    return table(
        _MEAN, "{}",
        ("the interval ends just below the threshold", True, plain(_mean_with_upper(just_below, hourly))),
        ("the interval holds the threshold", False, plain(_mean_with_upper(just_above, hourly))),
        ("above the threshold", False, plain((1.0 + threshold) / 2)),
        ("too few scores", False, plain(0.0, LEAST_SCORES - 2)),
        ("just enough scores", True, plain(0.0, LEAST_SCORES + 2)),
        ("no scores", False, plain(0.0, 0.0)),
        ("weighted, just below", True, weighted(just_below, plain_mean=1.0)),
        ("weighted, just above", False, weighted(just_above, plain_mean=0.0)),
        ("a few stand for all", False, weighted(0.0, plain_mean=0.0, worth=0.9 * LEAST_SCORES / HOUR)),
    )  # fmt: skip


def _mean_with_upper(end: float, count: float) -> float:
    """The mean whose interval ends there, of so many scores with the greatest variance that they can have."""
    low, high = 0.0, end
    for _ in range(60):
        mean = (low + high) / 2
        low, high = (mean, high) if mean + 1.96 * math.sqrt(mean * (1 - mean) / count) < end else (low, mean)
    return low

"""Recording rules and alerts about quality: objectives that are breached, and means below their thresholds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from agenteval_otel import semconv as names
from agenteval_otel.provisioning import promql
from agenteval_otel.provisioning.plan import MonitoringPlan, PlannedCriterion
from agenteval_otel.provisioning.prometheus.rules import (
    DAY,
    GROUP,
    HALF_HOUR,
    HOUR,
    SERVICE_TEXT,
    STEPS,
    Alert,
    Scenario,
    Series,
    by,
    changing_counter,
    counter,
    figure,
    gauge,
    recorded,
    registered,
    scenario,
    window,
)
from agenteval_otel.provisioning.promql import AGENT, CRITERION, ENVIRONMENT, LABEL

_FAIL_SHARE, _VERDICTS = "evaluation_fail:ratio", "evaluation_verdicts:effective"
_MEAN, _HALF_WIDTH, _COUNT = "evaluation_score:mean", "evaluation_score:half_width", "evaluation_score:effective"
BREACHED: Final = "AgentevalObjectiveBreached"
_BREACH, _OBJECTIVE, _THRESHOLD = "objective_breach:max", "evaluation_objective", "evaluation_threshold"


def recording_rules(plan: MonitoringPlan) -> list[dict[str, Any]]:
    """The recording rules that the plan's alerts need, each after its inputs."""
    objectives = {criterion: criterion.objective for criterion in plan.criteria if criterion.is_alerted}
    thresholds = {criterion: limit for criterion in plan.criteria if (limit := criterion.alerted_threshold) is not None}
    rules: dict[str, str] = {}
    if objectives:
        rules[recorded(_BREACH)] = f"max {by(GROUP)} ({names.METRIC_OBJECTIVE_BREACH.prometheus_name})"
        rules[recorded(_FAIL_SHARE, "5m")] = promql.fail_share("", window(plan, "5m"), GROUP)
        for name in _BURN_WINDOWS:
            size = window(plan, name)
            rules[recorded(_FAIL_SHARE, name)] = promql.fail_share("", size, GROUP)
            rules[recorded(_VERDICTS, name)] = promql.effective_verdicts("", size, GROUP)
        rules[recorded(_OBJECTIVE)] = _constants(objectives, recorded(_VERDICTS, "1d"))
    if thresholds:
        size, count = window(plan, "1h"), recorded(_COUNT, "1h")
        rules[recorded(_MEAN, "1h")] = promql.weighted_mean("", size, GROUP)
        rules[recorded(_HALF_WIDTH, "1h")] = promql.mean_half_width("", size, GROUP)
        rules[count] = f"{promql.effective_count('', size, GROUP)} or {promql.score_count('', size, GROUP)}"
        rules[recorded(_THRESHOLD)] = _constants(thresholds, count)
    return [{"record": name, "expr": expression} for name, expression in rules.items()]


def _constants(values: Mapping[PlannedCriterion, Any], series: str) -> str:
    """A constant for each criterion of each agent that has results, with the labels of the series."""
    return "\nor\n".join(
        f"{figure(value)} + 0 * {series}{{{promql.matchers_of(criterion)}}}" for criterion, value in values.items()
    )


# A loss that is too slow for the detectors of processes with few verdicts: it burns the error budget in two windows.
_BURN: Final = "AgentevalObjectiveBurnSlow"
_FACTOR: Final = 3.0  # how many times the failures that the objective allows
# Upper bound of the limit, from the allowed share (0) to everything (1): where many answers may fail, the factor alone
# would ask for more failures than there are answers.
_TOWARDS_ALL: Final = 0.2
_BURN_WINDOWS: Final = "1d", "2h"
_LEAST: Final = 100, 20  # verdicts in the long window, and in the short one


def burn_limit(objective: float) -> float:
    """The share of failures above which the budget burns: always above what the objective allows, and below 1."""
    allowed = 1.0 - objective
    return round(min(_FACTOR * allowed, allowed + _TOWARDS_ALL * objective), 12)


def burn_verdicts(objective: float) -> tuple[int, int]:
    """Minimum of verdicts in the long and the short window: `_LEAST`, and enough that chance does not pass the limit.

    A few failures are not enough, and the limit lies `_ERRORS` standard errors above what the objective allows.
    """
    limit, allowed = burn_limit(objective), 1.0 - objective
    by_chance = _ERRORS**2 * allowed * objective / (limit - allowed) ** 2
    enough = math.ceil(round(max(_FEW_FAILURES / limit, by_chance), 6))
    return max(_LEAST[0], enough), _LEAST[1]


_KEEP_S: Final = 900.0  # as long as a restarted process takes to detect the same breach anew
_MIN_SCORES: Final = 30
_FEW_FAILURES = 5
_ERRORS = 3.3

_CRITERION, _AGENT = (f"{{{{ $labels.{label} }}}}" for label in (CRITERION, AGENT))
_WHO = f"{_CRITERION} of {_AGENT} ({SERVICE_TEXT})"
# Of the answers of the last minutes; %+q quotes as PromQL does.
_NOW = (
    f"{{{{ with printf `{recorded(_FAIL_SHARE, '5m')}{{job=%+q,{AGENT}=%+q,{CRITERION}=%+q,{ENVIRONMENT}=%+q}}` "
    f"$labels.job $labels.{AGENT} $labels.{CRITERION} $labels.{ENVIRONMENT} | query }}}}"
    "{{ . | first | value | humanizePercentage }} of the last answers fail{{ else }}its answers fail{{ end }}"
)
_VALUE = "{{ $value | humanize }}"
_SHARE = "{{ $value | humanizePercentage }}"

# Of the scenarios: how close to a limit they go, and verdicts a step where that is enough for every minimum.
_NEAR: Final = 0.03
_PLENTY: Final = 12.0
_OTHER: Final = {CRITERION: "another criterion", AGENT: "any agent"}


@registered
def _objectives(plan: MonitoringPlan) -> Iterator[Alert]:
    """A breach that a process has detected; for each objective a budget that burns, or any failure where none may."""
    examples = {item.objective: item for item in reversed(plan.criteria) if item.is_alerted}
    objectives = sorted(objective for objective in examples if objective is not None)
    if objectives and objectives[0] < 1.0 and plan.breach.enabled:
        yield _breached(_labels_of(examples[objectives[0]]),
                        [item for item in plan.criteria if item.is_alerted and item.objective == 1.0])  # fmt: skip
    for objective in objectives:
        labels = _labels_of(examples[objective])
        yield _failure(plan, labels) if objective >= 1.0 else _burning(plan, objective, labels)


def _breached(labels: Mapping[str, str], strict: Sequence[PlannedCriterion]) -> Alert:
    """`strict` have the objective 1, which one failure breaches: `_failure` is about them."""
    name, metric = BREACHED, names.METRIC_OBJECTIVE_BREACH

    def process(job: str, fires: str, values: str, labels: Mapping[str, str] = labels) -> Scenario:
        return scenario(job, fires, gauge(metric, values, labels))

    restarted = (
        Series(metric.prometheus_name, {**labels, "instance": instance}, values)
        for instance, values in (("1", f"0x{STEPS - HOUR} 1x{HOUR - 2} _"), ("2", f"_x{STEPS - 1} 0"))
    )
    return Alert(
        name=name, for_s=0.0, keep_s=_KEEP_S, severity="page", is_quality=True,
        expression=f"{recorded(_BREACH)} == 1" + "".join(
            f"\nunless {recorded(_BREACH)}{{{promql.matchers_of(criterion)}}}" for criterion in strict
        ),
        summary=f"{_WHO} breaches its objective: {_NOW}",
        description=f"Fewer answers of the agent {_AGENT} pass the criterion {_CRITERION} than its objective asks for. "
                    "A process detected it, with at most one false alarm in `breach.false_alarm_every` verdicts; it "
                    "lasts until that process has evidence of the recovery.",
        scenarios=(
            process("met", "", f"0x{STEPS}"),
            process("breached", name, f"0x{STEPS - HOUR} 1x{HOUR - 1}"),
            process("recovered for an hour", "", f"0x{STEPS - 2 * HOUR} 1x{HOUR} 0x{HOUR - 1}"),
            process("recovered for ten minutes", name, f"0x{STEPS - HOUR} 1x{HOUR - 2} 0"),
            scenario("restarted in the incident", name, *restarted),
            scenario("breached in one process of two", name, gauge(metric, f"0x{STEPS}", {**labels, "instance": "2"}),
                     gauge(metric, f"1x{STEPS}", labels)),
            *(process("an objective of 1", "", f"1x{STEPS}", _labels_of(criterion))
              for criterion in strict[:1]),
        ),
    )  # fmt: skip


def _burning(plan: MonitoringPlan, objective: float, labels: Mapping[str, str]) -> Alert:
    limit, allowed = burn_limit(objective), 1.0 - objective
    conditions = [
        *(f"{recorded(_FAIL_SHARE, size)} > {figure(limit)}" for size in _BURN_WINDOWS),
        *(f"{recorded(_VERDICTS, size)} >= {least}"
          for size, least in zip(_BURN_WINDOWS, burn_verdicts(objective), strict=True)),
        f"{recorded(_OBJECTIVE)} == {figure(objective)}",
    ]  # fmt: skip
    long, short = _BURN_WINDOWS
    # What a detector has seen within the long window was notified, and may be over.
    seen = f"\nunless max_over_time({recorded(_BREACH)}[{window(plan, long)}]) == 1"
    return Alert(
        name=_BURN, for_s=300.0, severity="ticket", labels={"objective": figure(objective)}, is_quality=True,
        scenarios=_burn_scenarios(labels, objective), expression="\nand ".join(conditions) + seen,
        summary=f"{_SHARE} of the answers fail {_WHO}; its objective allows {_percent(allowed)}",
        description=f"In the last {long} {_SHARE} of the answers failed the criterion {_CRITERION} of the agent "
                    f"{_AGENT}. There and in the last {short} it is more than {_percent(limit)}, "
                    f"{limit / allowed:.3g} times what the objective of {figure(objective)} allows.",
    )  # fmt: skip


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def _failure(plan: MonitoringPlan, example: Mapping[str, str]) -> Alert:
    """Any failure where none is allowed; a new counter that starts at one counts, one that reappears does not."""
    name, failures = "AgentevalFailureSeen", f'{names.METRIC_RESULTS.prometheus_name}{{{LABEL}="{names.LABEL_FAIL}"}}'
    size = window(plan, "1h")
    new = f"({failures} > 0 unless present_over_time({failures}[{window(plan, '1d')}] offset {size}))"

    def failing(job: str, fires: str, values: str) -> Scenario:
        passes = counter(names.METRIC_RESULTS, {**example, LABEL: names.LABEL_PASS}, _PLENTY)
        return scenario(job, fires, passes, gauge(names.METRIC_RESULTS, values, {**example, LABEL: names.LABEL_FAIL}))

    return Alert(
        name=name, for_s=0.0, severity="ticket", labels={"objective": "1"}, is_quality=True,
        expression=f"sum {by(GROUP)} (increase({failures}[{size}]) > 0 or {new})\n"
                   f"and {recorded(_OBJECTIVE)} == 1",
        summary=f"An answer failed {_WHO}; its objective lets none fail",
        description=f"In the last hour about {_VALUE} answers of the agent {_AGENT} failed the criterion {_CRITERION}, "
                    "whose objective is 1: all have to pass.",
        scenarios=(
            failing("failed two hours ago", "", f"0x{STEPS - 2 * HOUR} 1x{2 * HOUR - 1}"),
            failing("failed half an hour ago", name, f"0x{STEPS - HALF_HOUR} 1x{HALF_HOUR - 1}"),
            failing("all pass", "", f"0x{STEPS}"),
            failing("comes back", "", f"5x{STEPS - 3 * HOUR} _x{2 * HOUR} 5x{HOUR}"),
            failing("begins with a failure", name, f"_x{STEPS - HALF_HOUR} 1x{HALF_HOUR}"),
        ),
    )  # fmt: skip


@registered
def _thresholds(plan: MonitoringPlan) -> Iterator[Alert]:
    """For each threshold without an objective: the mean lies below it, and its 95 % interval too."""
    name, first = "AgentevalMeanBelowThreshold", {item.alerted_threshold: item for item in reversed(plan.criteria)}
    mean, half, count = (recorded(what, "1h") for what in (_MEAN, _HALF_WIDTH, _COUNT))
    for threshold in sorted(threshold for threshold in first if threshold is not None):
        yield Alert(
            name=name, for_s=600.0, severity="ticket", labels={"threshold": figure(threshold)},
            is_quality=True, scenarios=_mean_scenarios(name, _labels_of(first[threshold]), threshold),
            expression=f"{mean}\nand {mean} + {half} < {figure(threshold)}\nand {count} >= {_MIN_SCORES}\n"
                       f"and {recorded(_THRESHOLD)} == {figure(threshold)}",
            summary=f"Mean score {_VALUE} in {_WHO}, below the threshold of {threshold:.4g}",
            description=f"The mean of the last hour's normalized scores of the criterion {_CRITERION} of the agent "
                        f"{_AGENT} is {_VALUE}. Its whole 95 % interval lies below {threshold:.4g}, the lowest score "
                        "that passes: the typical answer fails.",
        )  # fmt: skip


def _labels_of(planned: PlannedCriterion) -> dict[str, str]:
    return {CRITERION: planned.name, AGENT: planned.agents[0] if planned.agents else "any agent"}


def _verdicts(labels: Mapping[str, str], *pieces: tuple[float, float, int]) -> tuple[Series, ...]:
    """Both counters: pieces of a share that fails, verdicts per step, and steps."""
    failed = [(share * per_step, steps) for share, per_step, steps in pieces]
    passed = [((1.0 - share) * per_step, steps) for share, per_step, steps in pieces]
    return tuple(
        changing_counter(names.METRIC_RESULTS, {**labels, LABEL: label}, *growth)
        for label, growth in ((names.LABEL_FAIL, failed), (names.LABEL_PASS, passed))
    )


def _weights(labels: Mapping[str, str], fails: float, worth: float) -> tuple[Series, ...]:
    """Weights of which such a share failed, worth so many verdicts a step, whatever the counts say."""
    sums = ((names.METRIC_WEIGHT, 40.0), (names.METRIC_WEIGHT_SQUARED, 40.0**2 / worth))
    shares = ((names.LABEL_FAIL, fails), (names.LABEL_PASS, 1.0 - fails))
    return tuple(
        counter(name, {**labels, LABEL: label}, growth * share) for name, growth in sums for label, share in shares
    )


def _burn_scenarios(labels: Mapping[str, str], objective: float) -> tuple[Scenario, ...]:
    limit = burn_limit(objective)
    near, outage = _NEAR * (limit - (1.0 - objective)), (1.0 + limit) / 2
    (least_1d, least_2h), breach = burn_verdicts(objective), names.METRIC_OBJECTIVE_BREACH
    plenty = max(_PLENTY, 2.0 * least_1d / DAY)

    def steady(share: float) -> tuple[Series, ...]:
        return _verdicts(labels, (share, plenty, STEPS))

    def changing(before: float, share: float, steps: int) -> tuple[Series, ...]:
        return _verdicts(labels, (before, plenty, STEPS - steps), (share, plenty, steps))

    def few(job: str, per_2h: float) -> Scenario:
        fires = _BURN if per_2h >= least_2h and 12 * per_2h >= least_1d else ""
        return scenario(job, fires, *_verdicts(labels, (outage, per_2h / (2 * HOUR), STEPS)))

    return (
        scenario("all is well", "", *steady(0.0)),
        scenario("as the objective allows", "", *steady(1.0 - objective)),
        scenario("below the limit", "", *steady(limit - near)),
        scenario("above the limit", _BURN, *steady(limit + near)),
        scenario("nothing passes", _BURN, *steady(1.0)),
        scenario("an outage, over for two hours", "", *changing(outage, limit - near, 2 * HOUR)),
        scenario("failures for an hour", "", *changing(1.0 - objective, limit + near, HOUR)),
        scenario("a breach was notified", "", *steady(1.0),
                 gauge(breach, f"0x{DAY} 1x{HALF_HOUR} 0x{STEPS - DAY - HALF_HOUR - 1}", labels)),
        scenario("a breach was notified the day before", _BURN, *steady(1.0),
                 gauge(breach, f"1x2 0x{STEPS - 3}", labels)),
        scenario("failures are sampled more", "",
                 *steady(outage), *_weights(labels, (1.0 - objective) / 2, plenty)),
        scenario("passes are sampled more", _BURN,
                 *steady((1.0 - objective) / 2), *_weights(labels, outage, plenty)),
        scenario("a few stand for all", "", *steady(outage), *_weights(labels, outage, 0.6)),
        scenario("a criterion without an objective", "", *_verdicts(_OTHER, (1.0, _PLENTY, STEPS))),
        few("too few in two hours", 0.96 * least_2h), few("enough in two hours", 1.03 * least_2h),
        scenario("too few in a day", "",
                 *_verdicts(labels, (0.0, 0.0, STEPS - 2 * HOUR), (outage, 0.9 * least_1d / (2 * HOUR), 2 * HOUR))),
        scenario("enough in a day", _BURN,
                 *_verdicts(labels, (0.0, 0.0, STEPS - 2 * HOUR), (outage, 1.5 * least_1d / (2 * HOUR), 2 * HOUR))),
    )  # fmt: skip


def _mean_scenarios(name: str, labels: Mapping[str, str], threshold: float) -> tuple[Scenario, ...]:
    score = names.METRIC_SCORE.prometheus_name
    near_below, near_above = threshold * (1 - _NEAR), threshold * (1 + _NEAR)

    def plain(mean: float, per_hour: float = _PLENTY * HOUR, labels: Mapping[str, str] = labels) -> tuple[Series, ...]:
        count = counter(f"{score}_count", labels, per_hour / HOUR)
        return count, counter(f"{score}_sum", labels, mean * per_hour / HOUR)

    def weighted(mean: float, plain_mean: float, worth: float = _PLENTY) -> tuple[Series, ...]:
        # All scores are the same, so that their mean is certain.
        weight, squared = 2 * _PLENTY, (2 * _PLENTY) ** 2 / worth
        sums = (
            (names.METRIC_WEIGHTED_SCORE, weight * mean), (names.METRIC_WEIGHTED_SCORE_W2, squared * mean),
            (names.METRIC_WEIGHTED_SCORE_SQUARED_W2, squared * mean * mean), (names.METRIC_WEIGHT, weight),
            (names.METRIC_WEIGHT_SQUARED, squared),
        )  # fmt: skip
        return *plain(plain_mean), *(counter(metric, labels, growth) for metric, growth in sums)

    return (
        scenario("above the threshold", "", *plain((1.0 + threshold) / 2)),
        scenario("the interval holds the threshold", "", *plain(near_below, _MIN_SCORES + 2)),
        scenario("too few scores", "", *plain(0.0, _MIN_SCORES - 2)),
        scenario("just enough scores", name, *plain(0.0, _MIN_SCORES + 2)),
        scenario("weighted, just below", name, *weighted(near_below, plain_mean=1.0)),
        scenario("weighted, just above", "", *weighted(near_above, plain_mean=0.0)),
        scenario("a criterion without a threshold", "", *plain(0.0, labels=_OTHER)),
        scenario("a few stand for all", "", *weighted(0.0, plain_mean=0.0, worth=0.9 * _MIN_SCORES / HOUR)),
    )

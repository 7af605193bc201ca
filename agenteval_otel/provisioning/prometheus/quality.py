"""Recording rules and alerts about quality.

The alerts are about objectives that are breached, and means below their thresholds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from agenteval_otel import semconv as names
from agenteval_otel.provisioning import promql
from agenteval_otel.provisioning.delays import KEEP_S
from agenteval_otel.provisioning.plan import MonitoringPlan, PlannedCriterion
from agenteval_otel.provisioning.prometheus.rules import (
    DAY,
    GROUP,
    HALF_HOUR,
    HOUR,
    SERVICE_TEXT,
    SHOWN,
    STEPS,
    Alert,
    Scenario,
    Series,
    by,
    changing_counter,
    counter,
    figure,
    gauge,
    label_text,
    recorded,
    registered,
    scenario,
    window,
)
from agenteval_otel.provisioning.prometheus.summed import (
    is_summed,
    summed_breach,
    summed_scenarios,
    summing_rules,
)
from agenteval_otel.provisioning.promql import AGENT, CRITERION, ENVIRONMENT, LABEL

_PASS_RATE = "pass_rate"
_VERDICTS = "verdicts"
_MEAN = "mean_score"
_MEAN_HIGH = "mean_score_high"
_COUNT = "scores"
BREACHED: Final = "AgentevalObjectiveBreached"
_BREACH = "objective_breach"
_OBJECTIVE = "objective"
_OF_LAST = "objective_of_last"
_THRESHOLD = "threshold"
# What alerts ask for, by window; those whose last seconds matter are recorded more often.
_ALERTED: Final = {
    "5m": (_PASS_RATE,),
    "1h": (_MEAN, _MEAN_HIGH, _COUNT),
    "2h": (_PASS_RATE, _VERDICTS),
    "1d": (_PASS_RATE, _VERDICTS),
}
_QUICK: Final = ("5m", "1h")
_HOUR: Final = "1h"
_OF_HOURS: Final = "7d"
"""This window is the sum of full hours: an increase over a week would read a week of samples."""
SLOWLY_SHOWN: Final = ("6h", "1d", _OF_HOURS)
"""Windows of dashboards whose rules are evaluated less often."""


def recording_rules(plan: MonitoringPlan, *, quick: bool) -> list[dict[str, Any]]:
    """Return the input of the alerts, each rule after its inputs.

    With `quick` it is that of short windows with the constants, else that of long windows.
    """
    rules: dict[str, str] = {}
    if not plan.criteria:
        return []
    if quick:
        breached = names.METRIC_OBJECTIVE_BREACH.prometheus_name
        if is_summed(plan):
            breached += f"\nor {summed_breach(plan)}"
        rules[recorded(_BREACH)] = f"max {by(GROUP)} ({breached})"
    for name, words in _ALERTED.items():
        is_quick = name in _QUICK
        if is_quick == quick:
            wanted = [recorded(word, name) for word in words]
            rules |= _with_inputs(wanted, _estimates(plan, name, "agenteval", GROUP))
    if quick:
        rules |= _constant_rules(plan)
    return _records(rules)


def _constant_rules(plan: MonitoringPlan) -> dict[str, str]:
    """Return the expressions of objectives, `of_last` and thresholds by recorded names."""
    objectives = {item: item.objective for item in plan.criteria if item.is_alerted}
    strict = {item: 1.0 for item, objective in objectives.items() if objective == 1.0}
    of_last = {item: item.of_last for item in plan.paged if item.of_last is not None}
    limits = {item: item.alerted_threshold for item in plan.criteria}
    thresholds = {item: limit for item, limit in limits.items() if limit is not None}
    breach = recorded(_BREACH)
    # A count of a day needs two samples: at the first one a ticket would be a page too.
    sources: list[tuple[str, Mapping[PlannedCriterion, Any], str]] = [
        (_OBJECTIVE, objectives, recorded(_VERDICTS, "1d")),
        (_OBJECTIVE, strict, breach),
        (_OF_LAST, of_last, breach),
        (_THRESHOLD, thresholds, recorded(_COUNT, "1h")),
    ]
    expressions: dict[str, list[str]] = {}
    for name, values, series in sources:
        if values:
            expressions.setdefault(recorded(name), []).append(_constants(values, series))
    return {name: "\nor\n".join(alternatives) for name, alternatives in expressions.items()}


def fleet_rules(plan: MonitoringPlan) -> list[dict[str, Any]]:
    """Return the rules for the evidence of all processes together."""
    return _records(summing_rules(plan))


def dashboard_rules(plan: MonitoringPlan, *, quick: bool) -> list[dict[str, Any]]:
    """Return the rules that only dashboards ask for.

    They are the other estimates, and all of them by the service's version, model and dimension.
    With `quick` they are those of short windows, else those of long ones.
    """
    if not plan.criteria:
        return []
    rules: dict[str, str] = {}
    for name in SHOWN:
        if (name in SLOWLY_SHOWN) == quick:
            continue
        rules |= _estimates(plan, name, "agenteval", GROUP) | _corrected(plan, name)
        rules |= _estimates(plan, name, "agenteval_version", (*GROUP, promql.VERSION))
        rules |= _estimates(plan, name, "agenteval_model", (*GROUP, promql.MODEL), of_scores=False)
        for label in map(promql.label_name, plan.dimensions):
            rules |= _estimates(plan, name, label, (*GROUP, label))
    of_alerts = [*recording_rules(plan, quick=True), *recording_rules(plan, quick=False)]
    alerted = {rule["record"] for rule in of_alerts}
    shown: dict[str, str] = {}
    for name, expression in rules.items():
        _, word, _ = name.split(":")
        if word != _COUNT and name not in alerted:  # alerts alone ask for the number of scores
            shown[name] = expression
    return _records(shown)


def _estimates(
    plan: MonitoringPlan, name: str, level: str, labels: tuple[str, ...], *, of_scores: bool = True
) -> dict[str, str]:
    """Return expressions by recorded names, each after its inputs.

    The sums of scores know no model.
    """

    def series(word: str) -> str:
        return recorded(word, name, level=level)

    size = window(plan, name)
    if name == _OF_HOURS:
        hour = window(plan, _HOUR)
        expressions = {
            word: f"sum_over_time({recorded(word, _HOUR, level=level)}[{size}:{hour}])"
            for word in promql.SUMS
        }
    else:
        expressions = {word: promql.sum_of(word, "", size, labels) for word in promql.SUMS}
    expressions |= promql.estimates(series)
    words = list(expressions)
    if not of_scores:
        by_scores = ("score", "weight", "mean", "unit_score")
        words = [word for word in words if not word.startswith(by_scores)]
    return {series(word): expressions[word] for word in words}


def _corrected(plan: MonitoringPlan, name: str) -> dict[str, str]:
    """Return the pass rates of criteria whose judge has a calibration record.

    They are corrected for the judge's errors.
    """
    words: dict[str, list[str]] = {}
    for item in plan.criteria:
        if item.calibration is not None:
            chosen = f"{{{promql.matchers_of(item)}}}"
            rate = f"{recorded(_PASS_RATE, name)}{chosen}"
            verdicts = f"{recorded(_VERDICTS, name)}{chosen}"
            for word, expression in promql.corrected(item.calibration, rate, verdicts).items():
                words.setdefault(recorded(word, name), []).append(expression)
    return {word: "\nor\n".join(expressions) for word, expressions in words.items()}


def _with_inputs(wanted: Sequence[str], rules: Mapping[str, str]) -> dict[str, str]:
    """Return the rules that are wanted, and what they are computed from."""
    chosen = set(wanted)
    for name in reversed([*rules]):
        if name in chosen:
            chosen |= set(re.findall(r"agenteval:[\w:]+", rules[name]))
    return {name: expression for name, expression in rules.items() if name in chosen}


def _records(rules: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"record": name, "expr": expression} for name, expression in rules.items()]


def _constants(values: Mapping[PlannedCriterion, Any], series: str) -> str:
    """Return a constant for each criterion of each agent that has results.

    It has the labels of the series.
    """
    return "\nor\n".join(
        f"{figure(value)} + 0 * {series}{{{promql.matchers_of(criterion)}}}"
        for criterion, value in values.items()
    )


# A loss that is too slow for the detectors of processes with few verdicts: it burns the error
# budget in two windows.
_BURN: Final = "AgentevalObjectiveBurnSlow"
_FACTOR: Final = 3.0  # how many times the failures that the objective allows
# Upper bound of the limit, from the allowed share (0) to everything (1): where many answers may
# fail, the factor alone would ask for more failures than there are answers.
_TOWARDS_ALL: Final = 0.2
_LONG: Final = "1d"
_SHORT: Final = "2h"
_LEAST_LONG: Final = 100  # verdicts in the long window
_LEAST_SHORT: Final = 20  # verdicts in the short one
_FEW_FAILURES: Final = 5
_ERRORS: Final = 3.3  # standard errors


def burn_limit(objective: float) -> float:
    """Return the share of failures above which the budget burns.

    It is always above what the objective allows, and below 1.
    """
    allowed = 1.0 - objective
    return round(min(_FACTOR * allowed, allowed + _TOWARDS_ALL * objective), 12)


def burn_verdicts(objective: float) -> tuple[int, int]:
    """Return the minimum of verdicts in the long and in the short window.

    It is `_LEAST_LONG` and `_LEAST_SHORT`, and in the long window enough that chance does not pass the limit. A few
    failures are not enough, and the limit lies `_ERRORS` standard errors above what the objective
    allows.
    """
    limit = burn_limit(objective)
    allowed = 1.0 - objective
    by_chance = _ERRORS**2 * allowed * objective / (limit - allowed) ** 2
    enough = math.ceil(round(max(_FEW_FAILURES / limit, by_chance), 6))
    return max(_LEAST_LONG, enough), _LEAST_SHORT


_MIN_SCORES: Final = 30

_CRITERION = label_text(CRITERION)
_AGENT = label_text(AGENT)
_WHO = f"{_CRITERION} of {_AGENT} ({SERVICE_TEXT})"
# Of the answers of the last minutes; %+q quotes as PromQL does.
_NOW = (
    f"{{{{ with printf `1 - {recorded(_PASS_RATE, '5m')}{{job=%+q,{AGENT}=%+q,{CRITERION}=%+q,{ENVIRONMENT}=%+q}}` "
    f"$labels.job $labels.{AGENT} $labels.{CRITERION} $labels.{ENVIRONMENT} | query }}}}"
    "{{ . | first | value | humanizePercentage }} of the last answers fail{{ else }}its answers fail{{ end }}"
)
_VALUE = "{{ $value | humanize }}"
_SHARE = "{{ $value | humanizePercentage }}"

# Of the scenarios: how close to a limit they go, and verdicts a step where that is enough for every
# minimum.
_NEAR: Final = 0.03
_PLENTY: Final = 12.0
_OTHER: Final = {CRITERION: "another criterion", AGENT: "any agent"}


@registered
def _objectives(plan: MonitoringPlan) -> Iterator[Alert]:
    """Yield the alerts on objectives.

    They are for a breach that a process has detected, and for each objective a budget that burns,
    or any failure if none may occur.
    """
    alerted = [item for item in reversed(plan.criteria) if item.is_alerted]
    paged = plan.paged
    by_last = {item.of_last: item for item in reversed(paged)}
    last = {size: _labels_of(item) for size, item in by_last.items() if size is not None}
    # A failure where none is allowed is a ticket, unless it is a page.
    tickets = [item for item in alerted if item.objective == 1.0 and item not in paged]
    strict = _labels_of(tickets[0]) if tickets else None
    if None in by_last:
        yield _breached(plan, _labels_of(by_last[None]), strict, bool(last))
    for size in sorted(last):
        yield _breached_of_last(size, last[size])
    examples = {}
    for item in alerted:
        if item.objective is not None and item.objective < 1.0:
            examples[item.objective] = item
    for objective in sorted(examples):
        yield _burning(plan, objective, _labels_of(examples[objective]))
    if strict is not None:
        yield _failure(plan, strict, bool(last))


def _breached(
    plan: MonitoringPlan,
    labels: Mapping[str, str],
    strict: Mapping[str, str] | None,
    has_last: bool,
) -> Alert:
    """Return the alert for a breach that evidence decides.

    `strict` has labels of a criterion with the objective 1, which `_failure` handles. `has_last`
    tells that there are objectives with `of_last` too.
    """
    name = BREACHED
    metric = names.METRIC_OBJECTIVE_BREACH

    def process(job: str, fires: str, values: str) -> Scenario:
        return scenario(job, fires, gauge(metric, values, labels))

    first = {**labels, "instance": "1"}
    second = {**labels, "instance": "2"}
    expression = f"{recorded(_BREACH)} == 1"
    if strict:
        expression += f"\nunless {recorded(_OBJECTIVE)} == 1"
    if has_last:
        expression += f"\nunless {recorded(_OF_LAST)}"
    scenarios = [
        process("met", "", f"0x{STEPS}"),
        process("breached", name, f"0x{STEPS - HOUR} 1x{HOUR - 1}"),
        process("recovered for an hour", "", f"0x{STEPS - 2 * HOUR} 1x{HOUR} 0x{HOUR - 1}"),
        process("recovered for ten minutes", name, f"0x{STEPS - HOUR} 1x{HOUR - 2} 0"),
        scenario(
            "restarted in the incident",
            name,
            gauge(metric, f"0x{STEPS - HOUR} 1x{HOUR - 2} _", first),
            gauge(metric, f"_x{STEPS - 1} 0", second),
        ),
        scenario(
            "breached in one process of two",
            name,
            gauge(metric, f"0x{STEPS}", second),
            gauge(metric, f"1x{STEPS}", labels),
        ),
    ]
    if strict is not None:
        breach = gauge(metric, f"1x{STEPS}", strict)
        passes = counter(names.METRIC_RESULTS, {**strict, LABEL: names.LABEL_PASS}, _PLENTY)
        failures = counter(names.METRIC_RESULTS, {**strict, LABEL: names.LABEL_FAIL}, 0.0)
        scenarios.append(scenario("an objective of 1", "", breach, passes, failures))
    description = (
        f"Fewer answers of the agent {_AGENT} pass the criterion {_CRITERION} than its objective asks for. "
        "A process detected it, or the evidence of all processes together, each with at most one false "
        "alarm in `breach.false_alarm_every` verdicts. It lasts until there is evidence of the recovery."
    )
    return Alert(
        name=name,
        for_s=0.0,
        keep_s=KEEP_S,
        severity="page",
        is_quality=True,
        expression=expression,
        summary=f"{_WHO} breaches its objective: {_NOW}",
        description=description,
        fleet_scenarios=summed_scenarios(plan, name, labels),
        scenarios=tuple(scenarios),
    )


def _breached_of_last(size: int, labels: Mapping[str, str]) -> Alert:
    """Return the alert for objectives that count in the last so many verdicts.

    It is also for an objective of 1.
    """

    def process(job: str, fires: str, values: str) -> Scenario:
        passes = counter(names.METRIC_RESULTS, {**labels, LABEL: names.LABEL_PASS}, _PLENTY)
        return scenario(job, fires, gauge(names.METRIC_OBJECTIVE_BREACH, values, labels), passes)

    scenarios = (
        process("of the last, met", "", f"0x{STEPS}"),
        process("of the last, breached", BREACHED, f"0x{STEPS - HOUR} 1x{HOUR - 1}"),
        process("of the last, recovered", "", f"0x{STEPS - 2 * HOUR} 1x{HOUR} 0x{HOUR - 1}"),
    )
    description = (
        f"More of the last {size} verdicts on the agent {_AGENT} fail the criterion {_CRITERION} than its "
        "objective allows. A process counted them, and chance is not ruled out: `agenteval-otel check` "
        "tells how often it does this. It lasts until no more fail than the objective allows."
    )
    return Alert(
        name=BREACHED,
        for_s=0.0,
        keep_s=KEEP_S,
        severity="page",
        is_quality=True,
        labels={"of_last": figure(size)},
        expression=f"{recorded(_BREACH)} == 1\nand {recorded(_OF_LAST)} == {figure(size)}",
        summary=f"{_WHO} breaches its objective: {_NOW}",
        description=description,
        scenarios=scenarios,
    )


def _burning(plan: MonitoringPlan, objective: float, labels: Mapping[str, str]) -> Alert:
    limit = burn_limit(objective)
    allowed = 1.0 - objective
    least_long, least_short = burn_verdicts(objective)
    conditions = [
        f"1 - {recorded(_PASS_RATE, _LONG)} > {figure(limit)}",
        f"1 - {recorded(_PASS_RATE, _SHORT)} > {figure(limit)}",
        f"{recorded(_VERDICTS, _LONG)} >= {least_long}",
        f"{recorded(_VERDICTS, _SHORT)} >= {least_short}",
        f"{recorded(_OBJECTIVE)} == {figure(objective)}",
    ]
    # What a detector has seen within the long window was notified, and may be over.
    seen = f"\nunless max_over_time({recorded(_BREACH)}[{window(plan, _LONG)}]) == 1"
    expression = "\nand ".join(conditions) + seen
    description = (
        f"In the last {_LONG} {_SHARE} of the answers failed the criterion {_CRITERION} of the agent "
        f"{_AGENT}. There and in the last {_SHORT} it is more than {_percent(limit)}, "
        f"{limit / allowed:.3g} times what the objective of {figure(objective)} allows."
    )
    return Alert(
        name=_BURN,
        for_s=300.0,
        severity="ticket",
        labels={"objective": figure(objective)},
        is_quality=True,
        looks_back_s=86_400.0,
        scenarios=_burn_scenarios(labels, objective),
        expression=expression,
        summary=f"{_SHARE} of the answers fail {_WHO}, and its objective allows {_percent(allowed)}",
        description=description,
    )


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def _failure(plan: MonitoringPlan, example: Mapping[str, str], has_last: bool) -> Alert:
    """Return the alert for any failure if none is allowed.

    A new counter that starts at one counts. A counter that reappears does not. `has_last` tells
    that the objectives of `_breached_of_last` exist too.
    """
    name = "AgentevalFailureSeen"
    failures = f'{names.METRIC_RESULTS.prometheus_name}{{{LABEL}="{names.LABEL_FAIL}"}}'
    size = window(plan, "1h")
    day = window(plan, "1d")
    new = f"({failures} > 0 unless present_over_time({failures}[{day}] offset {size}))"
    expression = f"sum {by(GROUP)} (increase({failures}[{size}]) > 0 or {new})\n"
    expression += f"and {recorded(_OBJECTIVE)} == 1"
    if has_last:
        # Over an hour: it still has the failures of processes that have ended.
        expression += f"\nunless present_over_time({recorded(_OF_LAST)}[{size}])"

    def failing(job: str, fires: str, values: str) -> Scenario:
        passes = counter(names.METRIC_RESULTS, {**example, LABEL: names.LABEL_PASS}, _PLENTY)
        fails = gauge(names.METRIC_RESULTS, values, {**example, LABEL: names.LABEL_FAIL})
        return scenario(job, fires, passes, fails)

    scenarios = (
        failing("failed two hours ago", "", f"0x{STEPS - 2 * HOUR} 1x{2 * HOUR - 1}"),
        failing("failed half an hour ago", name, f"0x{STEPS - HALF_HOUR} 1x{HALF_HOUR - 1}"),
        failing("all pass", "", f"0x{STEPS}"),
        failing("comes back", "", f"5x{STEPS - 3 * HOUR} _x{2 * HOUR} 5x{HOUR}"),
        failing("begins with a failure", name, f"_x{STEPS - HALF_HOUR} 1x{HALF_HOUR}"),
    )
    description = (
        f"In the last hour about {_VALUE} answers of the agent {_AGENT} failed the criterion {_CRITERION}, "
        "whose objective is 1: all have to pass."
    )
    return Alert(
        name=name,
        for_s=0.0,
        severity="ticket",
        labels={"objective": "1"},
        is_quality=True,
        expression=expression,
        summary=f"An answer failed {_WHO}, and its objective lets none fail",
        description=description,
        scenarios=scenarios,
    )


@registered
def _thresholds(plan: MonitoringPlan) -> Iterator[Alert]:
    """Yield an alert for each threshold without an objective.

    It fires if the mean lies below the threshold, and its 95 % interval too.
    """
    name = "AgentevalMeanBelowThreshold"
    first = {item.alerted_threshold: item for item in reversed(plan.criteria)}
    mean = recorded(_MEAN, "1h")
    high = recorded(_MEAN_HIGH, "1h")
    count = recorded(_COUNT, "1h")
    for threshold in sorted(threshold for threshold in first if threshold is not None):
        limit = figure(threshold)
        conditions = [
            mean,
            f"{high} < {limit}",
            f"{count} >= {_MIN_SCORES}",
            f"{recorded(_THRESHOLD)} == {limit}",
        ]
        scenarios = _mean_scenarios(name, _labels_of(first[threshold]), threshold)
        description = (
            f"The mean of the last hour's normalized scores of the criterion {_CRITERION} of the agent "
            f"{_AGENT} is {_VALUE}. Its whole 95 % interval lies below {threshold:.4g}, the lowest score "
            "that passes: the typical answer fails."
        )
        yield Alert(
            name=name,
            for_s=600.0,
            severity="ticket",
            labels={"threshold": limit},
            is_quality=True,
            scenarios=scenarios,
            expression="\nand ".join(conditions),
            summary=f"Mean score {_VALUE} in {_WHO}, below the threshold of {threshold:.4g}",
            description=description,
        )


def _labels_of(planned: PlannedCriterion) -> dict[str, str]:
    return {CRITERION: planned.name, AGENT: planned.agents[0] if planned.agents else "any agent"}


def _verdicts(labels: Mapping[str, str], *pieces: tuple[float, float, int]) -> tuple[Series, ...]:
    """Return both counters. The pieces are a share that fails, verdicts per step, and steps."""
    failed = [(share * per_step, steps) for share, per_step, steps in pieces]
    passed = [((1.0 - share) * per_step, steps) for share, per_step, steps in pieces]
    of_fail = {**labels, LABEL: names.LABEL_FAIL}
    of_pass = {**labels, LABEL: names.LABEL_PASS}
    return (
        changing_counter(names.METRIC_RESULTS, of_fail, *failed),
        changing_counter(names.METRIC_RESULTS, of_pass, *passed),
    )


def _weights(labels: Mapping[str, str], fails: float, worth: float) -> tuple[Series, ...]:
    """Return weights of which such a share failed.

    They are worth so many verdicts a step, whatever the counts say.
    """
    sums = ((names.METRIC_WEIGHT, 40.0), (names.METRIC_WEIGHT_SQUARED, 40.0**2 / worth))
    shares = ((names.LABEL_FAIL, fails), (names.LABEL_PASS, 1.0 - fails))
    weights = []
    for name, growth in sums:
        for label, share in shares:
            weights.append(counter(name, {**labels, LABEL: label}, growth * share))
    return tuple(weights)


def _burn_scenarios(labels: Mapping[str, str], objective: float) -> tuple[Scenario, ...]:
    limit = burn_limit(objective)
    near = _NEAR * (limit - (1.0 - objective))
    outage = (1.0 + limit) / 2
    least_1d, least_2h = burn_verdicts(objective)
    plenty = max(_PLENTY, 2.0 * least_1d / DAY)

    def steady(share: float) -> tuple[Series, ...]:
        return _verdicts(labels, (share, plenty, STEPS))

    def changing(before: float, share: float, steps: int) -> tuple[Series, ...]:
        return _verdicts(labels, (before, plenty, STEPS - steps), (share, plenty, steps))

    def few(job: str, per_2h: float) -> Scenario:
        fires = _BURN if per_2h >= least_2h and 12 * per_2h >= least_1d else ""
        return scenario(job, fires, *_verdicts(labels, (outage, per_2h / (2 * HOUR), STEPS)))

    def for_2h(count: float) -> tuple[Series, ...]:
        before = (0.0, 0.0, STEPS - 2 * HOUR)
        return _verdicts(labels, before, (outage, count / (2 * HOUR), 2 * HOUR))

    def breach(values: str) -> Series:
        return gauge(names.METRIC_OBJECTIVE_BREACH, values, labels)

    over = changing(outage, limit - near, 2 * HOUR)
    begun = changing(1.0 - objective, limit + near, HOUR)
    notified = breach(f"0x{DAY} 1x{HALF_HOUR} 0x{STEPS - DAY - HALF_HOUR - 1}")
    notified_the_day_before = breach(f"1x2 0x{STEPS - 3}")
    half_fail = (1.0 - objective) / 2
    few_weigh = _weights(labels, half_fail, plenty)
    many_weigh = _weights(labels, outage, plenty)
    worth_little = _weights(labels, outage, 0.6)
    without_objective = _verdicts(_OTHER, (1.0, _PLENTY, STEPS))
    return (
        scenario("all is well", "", *steady(0.0)),
        scenario("as the objective allows", "", *steady(1.0 - objective)),
        scenario("below the limit", "", *steady(limit - near)),
        scenario("above the limit", _BURN, *steady(limit + near)),
        scenario("nothing passes", _BURN, *steady(1.0)),
        scenario("an outage, over for two hours", "", *over),
        scenario("failures for an hour", "", *begun),
        scenario("a breach was notified", "", *steady(1.0), notified),
        scenario(
            "a breach was notified the day before", _BURN, *steady(1.0), notified_the_day_before
        ),
        scenario("failures are sampled more", "", *steady(outage), *few_weigh),
        scenario("passes are sampled more", _BURN, *steady(half_fail), *many_weigh),
        scenario("a few stand for all", "", *steady(outage), *worth_little),
        scenario("a criterion without an objective", "", *without_objective),
        few("too few in two hours", 0.96 * least_2h),
        few("enough in two hours", 1.03 * least_2h),
        scenario("too few in a day", "", *for_2h(0.9 * least_1d)),
        scenario("enough in a day", _BURN, *for_2h(1.5 * least_1d)),
    )


def _mean_scenarios(name: str, labels: Mapping[str, str], threshold: float) -> tuple[Scenario, ...]:
    score = names.METRIC_SCORE.prometheus_name
    near_below = threshold * (1 - _NEAR)
    near_above = threshold * (1 + _NEAR)

    def plain(
        mean: float, per_hour: float = _PLENTY * HOUR, labels: Mapping[str, str] = labels
    ) -> tuple[Series, ...]:
        count = counter(f"{score}_count", labels, per_hour / HOUR)
        return count, counter(f"{score}_sum", labels, mean * per_hour / HOUR)

    def weighted(mean: float, plain_mean: float, worth: float = _PLENTY) -> tuple[Series, ...]:
        # All scores are the same, so that their mean is certain.
        weight = 2 * _PLENTY
        squared = (2 * _PLENTY) ** 2 / worth
        sums = (
            (names.METRIC_WEIGHTED_SCORE, weight * mean),
            (names.METRIC_WEIGHTED_SCORE_W2, squared * mean),
            (names.METRIC_WEIGHTED_SCORE_SQUARED_W2, squared * mean * mean),
            (names.METRIC_WEIGHT, weight),
            (names.METRIC_WEIGHT_SQUARED, squared),
        )
        weights = [counter(metric, labels, growth) for metric, growth in sums]
        return *plain(plain_mean), *weights

    worth_little = weighted(0.0, plain_mean=0.0, worth=0.9 * _MIN_SCORES / HOUR)
    return (
        scenario("above the threshold", "", *plain((1.0 + threshold) / 2)),
        scenario("the interval holds the threshold", "", *plain(near_below, _MIN_SCORES + 2)),
        scenario("too few scores", "", *plain(0.0, _MIN_SCORES - 2)),
        scenario("just enough scores", name, *plain(0.0, _MIN_SCORES + 2)),
        scenario("weighted, just below", name, *weighted(near_below, plain_mean=1.0)),
        scenario("weighted, just above", "", *weighted(near_above, plain_mean=0.0)),
        scenario("a criterion without a threshold", "", *plain(0.0, labels=_OTHER)),
        scenario("a few stand for all", "", *worth_little),
    )

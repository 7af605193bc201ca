"""Recording rules: shares of failures, numbers of verdicts, means with their intervals, objectives and thresholds.

Alerts read nothing else about quality, so each figure of an alert can be drawn as the alert saw it.
"""

from __future__ import annotations

from typing import Any, Final

from agenteval_otel.provisioning import promql
from agenteval_otel.provisioning.plan import MonitoringPlan, PlannedCriterion
from agenteval_otel.provisioning.prometheus.rules import GROUP, figure, recorded, window

FAIL_SHARE: Final = "evaluation_fail:ratio"
VERDICTS: Final = "evaluation_verdicts:effective"
MEAN: Final = "evaluation_score:mean"
HALF_WIDTH: Final = "evaluation_score:half_width"
COUNT: Final = "evaluation_score:effective"
OBJECTIVE: Final = "evaluation_objective"
THRESHOLD: Final = "evaluation_threshold"

_OF_VERDICTS = ("30m", "2h", "6h", "1d")
_OF_SCORES = "1h"


def recording_rules(plan: MonitoringPlan) -> list[dict[str, Any]]:
    """The recording rules that the plan's alerts need, each after its inputs."""
    rules: list[dict[str, Any]] = []
    objectives = {criterion: criterion.objective for criterion in plan.criteria if criterion.is_alerted}
    thresholds = alerted_thresholds(plan)
    if objectives:
        for name in _OF_VERDICTS:
            size = window(plan, name)
            rules.append(_record(recorded(FAIL_SHARE, name), promql.fail_share("", size, GROUP)))
            rules.append(_record(recorded(VERDICTS, name), promql.effective_verdicts("", size, GROUP)))
        rules.append(_record(recorded(OBJECTIVE), _constants(objectives, recorded(VERDICTS, "1d"))))
    if thresholds:
        size = window(plan, _OF_SCORES)
        rules += [
            _record(recorded(MEAN, _OF_SCORES), promql.weighted_mean("", size, GROUP)),
            _record(recorded(HALF_WIDTH, _OF_SCORES), promql.mean_half_width("", size, GROUP)),
            _record(
                recorded(COUNT, _OF_SCORES),
                f"{promql.effective_count('', size, GROUP)} or {promql.score_count('', size, GROUP)}",
            ),
            _record(recorded(THRESHOLD), _constants(thresholds, recorded(COUNT, _OF_SCORES))),
        ]
    return rules


def alerted_thresholds(plan: MonitoringPlan) -> dict[PlannedCriterion, float]:
    """The thresholds that a mean is compared with, normalized: of criteria without an objective.

    An objective already says how many may fail. A threshold of 0 cannot be missed, and with 1 any failure would pull
    the mean below it.
    """
    return {
        criterion: criterion.threshold
        for criterion in plan.criteria
        if not criterion.is_alerted and criterion.threshold is not None and 0.0 < criterion.threshold < 1.0
    }


def _record(name: str, expression: str) -> dict[str, Any]:
    return {"record": name, "expr": expression}


def _constants(values: dict[PlannedCriterion, Any], series: str) -> str:
    """A constant for each criterion of each agent that has results, with the labels of the series."""
    return "\nor\n".join(
        f"{figure(value)} + 0 * {series}{promql.selector(criterion)}" for criterion, value in values.items()
    )

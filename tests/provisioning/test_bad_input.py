"""Bad input: what processes, clocks and names can do to the rules, and which alerts fire then."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from agenteval_otel import semconv as names
from agenteval_otel.provisioning import MonitoringPlan
from agenteval_otel.provisioning.prometheus import alerts_of, files_of
from agenteval_otel.provisioning.prometheus.rules import (
    DAY,
    STEP_S,
    STEPS,
    Scenario,
    Series,
    gauge,
    scenario,
)
from agenteval_otel.provisioning.promql import AGENT, CRITERION, LABEL, OUTCOME

from .plans import EVERYTHING, promtool, written

HELPFUL = {CRITERION: "helpful", AGENT: "any agent"}
STRICT = {CRITERION: "no_secrets", AGENT: "any agent"}
TONE = {CRITERION: "tone", AGENT: "any agent"}
BREACHED, BURN = "AgentevalObjectiveBreached", "AgentevalObjectiveBurnSlow"


def results(labels: dict[str, str], label: str, values: str, **more: str) -> Series:
    return Series(names.METRIC_RESULTS.prometheus_name, {**labels, LABEL: label, **more}, values)


def breach(values: str, labels: dict[str, str] = HELPFUL, **more: str) -> Series:
    return gauge(names.METRIC_OBJECTIVE_BREACH, values, {**labels, **more})


def evaluated(values: str) -> Series:
    return gauge(names.METRIC_RESPONSES, values, {AGENT: "any agent", OUTCOME: names.EVALUATED})


def restarting(growth: float) -> str:
    """A counter that begins anew every two hours."""
    return " ".join([f"0+{growth}x11"] * (STEPS // 12) + ["0"])


SCENARIOS = (
    scenario(
        "no traffic for a day",
        "",
        evaluated(f"500x{STEPS}"),
        breach(f"0x{STEPS}"),
        results(HELPFUL, "fail", f"100x{STEPS}"),
        results(HELPFUL, "pass", f"100x{STEPS}"),
    ),
    scenario(
        "a single verdict, which fails",
        "",
        evaluated(f"_x{STEPS} 1"),
        breach(f"_x{STEPS} 0"),
        results(HELPFUL, "fail", f"_x{STEPS} 1"),
        results(TONE, "fail", f"_x{STEPS} 1"),
        Series("gen_ai_evaluation_score_sum", TONE, f"_x{STEPS} 0"),
        Series("gen_ai_evaluation_score_count", TONE, f"_x{STEPS} 1"),
    ),
    scenario(
        "a single verdict of an objective of 1",
        "AgentevalFailureSeen",
        breach(f"_x{STEPS - 1} 1 1", STRICT),
        results(STRICT, "fail", f"_x{STEPS - 1} 1 1"),
    ),
    scenario(
        "counters begin anew, nothing fails",
        "",
        breach(f"0x{STEPS}"),
        evaluated(restarting(12)),
        results(HELPFUL, "pass", restarting(12)),
        results(HELPFUL, "fail", restarting(0)),
    ),
    scenario(
        "counters begin anew, a third fails",
        BURN,
        breach(f"0x{STEPS}"),
        evaluated(restarting(12)),
        results(HELPFUL, "pass", restarting(8)),
        results(HELPFUL, "fail", restarting(4)),
    ),
    scenario(
        "two versions, the new one breaches",
        BREACHED,
        *(
            breach(values, service_version=version, instance=version)
            for version, values in (("1.0", f"0x{STEPS}"), ("2.0", f"_x{DAY} 1x{STEPS - DAY}"))
        ),
    ),
    scenario(
        "two versions, one of them is gone",
        "",
        *(
            breach(values, service_version=version, instance=version)
            for version, values in (("1.0", f"1x{STEPS - 12} stale"), ("2.0", f"0x{STEPS}"))
        ),
    ),
)


@pytest.mark.backend
def test_only_these_alerts_fire(promtool_binary: Path, tmp_path: Path) -> None:
    """Neither silence nor a single verdict nor a restart raises a page; a breach in one version of
    two does.
    """
    code, message = checked(promtool_binary, tmp_path, EVERYTHING, SCENARIOS)
    assert code == 0, message


def checked(
    binary: Path, folder: Path, plan: MonitoringPlan, scenarios: Sequence[Scenario]
) -> tuple[int, str]:
    """What promtool says of these scenarios for the rules of a plan."""
    tree = written(files_of(plan), folder) / "tests/agenteval-alerts.test.yaml"
    test = yaml.safe_load(tree.read_text())
    test["tests"] = [
        alerts_of(plan)[0]._replace(scenarios=tuple(scenarios), step_s=STEP_S).test(plan)
    ]
    tree.write_text(yaml.safe_dump(test, allow_unicode=True))
    return promtool(binary, "test", "rules", tree)

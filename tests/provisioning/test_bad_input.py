"""Bad input: what processes, clocks and names can do to the rules, and which alerts fire then."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from agenteval_otel import semconv as names
from agenteval_otel.provisioning.prometheus import alerts_of
from agenteval_otel.provisioning.prometheus.rules import (
    DAY,
    STEP_S,
    STEPS,
    Series,
    gauge,
    scenario,
)
from agenteval_otel.provisioning.promql import AGENT, CRITERION, LABEL, OUTCOME

from .plans import EVERYTHING, accepted, loaded, rules_of_everything, written

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
    file = written(rules_of_everything(), tmp_path) / "tests/agenteval-alerts.test.yaml"
    tree = loaded(file.read_text())
    alert = alerts_of(EVERYTHING)[0]._replace(scenarios=SCENARIOS, step_s=STEP_S)
    tree["tests"] = [alert.test(EVERYTHING)]
    file.write_text(yaml.safe_dump(tree, allow_unicode=True))
    accepted(promtool_binary, "test", "rules", file)

"""What somebody reads who is woken: annotations as Prometheus renders them, hostile names included."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from agenteval_otel import semconv as names
from agenteval_otel.provisioning.prometheus import files_of
from agenteval_otel.provisioning.promql import AGENT, CRITERION, LABEL, quoted

from .rules import HOSTILE, criterion, plan_of, promtool, written


def series(label: str, values: str) -> dict[str, str]:
    labels = {"job": HOSTILE, CRITERION: HOSTILE, AGENT: HOSTILE, LABEL: label}
    matchers = ", ".join(f"{name}={quoted(value)}" for name, value in labels.items())
    return {"series": f"{names.METRIC_RESULTS.prometheus_name}{{{matchers}}}", "values": values}


@pytest.mark.backend
def test_names_are_shown_as_they_are(promtool_binary: Path, tmp_path: Path) -> None:
    """A name with quotes, braces and templates in it comes out of selectors and texts unchanged."""
    plan = plan_of(criterion(HOSTILE, agents=(HOSTILE,), objective=0.9))
    folder = written(files_of(plan, runbooks="https://wiki.example/{{x}}"), tmp_path)
    who = {CRITERION: HOSTILE, AGENT: HOSTILE, "job": HOSTILE}
    expected = {
        "exp_labels": {**who, "severity": "page", "objective": "0.9"},
        "exp_annotations": {
            "summary": f"75% of the answers fail {HOSTILE} of {HOSTILE} ({HOSTILE}); its objective allows 10 %",
            "description": (
                f"In the last 6h 75% of the answers failed the criterion {HOSTILE} of the agent {HOSTILE}. There and "
                "in the last 30m it is more than 46 %, 4.6 times what the objective of 0.9 allows."
            ),
            "runbook_url": "https://wiki.example/{{x}}/agenteval-objective-burn-fast.md",
        },
    }
    test = {
        "interval": "10m", "input_series": [series("fail", "0+30x36"), series("pass", "0+10x36")],
        "alert_rule_test": [
            {"eval_time": "6h", "alertname": "AgentevalObjectiveBurnFast", "exp_alerts": [expected]}
        ],
    }  # fmt: skip
    files = [str(path) for path in sorted((folder / "rules").iterdir(), reverse=True)]
    tree = {"rule_files": files, "evaluation_interval": "10m", "tests": [test],
            "group_eval_order": ["agenteval-recording", "agenteval-alerts"]}  # fmt: skip
    (tmp_path / "texts.yaml").write_text(yaml.safe_dump(tree, allow_unicode=True))
    code, said = promtool(promtool_binary, "test", "rules", tmp_path / "texts.yaml")
    assert code == 0, said

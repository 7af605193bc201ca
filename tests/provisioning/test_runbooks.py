"""The pages about alerts: each alert has its runbook and its row, and what they say of figures and
PromQL is true.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from agenteval_otel import semconv
from agenteval_otel.engine.objectives import BreachSettings
from agenteval_otel.engine.objectives.simulation import verdicts_to_alarm
from agenteval_otel.provisioning.prometheus import Alert, alerts_of
from agenteval_otel.provisioning.prometheus.quality import burn_limit

from .plans import EVERYTHING, accepted, loaded, rules_of_everything

RECORDING, RULES = "rules/agenteval-recording.yaml", "rules/agenteval-alerts.yaml"
LABELS = {
    "agenteval_outcome",
    "agenteval_judge_model",
    "agenteval_judge_name",
    "agenteval_judge_period",
    "agenteval_judge_check",
    "agenteval_export_signal",
    "agenteval_export_reason",
}
DOCS = Path(__file__).resolve().parents[2] / "docs"
ALERTS = {alert.name: alert for alert in alerts_of(EVERYTHING)}
PAGES = {path.name: path.read_text() for path in (DOCS / "runbooks").glob("*.md")}
TEXT = (DOCS / "alerts.md").read_text()
LIMITS = (DOCS / "alerts-limits.md").read_text()


def test_each_alert_has_its_page_and_each_page_its_alert() -> None:
    """The address in an alert leads to a page, and no page is about an alert that is gone."""
    assert {alert.page for alert in ALERTS.values()} == set(PAGES)
    assert len(ALERTS) == 17


@pytest.mark.parametrize("alert", ALERTS.values(), ids=lambda alert: alert.name)
def test_a_page_says_what_somebody_needs_who_is_woken(alert: Alert) -> None:
    """Its name, how urgent it is, what it means, where to look, what causes it, what to do, how to
    silence it.
    """
    text = PAGES[alert.page]
    assert text.startswith(f"# {alert.name}\n\n**{alert.severity.capitalize()}.**")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == [
        "What it means",
        "Look",
        "Likely causes",
        "What to do",
        "Silence",
    ]
    assert "```promql" in text
    assert "Jaeger" in text
    assert f"amtool silence add alertname={alert.name}" in text


def test_the_table_of_alerts_is_the_alerts() -> None:
    """Names, severities and waiting times, in the rules' order."""
    rows = re.findall(
        r"^\| \[`(\w+)`\]\(runbooks/(\S+)\) \| (\w+) \| .* \| .* \| (\w+) \|$", TEXT, re.MULTILINE
    )
    (group,) = loaded(rules_of_everything()[RULES])["groups"]
    assert sorted(rows) == sorted(
        (name, ALERTS[name].page, rule["labels"]["severity"], rule.get("for", "0s"))
        for rule in group["rules"]
        for name in [rule["alert"]]
    )


def test_the_table_of_limits_is_what_the_rules_hold() -> None:
    """Each row's limits and factors are those of its objective."""
    rows = re.findall(r"^\| (0\.\d+) \| (\S+) % \| (\S+) % \| (\S+) \|$", LIMITS, re.MULTILINE)
    assert len(rows) == 7
    for objective, *figures in rows:
        allowed = 1.0 - float(objective)
        limit = burn_limit(float(objective))
        wanted = [f"{100 * allowed:.4g}", f"{100 * limit:.4g}", f"{limit / allowed:.3g}"]
        assert figures == wanted


def test_the_table_of_delays_is_what_the_detector_takes() -> None:
    """Medians and ninetieth percentiles of simulated drops, within a tenth."""
    rows = re.findall(r"^\| (0\.\d+) \|((?: (?:\d+ \(\d+\)|-) \|){4})$", TEXT, re.MULTILINE)
    assert len(rows) == 6
    for objective, cells in rows:
        for rate, cell in zip((0.3, 0.7, 0.85, 0.9), cells.split("|"), strict=False):
            if cell.strip() == "-":
                assert rate >= float(objective)
                continue
            counts = verdicts_to_alarm(BreachSettings(), float(objective), rate)
            assert [int(number) for number in re.findall(r"\d+", cell)] == pytest.approx(
                [counts[200], counts[360]], rel=0.1, abs=1
            )


@pytest.mark.backend
def test_promql_of_the_pages_is_valid(promtool_binary: Path, tmp_path: Path) -> None:
    """Every expression of every page loads as a rule."""
    result = [
        item
        for text in (*PAGES.values(), TEXT, LIMITS)
        for item in re.findall(r"```promql\n(.*?)```", text, re.DOTALL)
    ]
    rules = [{"record": f"page:{number}", "expr": item} for number, item in enumerate(result)]
    (tmp_path / "pages.yaml").write_text(
        yaml.safe_dump({"groups": [{"name": "pages", "rules": rules}]})
    )
    accepted(promtool_binary, "check", "rules", tmp_path / "pages.yaml")
    assert len(rules) >= len(PAGES)


def test_metrics_and_series_that_the_pages_name_exist() -> None:
    """What is asked for is emitted, or recorded by the rules."""
    emitted = {item.prometheus_name for item in semconv.INSTRUMENTS}
    recorded = set(re.findall(r"record: (\S+)", rules_of_everything()[RECORDING]))
    for name, text in PAGES.items():
        for block in re.findall(r"```promql\n(.*?)```", text, re.DOTALL):
            used = (
                set(
                    re.findall(
                        r"agenteval[a-z0-9_:]*_[a-z0-9_:]+(?=[\[{ )]|$)", block, re.MULTILINE
                    )
                )
                - LABELS
            )
            unknown = {
                item for item in used if re.sub(r"_(bucket|sum|count)$", "", item) not in emitted
            } - recorded
            assert unknown == set(), name

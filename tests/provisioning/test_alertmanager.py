"""Alertmanager's configuration: taken by amtool, routed by severity, inhibiting what follows from something else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.provisioning.alertmanager import files_of
from agenteval_otel.provisioning.prometheus import alerts_of

from .plans import EVERYTHING, HOSTILE, criterion, plan_of, written

PLANS = {
    "everything": EVERYTHING,
    "nothing": plan_of(),
    "hostile": plan_of(criterion(HOSTILE, objective=0.9)),
    "scaled": EVERYTHING.model_copy(update={"time_scale": 0.0005}),
}


@pytest.mark.backend
@pytest.mark.parametrize("webhook", [None, "http://127.0.0.1:9000/alerts?a={{b}}"])
@pytest.mark.parametrize("name", PLANS)
def test_amtool_takes_it(name: str, webhook: str | None, amtool_binary: Path, tmp_path: Path) -> None:
    """Whatever the settings, with a webhook or without."""
    folder = written(files_of(PLANS[name], webhook=webhook), tmp_path)
    done = subprocess.run(
        [amtool_binary, "check-config", folder / "alertmanager.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.backend
@pytest.mark.parametrize(("webhook", "receiver"), [(None, "nobody"), ("http://127.0.0.1:9000/", "webhook")])
def test_everything_is_routed_to_the_one_receiver(
    webhook: str | None, receiver: str, amtool_binary: Path, tmp_path: Path
) -> None:
    """Pages and tickets reach the webhook; without one, nobody."""
    folder = written(files_of(EVERYTHING, webhook=webhook), tmp_path)
    for severity in ("page", "ticket"):
        done = subprocess.run(
            [amtool_binary, "config", "routes", "test", f"--config.file={folder / 'alertmanager.yml'}",
             f"--verify.receivers={receiver}", f"severity={severity}", "alertname=AgentevalMonitorBlind"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


def test_without_a_webhook_the_file_says_how_to_tell_somebody() -> None:
    """The receiver does nothing, and a comment says what to add."""
    text = files_of(EVERYTHING)["alertmanager.yml"]
    assert yaml.safe_load(text)["receivers"] == [{"name": "nobody"}]
    assert "webhook_configs" in text.partition("\nroute:")[0]


@pytest.mark.parametrize("webhook", ["", "nonsense", "ftp://127.0.0.1/", "http://", "http:///alerts", "http://a b"])
def test_an_address_that_alertmanager_would_refuse_is_refused(webhook: str) -> None:
    """Before anything is written, with the option's name."""
    with pytest.raises(ConfigurationError, match="webhook: must be an address that begins with http"):
        files_of(EVERYTHING, webhook=webhook)


def test_what_follows_from_something_else_is_left_unsaid() -> None:
    """Fast stands for slow, blind for quality, vanished for everything, each only where it is about the same."""
    rules = yaml.safe_load(files_of(EVERYTHING)["alertmanager.yml"])["inhibit_rules"]
    message = {tuple(rule["source_matchers"]): rule for rule in rules}
    fast = message[('alertname="AgentevalObjectiveBurnFast"',)]
    assert fast["target_matchers"] == ['alertname=~"AgentevalObjectiveBurnSlow"']
    assert fast["equal"] == ["job", "gen_ai_agent_name", "gen_ai_evaluation_name"]
    assert message[('alertname="AgentevalMonitorBlind"',)]["equal"] == ["job", "gen_ai_agent_name"]
    vanished = message[('alertname="AgentevalTelemetryVanished"',)]
    assert vanished["equal"] == ["job"]
    assert vanished["target_matchers"][0].count("|") == len({item.name for item in alerts_of(EVERYTHING)}) - 2
    # Alerts that are not there are not named.
    assert "inhibit_rules" not in yaml.safe_load(files_of(plan_of())["alertmanager.yml"])
    assert "Objective" not in files_of(plan_of(criterion("a")))["alertmanager.yml"]


def test_times_are_scaled_with_a_floor() -> None:
    """Waiting, grouping and repeating shrink with the windows, to a second at least."""
    route = yaml.safe_load(files_of(PLANS["scaled"])["alertmanager.yml"])["route"]
    assert (route["group_wait"], route["group_interval"], route["repeat_interval"]) == ("1s", "1s", "43200ms")
    page = yaml.safe_load(files_of(EVERYTHING)["alertmanager.yml"])["route"]["routes"][0]
    assert (page["group_wait"], page["group_interval"], page["repeat_interval"]) == ("10s", "1m", "1h")

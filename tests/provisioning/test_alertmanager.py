"""Alertmanager's configuration: taken by amtool, routed by severity, inhibiting what follows from
something else.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.provisioning.alertmanager import files_of
from agenteval_otel.provisioning.prometheus import alerts_of

from .plans import EVERYTHING, HOSTILE, accepted, criterion, loaded, plan_of, written

PLANS = {
    "everything": EVERYTHING,
    "nothing": plan_of(),
    "hostile": plan_of(criterion(HOSTILE, objective=0.9)),
    "scaled": EVERYTHING.model_copy(update={"time_scale": 0.0005}),
}


@pytest.mark.backend
@pytest.mark.parametrize("webhook", [None, "http://127.0.0.1:9000/alerts?a={{b}}"])
@pytest.mark.parametrize("name", PLANS)
def test_amtool_takes_it(
    name: str, webhook: str | None, amtool_binary: Path, tmp_path: Path
) -> None:
    """Whatever the settings, with a webhook or without."""
    folder = written(files_of(PLANS[name], webhook=webhook), tmp_path)
    accepted(amtool_binary, "check-config", folder / "alertmanager.yml")


@pytest.mark.backend
@pytest.mark.parametrize(
    ("webhook", "receiver"), [(None, "nobody"), ("http://127.0.0.1:9000/", "webhook")]
)
def test_everything_is_routed_to_the_one_receiver(
    webhook: str | None, receiver: str, amtool_binary: Path, tmp_path: Path
) -> None:
    """Pages and tickets reach the webhook; without one, nobody."""
    folder = written(files_of(EVERYTHING, webhook=webhook), tmp_path)
    for severity in ("page", "ticket"):
        accepted(
            amtool_binary,
            "config",
            "routes",
            "test",
            f"--config.file={folder / 'alertmanager.yml'}",
            f"--verify.receivers={receiver}",
            f"severity={severity}",
            "alertname=AgentevalMonitorBlind",
        )


def test_without_a_webhook_the_file_says_how_to_tell_somebody() -> None:
    """The receiver does nothing, and a comment says what to add."""
    text = files_of(EVERYTHING)["alertmanager.yml"]
    assert loaded(text)["receivers"] == [{"name": "nobody"}]
    assert "webhook_configs" in text.partition("\nroute:")[0]


@pytest.mark.parametrize(
    "webhook", ["", "nonsense", "ftp://127.0.0.1/", "http://", "http:///alerts", "http://a b"]
)
def test_an_address_that_alertmanager_would_refuse_is_refused(webhook: str) -> None:
    """Before anything is written, with the option's name."""
    with pytest.raises(
        ConfigurationError, match="webhook: must be an address that begins with http"
    ):
        files_of(EVERYTHING, webhook=webhook)


def test_what_follows_from_something_else_is_left_unsaid() -> None:
    """A breach stands for its burn rate, blind for quality, silent for everything, each only about
    the same service.
    """
    rules = loaded(files_of(EVERYTHING)["alertmanager.yml"])["inhibit_rules"]
    message = {tuple(rule["source_matchers"]): rule for rule in rules}
    service = ["deployment_environment_name", "job"]
    breached = message[('alertname="AgentevalObjectiveBreached"',)]
    assert breached["target_matchers"] == ['alertname=~"AgentevalObjectiveBurnSlow"']
    assert breached["equal"] == [*service, "gen_ai_agent_name", "gen_ai_evaluation_name"]
    assert message[('alertname="AgentevalMonitorBlind"',)]["equal"] == [
        *service,
        "gen_ai_agent_name",
    ]
    silent = message[('alertname="AgentevalServiceSilent"',)]
    assert silent["equal"] == service
    assert (
        silent["target_matchers"][0].count("|")
        == len({item.name for item in alerts_of(EVERYTHING)}) - 3
    )
    down = message[('alertname="AgentevalCollectorDown"',)]
    assert (down["target_matchers"], down["equal"]) == (['alertname=~"AgentevalServiceSilent"'], [])


@pytest.mark.backend
@pytest.mark.parametrize(
    ("idle", "times"),
    [
        ("22:00-06:00 Europe/Berlin", [("22:00", "24:00"), ("00:00", "06:00")]),
        ("09:30-17:00", [("09:30", "17:00")]),
        ("20:00-00:00", [("20:00", "24:00")]),
    ],
)
def test_a_service_may_be_idle(
    idle: str, times: list[tuple[str, str]], amtool_binary: Path, tmp_path: Path
) -> None:
    """In these hours its silence is muted, and nothing else."""
    folder = written(files_of(EVERYTHING, idle=idle), tmp_path)
    accepted(amtool_binary, "check-config", folder / "alertmanager.yml")
    tree = loaded((folder / "alertmanager.yml").read_text())
    (interval,) = tree["time_intervals"][0]["time_intervals"]
    assert [(item["start_time"], item["end_time"]) for item in interval["times"]] == times
    muted = [route for route in tree["route"]["routes"] if "mute_time_intervals" in route]
    assert [route["matchers"] for route in muted] == [['alertname="AgentevalServiceSilent"']]


@pytest.mark.parametrize("idle", ["night", "22-6", "22:00-25:00", "22:00-06:00 Middle/Earth"])
def test_other_hours_are_refused(idle: str) -> None:
    """With what is expected, before anything is written."""
    with pytest.raises(ConfigurationError, match="idle: must"):
        files_of(EVERYTHING, idle=idle)


def test_alerts_that_are_not_there_are_not_named() -> None:
    """Without criteria there is nothing to inhibit; without objectives no alert about them is
    named.
    """
    assert "inhibit_rules" not in loaded(files_of(plan_of())["alertmanager.yml"])
    assert "Objective" not in files_of(plan_of(criterion("a")))["alertmanager.yml"]


def test_times_are_scaled_with_a_floor() -> None:
    """Waiting, grouping and repeating shrink with the windows, to a second at least."""
    route = loaded(files_of(PLANS["scaled"])["alertmanager.yml"])["route"]
    names = ("group_wait", "group_interval", "repeat_interval")
    assert [route[name] for name in names] == ["1s", "1s", "43200ms"]
    page = loaded(files_of(EVERYTHING)["alertmanager.yml"])["route"]["routes"][0]
    assert [page[name] for name in names] == ["10s", "1m", "1h"]

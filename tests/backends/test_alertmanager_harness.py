"""The Alertmanager harness: a configuration that is refused, an alert that is posted, and amtool beside it."""

from __future__ import annotations

import http.client
import json
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from .alertmanager import Alertmanager
from .faults import LOOPBACK
from .fixtures import running
from .process import BackendError

pytestmark = pytest.mark.backend


def test_a_posted_alert_is_active(alertmanager_binary: Path, amtool_binary: Path, tmp_path: Path) -> None:
    """What Prometheus would post is there with its labels, for the API and for amtool."""
    with running(Alertmanager(alertmanager_binary, tmp_path)) as alertmanager:
        alert = {"labels": {"alertname": "Low", "severity": "page"}, "annotations": {"summary": "it fell"}}
        with closing(http.client.HTTPConnection(LOOPBACK, alertmanager.ports.web, timeout=10)) as connection:
            connection.request("POST", "/api/v2/alerts", json.dumps([alert]), {"Content-Type": "application/json"})
            assert connection.getresponse().status == 200

        (found,) = alertmanager.wait_for(lambda seen: [one for one in seen.alerts() if one.state == "active"])
        told = subprocess.run(
            [str(amtool_binary), "alert", "query", f"--alertmanager.url={alertmanager.url}"],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip

    assert (found.name, found.labels["severity"], found.annotations["summary"]) == ("Low", "page", "it fell")
    assert "Low" in told.stdout


def test_a_broken_configuration_fails_with_the_log(alertmanager_binary: Path, tmp_path: Path) -> None:
    """A route to a receiver that is not there is reported in Alertmanager's words."""
    broken = Alertmanager(alertmanager_binary, tmp_path, config={"route": {"receiver": "gone"}, "receivers": []})
    with pytest.raises(BackendError, match=r"(?s)Alertmanager ended while starting.*gone"):
        broken.start()

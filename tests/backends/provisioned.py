"""The monitoring that `agenteval-otel provision` makes, run: Collector, Prometheus with the rules,
and Alertmanager with a webhook.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from agenteval_otel.cli import main

from .alertmanager import Alertmanager
from .collector import Collector
from .fixtures import require, running
from .prometheus import Prometheus, scraping
from .webhook import Webhook, webhook

NOWHERE = {"COLLECTOR_TRACES_TO": "[debug]", "COLLECTOR_LOGS_TO": "[debug]"}
"""Of a shipped Collector: traces and logs end in its log."""


def provision(
    folder: Path,
    settings: Path | Mapping[str, Any],
    *,
    time_scale: float = 1.0,
    webhook_url: str = "",
) -> Path:
    """Make everything for these settings, and return the folder of the files."""
    if isinstance(settings, Mapping):
        file = folder / "agenteval.yaml"
        file.write_text(yaml.safe_dump(settings))
        settings = file
    made = folder / "made"
    arguments = ["--settings", str(settings), "--output", str(made)]
    arguments += ["--time-scale", str(time_scale)]
    if webhook_url:
        arguments += ["--webhook", webhook_url]
    assert main(["provision", "all", *arguments]) == 0
    return made


class Alerting(NamedTuple):
    collector: Collector
    prometheus: Prometheus
    webhook: Webhook


@contextmanager
def alerting(
    folder: Path,
    settings: Path | Mapping[str, Any],
    *,
    time_scale: float,
    every_s: float = 0.25,
    shipped: Path | None = None,
    environment: Mapping[str, str] = NOWHERE,
) -> Iterator[Alerting]:
    """All of it for these settings, until the block ends.

    Args:
        shipped: The folder of the Collector's and Prometheus' files. The generated ones without it.
        environment: Of the Collector.
    """
    with ExitStack() as stack:
        hook = stack.enter_context(webhook())
        made = provision(folder, settings, time_scale=time_scale, webhook_url=hook.url)
        routes = made / "alertmanager/alertmanager.yml"
        alertmanager = Alertmanager(require("alertmanager"), folder / "alertmanager", config=routes)
        stack.enter_context(running(alertmanager))
        files = shipped or made
        collector = Collector(
            require("collector"),
            folder / "collector",
            config=files / "otel-collector.yaml",
            environment=environment,
        )
        stack.enter_context(running(collector))
        config = scraping(
            files / "prometheus/prometheus.yml",
            port=collector.ports.prometheus,
            every_s=every_s,
            rules=made / "prometheus/rules",
            alertmanager=alertmanager.address,
        )
        if shipped:
            config["global"]["evaluation_interval"] = "1s"
        prometheus = Prometheus(require("prometheus"), folder / "prometheus", config=config)
        stack.enter_context(running(prometheus))
        yield Alerting(collector, prometheus, hook)

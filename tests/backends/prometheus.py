"""A real Prometheus 3 for tests: started on a free loopback port, fed by scraping or over OTLP,
asked in PromQL.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from .faults import LOOPBACK
from .process import BackendProcess

_UNITS = {"s": "seconds", "By": "bytes", "1": ""}


class Sample(NamedTuple):
    """One element of an instant vector; the metric's name is the label `__name__`, where it still
    has one.
    """

    labels: Mapping[str, str]
    value: float


class Exemplar(NamedTuple):
    value: float
    trace_id: str


class Prometheus(BackendProcess):
    """One Prometheus process with exemplar storage and its OTLP receiver open; for its `config` see
    `scraping`.
    """

    title = "Prometheus"
    port_names = ("web",)

    def __init__(
        self,
        binary: Path,
        folder: Path,
        *,
        config: Mapping[str, Any] | None = None,
        features: str = "exemplar-storage",
    ) -> None:
        super().__init__(binary, folder)
        self._config = dict(config or {})
        self._features = features

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.ports.web}"

    @property
    def otlp_metrics_endpoint(self) -> str:
        """For `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT` with the protocol `http/protobuf`."""
        return f"{self.url}/api/v1/otlp/v1/metrics"

    def query(self, expression: str, *, at: float | None = None) -> list[Sample]:
        """The instant vector of a PromQL expression, now or at a time in seconds since the epoch."""
        requests = {"query": expression} | ({} if at is None else {"time": f"{at:.3f}"})
        answer = self._get_json(self.ports.web, "/api/v1/query", requests)
        return [
            Sample(actual["metric"], float(actual["value"][1]))
            for actual in answer["data"]["result"]
        ]

    def moments(
        self, expression: str, *, since: float, until: float, step_s: float
    ) -> list[tuple[Mapping[str, str], list[float]]]:
        """Return for each series of a range query its labels, and the moments at which it has a value."""
        requests = {"query": expression, "step": f"{step_s}"}
        requests |= {"start": f"{since:.3f}", "end": f"{until:.3f}"}
        answer = self._get_json(self.ports.web, "/api/v1/query_range", requests)
        return [
            (series["metric"], [float(moment) for moment, _ in series["values"]])
            for series in answer["data"]["result"]
        ]

    def samples(self, selector: str, window: str) -> list[list[float]]:
        """Return the stored values of each series that the selector finds, oldest first."""
        requests = {"query": f"{selector}[{window}]"}
        answer = self._get_json(self.ports.web, "/api/v1/query", requests)
        return [[float(value) for _, value in item["values"]] for item in answer["data"]["result"]]

    def firing(self) -> list[Mapping[str, str]]:
        """The labels of the alerts that fire now, `alertname` among them."""
        actual = self._get_json(self.ports.web, "/api/v1/alerts")["data"]["alerts"]
        return [alert["labels"] for alert in actual if alert["state"] == "firing"]

    def exemplars(
        self, expression: str, *, since_s: float = 3600.0
    ) -> list[tuple[Mapping[str, str], Exemplar]]:
        """The exemplars of the series that the expression selects, each with its series' labels."""
        now = time.time()
        requests = {"query": expression, "start": f"{now - since_s:.3f}", "end": f"{now + 60:.3f}"}
        answer = self._get_json(self.ports.web, "/api/v1/query_exemplars", requests)
        return [
            (
                series["seriesLabels"],
                Exemplar(float(item["value"]), item["labels"].get("trace_id", "")),
            )
            for series in answer["data"]
            for item in series["exemplars"]
        ]

    def _arguments(self) -> list[str]:
        config = self._folder / "prometheus.json"
        config.write_text(json.dumps(self._config, indent=2))
        return [
            f"--config.file={config}",
            f"--web.listen-address={LOOPBACK}:{self.ports.web}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--enable-feature={self._features}",
            "--web.enable-otlp-receiver",
            "--log.level=warn",
        ]

    def _health(self) -> tuple[int, str]:
        return self.ports.web, "/-/ready"


def prometheus_names(name: str, unit: str, kind: str) -> tuple[str, ...]:
    """The names under which an OpenTelemetry metric is found in Prometheus, by the documented rules
    of translation.

    Dots become underscores; a unit is spelled out at the end unless the name holds the word, one in
    braces leaves no trace; a `counter` ends in `total`, a `gauge` of unit `1` in `ratio`; a
    `histogram` is three names.
    """
    words = name.replace(".", "_").split("_")
    spelled = "" if unit.startswith("{") else _UNITS[unit]
    if spelled and spelled not in words:
        words.append(spelled)
    if kind == "counter":
        words = [word for word in words if word != "total"] + ["total"]
    if kind == "gauge" and unit == "1":
        words = [word for word in words if word != "ratio"] + ["ratio"]
    result = "_".join(words)
    return (
        (f"{result}_bucket", f"{result}_sum", f"{result}_count")
        if kind == "histogram"
        else (result,)
    )


def scraping(
    shipped: Path,
    *,
    port: int,
    every_s: float,
    rules: Path | None = None,
    alertmanager: str | None = None,
) -> dict[str, Any]:
    """A shipped Prometheus configuration with nothing changed but where it finds the others, and
    how often it looks.

    The `port` is that of the Collector's `prometheus` exporter; without a folder of `rules` there
    are none.
    """
    config: dict[str, Any] = yaml.safe_load(shipped.read_text())
    config["rule_files"] = [
        str(rules / Path(pattern).name) for pattern in config["rule_files"] if rules
    ]
    config["alerting"]["alertmanagers"] = (
        [{"static_configs": [{"targets": [alertmanager]}]}] if alertmanager else []
    )
    for job in config["scrape_configs"]:
        job["static_configs"] = [{"targets": [f"{LOOPBACK}:{port}"]}]
        job["scrape_interval"] = job["scrape_timeout"] = f"{round(every_s * 1000)}ms"
    return config

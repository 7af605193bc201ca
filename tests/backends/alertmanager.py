"""A real Alertmanager for tests: started on a free loopback port, alone, read through its API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .faults import LOOPBACK
from .process import BackendProcess, Ports

NOBODY: Mapping[str, Any] = {"route": {"receiver": "nobody"}, "receivers": [{"name": "nobody"}]}


@dataclass(frozen=True)
class AlertmanagerPorts(Ports):
    web: int


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert that is firing; `state` is `active`, `suppressed` or `unprocessed`."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    state: str

    @property
    def name(self) -> str:
        return self.labels["alertname"]


class Alertmanager(BackendProcess):
    """One Alertmanager process without a cluster.

    Args:
        binary: The built program.
        folder: An own, empty folder for its configuration, log and data.
        config: Its configuration, a file as it stands or a mapping; one receiver that tells nobody when left out.
    """

    title = "Alertmanager"
    ports_type = AlertmanagerPorts
    ports: AlertmanagerPorts

    def __init__(self, binary: Path, folder: Path, *, config: Path | Mapping[str, Any] | None = None) -> None:
        super().__init__(binary, folder)
        self._config = NOBODY if config is None else config

    @property
    def address(self) -> str:
        """Host and port, as Prometheus' `alertmanagers` take them."""
        return f"{LOOPBACK}:{self.ports.web}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def alerts(self) -> list[Alert]:
        """The alerts that are firing now, the silenced and inhibited ones too."""
        return [
            Alert(actual["labels"], actual["annotations"], actual["status"]["state"])
            for actual in self._get_json(self.ports.web, "/api/v2/alerts")
        ]

    def _arguments(self) -> list[str]:
        if isinstance(self._config, Path):
            own = self._config
        else:
            own = self._folder / "alertmanager.yml"
            own.write_text(yaml.safe_dump(dict(self._config)))
        return [
            f"--config.file={own}",
            f"--storage.path={self._folder / 'data'}",
            f"--web.listen-address={self.address}",
            "--cluster.listen-address=",
            "--log.level=warn",
        ]

    def _health(self) -> tuple[int, str]:
        return self.ports.web, "/-/ready"

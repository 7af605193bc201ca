"""A real Alertmanager for tests: started on a free loopback port, alone."""

from __future__ import annotations

from pathlib import Path

from .faults import LOOPBACK
from .process import BackendProcess


class Alertmanager(BackendProcess):
    """One Alertmanager process without a cluster, with a configuration file as it stands."""

    title = "Alertmanager"
    port_names = ("web",)

    def __init__(self, binary: Path, folder: Path, *, config: Path) -> None:
        super().__init__(binary, folder)
        self._config = config

    @property
    def address(self) -> str:
        """Host and port, as Prometheus' `alertmanagers` take them."""
        return f"{LOOPBACK}:{self.ports.web}"

    def _arguments(self) -> list[str]:
        return [
            f"--config.file={self._config}",
            f"--storage.path={self._folder / 'data'}",
            f"--web.listen-address={self.address}",
            "--cluster.listen-address=",
            "--log.level=warn",
        ]

    def _health(self) -> tuple[int, str]:
        return self.ports.web, "/-/ready"

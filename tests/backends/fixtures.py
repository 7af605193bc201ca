"""Fixtures around the real programs. A `conftest.py` that imports these names offers them to its
folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from .build import BUILD_COMMAND, installed
from .collector import Collector
from .jaeger import Jaeger
from .loki import Loki
from .mlflow import Mlflow
from .phoenix import Phoenix
from .postgresql import PostgreSQL
from .process import BackendProcess

P = TypeVar("P", bound=BackendProcess)

REQUIRE_VARIABLE = "AGENTEVAL_REQUIRE_BACKENDS"


def require(program: str) -> Path:
    """The executable of a built program; without one the test is skipped, or fails where backends
    are required.
    """
    path = installed(program)
    if path is not None:
        return path
    message = f"{program} is not built; build it once: {BUILD_COMMAND}"
    if os.environ.get(REQUIRE_VARIABLE) == "1":
        pytest.fail(
            f"{message} ({REQUIRE_VARIABLE}=1: no backend test may be skipped)", pytrace=False
        )
    pytest.skip(message)


def _program(program: str) -> Any:
    @pytest.fixture(scope="session", name=f"{program.replace('-', '_')}_binary")
    def fixture() -> Path:
        return require(program)

    return fixture


collector_binary_fixture, jaeger_binary_fixture, loki_binary_fixture = map(
    _program, ("collector", "jaeger", "loki")
)
prometheus_binary_fixture, promtool_binary_fixture = map(_program, ("prometheus", "promtool"))
alertmanager_binary_fixture, amtool_binary_fixture = map(_program, ("alertmanager", "amtool"))
mlflow_binary_fixture, phoenix_binary_fixture = map(_program, ("mlflow", "phoenix"))
compose_binary_fixture, postgresql_binary_fixture = map(_program, ("compose", "postgresql"))
kubernetes_validate_fixture = _program("kubernetes-validate")
"""The executables of the built programs, `kubernetes-validate` is a Python with the schemas of
Kubernetes.
"""


def _started(name: str, kind: type[P]) -> Any:
    @pytest.fixture(scope="session", name=name)
    def fixture(
        request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[P]:
        with running(
            kind(request.getfixturevalue(f"{name}_binary"), tmp_path_factory.mktemp(name))
        ) as started:
            yield started

    return fixture


collector_fixture, jaeger_fixture = _started("collector", Collector), _started("jaeger", Jaeger)
loki_fixture = _started("loki", Loki)
"""Each runs for the whole session: read it by service, do not stop it."""


@pytest.fixture(name="own_collector")
def own_collector_fixture(collector_binary: Path, tmp_path: Path) -> Iterator[Collector]:
    """A running Collector for one test, which may stop it and start it again."""
    with running(Collector(collector_binary, tmp_path)) as started:
        yield started


@pytest.fixture(scope="session", name="postgresql_server")
def postgresql_server_fixture(
    postgresql_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PostgreSQL]:
    server = PostgreSQL(postgresql_binary, tmp_path_factory.mktemp("postgresql"))
    try:
        with running(server) as started:
            yield started
    finally:
        server.remove()


@pytest.fixture(name="postgresql")
def postgresql_fixture(postgresql_server: PostgreSQL) -> PostgreSQL:
    """A running PostgreSQL with an empty database; a test that stops or pauses it starts it again."""
    postgresql_server.empty()
    return postgresql_server


class Receivers(NamedTuple):
    """Where scores are looked at; each runs for the whole session."""

    mlflow: Mlflow
    phoenix: Phoenix


@pytest.fixture(scope="session", name="receivers")
def receivers_fixture(
    mlflow_binary: Path, phoenix_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Receivers]:
    """Both are started beside each other: each takes its time to import itself."""
    folders = [tmp_path_factory.mktemp(name) for name in ("mlflow", "phoenix")]
    receivers = Receivers(Mlflow(mlflow_binary, folders[0]), Phoenix(phoenix_binary, folders[1]))
    try:
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda receiver: receiver.start(), receivers))
        yield receivers
    finally:
        for receiver in receivers:
            receiver.stop()


@contextmanager
def running(process: P) -> Iterator[P]:
    """Starts the program for the block and stops it afterwards, whatever happens."""
    try:
        yield process.start()
    finally:
        process.stop()

"""Fixtures around the real programs. A `conftest.py` that imports these names offers them to its folder.

Where a program is not built, tests that ask for it are skipped with the command that builds it; with
`AGENTEVAL_REQUIRE_BACKENDS=1` (CI) they fail instead.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .build import BUILD_COMMAND, installed
from .collector import Collector

__all__ = ["collector_binary_fixture", "collector_fixture", "own_collector_fixture", "require"]

REQUIRE_VARIABLE = "AGENTEVAL_REQUIRE_BACKENDS"


def require(program: str) -> Path:
    """The executable of a built program; without one the test is skipped, or fails where backends are required."""
    path = installed(program)
    if path is not None:
        return path
    message = f"{program} is not built; build it once: {BUILD_COMMAND}"
    if os.environ.get(REQUIRE_VARIABLE) == "1":
        pytest.fail(f"{message} ({REQUIRE_VARIABLE}=1: no backend test may be skipped)", pytrace=False)
    pytest.skip(message)


@pytest.fixture(scope="session", name="collector_binary")
def collector_binary_fixture() -> Path:
    """The built Collector program."""
    return require("collector")


@pytest.fixture(scope="session", name="collector")
def collector_fixture(collector_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """One running Collector for the whole session: read it by `service`, do not stop it."""
    yield from _running(collector_binary, tmp_path_factory.mktemp("collector"))


@pytest.fixture(name="own_collector")
def own_collector_fixture(collector_binary: Path, tmp_path: Path) -> Iterator[Collector]:
    """A running Collector for one test, which may stop it and start it again."""
    yield from _running(collector_binary, tmp_path)


def _running(binary: Path, folder: Path) -> Iterator[Collector]:
    collector = Collector(binary, folder)
    try:
        yield collector.start()
    finally:
        collector.stop()

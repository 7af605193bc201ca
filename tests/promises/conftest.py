"""How a promise test records what it measured; and the receiver that many of them send to."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.testing import RecordedTelemetry
from tests.backends.faults import BlackHole, black_hole
from tests.backends.fixtures import (
    postgresql_binary_fixture,
    postgresql_fixture,
    postgresql_server_fixture,
)
from tests.promises import figures
from tests.promises.bench import Bench
from tests.promises.programs import pythons
from tests.promises.receiver import Receiver
from tests.promises.table import BY_CODE, code_of

__all__ = ["postgresql_binary_fixture", "postgresql_fixture", "postgresql_server_fixture"]

_MEASURED = pytest.StashKey[dict[str, list[str]]]()
_OUTCOME = pytest.StashKey[tuple[str, float]]()
_RANK = ("passed", "skipped", "failed")


@pytest.fixture
def promise(request: pytest.FixtureRequest) -> figures.Recorder:
    """``promise("A2", figure="lag p99 3.1 ms, idle 0.8 ms")``: the measured figure for the table of
    promises.
    """
    by_promise = request.node.stash.setdefault(_MEASURED, {})

    def record(code: str, *, figure: str) -> None:
        assert code in BY_CODE, f"{code} is no promise of tests/promises/table.py"
        if figure not in (measured := by_promise.setdefault(code, [])):
            measured.append(figure)
            print(f"{code}: {figure}")

    return record


@pytest.fixture(params=pythons().values(), ids=list(pythons()))
def python(request: pytest.FixtureRequest) -> str:
    """Each Python that has the package, one after the other."""
    executable: str = request.param
    return executable


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as well:
        yield well


@pytest.fixture
def hole() -> Iterator[BlackHole]:
    """A receiver that takes connections and never answers."""
    with black_hole() as made:
        yield made


@pytest.fixture
def bench(telemetry: RecordedTelemetry) -> Iterator[Bench]:
    made = Bench(telemetry)
    yield made
    made.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, Any]:
    """Keep how a promise test ended, with its figures, after each of its phases: a later one may
    still fail.
    """
    report = yield
    outcome, took_s = item.stash.get(_OUTCOME, ("passed", 0.0))
    outcome = max(outcome, report.outcome, key=_RANK.index)
    took_s += report.duration
    item.stash[_OUTCOME] = outcome, took_s
    if report.when != "setup" or report.outcome != "passed":
        _keep(item, outcome, took_s)
    return report


def _keep(item: pytest.Item, outcome: str, took_s: float) -> None:
    is_long = item.get_closest_marker("full") or (figures.FULL and item.get_closest_marker("sized"))
    form = "full" if is_long else "short"
    by_promise: dict[str, list[str]] = dict(item.stash.get(_MEASURED, {}))
    own = code_of(Path(str(item.path)))
    if own is not None:
        by_promise.setdefault(own, [])
    for code, measured in by_promise.items():
        figures.write(
            code, item.nodeid, form=form, outcome=outcome, figures=measured, took_s=took_s
        )

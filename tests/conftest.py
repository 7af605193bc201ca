"""What every test has: a pipeline of its own, and no thread or setting that outlives it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from agenteval_otel import monitor
from agenteval_otel.config import process, set_current_pipeline
from agenteval_otel.engine.pipeline import InlineDispatcher, Pipeline
from agenteval_otel.runtime.log import log
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.testing import RecordedTelemetry
from tests.backends.fixtures import (
    collector_binary_fixture,
    collector_fixture,
    own_collector_fixture,
)
from tests.pipelines import pipeline_with

__all__ = ["collector_binary_fixture", "collector_fixture", "own_collector_fixture"]

# How long an example takes says nothing on a machine that does other work too.
settings.register_profile(
    "without time limits", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("without time limits")

HERE = Path(__file__).resolve().parent
SHARED = HERE.parents[1] / "shared"


SLOW = {
    "cli/test_demo.py", "docs/test_generated.py", "docs/test_types.py", "engine/test_escalation_live.py",
    "execution/test_processes.py", "execution/test_trouble.py", "sidecar/test_process.py", "storage/test_sqlite.py",
    "test_benchmarks.py",
    "test_documents.py", "test_examples.py", "test_pytest_plugin.py",
}  # fmt: skip
"""Files that start processes, compute or wait for seconds."""
UNIT_RING = "not promise and not backend and not live and not slow"


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run the unit ring on all cores, unless -n says how many."""
    is_worker = hasattr(config, "workerinput")
    if _is_unit_ring(config) and not is_worker and config.option.numprocesses is None:
        config.option.numprocesses = "auto"


def pytest_configure(config: pytest.Config) -> None:
    """`pytest` without a path and without -m runs the unit ring."""
    if _is_unit_ring(config):
        config.option.markexpr = UNIT_RING


def _is_unit_ring(config: pytest.Config) -> bool:
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    return not named and not config.option.markexpr


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The unit ring does not even import the folders that hold none of it."""
    others = collection_path.parent == HERE and collection_path.name in ("promises", "backends")
    return True if others and config.option.markexpr == UNIT_RING else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the promises, and leave out the long forms unless AGENTEVAL_PROMISES asks for them."""
    for item in items:
        if item.path.parent == HERE / "promises":
            item.add_marker("promise")
        elif item.path.relative_to(HERE).as_posix() in SLOW:
            item.add_marker("slow")
    if os.environ.get("AGENTEVAL_PROMISES") == "full":
        for item in items:
            if item.get_closest_marker("full") or item.get_closest_marker("sized"):
                item.add_marker(pytest.mark.timeout(1200))
        return
    long = [item for item in items if item.get_closest_marker("full")]
    items[:] = [item for item in items if not item.get_closest_marker("full")]
    config.hook.pytest_deselected(items=long)


@pytest.fixture
def shared() -> Path:
    """The folder of recorded data beside the project; the test is skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("needs the recorded data in ../shared")
    return SHARED


@pytest.fixture
def telemetry() -> Iterator[RecordedTelemetry]:
    recorded = RecordedTelemetry()
    yield recorded
    recorded.shutdown()


@pytest.fixture
def pipeline(telemetry: RecordedTelemetry) -> Iterator[Pipeline]:
    """A pipeline that evaluates inline, everything, into the recorded telemetry."""
    from agenteval_otel.evaluators import ResponseHealth

    made = pipeline_with(
        sampler=RatioSampler(),
        evaluators=(ResponseHealth(),),
        storage=(telemetry.storage(),),
        dispatcher=InlineDispatcher(),
    )
    yield made
    made.shutdown(5.0)


@pytest.fixture
def watched(pipeline: Pipeline) -> Callable[..., Any]:
    """`monitor` on the test's own pipeline."""

    def decorate(function: Any = None, /, **arguments: Any) -> Any:
        decorator = monitor(pipeline=pipeline, **arguments)
        return decorator if function is None else decorator(function)

    return decorate


@pytest.fixture(autouse=True)
def _fresh_log() -> None:
    """No line is left out because another test had it written within the minute."""
    log.forget()


@pytest.fixture(autouse=True)
def _no_pipeline_left() -> Iterator[None]:
    """A test that configured the process's pipeline leaves none behind, and nothing to reload."""
    yield
    process._STATE.request = process._STATE.settings = None
    left = set_current_pipeline(None)
    if left is not None:
        left.shutdown(5.0)

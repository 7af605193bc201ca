"""What every test has: a pipeline of its own, and no thread or setting that outlives it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import monitor
from agenteval_otel.config import set_current_pipeline
from agenteval_otel.pipeline import Pipeline
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.testing import InlineDispatcher, RecordedTelemetry
from tests.backends.fixtures import collector_binary_fixture, collector_fixture, own_collector_fixture

__all__ = ["collector_binary_fixture", "collector_fixture", "own_collector_fixture"]

SHARED = Path(__file__).resolve().parents[2] / "shared"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The long forms of promises take minutes: they run where they are asked for, and may."""
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

    made = Pipeline(
        sampler=RatioSampler(), evaluators=(ResponseHealth(),), storage=(telemetry.storage(),),
        dispatcher=InlineDispatcher(),
    )  # fmt: skip
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
def _no_pipeline_left() -> Iterator[None]:
    """A test that configured the process's pipeline leaves none behind."""
    yield
    left = set_current_pipeline(None)
    if left is not None:
        left.shutdown(5.0)

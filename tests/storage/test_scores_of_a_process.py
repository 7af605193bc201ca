"""Scores of monitored answers on their way to a receiver: content, counts, log lines, flush, exit,
new settings.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agenteval_otel import configure, monitor
from agenteval_otel.config import default_pipeline
from agenteval_otel.engine.pipeline import Pipeline
from agenteval_otel.runtime.log import log
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.storage import (
    EvaluationStorageProvider,
    OtlpStorageProvider,
    PhoenixStorageProvider,
)
from agenteval_otel.storage.base import FanOutStorage
from tests.backends.faults import free_ports
from tests.pipelines import pipeline_with
from tests.promises.programs import run_program
from tests.storage.receiver import SECRET, Answer, receiving
from tests.storage.test_real_receivers import wait_for
from tests.testing.doubles import Free

TAKEN = Answer(body={"data": []})


def tracers() -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    return provider


def pipeline_to(url: str, content: str = "no_content", **fields: Any) -> Pipeline:
    emitting: Any = OtlpStorageProvider(
        tracer_provider=tracers(), signals={"traces"}, content=content
    )
    storage = (emitting, PhoenixStorageProvider(endpoint=url, **fields))
    evaluators = (Free(reasoning="quotes-the-canary", reason_code="rude"),)
    return pipeline_with(sampler=RatioSampler(), evaluators=evaluators, storage=storage)


@pytest.mark.parametrize(
    ("content", "explanation"), [("no_content", None), ("span_and_event", "quotes-the-canary")]
)
def test_reasoning_leaves_only_where_content_is_captured(
    content: str, explanation: str | None
) -> None:
    """Without content capture a score comes with its reason code, and without the reasoning."""
    with receiving(TAKEN) as receiver:
        pipeline = pipeline_to(receiver.url, content)
        monitor(pipeline=pipeline)(str.upper)("q")
        assert pipeline.flush(30)
        assert pipeline.shutdown(30)
    (annotation,) = receiver.requests[0].body["data"]
    assert annotation["result"].get("explanation") == explanation
    assert annotation["metadata"]["reason_code"] == "rude"


def test_what_is_lost_later_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A refusal counts for each answer; one line says which, without the key; a flush says so once."""
    with receiving(Answer(401, {"message": SECRET})) as receiver:
        pipeline = pipeline_to(receiver.url, api_key=SECRET)
        answer = monitor(pipeline=pipeline)(str.upper)
        for _ in range(3):
            answer("q")
        assert not pipeline.flush(30)
        assert pipeline.accounting.failures == {"storage:phoenix": 3}
        assert pipeline.accounting.outcomes()["evaluated"] == 3
        assert pipeline.flush(30)
        assert pipeline.shutdown(30)
    (line,) = [
        record.getMessage() for record in caplog.records if "storage_failed" in record.getMessage()
    ]
    assert "part='phoenix'" in line
    assert "error_type='authentication'" in line
    assert "problem='phoenix: answered with status 401'" in line
    assert SECRET not in caplog.text


def test_a_receiver_that_is_away_holds_up_no_evaluation() -> None:
    """Every answer is evaluated while the receiver hangs; flush and shutdown say that the scores
    are not sent.
    """
    release = threading.Event()
    with receiving(Answer(wait=release)) as receiver:
        pipeline = pipeline_to(receiver.url)
        answer = monitor(pipeline=pipeline)(str.upper)
        for _ in range(200):
            answer("q")
        wait_for(lambda: pipeline.accounting.outcomes()["evaluated"] == 200)
        assert not pipeline.flush(0.5)
        assert pipeline.accounting.failures == {}
        assert not pipeline.shutdown(0.5)
        release.set()


def test_a_process_ends_in_time_with_a_receiver_that_hangs() -> None:
    """Neither what waits nor a request on its way keeps a process from its end, and its exit code
    is its own.
    """
    source = """
        import sys
        from opentelemetry.sdk.trace import TracerProvider
        from agenteval_otel import configure, monitor
        from agenteval_otel.storage import OtlpStorageProvider

        emitting = OtlpStorageProvider(tracer_provider=TracerProvider(), signals={"traces"})
        configure(evaluators=["ResponseHealth"], sample_rate=1.0, shutdown_timeout_s=1.0,
                  storage=[emitting, {"type": "mlflow", "tracking_uri": sys.argv[1], "timeout_s": 60}])
        answer = monitor(agent="a")(str.upper)
        for _ in range(300):
            answer("q")
        print("end", flush=True)
        sys.exit(3)
    """
    release = threading.Event()
    with receiving(Answer(wait=release)) as receiver:
        finished = run_program(source, receiver.url)
        release.set()
    assert finished.code == 3, finished.stderr
    assert "Traceback" not in finished.stderr
    assert finished.exit_s is None or finished.exit_s < 30


def test_scores_of_the_settings_before_are_sent() -> None:
    """A pipeline that is replaced sends what it took, and its provider is closed."""
    with receiving(TAKEN) as receiver:
        emitting = OtlpStorageProvider(tracer_provider=tracers(), signals={"traces"})
        phoenix = {"type": "phoenix", "endpoint": receiver.url}
        configure(evaluators=["ResponseHealth"], sample_rate=1.0, storage=[emitting, phoenix])
        monitor(agent="a")(str.upper)("question")
        assert default_pipeline().dispatcher.flush(30)
        configure(evaluators=["ResponseHealth"], sample_rate=1.0, storage="console")
        assert receiver.arrived.wait(30)
        assert default_pipeline().accounting.failures == {}


@pytest.mark.parametrize("has_handler", [False, True])
def test_a_missing_key_is_said_at_the_start(
    has_handler: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line names the setting and the variable; nothing keeps from starting.

    It comes as well where a handler was decorated before, which prepares its own judges alone.
    """
    monkeypatch.delenv("LANGFUSE_PUBLIC_KEY", raising=False)
    if has_handler:
        assert monitor(str.upper)("hello") == "HELLO"
        log.forget()
    configure(evaluators=["ResponseHealth"], storage={"type": "langfuse", "secret_key": SECRET})
    (line,) = [
        record.getMessage()
        for record in caplog.records
        if "storage_not_ready" in record.getMessage()
    ]
    assert "storage[0]: public_key is missing, and so is the variable LANGFUSE_PUBLIC_KEY" in line


def test_a_flush_gives_each_provider_its_share() -> None:
    """One that never ends leaves time for the others; one that raises is counted; objects of users
    are not asked.
    """
    limits: list[float] = []
    failures: list[str] = []

    class Late(EvaluationStorageProvider, type="late_in_this_test"):
        def flush(self, timeout_s: float) -> bool:
            limits.append(timeout_s)
            return len(limits) > 1

    class Raising(EvaluationStorageProvider, type="raising_in_this_test"):
        def flush(self, timeout_s: float) -> bool:
            raise OSError

    fan_out = FanOutStorage(
        [Late(), object(), Late(), Raising()], lambda name, _: failures.append(name)
    )
    assert not fan_out.flush(3.0)
    assert failures == ["raising_in_this_test"]
    assert 0.9 < limits[0] <= 1.0 < limits[1] <= 1.5
    (port,) = free_ports(1)
    assert FanOutStorage(
        [PhoenixStorageProvider(endpoint=f"http://127.0.0.1:{port}")], print
    ).flush(0.0)

"""What was not sampled and is complained about: evaluated after all, and counted once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from agenteval_otel import (
    accounting,
    configure,
    evaluation_reference,
    flush,
    monitor,
    record_feedback,
    shutdown,
)
from agenteval_otel.config.process import default_pipeline
from agenteval_otel.instrumentation.feedback.recorder import RECORDER
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.testing import RecordedTelemetry


@pytest.fixture
def telemetry() -> Iterator[RecordedTelemetry]:
    recorded = RecordedTelemetry()
    RECORDER.reset()
    configure(storage=[recorded.storage()], sample_rate=0.0, feedback_window_s=600)
    yield recorded
    recorded.shutdown()


@monitor(agent="support")
def answer(question: str) -> str:
    return evaluation_reference()


def outcomes() -> dict[str, int]:
    return {outcome: count for outcome, count in accounting().items() if count}


def health_events(telemetry: RecordedTelemetry) -> list[dict[str, Any]]:
    events = [dict(event.attributes) for event in telemetry.events()]
    return [event for event in events if event["gen_ai.evaluation.name"] == "response_health"]


def test_a_complaint_has_an_unsampled_answer_evaluated(telemetry: RecordedTelemetry) -> None:
    """The answer is evaluated in its own trace, and its result says why and has no probability."""
    with telemetry.tracer().start_as_current_span("request") as span:
        reference = answer("When?")
    assert outcomes() == {}
    record_feedback(reference, thumbs="down")
    assert flush()
    (event,) = health_events(telemetry)
    assert event["agenteval.sampling.reason"] == "feedback"
    assert "agenteval.sampling.probability" not in event
    runs = telemetry.spans("evaluation")
    assert {run.context.trace_id for run in runs} == {span.get_span_context().trace_id}
    assert len(runs) == 2
    assert outcomes() == {"evaluated": 1}


def test_what_is_not_complained_about_counts_as_not_sampled_in_the_end(
    telemetry: RecordedTelemetry,
) -> None:
    """Praise evaluates nothing; what the window lets go counts as the sampler said, each call once."""
    references = [answer("When?") for _ in range(5)]
    record_feedback(references[0], thumbs="up")
    record_feedback(references[1], score=0.2)
    record_feedback(references[1], thumbs="down")
    assert flush()
    assert outcomes() == {"evaluated": 1}
    assert shutdown(5.0)
    assert outcomes() == {"evaluated": 1, "not_sampled": 4}
    assert MEMORY.unsampled_calls.used_bytes == 0


def test_the_window_is_bounded(
    telemetry: RecordedTelemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no room the oldest calls go, and are counted."""
    monkeypatch.setattr(MEMORY.unsampled_calls, "max_bytes", 20_000)
    references = [answer("x" * 1_000) for _ in range(50)]
    let_go = outcomes()["not_sampled"]
    assert 0 < let_go < 50
    assert MEMORY.unsampled_calls.used_bytes <= 20_000
    record_feedback(references[0], thumbs="down")
    record_feedback(references[-1], thumbs="down")
    assert flush()
    assert len(health_events(telemetry)) == 1
    shutdown(5.0)
    assert sum(outcomes().values()) == 50


def test_streams_coroutines_and_errors_are_kept_too(telemetry: RecordedTelemetry) -> None:
    """Every kind of handler may be complained about, and one that raised."""
    references = []

    @monitor
    def stream() -> Iterator[str]:
        references.append(evaluation_reference())
        yield "It is "
        yield "due."

    @monitor
    async def coroutine() -> str:
        references.append(evaluation_reference())
        return "It is due."

    @monitor
    def failing() -> str:
        references.append(evaluation_reference())
        raise KeyError("x")

    assert list(stream()) == ["It is ", "due."]
    assert asyncio.run(coroutine()) == "It is due."
    with pytest.raises(KeyError):
        failing()
    for reference in references:
        record_feedback(reference, thumbs="down")
    assert flush()
    assert outcomes() == {"evaluated": 3}


def test_many_threads_complain_at_once(telemetry: RecordedTelemetry) -> None:
    """Calls, complaints and the window's end meet: every call has one outcome."""

    def work() -> None:
        for number in range(200):
            reference = answer("When?")
            if number % 3 == 0:
                record_feedback(reference, thumbs="down")
            if number % 50 == 0 and (kept := default_pipeline().unsampled_calls) is not None:
                kept.expire(all_of_them=True)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert flush(30.0)
    assert shutdown(10.0)
    assert sum(outcomes().values()) == 800
    assert outcomes()["evaluated"] > 0


def test_settings_that_change_let_the_window_go(telemetry: RecordedTelemetry) -> None:
    """Calls of a pipeline that is replaced are counted."""
    answer("When?")
    configure(storage=[telemetry.storage()], sample_rate=0.0)
    assert outcomes() == {"not_sampled": 1}

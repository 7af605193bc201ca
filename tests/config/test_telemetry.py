"""Telemetry is not storage: it is on by default, and what is stored neither ends it nor doubles it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agenteval_otel import Settings, configure, flush, monitor, shutdown
from agenteval_otel.config import build
from agenteval_otel.testing import RecordedTelemetry
from tests.telemetry.test_providers import set_globally

SECRET = "the prompt of a customer"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No provider and no endpoint."""
    for name in (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, bare: None) -> Iterator[RecordedTelemetry]:
    """An application with providers of its own."""
    recorded = RecordedTelemetry()
    set_globally(monkeypatch, recorded)
    yield recorded
    recorded.shutdown()


def _ask(**settings: Any) -> None:
    configure(**{"dispatcher": "inline", "sample_rate": 1.0, **settings})

    @monitor(agent="support")
    def handler(prompt: str) -> str:
        return f"Answer to {prompt}."

    handler(SECRET)
    assert flush(30.0)


def _in_file(path: Path) -> dict[str, Any]:
    (line,) = path.read_text().splitlines()
    actual: dict[str, Any] = json.loads(line)
    return actual


def test_a_file_does_not_end_telemetry(host: RecordedTelemetry, tmp_path: Path) -> None:
    """Results are in the file, and in spans, events and metrics as ever; without signals they are
    in the file.
    """
    storage = [{"type": "json_file", "path": str(tmp_path / "results.jsonl")}]
    _ask(storage=storage, telemetry={"signals": []})
    assert _in_file(tmp_path / "results.jsonl")["agent"] == "support"
    assert (host.events(), host.spans(), host.metrics()) == ([], [], set())
    _ask(storage=storage)
    assert (
        len(host.events())
        == len(host.spans("evaluation support"))
        == len(host.spans("invoke_agent support"))
        == 1
    )
    assert host.points("agenteval.evaluation.results")


@pytest.mark.parametrize(("end", "score"), [("background", 1.0), ("caller", None)])
def test_the_agent_span_carries_its_scores(
    bare: None, monkeypatch: pytest.MonkeyPatch, end: str, score: float | None
) -> None:
    """The agent span has the ready scores if it ends on the background thread, and none if it ends
    on the caller's.
    """
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    _ask(dispatcher="pool", agent_span_end=end)
    (own,) = (span for span in exporter.get_finished_spans() if span.name == "invoke_agent support")
    assert own.attributes is not None
    assert own.attributes.get("gen_ai.evaluation.response_health.score") == score
    assert own.attributes.get("gen_ai.evaluation.response_health.label") == (
        "pass" if score else None
    )
    shutdown(5.0)
    provider.shutdown()


def test_an_otlp_entry_emits_once(host: RecordedTelemetry, tmp_path: Path) -> None:
    """It replaces the process's telemetry and sends no second copy, alone and beside a file."""
    _ask(
        storage=[
            {"type": "otlp", "detail": "result"},
            {"type": "json_file", "path": str(tmp_path / "results.jsonl")},
        ]
    )
    assert len(host.events()) == len(host.spans("evaluation support")) == 1
    assert len(host.spans("evaluation response_health")) == 1
    (point,) = (
        item
        for item in host.points("agenteval.evaluation.results")
        if item.attributes["gen_ai.evaluation.score.label"] == "pass"
    )
    assert point.value == 1
    assert _in_file(tmp_path / "results.jsonl")["agent"] == "support"


def test_a_file_has_content_where_it_is_captured(
    bare: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the setting or the variable, without an otlp entry, provider or endpoint; by default it
    has none.
    """
    quiet, by_setting, by_variable = (
        tmp_path / f"{name}.jsonl" for name in ("quiet", "setting", "variable")
    )
    _ask(storage=[{"type": "json_file", "path": str(quiet)}])
    _ask(
        storage=[{"type": "json_file", "path": str(by_setting)}],
        telemetry={"content": "span_and_event"},
    )
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_AND_EVENT")
    _ask(storage=[{"type": "json_file", "path": str(by_variable)}])
    contents = [
        f"Answer to {SECRET}." in path.read_text() for path in (quiet, by_setting, by_variable)
    ]
    assert contents == [False, True, True]


def test_nobody_has_to_hear_that_stored_results_are_not_emitted(
    bare: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning is for results that nobody would see: neither in storage, nor by a callback of an
    objective.
    """

    def ask_alone(**settings: Any) -> None:
        # Handlers of other tests follow the process's pipeline until they are collected. The results
        # of one with evaluators of its own would be seen by nobody, and the warning be right.
        pipeline = build(Settings(dispatcher="inline", sample_rate=1.0, **settings))
        monitor(agent="support", pipeline=pipeline)(str.upper)(SECRET)
        assert pipeline.flush(30.0)
        assert pipeline.shutdown(5.0)

    ask_alone(storage=[{"type": "json_file", "path": str(tmp_path / "results.jsonl")}])
    ask_alone(
        criteria={"default": [{"name": "response_health", "objective": 0.9}]},
        on_breach=lambda crossing: None,
    )
    assert "no_telemetry" not in caplog.text
    ask_alone()
    assert caplog.text.count("no_telemetry") == 1

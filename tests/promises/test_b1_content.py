"""B1: content is off by default everywhere it could leak, and each opt-in releases exactly its own."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage
from opentelemetry import context as otel_context

from agenteval_otel import annotate, monitor
from agenteval_otel.engine.pipeline import InlineDispatcher
from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.models import EvaluationInput, Score
from agenteval_otel.storage import (
    ConsoleStorageProvider,
    JsonFileStorageProvider,
    OtlpStorageProvider,
)
from tests.promises.bench import pipeline_of
from tests.promises.figures import Recorder
from tests.promises.receiver import Receiver
from tests.testing.doubles import Fixed, Free, Thinking

VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
PLACES = (
    "prompt", "answer", "system", "tool arguments", "tool result", "document", "exception", "handler error", "baggage",
    "explanation", "label", "category", "reason code", "error type", "skip", "metadata", "file name", "storage",
    "capture", "ground truth", "tokens",
)  # fmt: skip
CANARY = {
    place: f"kanarienvögel {place} 4815162342{index:02d}" for index, place in enumerate(PLACES)
}


class Failing:
    """Storage that fails with what it was not asked to say."""

    async def save_result(self, aggregated: Any) -> None:
        raise OSError(CANARY["storage"])


def raising(error: Exception) -> Any:
    def action(*_: Any) -> Any:
        raise error

    return action


async def explain(evaluation_input: EvaluationInput) -> Score:
    await asyncio.sleep(0)
    return Score(
        value=0.25,
        label=CANARY["label"],
        reasoning=f"It says: {CANARY['explanation']}",
        reason_code=CANARY["reason code"],
        metadata={"quote": CANARY["metadata"]},
    )


def evaluators() -> tuple[Any, ...]:
    return (
        Thinking(criterion_name="judged", action=explain),
        Free(criterion_name="category", action=lambda _: Score(value=CANARY["category"])),
        Free(criterion_name="broken", action=raising(ValueError(CANARY["exception"]))),
        Fixed(
            criterion_name="typed",
            action=raising(EvaluationError("x", error_type=CANARY["error type"])),
        ),
        Free(criterion_name="skipping", action=raising(EvaluationSkipped(CANARY["skip"]))),
    )


def facts() -> dict[str, Any]:
    call = {
        "name": "look_up",
        "arguments": {"q": CANARY["tool arguments"]},
        "result": CANARY["tool result"],
    }
    return {
        "context": [{"text": CANARY["document"], "file": f"/srv/{CANARY['file name']}.pdf"}],
        "tool_calls": [call],
        "metadata": {"note": CANARY["metadata"]},
        "ground_truth": CANARY["ground truth"],
        "usage": CANARY["tokens"],
    }


def run(endpoint: str, path: Path, **storage: Any) -> None:
    """Answer, raise and break once each, with a canary in every place, and deliver everything."""
    otlp = OtlpStorageProvider(
        endpoint=endpoint, protocol="http/protobuf", detail="result", **storage
    )
    providers = (otlp, JsonFileStorageProvider(path=path), ConsoleStorageProvider(), Failing())
    pipeline = pipeline_of(*evaluators(), storage=providers, dispatcher=InlineDispatcher())

    @monitor(pipeline=pipeline, agent="support")
    def handler(messages: list[dict[str, str]]) -> str:
        annotate(**facts())
        return f"answer: {CANARY['answer']}"

    @monitor(pipeline=pipeline, agent="support")
    def breaking(messages: list[dict[str, str]]) -> str:
        raise RuntimeError(CANARY["handler error"])

    @monitor(pipeline=pipeline, agent="support", capture=raising(ValueError(CANARY["capture"])))
    def uncaptured(messages: list[dict[str, str]]) -> str:
        return "fine"

    messages = [
        {"role": "system", "content": CANARY["system"]},
        {"role": "user", "content": CANARY["prompt"]},
    ]
    token = otel_context.attach(baggage.set_baggage("note", CANARY["baggage"]))
    try:
        handler(messages)
        with pytest.raises(RuntimeError):
            breaking(messages)
        uncaptured(messages)
    finally:
        otel_context.detach(token)
    assert not pipeline.flush(10.0), "one of the providers cannot save"
    pipeline.shutdown(10.0)


def forms_of(text: str) -> list[bytes]:
    """How a text can stand in bytes: as it is, escaped, and in base64 from any of three positions."""
    raw = text.encode()
    forms = [raw, json.dumps(text)[1:-1].encode(), json.dumps(json.dumps(text))[3:-3].encode()]
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + raw)
        forms.append(encoded[4:-4])
    return [*forms, *(form.translate(bytes.maketrans(b"+/", b"-_")) for form in forms[3:])]


def canaries_in(data: bytes) -> set[str]:
    return {place for place, text in CANARY.items() if any(form in data for form in forms_of(text))}


@pytest.fixture
def out(receiver: Receiver, tmp_path: Path, capfd: Any, caplog: Any) -> Any:
    """Runs everything and gives, for each way out, the canaries that took it."""

    def leaks(**storage: Any) -> dict[str, set[str]]:
        path = tmp_path / "results.jsonl"
        with caplog.at_level(logging.DEBUG):
            run(receiver.endpoint, path, **storage)
        shown = capfd.readouterr()
        logged = "\n".join(
            f"{record.getMessage()} {record.__dict__!r}" for record in caplog.records
        )
        ways = {
            name.rpartition("/")[2]: b"\n".join(bodies) for name, bodies in receiver.bodies.items()
        }
        assert all(ways.values()), "each signal arrived"
        assert path.read_bytes().count(b"\n") == 2
        ways |= {
            "file": path.read_bytes(),
            "console": (shown.out + shown.err).encode(),
            "log": logged.encode(),
        }
        return {name: canaries_in(data) for name, data in ways.items()}

    return leaks


def test_the_search_finds_every_form() -> None:
    """A canary is found raw, escaped once and twice, and in base64 wherever it begins."""
    text = CANARY["prompt"]
    packed = [base64.b64encode(b"x" * shift + text.encode() + b"tail") for shift in range(7)]
    for data in (
        text.encode(),
        json.dumps({"a": text}).encode(),
        json.dumps(json.dumps([text])).encode(),
        *packed,
    ):
        assert canaries_in(data) == {"prompt"}
    assert canaries_in(b"nothing") == set()


def test_nothing_leaks_by_default(out: Any, promise: Recorder) -> None:
    """No canary of any place is found in any signal, file, console or log line."""
    result = out()
    assert {way: places for way, places in result.items() if places} == {}
    promise("B1", figure=f"defaults: {len(PLACES)} canaries, {len(result)} ways out, 0 found")


SPAN, EVENT = {"prompt", "answer"}, {"explanation"}
SAVED = set(PLACES) - {
    "handler error",
    "baggage",
    "storage",
    "capture",
    "tokens",
    "label",
    "category",
    "reason code",
    "error type",
}


@pytest.mark.parametrize(
    ("content", "traces", "logs"),
    [("span_only", SPAN, set()), ("event_only", set(), EVENT), ("span_and_event", SPAN, EVENT)],
)
@pytest.mark.parametrize("by_variable", [False, True])
def test_each_opt_in_releases_its_own(
    out: Any,
    monkeypatch: Any,
    content: str,
    traces: set[str],
    logs: set[str],
    by_variable: bool,
    promise: Recorder,
) -> None:
    """Spans get prompt and answer, events the explanation; what is stored is whole; logs and
    metrics get no text.
    """
    if by_variable:
        monkeypatch.setenv(VARIABLE, content.upper())
    result = out(**({} if by_variable else {"content": content}))
    assert result["traces"] == traces
    assert result["logs"] == logs
    assert result["file"] <= SAVED
    assert result["file"] >= {
        "prompt",
        "answer",
        "system",
        "tool arguments",
        "tool result",
        "document",
        "explanation",
    }
    assert result["metrics"] == result["log"] == result["console"] == set()
    promise("B1", figure="each opt-in: its own canaries and no other")

"""C1: a background thread that was held up, replaced and comes back: each answer has one outcome,
and what was emitted of it matches that outcome.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk._logs import LogRecordProcessor
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from pydantic import Field

from agenteval_otel import annotate, monitor
from agenteval_otel.engine.capabilities.forwarding import Forwarding
from agenteval_otel.engine.capability import Capability, Host
from agenteval_otel.engine.pipeline import Pipeline, PoolDispatcher
from agenteval_otel.engine.task import Task
from agenteval_otel.evaluators import Func
from agenteval_otel.models import EvaluationInput, Score
from agenteval_otel.redaction import Redactor
from agenteval_otel.runtime.reentrancy import PROCESS
from agenteval_otel.semconv import CONVERSATION_ID
from agenteval_otel.storage import OtlpStorageProvider
from agenteval_otel.telemetry.forward import EventStream, SidecarAddress
from agenteval_otel.testing import RecordedTelemetry
from tests.pipeline.support import eventually
from tests.promises.bench import pipeline_of
from tests.promises.figures import Recorder
from tests.promises.receiver import Receiver
from tests.promises.sidecars import of_events
from tests.testing.doubles import Keeping

HELD = "held"
REASONING = "held at its reasoning"
STALL_S = 0.5
IN_A_LIST = 32
ONE_FAILED = {"evaluated": 1, "pipeline_failed": 1}


class Gate:
    """Holds the thread that comes first, until the test lets it go."""

    def __init__(self) -> None:
        self.reached, self.leave = threading.Event(), threading.Event()
        self._turns = Counter[str]()
        self.thread: threading.Thread | None = None

    def hold(self) -> None:
        self._turns["all"] += 1
        if self._turns["all"] == 1:
            self.thread = threading.current_thread()
            self.reached.set()
            self.leave.wait(20.0)

    def open(self) -> None:
        """Let the thread go on, and wait for its end."""
        self.leave.set()
        assert self.thread is not None
        self.thread.join(10.0)
        assert not self.thread.is_alive()


class HoldingRedactor(Redactor, type="holding_once"):
    gate: Any = Field(exclude=True)
    at: str = HELD

    def redact(self, text: str) -> str:
        if text == self.at:
            self.gate.hold()
        return text


class HoldingSpans(SpanProcessor):
    """The application's span processor, which is held up at the end of the run span."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def on_end(self, span: ReadableSpan) -> None:
        if span.name == "evaluation held":
            self._gate.hold()


class HoldingLogs(LogRecordProcessor):
    """The application's log processor, which is held up at an event."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def on_emit(self, log_record: Any) -> None:
        if log_record.log_record.attributes.get(CONVERSATION_ID) == HELD:
            self._gate.hold()

    def shutdown(self) -> None:
        """Nothing is held."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


class HoldingStorage(Keeping):
    """A storage provider that is held up, with the thread, at its first result."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate

    async def save_result(self, aggregated: Any) -> None:
        if aggregated.conversation_id == HELD:
            self._gate.hold()
        await super().save_result(aggregated)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.leave.set()


def is_right(evaluation_input: EvaluationInput) -> bool:
    return True


def answering(pipeline: Pipeline, agent: str) -> Callable[[str], str]:
    """A handler whose conversation is its answer: so results are told apart."""

    @monitor(pipeline=pipeline, agent=agent)
    def answer(text: str) -> str:
        annotate(conversation_id=text)
        return text

    return answer


def evaluating(*storage: Any, stall_s: float = STALL_S, **settings: Any) -> Pipeline:
    """A pipeline whose thread is replaced soon after it is held up."""
    dispatcher = PoolDispatcher(stall_s=stall_s)
    return pipeline_of(Func.of(is_right), storage=storage, dispatcher=dispatcher, **settings)


def hold_one_of_two(pipeline: Pipeline, gate: Gate, answer: Callable[[str], str]) -> None:
    """Have an answer held up, and evaluate the one behind it by the next thread."""
    answer(HELD)
    assert gate.reached.wait(10)
    answering(pipeline, "others")("behind")
    assert pipeline.dispatcher.flush(10)
    assert outcomes_of(pipeline) == ONE_FAILED


def is_replaced(pipeline: Pipeline) -> bool:
    return pipeline.accounting.failures.get("background_thread") == 1


def emitted(telemetry: RecordedTelemetry) -> Counter[Any]:
    """How often each answer's result was emitted."""
    return Counter((event.attributes or {}).get(CONVERSATION_ID) for event in telemetry.events())


def outcomes_of(pipeline: Pipeline) -> dict[str, int]:
    return {name: count for name, count in pipeline.accounting.outcomes().items() if count}


def test_held_in_a_redactor(telemetry: RecordedTelemetry, gate: Gate, promise: Recorder) -> None:
    """The answer failed, the ones behind it are evaluated by the next thread; the thread that comes
    back emits nothing.
    """
    pipeline = evaluating(telemetry.storage(), redactors=(HoldingRedactor(gate=gate),))
    hold_one_of_two(pipeline, gate, answering(pipeline, "held"))
    gate.open()
    assert emitted(telemetry) == {"behind": 1}
    assert outcomes_of(pipeline) == ONE_FAILED
    assert pipeline.accounting.results["scored"] == 1
    pipeline.shutdown(5.0)
    promise("C1", figure="held in a redactor: 1 pipeline_failed, 0 results of it emitted")


@pytest.mark.parametrize("where", ["run span", "event"])
def test_held_in_a_provider_of_the_application(
    where: str, telemetry: RecordedTelemetry, gate: Gate, promise: Recorder
) -> None:
    """Its result is on the way: the answer stays with its thread, and is evaluated and saved once
    that one comes back.
    """
    if where == "event":
        telemetry.logger_provider.add_log_record_processor(HoldingLogs(gate))
    else:
        telemetry.tracer_provider.add_span_processor(HoldingSpans(gate))
    kept = Keeping()
    pipeline = evaluating(telemetry.storage(), kept)
    answering(pipeline, "held")(HELD)
    assert gate.reached.wait(10)
    assert eventually(lambda: is_replaced(pipeline))
    answering(pipeline, "others")("behind")
    assert eventually(lambda: outcomes_of(pipeline) == {"evaluated": 1})
    assert not pipeline.dispatcher.flush(0.01), "the held answer is not settled yet"
    gate.open()
    assert pipeline.dispatcher.flush(10)
    assert outcomes_of(pipeline) == {"evaluated": 2}
    assert emitted(telemetry) == {HELD: 1, "behind": 1}
    assert Counter(saved.conversation_id for saved in kept.saved) == {HELD: 1, "behind": 1}
    assert pipeline.accounting.results["scored"] == 2
    pipeline.shutdown(5.0)
    promise("C1", figure=f"held in the application's processor ({where}): 2 evaluated, 2 emitted")


@pytest.mark.parametrize("where", ["storage", "redactor"])
def test_held_after_a_list_was_sent(
    where: str,
    receiver: Receiver,
    gate: Gate,
    promise: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a list all results are sent together, and what saves the first one holds the
    thread: all are evaluated, none is sent or saved again.
    """
    monkeypatch.setattr(PROCESS, "rests", False)  # as in a sidecar, which sends lists together
    submitted = threading.Event()

    def waits(evaluation_input: EvaluationInput) -> Score:
        if evaluation_input.response_text == "first":
            submitted.wait(20.0)
        is_held = where == "redactor" and evaluation_input.response_text == HELD
        return Score(value=True, reasoning=REASONING if is_held else "right")

    kept = HoldingStorage(gate) if where == "storage" else Keeping()
    pipeline = pipeline_of(
        Func.of(waits, execution="inline"),
        # Of content only the reasoning is redacted later: with what is stored.
        storage=(
            OtlpStorageProvider(
                endpoint=receiver.endpoint, protocol="http/protobuf", content="span_only"
            ),
            kept,
        ),
        redactors=(HoldingRedactor(gate=gate, at=REASONING),) if where == "redactor" else (),
        agent_span_end="caller",  # else each emission waits for its span, and is sent alone
        dispatcher=PoolDispatcher(stall_s=STALL_S),
    )
    answer = answering(pipeline, "agent")
    answer("warm")  # its providers are known from now on
    assert pipeline.dispatcher.flush(10)
    answer("first")
    behind = [f"behind-{number}" for number in range(IN_A_LIST - 1)]
    calls = 2 + IN_A_LIST
    for text in (HELD, *behind):
        answer(text)
    submitted.set()
    assert gate.reached.wait(10)
    assert pipeline.dispatcher.flush(10)
    assert outcomes_of(pipeline) == {"evaluated": calls}
    gate.open()
    pipeline.shutdown(5.0)
    sent = Counter(of_events(receiver, CONVERSATION_ID))
    assert sent == dict.fromkeys(["warm", "first", HELD, *behind], 1)
    assert outcomes_of(pipeline) == {"evaluated": calls}
    assert pipeline.accounting.results["scored"] == calls
    saved = Counter(item.conversation_id for item in kept.saved if item.conversation_id != HELD)
    assert saved == dict.fromkeys(["warm", "first", *behind], 1)
    promise(
        "C1",
        figure=f"held by {where} after a list was sent: {calls} sent, {calls} evaluated, 0 failed",
    )


class Hearing(Capability):
    """Notes each answer of which it hears."""

    def __init__(self, host: Host) -> None:
        self.heard: list[str] = []

    def on_answer(self, task: Task, evaluation_input: EvaluationInput) -> bool:
        self.heard.append(evaluation_input.response_text)
        return True


def test_held_in_capture(telemetry: RecordedTelemetry, gate: Gate, promise: Recorder) -> None:
    """The answer failed, and no capability hears of it from the thread that comes back with it."""
    pipeline = evaluating(telemetry.storage(), capabilities=(Hearing,))

    def captured(arguments: object, answer: str) -> dict[str, str]:
        if answer == HELD:
            gate.hold()
        return {"tenant": "north"}

    @monitor(pipeline=pipeline, agent="held", capture=captured)
    def answer(text: str) -> str:
        return text

    hold_one_of_two(pipeline, gate, answer)
    gate.open()
    hearing = pipeline.capabilities.of(Hearing)
    assert hearing is not None
    assert hearing.heard == ["behind"]
    assert outcomes_of(pipeline) == ONE_FAILED
    pipeline.shutdown(5.0)
    promise("C1", figure="held in capture: 1 pipeline_failed, and no capability hears of it")


def test_held_before_it_is_sent_to_a_sidecar(
    receiver: Receiver, gate: Gate, promise: Recorder
) -> None:
    """The answer failed, and is not sent by the thread that comes back with it."""
    # What crosses a network is redacted before, so this sidecar is not told to be local.
    events = EventStream(SidecarAddress(receiver.endpoint, is_http=True, is_local=False))
    pipeline = pipeline_of(
        redactors=(HoldingRedactor(gate=gate),),
        capabilities=(Forwarding.made_by(events),),
        dispatcher=PoolDispatcher(stall_s=STALL_S),
    )
    answering(pipeline, "held")(HELD)
    assert gate.reached.wait(10)
    answering(pipeline, "others")("behind")
    assert pipeline.flush(10)
    assert outcomes_of(pipeline) == {"sent": 1, "pipeline_failed": 1}
    gate.open()
    assert pipeline.flush(10)
    assert outcomes_of(pipeline) == {"sent": 1, "pipeline_failed": 1}
    assert len(receiver.events()) == 1
    pipeline.shutdown(5.0)
    promise("C1", figure="held before it is sent to a sidecar: 1 pipeline_failed, not sent")


def test_shut_down_while_held(telemetry: RecordedTelemetry, gate: Gate, promise: Recorder) -> None:
    """What a shutdown counted as dropped is not emitted afterwards."""
    redactors = (HoldingRedactor(gate=gate),)
    pipeline = evaluating(telemetry.storage(), redactors=redactors, stall_s=60.0)
    answering(pipeline, "held")(HELD)
    assert gate.reached.wait(10)
    assert not pipeline.shutdown(0.2)
    assert outcomes_of(pipeline) == {"dropped_shutdown": 1}
    gate.open()
    assert emitted(telemetry) == {}
    assert outcomes_of(pipeline) == {"dropped_shutdown": 1}
    promise("C1", figure="shut down while held: 1 dropped_shutdown, 0 results of it emitted")

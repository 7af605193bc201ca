"""An answer as an event for the sidecar, and back: nothing of the input is lost on the way."""

from __future__ import annotations

import asyncio
import json
import string
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from agenteval_otel import EvaluationInput
from agenteval_otel.capture.spans.forwarded import ForwardedAnswer, attributes_of
from agenteval_otel.capture.spans.span import event_of_log
from agenteval_otel.models import MemoryStats, Message, ToolCall, Usage
from agenteval_otel.models.inputs import RunStep
from agenteval_otel.models.scoring.probability import Sampled
from agenteval_otel.telemetry.forward import EventStream, SidecarAddress
from agenteval_otel.telemetry.target import SendOutcome

SAMPLED = Sampled(0.25, "rule", (1 << 64) - 1, 0.5, True, True, 0.125)

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
NUMBERS = st.integers(-(1 << 64), 1 << 64) | st.floats(allow_nan=False)
DATA = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXTS, DATA, max_size=3)
NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=8)
SECONDS = st.floats(0, 1e6)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


CALLS = st.builds(
    ToolCall,
    name=TEXTS,
    arguments=DATA,
    result=DATA,
    id=maybe(TEXTS),
    error=maybe(TEXTS),
    duration_s=maybe(SECONDS),
)
MESSAGES = st.builds(
    lambda extra, **known: Message(**{**extra, **known}),
    extra=st.dictionaries(NAMES.map("x_{}".format), DATA, max_size=2),
    role=st.sampled_from(["user", "tool", "ai", ""]),
    content=maybe(TEXTS),
    id=maybe(TEXTS),
    content_parts=maybe(st.lists(OBJECTS, max_size=2)),
    tool_call_id=maybe(TEXTS),
    tool_name=maybe(TEXTS),
    tool_calls=maybe(st.lists(CALLS, max_size=2)),
)
COUNTS = maybe(st.integers(-(1 << 63), 1 << 63))
STEPS = st.builds(
    RunStep,
    kind=st.sampled_from(["agent", "model", "retrieval", "tool"]),
    name=maybe(TEXTS),
    parent=maybe(st.integers(0, 3)),
    began_s=maybe(SECONDS),
    usage=maybe(st.builds(Usage, input_tokens=COUNTS)),
    query=maybe(TEXTS),
)
INPUTS = st.builds(
    EvaluationInput,
    response=DATA,
    prompt=maybe(TEXTS),
    context=maybe(OBJECTS),
    ground_truth=DATA,
    agent_config=maybe(OBJECTS | st.fixed_dictionaries({"tools": DATA}, optional={"more": DATA})),
    message_history=maybe(st.lists(MESSAGES, max_size=3)),
    timestamp=maybe(SECONDS),
    session_id=maybe(TEXTS),
    conversation_ends=maybe(st.booleans()),
    agent_id=maybe(TEXTS),
    metadata=maybe(OBJECTS),
    agent=maybe(TEXTS),
    tool_calls=maybe(st.lists(CALLS, max_size=3)),
    usage=maybe(
        st.builds(
            Usage,
            input_tokens=COUNTS,
            output_tokens=COUNTS,
            cache_read_tokens=COUNTS,
            cache_write_tokens=COUNTS,
        )
    ),
    cost=maybe(SECONDS),
    duration_s=maybe(SECONDS),
    turns=maybe(st.integers(0, 99)),
    memory_stats=maybe(
        st.builds(MemoryStats, keys=maybe(st.integers(0, 9)), oldest=maybe(TEXTS | SECONDS))
    ),
    response_id=maybe(TEXTS),
    conversation_id=maybe(TEXTS),
    steps=maybe(st.lists(STEPS, max_size=3)),
    model=maybe(TEXTS),
    finish_reason=maybe(TEXTS),
    error_type=maybe(TEXTS),
    stream_end=st.sampled_from([None, "completed", "error", "abandoned"]),
    prompt_name=maybe(TEXTS),
    prompt_version=maybe(TEXTS),
    user_id=maybe(TEXTS),
    environment=maybe(TEXTS),
    service=maybe(TEXTS),
    tags=maybe(st.dictionaries(NAMES, TEXTS, max_size=2)),
)


class Sidecar:
    """The address of a sidecar that keeps the requests, and their sender."""

    endpoint, is_local = "http://sidecar", True

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def sender(self, signal: object) -> Any:
        return self

    def send(self, body: bytes) -> SendOutcome:
        self.bodies.append(body)
        return SendOutcome(True, "200")

    def close(self) -> None: ...


class Wire:
    """Sends an answer as an application does, and reads it as the sidecar does."""

    def __init__(self) -> None:
        self._sidecar = Sidecar()
        self.stream = EventStream(cast(SidecarAddress, self._sidecar))

    def received(self, attributes: dict[str, Any]) -> ForwardedAnswer:
        self.stream.put("agent", attributes, None, 17)
        assert self.stream.flush(30.0)
        request = ExportLogsServiceRequest.FromString(self._sidecar.bodies.pop())
        (record,) = request.resource_logs[0].scope_logs[0].log_records
        return ForwardedAnswer(0, 0, 0, event_of_log(record), {})

    def passed(self, value: EvaluationInput, sampled: Sampled) -> tuple[EvaluationInput, Sampled]:
        return self.received(attributes_of(value, sampled)).read()


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    made = Wire()
    yield made
    asyncio.run(made.stream.close())


@settings(max_examples=100, deadline=None)
@given(INPUTS)
def test_an_input_is_the_same_on_the_other_side(wire: Wire, value: EvaluationInput) -> None:
    """Every field, of any content, comes back equal; and so does how it was sampled."""
    read, sampled = wire.passed(value, SAMPLED)
    assert read == value
    assert sampled == SAMPLED


def test_messages_have_the_form_of_the_conventions() -> None:
    """Roles, parts and the calls' results are where a reader of the conventions looks for them."""
    value = EvaluationInput(
        prompt="When?",
        response="At nine.",
        finish_reason="stop",
        usage=Usage(input_tokens=3, output_tokens=5),
        agent_config={"tools": [{"name": "clock"}], "mode": "brief"},
        message_history=[
            Message(role="user", content="When?"),
            Message(
                role="assistant",
                tool_calls=[ToolCall(name="clock", id="c1", arguments={"zone": "UTC"})],
            ),
            Message(role="tool", content="9:00", tool_call_id="c1"),
        ],
    )
    attributes = attributes_of(value, SAMPLED)
    assert json.loads(str(attributes["gen_ai.input.messages"])) == [
        {"role": "user", "parts": [{"type": "text", "content": "When?"}]},
        {
            "role": "assistant",
            "parts": [
                {"type": "tool_call", "id": "c1", "name": "clock", "arguments": {"zone": "UTC"}},
            ],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "9:00"}]},
    ]
    assert json.loads(str(attributes["gen_ai.output.messages"])) == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": "At nine."}],
            "finish_reason": "stop",
        },
    ]
    assert attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert (attributes["gen_ai.usage.input_tokens"], attributes["gen_ai.usage.output_tokens"]) == (
        3,
        5,
    )
    assert json.loads(str(attributes["gen_ai.tool.definitions"])) == [{"name": "clock"}]


@pytest.mark.parametrize(
    "broken",
    [
        {"agenteval.input": "{"},
        {"agenteval.input": '{"turns": "many"}'},
        {"agenteval.input": "[]"},
        {"agenteval.input": '{"unheard_of": 1}'},
        {"gen_ai.output.messages": '[{"role": "assistant"}]'},
        {"agenteval.sampling.decision": "{}"},
        {"agenteval.sampling.decision": '{"randomness": "x"}'},
        {"gen_ai.usage.input_tokens": "three"},
    ],
)
def test_an_event_that_is_none_of_ours_is_refused(wire: Wire, broken: dict[str, Any]) -> None:
    """What anyone can send to the port raises, and never becomes another answer."""
    attributes = {**attributes_of(EvaluationInput(response="x"), SAMPLED), **broken}
    answer = wire.received(attributes)
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        answer.read()


def test_a_probability_that_is_none_is_unknown(wire: Wire) -> None:
    """A sender cannot give an answer a weight of zero, of less, or of infinity."""
    for wrong in (0.0, -1.0, 2.0, True, "0.5"):
        sent: Any = Sampled(wrong, None, 1)  # type: ignore[arg-type]
        _, sampled = wire.passed(EvaluationInput(response="x"), sent)
        assert sampled.probability is None

"""Span mappers: reading a trace of five spans (an agent, two model calls, two tools, 2 KB of
content), by dialect, from OTLP messages to the evaluation input."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from benchmarks.goals import at_most
from benchmarks.harness import Bench, Figure, Numbers, Phase, Size, standalone

if TYPE_CHECKING:
    from agenteval_otel.models import EvaluationInput

__all__ = ["ANSWER", "BENCH", "QUESTION", "RESULT", "gen_ai", "request"]

_LIMIT_US = 100.0
QUESTION = "Which of our parcels to Paris are late, and why? " * 6
RESULT = "Parcel 4711 waits at the customs since Monday, because its papers are missing. " * 8
ANSWER = (
    "One parcel is late: 4711 has been waiting at the customs since Monday for its papers. " * 7
)
_SYSTEM = "You answer questions about parcels, briefly and only from what the tools say. " * 2
_TOOL = {
    "type": "function",
    "name": "find_parcels",
    "description": "Parcels by city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
_CALLS = [("call_1", "find_parcels"), ("call_2", "find_reasons")]
_ARGUMENTS = {"city": "Paris"}
Attributes = dict[str, Any]


def _parts(role: str, *parts: Attributes, **more: Any) -> Attributes:
    return {"role": role, "parts": list(parts), **more}


def _text(content: str) -> Attributes:
    return {"type": "text", "content": content}


def gen_ai(
    question: str = QUESTION, result: str = RESULT, answer: str = ANSWER
) -> list[Attributes]:
    """The attributes of the five spans in the GenAI conventions: agent, two models, two tools."""
    calls = [
        {"type": "tool_call", "id": id, "name": name, "arguments": _ARGUMENTS}
        for id, name in _CALLS
    ]
    results = [{"type": "tool_call_response", "id": id, "response": result} for id, _ in _CALLS]
    before = [_parts("system", _text(_SYSTEM)), _parts("user", _text(question))]
    answers = [
        _parts("assistant", *calls, finish_reason="tool_call"),
        _parts("assistant", _text(answer), finish_reason="stop"),
    ]
    messages = [before, [*before, answers[0], _parts("tool", *results)]]
    model = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5-mini",
        "gen_ai.response.model": "gpt-5-mini",
        "server.port": 443,
        "gen_ai.usage.input_tokens": 900,
        "gen_ai.usage.output_tokens": 90,
        "gen_ai.tool.definitions": json.dumps([_TOOL]),
    }
    return [
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "parcels",
            "gen_ai.input.messages": json.dumps(before[1:]),
            "gen_ai.output.messages": json.dumps(answers[1:]),
        },
        *(
            {
                **model,
                "gen_ai.response.id": f"response-{index}",
                "gen_ai.response.finish_reasons": [answers[index]["finish_reason"]],
                "gen_ai.input.messages": json.dumps(messages[index]),
                "gen_ai.output.messages": json.dumps([answers[index]]),
            }
            for index in range(2)
        ),
        *(
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": name,
                "gen_ai.tool.call.id": id,
                "gen_ai.tool.call.arguments": json.dumps(_ARGUMENTS),
                "gen_ai.tool.call.result": result,
            }
            for id, name in _CALLS
        ),
    ]


def _logfire() -> list[Attributes]:
    others = gen_ai()[1:]
    first, last = (
        json.loads(others[1]["gen_ai.input.messages"]),
        json.loads(others[1]["gen_ai.output.messages"]),
    )
    return [
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "parcels",
            "final_result": ANSWER,
            "pydantic_ai.all_messages": json.dumps(first + last),
        },
        *others,
    ]


def _openllmetry() -> list[Attributes]:
    _, *models, tool, other_tool = gen_ai()
    tools = [
        {
            "traceloop.span.kind": "tool",
            "traceloop.entity.name": tool["gen_ai.tool.name"],
            "traceloop.entity.input": json.dumps({"args": [], "kwargs": _ARGUMENTS}),
            "traceloop.entity.output": json.dumps(RESULT),
        }
        for tool in (tool, other_tool)
    ]
    agent = {
        "traceloop.span.kind": "agent",
        "traceloop.entity.name": "parcels",
        "traceloop.entity.input": json.dumps({"args": [QUESTION], "kwargs": {}}),
        "traceloop.entity.output": json.dumps(ANSWER),
        "traceloop.association.properties.tenant": "acme",
    }
    return [agent, *models, *tools]


def _openinference() -> list[Attributes]:
    def spread(side: str, messages: list[Attributes]) -> Attributes:
        prefix = f"llm.{side}_messages"
        return {
            f"{prefix}.{index}.{key}": value
            for index, message in enumerate(messages)
            for key, value in message.items()
        }

    def message(role: str, content: str | None = None, **more: Any) -> Attributes:
        text = {} if content is None else {"message.content": content}
        return {
            "message.role": role,
            **text,
            **{f"message.{key}": value for key, value in more.items()},
        }

    called = message("assistant")
    for index, (id, name) in enumerate(_CALLS):
        place = f"message.tool_calls.{index}.tool_call"
        called |= {
            f"{place}.id": id,
            f"{place}.function.name": name,
            f"{place}.function.arguments": json.dumps(_ARGUMENTS),
        }
    before = [message("system", _SYSTEM), message("user", QUESTION)]
    after = [called, *(message("tool", RESULT, tool_call_id=id) for id, _ in _CALLS)]
    model = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "gpt-5-mini",
        "llm.token_count.prompt": 900,
        "llm.token_count.completion": 90,
        "llm.tools.0.tool.json_schema": json.dumps(_TOOL),
    }
    return [
        {
            "openinference.span.kind": "AGENT",
            "agent.name": "parcels",
            "input.value": QUESTION,
            "output.value": ANSWER,
        },
        {
            **model,
            "llm.finish_reason": "tool_calls",
            **spread("input", before),
            **spread("output", [called]),
        },
        {
            **model,
            "llm.finish_reason": "stop",
            **spread("input", [*before, *after]),
            **spread("output", [message("assistant", ANSWER)]),
        },
        *(
            {
                "openinference.span.kind": "TOOL",
                "tool.name": name,
                "input.value": json.dumps(_ARGUMENTS),
                "input.mime_type": "application/json",
                "output.value": RESULT,
            }
            for _, name in _CALLS
        ),
    ]


def _vercel_ai() -> list[Attributes]:
    calls = [
        {"type": "tool-call", "toolCallId": id, "toolName": name, "input": _ARGUMENTS}
        for id, name in _CALLS
    ]
    results = [
        {
            "type": "tool-result",
            "toolCallId": id,
            "toolName": name,
            "output": {"type": "text", "value": RESULT},
        }
        for id, name in _CALLS
    ]
    before: list[Attributes] = [
        {"role": "system", "content": _SYSTEM},
        {"role": "user", "content": QUESTION},
    ]
    after = [{"role": "assistant", "content": calls}, {"role": "tool", "content": results}]
    model = {
        "ai.operationId": "ai.generateText.doGenerate",
        "ai.model.id": "gpt-5-mini",
        "ai.usage.inputTokens": 900,
        "ai.usage.outputTokens": 90,
        "ai.prompt.tools": [json.dumps(_TOOL)],
    }
    return [
        {
            "ai.operationId": "ai.generateText",
            "ai.telemetry.functionId": "parcels",
            "ai.response.text": ANSWER,
            "ai.prompt": json.dumps({"system": _SYSTEM, "prompt": QUESTION}),
            "ai.telemetry.metadata.tenant": "acme",
        },
        {
            **model,
            "ai.response.finishReason": "tool-calls",
            "ai.prompt.messages": json.dumps(before),
            "ai.response.toolCalls": json.dumps(calls),
        },
        {
            **model,
            "ai.response.finishReason": "stop",
            "ai.prompt.messages": json.dumps([*before, *after]),
            "ai.response.text": ANSWER,
        },
        *(
            {
                "ai.operationId": "ai.toolCall",
                "ai.toolCall.name": name,
                "ai.toolCall.id": id,
                "ai.toolCall.args": json.dumps(_ARGUMENTS),
                "ai.toolCall.result": json.dumps(RESULT),
            }
            for id, name in _CALLS
        ),
    ]


_DIALECTS = {
    "gen_ai": ("opentelemetry.instrumentation.genai.openai", gen_ai),
    "logfire": ("pydantic-ai", _logfire),
    "openinference": ("openinference.instrumentation.openai", _openinference),
    "openllmetry": ("opentelemetry.instrumentation.openai.v1", _openllmetry),
    "vercel_ai": ("ai", _vercel_ai),
}


def request(scope: str, spans: list[Attributes]) -> bytes:
    """A trace as one OTLP request; the agent's span comes first."""
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.trace import set_span_in_context

    provider, exporter = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer(scope, "1.0")
    agent = tracer.start_span("agent", attributes=spans[0])
    for attributes in spans[1:]:
        tracer.start_span("below", set_span_in_context(agent), attributes=attributes).end()
    agent.end()
    ended: tuple[ReadableSpan, ...] = exporter.get_finished_spans()
    return encode_spans(ended).SerializeToString()


def _traces(size: Size) -> Numbers:
    """Microseconds of CPU a trace: decoding the request into spans, reading the answer, and reading
    it with what is read when something looks at it; the least of several rounds.
    """
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    from agenteval_otel.capture.spans.span import spans_of_otlp
    from agenteval_otel.mappers import read_trace

    repeats = size.of(50, 400)
    numbers = {}
    for name, (scope, attributes) in _DIALECTS.items():
        body = request(scope, attributes())
        decode, read, look = float("inf"), float("inf"), float("inf")
        for _ in range(size.of(2, 9)):
            began = time.thread_time()
            for _ in range(repeats):
                spans = list(
                    spans_of_otlp(ExportTraceServiceRequest.FromString(body).resource_spans)
                )
            decoded = time.thread_time()
            for _ in range(repeats):
                read_trace(spans)
            mapped = time.thread_time()
            for _ in range(repeats):
                [answer] = read_trace(spans).answers
                _check(name, answer.input)
            ended = time.thread_time()
            decode = min(decode, (decoded - began) / repeats)
            read = min(read, (mapped - decoded) / repeats)
            look = min(look, (ended - mapped) / repeats)
        numbers |= {f"{name}, decoded": decode * 1e6, f"{name}, mapped": read * 1e6}
        numbers[f"{name}, mapped and all looked at"] = look * 1e6
    return numbers


def _check(name: str, evaluation_input: EvaluationInput) -> None:
    """The whole answer is read, with the tool calls that the first model's messages have."""
    assert evaluation_input.prompt == QUESTION, f"{name}: the question is not read"
    assert evaluation_input.message_history, f"{name}: the history is not read"
    calls = [
        (call.id, call.name, call.arguments, call.result)
        for call in evaluation_input.tool_calls or ()
    ]
    made = [(id, tool, _ARGUMENTS, RESULT) for id, tool in _CALLS]
    assert evaluation_input.response == ANSWER, f"{name}: the answer is not read"
    assert calls == made, f"{name}: the tool calls are not read"


def _figures(measured: dict[str, Numbers]) -> list[Figure]:
    numbers = dict(measured["trace:ours"])
    return [
        Figure(f"a trace of 5 spans, {kind}", "us", {"ours": taken}, at_most(taken, _LIMIT_US))
        for kind, taken in numbers.items()
    ]


BENCH = Bench(
    "mappers",
    "Span mappers: a trace of five spans",
    (Phase("trace", "ours", _traces),),
    _figures,
    rounds=3,
)

if __name__ == "__main__":
    standalone(BENCH)

"""Streams of front ends and answers of further clients: text of the answer alone, calls, usage."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from agenteval_otel.capture.reasons import CaptureError
from tests.capture.support import facts_of, read_chunks, returned, streamed

TEXT = "Grüße, 天气 good."
CALL = [("weather", {"city": "Oslo"}, None)]
CALLED = [("weather", {"city": "Oslo"}, "rain")]


def sse(*events: Any) -> list[str]:
    return [f"data: {json.dumps(event)}\n\n" for event in events]


def ndjson(*events: Any) -> list[str]:
    return [json.dumps(event) + "\n" for event in events]


AG_UI = (
    {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
    {"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "hidden"},
    {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "weather"},
    {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": '{"city": '},
    {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": '"Oslo"}'},
    {"type": "TOOL_CALL_RESULT", "toolCallId": "c", "content": "rain"},
    {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/text", "value": "hidden"}]},
    {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Grüße, "},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "天气 good."},
    {"type": "TEXT_MESSAGE_END", "messageId": "m"},
    {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
)
UI_STREAM = (
    {"type": "start", "messageId": "m"},
    {"type": "reasoning-delta", "id": "r", "delta": "hidden"},
    {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "hidden"},
    {
        "type": "tool-input-available",
        "toolCallId": "c",
        "toolName": "weather",
        "input": {"city": "Oslo"},
    },
    {"type": "tool-output-available", "toolCallId": "c", "output": "rain"},
    {"type": "data-chart", "data": {"text": "hidden"}},
    {"type": "text-start", "id": "t"},
    {"type": "text-delta", "id": "t", "delta": "Grüße, "},
    {"type": "text-delta", "id": "t", "delta": "天气 good."},
    {"type": "finish"},
)
DATA_STREAM = [
    'f:{"messageId":"m"}\n',
    'g:"hidden"\n',
    '9:{"toolCallId":"c","toolName":"weather","args":{"city":"Oslo"}}\n',
    'a:{"toolCallId":"c","result":"rain"}\n',
    '0:"Grüße, "\n',
    '0:"天气 good."\n',
    'd:{"finishReason":"stop","usage":{"promptTokens":1,"completionTokens":2}}\n',
]
A2A = (
    {"kind": "task", "id": "t", "status": {"state": "submitted"}},
    {
        "kind": "status-update",
        "status": {
            "state": "working",
            "message": {"kind": "message", "parts": [{"kind": "text", "text": "hidden"}]},
        },
    },
    {"kind": "artifact-update", "artifact": {"parts": [{"kind": "text", "text": "Grüße, "}]}},
    {
        "kind": "artifact-update",
        "append": True,
        "artifact": {
            "parts": [{"kind": "text", "text": "天气 good."}, {"kind": "data", "data": {}}]
        },
    },
    {"kind": "status-update", "status": {"state": "completed"}, "final": True},
)


@pytest.mark.parametrize(
    ("chunks", "calls"),
    [
        (AG_UI, CALLED),
        (sse(*AG_UI), CALLED),
        (UI_STREAM, CALLED),
        (sse(*UI_STREAM), CALLED),
        (DATA_STREAM, CALLED),
        (A2A, None),
        (sse(*({"jsonrpc": "2.0", "id": 1, "result": event} for event in A2A)), None),
        (ndjson({"token": "Grüße, "}, {"token": "天气 good."}), None),
        (["event: thinking\ndata: hidden\n\n", f"event: token\ndata: {TEXT}\n\n"], None),
        (
            [
                {"type": "status", "text": "hidden"},
                {"type": "thinking_delta", "text": "hidden"},
                {"type": "message_chunk", "text": TEXT},
            ],
            None,
        ),
    ],
    ids=[
        "ag-ui",
        "ag-ui sse",
        "ui",
        "ui sse",
        "data stream",
        "a2a",
        "a2a rpc",
        "lines",
        "sse",
        "own",
    ],
)
def test_only_text_events_are_answer_text(chunks: Any, calls: Any) -> None:
    """Reasoning, arguments, state, data and progress are no text; calls have arguments and results."""
    assert facts_of(streamed(list(chunks)))[:2] == (TEXT, calls)


GEMINI = {
    "candidates": [
        {
            "content": {
                "role": "model",
                "parts": [
                    {"text": "hidden", "thought": True},
                    {"text": TEXT},
                    {"functionCall": {"id": "c", "name": "weather", "args": {"city": "Oslo"}}},
                ],
            },
            "finishReason": "STOP",
        }
    ],
    "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4, "thoughtsTokenCount": 2},
    "modelVersion": "gemini-x",
    "responseId": "r",
}
CONVERSE = {
    "output": {
        "message": {
            "role": "assistant",
            "content": [
                {"text": TEXT},
                {"toolUse": {"toolUseId": "c", "name": "weather", "input": {"city": "Oslo"}}},
            ],
        }
    },
    "stopReason": "tool_use",
    "usage": {"inputTokens": 3, "outputTokens": 6},
}
OLLAMA = {
    "model": "m",
    "message": {"role": "assistant", "content": TEXT},
    "done": True,
    "done_reason": "stop",
    "prompt_eval_count": 3,
    "eval_count": 6,
}
COHERE = {
    "id": "r",
    "message": {"role": "assistant", "content": [{"type": "text", "text": TEXT}]},
    "finish_reason": "COMPLETE",
    "usage": {"tokens": {"input_tokens": 3.0, "output_tokens": 6.0}},
}
CREW = SimpleNamespace(
    raw=TEXT,
    json_dict=None,
    tasks_output=[],
    token_usage=SimpleNamespace(prompt_tokens=3, completion_tokens=6),
)
AUTOGEN = SimpleNamespace(
    messages=[
        SimpleNamespace(type="TextMessage", source="user", content="When?"),
        SimpleNamespace(type="ThoughtEvent", source="clerk", content="hidden"),
        SimpleNamespace(type="TextMessage", source="clerk", content=TEXT),
    ],
    stop_reason="x",
)
STRANDS = SimpleNamespace(
    message={"role": "assistant", "content": [{"text": TEXT}]},
    stop_reason="end_turn",
    metrics=SimpleNamespace(accumulated_usage={"inputTokens": 3, "outputTokens": 6}),
)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (GEMINI, (TEXT, CALL, (3, 6), "gemini-x", "STOP")),
        (CONVERSE, (TEXT, CALL, (3, 6), None, "tool_use")),
        (OLLAMA, (TEXT, None, (3, 6), "m", "stop")),
        (COHERE, (TEXT, None, (3, 6), None, "COMPLETE")),
        (CREW, (TEXT, None, (3, 6), None, None)),
        (AUTOGEN, (TEXT, None, None, None, None)),
        (STRANDS, (TEXT, None, (3, 6), None, "end_turn")),
        ({"llm": {"replies": [TEXT], "meta": [{"model": "m"}]}}, (TEXT, None, None, "m", None)),
        ((TEXT, ["source"]), (TEXT, None, None, None, None)),
    ],
    ids=[
        "gemini",
        "bedrock",
        "ollama",
        "cohere",
        "crewai",
        "autogen",
        "strands",
        "haystack",
        "tuple",
    ],
)
def test_answers_of_further_clients(answer: Any, expected: tuple[Any, ...]) -> None:
    """Text without thoughts, calls, tokens, model and finish reason, as each client names them."""
    assert facts_of(returned(answer)) == expected


def gemini_piece(text: str, **more: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": [{"text": text}]}, **more}], "responseId": "r"}


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        (
            [
                gemini_piece("Grüße, "),
                gemini_piece("天气 good.", finishReason="STOP")
                | {"usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 6}},
            ],
            (TEXT, None, (3, 6), None, "STOP"),
        ),
        (
            [
                {"messageStart": {"role": "assistant"}},
                {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": TEXT}}},
                {
                    "contentBlockStart": {
                        "contentBlockIndex": 1,
                        "start": {"toolUse": {"toolUseId": "c", "name": "weather"}},
                    }
                },
                {
                    "contentBlockDelta": {
                        "contentBlockIndex": 1,
                        "delta": {"toolUse": {"input": '{"city": "Oslo"}'}},
                    }
                },
                {"contentBlockStop": {"contentBlockIndex": 1}},
                {"messageStop": {"stopReason": "tool_use"}},
                {"metadata": {"usage": {"inputTokens": 3, "outputTokens": 6}, "metrics": {}}},
            ],
            (TEXT, CALL, (3, 6), None, "tool_use"),
        ),
        (
            ndjson(
                {
                    "model": "m",
                    "message": {"role": "assistant", "content": "Grüße, "},
                    "done": False,
                },
                {
                    "model": "m",
                    "message": {"role": "assistant", "content": "天气 good."},
                    "done": False,
                },
                {**OLLAMA, "message": {"role": "assistant", "content": ""}},
            ),
            (TEXT, None, (3, 6), "m", "stop"),
        ),
        (
            [
                {"type": "message-start", "id": "r", "delta": {"message": {"role": "assistant"}}},
                {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "hidden"}}},
                {"type": "content-delta", "delta": {"message": {"content": {"text": TEXT}}}},
                {
                    "type": "message-end",
                    "delta": {
                        "finish_reason": "COMPLETE",
                        "usage": {"tokens": {"input_tokens": 3, "output_tokens": 6}},
                    },
                },
            ],
            (TEXT, None, (3, 6), None, "COMPLETE"),
        ),
    ],
    ids=["gemini", "bedrock", "ollama lines", "cohere"],
)
def test_streams_of_further_clients(chunks: list[Any], expected: tuple[Any, ...]) -> None:
    """The same facts from the pieces."""
    assert facts_of(streamed(chunks)) == expected


@pytest.mark.parametrize(
    ("chunks", "text"),
    [
        (["It is ", "It is due on ", "It is due on Friday."], "It is due on Friday."),
        (["ha", "haha"], "hahaha"),
        (["a", "a", "a"], "aaa"),
        (
            [
                {"name": "so"},
                {"name": "soup", "steps": ["cut"]},
                {"name": "soup", "steps": ["cut", "eat"]},
            ],
            '{"name": "soup", "steps": ["cut", "eat"]}',
        ),
        ([{"text": "It"}, {"text": "It is"}, {"text": "It is late"}], "It is late"),
    ],
)
def test_what_grows_is_no_piece(chunks: list[Any], text: str) -> None:
    """Of texts and objects that repeat the one before, the last is the answer."""
    assert streamed(chunks).response == text


@pytest.mark.parametrize(
    "chunks",
    [
        [{"step": 1}, {"step": 2}],
        [{"type": "reasoning", "text": "hm"}, {"type": "status", "text": "busy"}],
        ["data: " + json.dumps({"type": "thinking", "text": "hm"}) + "\n\n"],
    ],
)
def test_a_stream_that_is_not_understood_is_a_capture_error(chunks: list[Any]) -> None:
    """Chunks of which none has a known form are not judged as their JSON."""
    with pytest.raises(CaptureError, match="is understood"):
        read_chunks(chunks)


def test_json_lines_that_are_the_answer_stay_text() -> None:
    """Lines of JSON without a text of a known form are what the model was asked for."""
    lines = '{"sku": 7, "left": 3}\n{"sku": 8, "left": 0}\n'
    assert streamed([lines]).response == lines


PROVIDER_ITEMS: Any = [
    {"type": "web_search_call", "id": "w", "action": {"type": "search", "query": "hours"}},
    {"type": "mcp_call", "id": "m", "name": "stock", "arguments": '{"sku": 7}', "output": "3 left"},
    {"type": "code_interpreter_call", "id": "c", "code": "1+1", "outputs": [{"logs": "2"}]},
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": TEXT}],
    },
]


def test_tools_that_the_provider_runs_are_calls() -> None:
    """Of the Responses API and of Anthropic, with arguments and results."""
    captured = returned({"object": "response", "id": "r", "output": PROVIDER_ITEMS})
    assert facts_of(captured)[:2] == (
        TEXT,
        [
            ("web_search", {"type": "search", "query": "hours"}, None),
            ("stock", {"sku": 7}, "3 left"),
            ("code_interpreter", {"code": "1+1"}, [{"logs": "2"}]),
        ],
    )
    content: Any = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "hours"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "s",
            "content": [{"url": "a", "type": "x"}],
        },
        {"type": "text", "text": TEXT},
    ]
    captured = returned({"role": "assistant", "type": "message", "content": content})
    assert facts_of(captured)[:2] == (
        TEXT,
        [("web_search", {"query": "hours"}, [{"url": "a", "type": "x"}])],
    )


def test_messages_of_haystack_as_dictionaries() -> None:
    """Calls, results and reasoning stand in fields of their parts; a message's facts beside them."""
    call = {"tool_name": "weather", "arguments": {"city": "Oslo"}, "id": "c"}
    result = {"result": "rain", "origin": call, "error": False}
    meta = {"model": "m", "finish_reason": "stop", "usage": {"prompt_tokens": 3}}
    said = [{"reasoning": {"reasoning_text": "hidden"}}, {"text": TEXT}]
    messages = [
        {"role": "user", "meta": {}, "content": [{"text": "How is it?"}]},
        {"role": "assistant", "meta": {}, "content": [{"tool_call": call}]},
        {"role": "tool", "meta": {}, "content": [{"tool_call_result": result}]},
        {"role": "assistant", "meta": meta, "content": said},
    ]
    captured = returned({"messages": messages, "last_message": messages[-1]})
    assert facts_of(captured) == (TEXT, CALLED, (3, None), "m", "stop")


def test_two_calls_of_a_stream_whose_blocks_have_no_index() -> None:
    """Strands leaves Bedrock's indices out: the pieces belong to the call that began last."""
    chunks: list[Any] = [{"messageStart": {"role": "assistant"}}]
    for id, name, arguments in (("a", "weather", '{"city": "Oslo"}'), ("b", "time", "{}")):
        start = {"toolUse": {"toolUseId": id, "name": name}}
        chunks.append({"contentBlockStart": {"start": start}})
        for piece in (arguments[:1], arguments[1:]):
            chunks.append({"contentBlockDelta": {"delta": {"toolUse": {"input": piece}}}})
        chunks.append({"contentBlockStop": {}})
    calls = [*CALL, ("time", {}, None)]
    assert facts_of(streamed([{"event": chunk} for chunk in chunks]))[1] == calls
    assert facts_of(streamed(chunks))[1] == calls

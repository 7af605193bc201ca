"""Streams of front ends and answers of further clients: text of the answer alone, calls, usage."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.capture.support import facts_of, returned, streamed

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


def test_an_answer_of_gemini_as_its_service_sends_it() -> None:
    """Its JSON tells what the client's objects do, whole and in pieces."""
    expected = (TEXT, CALL, (3, 6), "gemini-x", "STOP")
    assert facts_of(returned(GEMINI)) == expected
    begun = {"candidates": [{"content": {"parts": [{"text": "Well: "}]}}], "responseId": "r"}
    assert facts_of(streamed([begun, GEMINI])) == ("Well: " + TEXT, *expected[1:])


def test_lines_of_ollama_as_its_service_sends_them() -> None:
    """They tell text, tokens, model and finish reason."""
    pieces = [*TEXT.partition(" "), ""]
    lines: list[dict[str, Any]] = [
        {"model": "m", "message": {"role": "assistant", "content": piece}, "done": False}
        for piece in pieces
    ]
    lines[-1] |= {"done": True, "done_reason": "stop", "prompt_eval_count": 3, "eval_count": 6}
    assert facts_of(streamed(ndjson(*lines))) == (TEXT, None, (3, 6), "m", "stop")


def test_the_replies_of_a_haystack_generator_are_texts() -> None:
    """They stand beside their metadata, under the name of the component."""
    answer = {"llm": {"replies": [TEXT], "meta": [{"model": "m"}]}}
    assert facts_of(returned(answer)) == (TEXT, None, None, "m", None)


def test_the_first_of_a_tuple_is_the_answer() -> None:
    """As a handler returns a text beside its sources."""
    assert facts_of(returned((TEXT, ["source"]))) == (TEXT, None, None, None, None)


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


def test_json_lines_that_are_the_answer_stay_text() -> None:
    """Lines of JSON without a text of a known form are what the model was asked for."""
    lines = '{"sku": 7, "left": 3}\n{"sku": 8, "left": 0}\n'
    assert streamed([lines]).response == lines


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

"""The wire forms in which providers answer the recorder's applications: one answer, said by each.

The answer has reasoning, a text, a call of a tool, 7 input tokens and 9 output tokens. Chat
completions and plain Anthropic messages come from `agenteval_otel.testing.ModelServer`.
"""

from __future__ import annotations

import binascii
import json
import struct
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Json = dict[str, Any]
Reply = tuple[str, bytes]  # content type and body
REASONING, TEXT = "The user asks.", "Let me look."
PIECES = ("Let me ", "look.")
NAME = "weather"
ARGUMENTS = {"city": "Kyōto"}
ARGUMENTS_TEXT = json.dumps(ARGUMENTS)
TOKENS_IN, TOKENS_OUT = 7, 9
_SSE = "text/event-stream"


class Provider:
    """Answers POST requests on a free port of the loopback interface by one of `FORMS`."""

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = next(answer for part, answer in FORMS.items() if part in self.path)
        kind, data = answer(body)
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


def _as_json(value: Any) -> Reply:
    return "application/json", json.dumps(value).encode()


def _as_events(events: Iterable[Json]) -> Reply:
    """Return server-sent events, each named by its type where it has one."""
    lines = []
    for event in events:
        name = f"event: {event['type']}\n" if "type" in event else ""
        lines.append(f"{name}data: {json.dumps(event)}\n\n")
    return _SSE, "".join(lines).encode()


def gemini(body: Json) -> Reply:
    return _as_json(_gemini_chunk(_GEMINI_PARTS, is_last=True))


def gemini_stream(body: Json) -> Reply:
    pieces = [_GEMINI_PARTS[:1], *([{"text": piece}] for piece in PIECES)]
    chunks = [_gemini_chunk(parts, is_last=False) for parts in pieces]
    return _as_events([*chunks, _gemini_chunk(_GEMINI_PARTS[2:], is_last=True)])


_GEMINI_PARTS: list[Json] = [
    {"text": REASONING, "thought": True},
    {"text": TEXT},
    {"functionCall": {"name": NAME, "args": ARGUMENTS}},
    {"executableCode": {"language": "PYTHON", "code": "print(1 + 1)"}},
    {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2\n"}},
]


def _gemini_chunk(parts: list[Json], *, is_last: bool) -> Json:
    candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
    usage: Json = {"promptTokenCount": TOKENS_IN, "totalTokenCount": TOKENS_IN}
    if is_last:
        candidate["finishReason"] = "STOP"
        usage |= {"candidatesTokenCount": 6, "thoughtsTokenCount": 3, "totalTokenCount": 16}
    return {
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": "gemini-x",
        "responseId": "r-1",
    }


def cohere(body: Json) -> Reply:
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": NAME, "arguments": ARGUMENTS_TEXT},
    }
    tokens = {"input_tokens": TOKENS_IN, "output_tokens": TOKENS_OUT}
    end = {"finish_reason": "TOOL_CALL", "usage": {"billed_units": tokens, "tokens": tokens}}
    message = {
        "role": "assistant",
        "tool_plan": REASONING,
        "content": [{"type": "thinking", "thinking": REASONING}, {"type": "text", "text": TEXT}],
        "tool_calls": [call],
    }
    if not body.get("stream"):
        return _as_json({"id": "c-1", "message": message, **end})
    empty_call = {**call, "function": {"name": NAME, "arguments": ""}}
    rest = {"function": {"arguments": ARGUMENTS_TEXT}}
    begun = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": []}
    thinking = {"type": "thinking", "thinking": ""}
    events = [
        {"type": "message-start", "id": "c-1", "delta": {"message": begun}},
        {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": REASONING}}},
        _cohere_event("content-start", 0, {"content": thinking}),
        _cohere_event("content-delta", 0, {"content": {"thinking": REASONING}}),
        {"type": "content-end", "index": 0},
        _cohere_event("content-start", 1, {"content": {"type": "text", "text": ""}}),
        *(_cohere_event("content-delta", 1, {"content": {"text": piece}}) for piece in PIECES),
        {"type": "content-end", "index": 1},
        _cohere_event("tool-call-start", 0, {"tool_calls": empty_call}),
        _cohere_event("tool-call-delta", 0, {"tool_calls": rest}),
        {"type": "tool-call-end", "index": 0},
        {"type": "message-end", "id": "c-1", "delta": end},
    ]
    return _as_events(events)


def _cohere_event(kind: str, index: int, message: Json) -> Json:
    return {"type": kind, "index": index, "delta": {"message": message}}


def ollama_chat(body: Json) -> Reply:
    call = {"function": {"name": NAME, "arguments": ARGUMENTS}}
    whole = {"content": TEXT, "thinking": REASONING, "tool_calls": [call]}
    pieces = [{"content": "", "thinking": REASONING}, *({"content": piece} for piece in PIECES)]
    pieces.append({"content": "", "tool_calls": [call]})
    messages = [whole] if body.get("stream") is False else [*pieces, {"content": ""}]
    return _ollama([{"message": {"role": "assistant", **message}} for message in messages])


def ollama_generate(body: Json) -> Reply:
    texts = [TEXT] if body.get("stream") is False else [*PIECES, ""]
    return _ollama([{"response": text} for text in texts])


def _ollama(replies: list[Json]) -> Reply:
    base: Json = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": False}
    end = {
        "done": True,
        "done_reason": "stop",
        "total_duration": 5,
        "load_duration": 1,
        "prompt_eval_count": TOKENS_IN,
        "prompt_eval_duration": 1,
        "eval_count": TOKENS_OUT,
        "eval_duration": 3,
    }
    lines = [base | reply for reply in replies[:-1]] + [base | replies[-1] | end]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return "application/x-ndjson", text.encode()


def converse(body: Json) -> Reply:
    content = [
        {"reasoningContent": {"reasoningText": {"text": REASONING, "signature": "s"}}},
        {"text": TEXT},
        {"toolUse": {"toolUseId": "call_1", "name": NAME, "input": ARGUMENTS}},
    ]
    message = {"role": "assistant", "content": content}
    return _as_json({"output": {"message": message}, "stopReason": "tool_use", **_CONVERSE_END})


_CONVERSE_END: Json = {
    "usage": {"inputTokens": TOKENS_IN, "outputTokens": TOKENS_OUT, "totalTokens": 16},
    "metrics": {"latencyMs": 5},
}


def converse_stream(body: Json) -> Reply:
    half = len(ARGUMENTS_TEXT) // 2
    start = {"toolUse": {"toolUseId": "call_1", "name": NAME}}
    events = [
        ("messageStart", {"role": "assistant"}),
        _converse_delta(0, {"reasoningContent": {"text": REASONING}}),
        ("contentBlockStop", {"contentBlockIndex": 0}),
        *(_converse_delta(1, {"text": piece}) for piece in PIECES),
        ("contentBlockStop", {"contentBlockIndex": 1}),
        ("contentBlockStart", {"contentBlockIndex": 2, "start": start}),
        _converse_delta(2, {"toolUse": {"input": ARGUMENTS_TEXT[:half]}}),
        _converse_delta(2, {"toolUse": {"input": ARGUMENTS_TEXT[half:]}}),
        ("contentBlockStop", {"contentBlockIndex": 2}),
        ("messageStop", {"stopReason": "tool_use"}),
        ("metadata", _CONVERSE_END),
    ]
    return "application/vnd.amazon.eventstream", b"".join(_frame(*event) for event in events)


def _converse_delta(index: int, delta: Json) -> tuple[str, Json]:
    return "contentBlockDelta", {"contentBlockIndex": index, "delta": delta}


def _frame(kind: str, payload: Json) -> bytes:
    """Return an event of Amazon's event stream: lengths, headers, payload, and their checksums."""
    headers = b"".join(
        bytes([len(name)])
        + name.encode()
        + b"\x07"
        + struct.pack("!H", len(value))
        + value.encode()
        for name, value in (
            (":event-type", kind),
            (":content-type", "application/json"),
            (":message-type", "event"),
        )
    )
    data = json.dumps(payload).encode()
    prelude = struct.pack("!II", 16 + len(headers) + len(data), len(headers))
    message = prelude + struct.pack("!I", binascii.crc32(prelude)) + headers + data
    return message + struct.pack("!I", binascii.crc32(message))


_RESPONSE_ITEMS: list[Json] = [
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": REASONING}]},
    {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "hours", "queries": ["hours"]},
    },
    {
        "type": "file_search_call",
        "id": "fs_1",
        "status": "completed",
        "queries": ["refunds"],
        "results": [{"file_id": "f", "filename": "terms.md", "score": 0.5, "text": "Ten days."}],
    },
    {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "status": "completed",
        "container_id": "cntr_1",
        "code": "print(1 + 1)",
        "outputs": [{"type": "logs", "logs": "2\n"}],
    },
    {
        "type": "mcp_call",
        "id": "mcp_1",
        "status": "completed",
        "server_label": "shop",
        "name": "stock",
        "arguments": '{"sku": 7}',
        "output": "3 left",
        "error": None,
    },
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": TEXT, "annotations": [], "logprobs": []}],
    },
]


def response(body: Json) -> Reply:
    """Answer with the items of all tools that the provider runs."""
    whole: Json = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1767225600,
        "status": "completed",
        "model": "gpt-x",
        "output": _RESPONSE_ITEMS,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": TOKENS_IN,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": TOKENS_OUT,
            "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 16,
        },
    }
    if not body.get("stream"):
        return _as_json(whole)
    begun = whole | {"status": "in_progress", "output": [], "usage": None}
    events: list[Json] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(_RESPONSE_ITEMS):
        events += _item_events(index, item)
    events.append({"type": "response.completed", "response": whole})
    return _as_events(event | {"sequence_number": place} for place, event in enumerate(events))


_EMPTY: dict[str, Json] = {
    "code_interpreter_call": {"code": "", "outputs": None},
    "mcp_call": {"arguments": "", "output": None},
    "message": {"content": []},
}
"""What has not come yet when an item is begun."""


def _item_events(index: int, item: Json) -> list[Json]:
    place = {"output_index": index, "item_id": item["id"]}
    begun = item | {"status": "in_progress"} | _EMPTY.get(item["type"], {})
    added = {"type": "response.output_item.added", "output_index": index, "item": begun}
    events: list[Json] = [added]
    if item["type"] == "mcp_call":
        arguments = item["arguments"]
        kind = "response.mcp_call_arguments"
        events.append({"type": f"{kind}.delta", **place, "delta": arguments})
        events.append({"type": f"{kind}.done", **place, "arguments": arguments})
        events.append({"type": "response.mcp_call.completed", **place})
    elif item["type"] == "code_interpreter_call":
        kind = "response.code_interpreter_call_code"
        events.append({"type": f"{kind}.delta", **place, "delta": item["code"]})
        events.append({"type": f"{kind}.done", **place, "code": item["code"]})
        events.append({"type": "response.code_interpreter_call.completed", **place})
    elif item["type"] == "message":
        place |= {"content_index": 0}
        part = item["content"][0]
        events.append({"type": "response.content_part.added", **place, "part": part | {"text": ""}})
        for piece in PIECES:
            delta = {"delta": piece, "logprobs": []}
            events.append({"type": "response.output_text.delta", **place, **delta})
        done = {"text": TEXT, "logprobs": []}
        events.append({"type": "response.output_text.done", **place, **done})
        events.append({"type": "response.content_part.done", **place, "part": part})
    events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    return events


_MESSAGE_BLOCKS: list[Json] = [
    {"type": "thinking", "thinking": REASONING, "signature": "s"},
    {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {"query": "hours"},
    },
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [
            {
                "type": "web_search_result",
                "url": "https://shop.example/hours",
                "title": "Hours",
                "encrypted_content": "e",
                "page_age": None,
            }
        ],
    },
    {
        "type": "server_tool_use",
        "id": "srvtoolu_2",
        "name": "bash_code_execution",
        "input": {"command": "echo 2"},
    },
    {
        "type": "bash_code_execution_tool_result",
        "tool_use_id": "srvtoolu_2",
        "content": {
            "type": "bash_code_execution_result",
            "stdout": "2\n",
            "stderr": "",
            "return_code": 0,
            "content": [],
        },
    },
    {"type": "text", "text": TEXT, "citations": None},
]


def message(body: Json) -> Reply:
    """Answer with blocks of the tools that the provider runs."""
    whole: Json = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": _MESSAGE_BLOCKS,
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": TOKENS_IN, "output_tokens": TOKENS_OUT},
    }
    if not body.get("stream"):
        return _as_json(whole)
    usage = {"input_tokens": TOKENS_IN, "output_tokens": 1}
    begun = whole | {"content": [], "stop_reason": None, "usage": usage}
    events: list[Json] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(_MESSAGE_BLOCKS):
        events += _block_events(index, block)
    delta = {"stop_reason": "end_turn", "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": TOKENS_OUT}})
    return _as_events([*events, {"type": "message_stop"}])


def _block_events(index: int, block: Json) -> list[Json]:
    kind, begun, deltas = block["type"], block, []
    if kind == "thinking":
        begun = block | {"thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": REASONING}]
    elif kind == "server_tool_use":
        begun = block | {"input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
    elif kind == "text":
        begun = block | {"text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in PIECES]
    return [
        {"type": "content_block_start", "index": index, "content_block": begun},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


# The first whose name is a part of the request's path answers.
FORMS: dict[str, Callable[[Json], Reply]] = {
    ":streamGenerateContent": gemini_stream,
    ":generateContent": gemini,
    "/v2/chat": cohere,
    "/api/chat": ollama_chat,
    "/api/generate": ollama_generate,
    "/converse-stream": converse_stream,
    "/converse": converse,
    "/responses": response,
    "/messages": message,
}

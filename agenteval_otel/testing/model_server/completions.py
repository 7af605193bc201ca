"""The wire format of OpenAI chat completions: ``POST /v1/chat/completions``."""

from __future__ import annotations

from typing import Any

from agenteval_otel.testing.model_server.reply import Exchange, pieces

_CREATED = 1_750_000_000


def plain(exchange: Exchange) -> dict[str, Any]:
    reply = exchange.reply
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None, "refusal": reply.refusal}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = [_call(exchange, index) for index in range(len(reply.tool_calls))]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.reason}
    return _head(exchange, "chat.completion") | {"choices": [choice], "usage": _usage(exchange)}


def events(exchange: Exchange) -> list[tuple[str | None, Any]]:
    """The completion in chunks; the usage in a last one where the request includes it, then ``[DONE]``."""
    reply = exchange.reply
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "", "refusal": None}]
    deltas += [{"reasoning_content": part} for part in pieces(reply.reasoning)]
    deltas += [{"content": part} for part in pieces(reply.text)]
    for index, call in enumerate(reply.tool_calls):
        begun = {**_call(exchange, index), "index": index, "function": {"name": call.name, "arguments": ""}}
        parts = [{"index": index, "function": {"arguments": part}} for part in pieces(call.arguments_json)]
        deltas += [{"tool_calls": [part]} for part in (begun, *parts)]
    choices: list[dict[str, Any]] = [
        {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None} for delta in deltas
    ]
    choices.append({"index": 0, "delta": {}, "logprobs": None, "finish_reason": reply.reason})
    counted = bool((exchange.request.get("stream_options") or {}).get("include_usage"))
    head = _head(exchange, "chat.completion.chunk") | ({"usage": None} if counted else {})
    chunks = [head | {"choices": [choice]} for choice in choices]
    if counted:
        chunks.append(head | {"choices": [], "usage": _usage(exchange)})
    return [*((None, chunk) for chunk in chunks), (None, "[DONE]")]


def failure(exchange: Exchange) -> dict[str, Any]:
    status = exchange.reply.status
    code = "rate_limit_exceeded" if status == 429 else None
    kind = "server_error" if status >= 500 else "invalid_request_error"
    message = exchange.reply.text or f"status {status}"
    return {"error": {"message": message, "type": code or kind, "param": None, "code": code}}


def _head(exchange: Exchange, kind: str) -> dict[str, Any]:
    return {"id": exchange.id("chatcmpl-"), "object": kind, "created": _CREATED, "model": exchange.model}


def _call(exchange: Exchange, index: int) -> dict[str, Any]:
    call = exchange.reply.tool_calls[index]
    function = {"name": call.name, "arguments": call.arguments_json}
    return {"id": exchange.call_id("call_", index), "type": "function", "function": function}


def _usage(exchange: Exchange) -> dict[str, Any]:
    reply = exchange.reply
    read = reply.input_tokens + reply.cache_read_tokens
    return {
        "prompt_tokens": read,
        "completion_tokens": reply.output_tokens,
        "total_tokens": read + reply.output_tokens,
        "prompt_tokens_details": {"cached_tokens": reply.cache_read_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }

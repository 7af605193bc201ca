"""The wire format of the Anthropic Messages API: ``POST /v1/messages``."""

from __future__ import annotations

import json
from typing import Any, Final

from agenteval_otel.testing.model_server.exchange import Event, Exchange
from agenteval_otel.testing.model_server.reply import pieces

__all__ = ["events", "failure", "plain"]

_REASONS: Final = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_ERRORS: Final = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error",
}  # fmt: skip


def plain(exchange: Exchange) -> dict[str, Any]:
    """The message, whole."""
    reply = exchange.reply
    message = _message(exchange, reply.output_tokens)
    return message | {"content": _blocks(exchange), "stop_reason": _REASONS.get(reply.reason, reply.reason)}


def events(exchange: Exchange) -> list[Event]:
    """The message in pieces: start, the blocks with their deltas, the stop reason with the usage, stop."""
    reply = exchange.reply
    events_sent: list[Any] = [{"type": "message_start", "message": _message(exchange, 1)}, {"type": "ping"}]
    for index, block in enumerate(_blocks(exchange)):
        empty, deltas = _deltas(exchange, block)
        events_sent.append({"type": "content_block_start", "index": index, "content_block": empty})
        events_sent += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events_sent.append({"type": "content_block_stop", "index": index})
    reason = {"stop_reason": _REASONS.get(reply.reason, reply.reason), "stop_sequence": None}
    events_sent.append({"type": "message_delta", "delta": reason, "usage": {"output_tokens": reply.output_tokens}})
    events_sent.append({"type": "message_stop"})
    return [(event["type"], event) for event in events_sent]


def failure(exchange: Exchange) -> dict[str, Any]:
    """An error by its status."""
    kind = _ERRORS.get(exchange.reply.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": exchange.reply.text or kind}}


def _message(exchange: Exchange, output_tokens: int) -> dict[str, Any]:
    reply = exchange.reply
    usage = {"input_tokens": reply.input_tokens, "output_tokens": output_tokens}
    if reply.cache_read_tokens or reply.cache_write_tokens:
        usage["cache_read_input_tokens"] = reply.cache_read_tokens
        usage["cache_creation_input_tokens"] = reply.cache_write_tokens
    return {
        "id": exchange.id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": exchange.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


def _blocks(exchange: Exchange) -> list[dict[str, Any]]:
    reply = exchange.reply
    blocks: list[dict[str, Any]] = []
    if reply.reasoning:
        blocks.append({"type": "thinking", "thinking": reply.reasoning, "signature": "c2lnbmVk"})
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    for index, call in enumerate(reply.tool_calls):
        block = {"type": "tool_use", "id": exchange.call_id("toolu_", index), "name": call.name}
        blocks.append(block | {"input": _input_of(call.arguments_json)})
    return blocks


def _input_of(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return {}  # a plain message has no room for what is no JSON; the stream's deltas do


def _deltas(exchange: Exchange, block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The block as it begins, and what is added to it."""
    if block["type"] == "text":
        return {"type": "text", "text": ""}, [{"type": "text_delta", "text": part} for part in pieces(block["text"])]
    if block["type"] == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": part} for part in pieces(block["thinking"])]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {"type": "thinking", "thinking": "", "signature": ""}, deltas
    calls = exchange.reply.tool_calls
    call = next(call for index, call in enumerate(calls) if exchange.call_id("toolu_", index) == block["id"])
    parts = ["", *pieces(call.arguments_json)]
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": part} for part in parts]

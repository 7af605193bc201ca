"""The wire format of the Anthropic Messages API: ``POST /v1/messages``."""

from __future__ import annotations

import json
from typing import Any

from agenteval_otel.testing.model_server.reply import Exchange, pieces

_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_ERRORS = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error",
}  # fmt: skip


def plain(exchange: Exchange) -> dict[str, Any]:
    reply = exchange.reply
    content = [block for _, _, block in _blocks(exchange)]
    return _message(exchange, reply.output_tokens) | {
        "content": content,
        "stop_reason": _REASONS.get(reply.reason, reply.reason),
    }


def events(exchange: Exchange) -> list[tuple[str | None, Any]]:
    """The message in pieces: start, the blocks with their deltas, the stop reason with the usage, stop."""
    reply = exchange.reply
    events_sent: list[Any] = [{"type": "message_start", "message": _message(exchange, 1)}, {"type": "ping"}]
    for index, (empty, deltas, _) in enumerate(_blocks(exchange)):
        events_sent.append({"type": "content_block_start", "index": index, "content_block": empty})
        events_sent += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events_sent.append({"type": "content_block_stop", "index": index})
    reason = {"stop_reason": _REASONS.get(reply.reason, reply.reason), "stop_sequence": None}
    events_sent.append({"type": "message_delta", "delta": reason, "usage": {"output_tokens": reply.output_tokens}})
    events_sent.append({"type": "message_stop"})
    return [(event["type"], event) for event in events_sent]


def failure(exchange: Exchange) -> dict[str, Any]:
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


def _blocks(exchange: Exchange) -> list[tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]]:
    """Each block of the content: empty, as it begins in a stream, its deltas, and whole."""
    reply = exchange.reply
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]] = []
    if reply.reasoning:
        deltas = [{"type": "thinking_delta", "thinking": part} for part in pieces(reply.reasoning)]
        deltas.append({"type": "signature_delta", "signature": "c2lnbmVk"})
        block = {"type": "thinking", "thinking": reply.reasoning, "signature": "c2lnbmVk"}
        blocks.append((block | {"thinking": "", "signature": ""}, deltas, block))
    if reply.text:
        deltas = [{"type": "text_delta", "text": part} for part in pieces(reply.text)]
        blocks.append(({"type": "text", "text": ""}, deltas, {"type": "text", "text": reply.text}))
    for index, call in enumerate(reply.tool_calls):
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in ("", *pieces(call.arguments_json))]
        empty = {"type": "tool_use", "id": exchange.call_id("toolu_", index), "name": call.name, "input": {}}
        try:
            arguments = json.loads(call.arguments_json)
        except ValueError:
            arguments = {}  # only the stream's deltas can carry text that is no JSON
        blocks.append((empty, deltas, empty | {"input": arguments}))
    return blocks

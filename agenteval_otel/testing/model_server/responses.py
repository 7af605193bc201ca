"""The wire format of the OpenAI Responses API: ``POST /v1/responses``."""

from __future__ import annotations

from typing import Any, Final

from agenteval_otel.testing.model_server.completions import failure
from agenteval_otel.testing.model_server.exchange import Event, Exchange
from agenteval_otel.testing.model_server.reply import pieces

__all__ = ["events", "failure", "plain"]

_CREATED: Final = 1_750_000_000
_INCOMPLETE: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}


def plain(exchange: Exchange) -> dict[str, Any]:
    """The response, whole."""
    reply = exchange.reply
    reason = _INCOMPLETE.get(reply.reason)
    ended = {
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "output": _items(exchange),
        "usage": {
            "input_tokens": reply.input_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": reply.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": reply.input_tokens + reply.output_tokens,
        },
    }
    return _begun(exchange) | ended


def events(exchange: Exchange) -> list[Event]:
    """The response in pieces: created, the items with their deltas, and at the end the whole response again."""
    whole, begun = plain(exchange), _begun(exchange)
    events_sent: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(whole["output"]):
        empty, inside = _DELTAS[item["type"]](item, {"item_id": item["id"], "output_index": index})
        events_sent.append({"type": "response.output_item.added", "output_index": index, "item": empty})
        events_sent += inside
        events_sent.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events_sent.append({"type": f"response.{whole['status']}", "response": whole})
    return [(event["type"], event | {"sequence_number": number}) for number, event in enumerate(events_sent)]


def _begun(exchange: Exchange) -> dict[str, Any]:
    request = exchange.request
    return {
        "id": exchange.id("resp_"),
        "object": "response",
        "created_at": _CREATED,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": request.get("instructions"),
        "max_output_tokens": request.get("max_output_tokens"),
        "metadata": {},
        "model": exchange.model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": request.get("previous_response_id"),
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None,
    }


def _items(exchange: Exchange) -> list[dict[str, Any]]:
    reply, number = exchange.reply, exchange.number
    output_items: list[dict[str, Any]] = []
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        output_items.append({"id": f"rs_{number:08d}", "type": "reasoning", "summary": summary})
    if reply.text:
        part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        head = {"id": f"msg_{number:08d}", "type": "message", "role": "assistant", "status": "completed"}
        output_items.append(head | {"content": [part]})
    for index, call in enumerate(reply.tool_calls):
        head = {"id": f"fc_{number:06d}{index:02d}", "type": "function_call", "status": "completed"}
        call_id = exchange.call_id("call_", index)
        output_items.append(head | {"call_id": call_id, "name": call.name, "arguments": call.arguments_json})
    return output_items


def _reasoning(item: dict[str, Any], place: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    place = place | {"summary_index": 0}
    part, kind = item["summary"][0], "response.reasoning_summary"
    inside = [
        {"type": f"{kind}_part.added", **place, "part": {"type": "summary_text", "text": ""}},
        *({"type": f"{kind}_text.delta", **place, "delta": piece} for piece in pieces(part["text"])),
        {"type": f"{kind}_text.done", **place, "text": part["text"]},
        {"type": f"{kind}_part.done", **place, "part": part},
    ]
    return item | {"summary": []}, inside


def _message(item: dict[str, Any], place: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    place = place | {"content_index": 0}
    part, kind = item["content"][0], "response.output_text"
    inside = [
        {"type": "response.content_part.added", **place, "part": part | {"text": ""}},
        *({"type": f"{kind}.delta", **place, "delta": piece, "logprobs": []} for piece in pieces(part["text"])),
        {"type": f"{kind}.done", **place, "text": part["text"], "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
    ]
    return item | {"content": [], "status": "in_progress"}, inside


def _call(item: dict[str, Any], place: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    kind = "response.function_call_arguments"
    inside: list[dict[str, Any]] = [
        *({"type": f"{kind}.delta", **place, "delta": piece} for piece in pieces(item["arguments"])),
        {"type": f"{kind}.done", **place, "name": item["name"], "arguments": item["arguments"]},
    ]
    return item | {"arguments": "", "status": "in_progress"}, inside


_DELTAS: Final = {"reasoning": _reasoning, "message": _message, "function_call": _call}

"""The wire format of the OpenAI Responses API: ``POST /v1/responses``."""

from __future__ import annotations

from typing import Any

from agenteval_otel.testing.model_server.reply import Exchange, pieces

_CREATED = 1_750_000_000
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def plain(exchange: Exchange) -> dict[str, Any]:
    reply = exchange.reply
    reason = _INCOMPLETE.get(reply.reason)
    return _begun(exchange) | {
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "output": [item for _, _, item in _items(exchange)],
        "usage": {
            "input_tokens": reply.input_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": reply.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": reply.input_tokens + reply.output_tokens,
        },
    }


def events(exchange: Exchange) -> list[tuple[str | None, Any]]:
    """The response in pieces: created, the items with their deltas, and at the end the whole response again."""
    whole, begun = plain(exchange), _begun(exchange)
    events_sent: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, (empty, inside, item) in enumerate(_items(exchange)):
        place = {"item_id": item["id"], "output_index": index}
        events_sent.append({"type": "response.output_item.added", "output_index": index, "item": empty})
        events_sent += [place | event for event in inside]
        events_sent.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events_sent.append({"type": f"response.{whole['status']}", "response": whole})
    return [(event["type"], event | {"sequence_number": number}) for number, event in enumerate(events_sent)]


def _begun(exchange: Exchange) -> dict[str, Any]:
    return {
        "id": exchange.id("resp_"), "object": "response", "created_at": _CREATED, "status": "in_progress",
        "error": None, "incomplete_details": None, "instructions": exchange.request.get("instructions"),
        "metadata": {}, "model": exchange.model, "output": [], "parallel_tool_calls": True,
        "previous_response_id": exchange.request.get("previous_response_id"), "temperature": 1.0,
        "tool_choice": "auto", "tools": [], "top_p": 1.0, "truncation": "disabled", "usage": None,
    }  # fmt: skip


def _items(exchange: Exchange) -> list[tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]]:
    """Each item of the output: empty, as it begins in a stream, its events, and whole."""
    reply, number = exchange.reply, exchange.number
    output_items: list[tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]] = []
    if reply.reasoning:
        summary = {"type": "summary_text", "text": reply.reasoning}
        item = {"id": f"rs_{number:08d}", "type": "reasoning", "summary": [summary]}
        inside = _text_events("response.reasoning_summary_part", "response.reasoning_summary_text", summary, "summary")
        output_items.append((item | {"summary": []}, inside, item))
    if reply.text:
        part: dict[str, Any] = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        item = {"id": f"msg_{number:08d}", "type": "message", "role": "assistant", "status": "completed",
                "content": [part]}  # fmt: skip
        inside = _text_events("response.content_part", "response.output_text", part, "content", logprobs=[])
        output_items.append((item | {"content": [], "status": "in_progress"}, inside, item))
    for index, call in enumerate(reply.tool_calls):
        item = {"id": f"fc_{number:06d}{index:02d}", "type": "function_call", "status": "completed",
                "call_id": exchange.call_id("call_", index), "name": call.name,
                "arguments": call.arguments_json}  # fmt: skip
        kind = "response.function_call_arguments"
        inside = [{"type": f"{kind}.delta", "delta": piece} for piece in pieces(call.arguments_json)]
        inside.append({"type": f"{kind}.done", "name": call.name, "arguments": call.arguments_json})
        output_items.append((item | {"arguments": "", "status": "in_progress"}, inside, item))
    return output_items


def _text_events(
    part_event: str, text_event: str, part: dict[str, Any], field: str, **more: Any
) -> list[dict[str, Any]]:
    """A part of an item that begins empty, its text in pieces, and the whole part."""
    place = {f"{field}_index": 0}
    return [
        {"type": f"{part_event}.added", **place, "part": part | {"text": ""}},
        *({"type": f"{text_event}.delta", **place, "delta": piece, **more} for piece in pieces(part["text"])),
        {"type": f"{text_event}.done", **place, "text": part["text"], **more},
        {"type": f"{part_event}.done", **place, "part": part},
    ]

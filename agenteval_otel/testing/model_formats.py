"""What the model server sends.

It is `ModelReply`, independent of the wire format, and the four wire formats.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from pydantic import Field

from agenteval_otel.evaluators.embedders import HashingEmbedder
from agenteval_otel.models.value import Value

_CREATED = 1_750_000_000
_DIMENSIONS = 64
_EXPIRED = 410
Json = dict[str, Any]
Events = list[tuple[str | None, Any]]


class RepliedCall(Value):
    """Describes a tool call of the model. A string as `arguments` is sent as it is."""

    name: str
    arguments: Any = Field(default_factory=dict)

    @property
    def arguments_json(self) -> str:
        if isinstance(self.arguments, str):
            return self.arguments
        return json.dumps(self.arguments)


class ModelReply(Value):
    """One reply of the model, or one of its failures.

    Attributes:
        finish_reason: In the words of chat completions (``stop``, ``length``, ``tool_calls``,
            ``content_filter``), translated for the other formats. Another word is sent as it is. By
            default ``tool_calls`` or ``stop``.
        reasoning: The model's reasoning, a part of its own before the answer.
        model: The model's name in the reply. By default that of the request.
        status: HTTP status. From 400 the reply is an error in the format's own form.
        headers: Added to the response, such as ``{"Retry-After": "2"}``.
        body: Sent instead of the format's form: JSON data, or text as it is.
        delay_s: Wait before the first byte. Ends early when the server is closed.
        cut_after: Break a stream off after this many events. A plain reply breaks off in its
            middle.
        refusal: The model's refusal (chat completions only).
        cache_read_tokens: Input tokens read from the provider's cache, beside the `input_tokens`.
        trickle_s: Wait before each byte of a plain reply's body.
        hangs: Nothing more comes until the server is closed: ``before`` the response, after its
            ``headers``, or in the middle of the ``body``.
        resets: The connection is reset instead of answered.
        padding: Number of spaces before the body of a plain reply, which JSON allows.
        chunked: A plain reply is sent in chunks, without its length.
    """

    text: str = ""
    tool_calls: tuple[RepliedCall, ...] = ()
    finish_reason: str | None = None
    input_tokens: int = 10
    output_tokens: int = 5
    reasoning: str = ""
    model: str | None = None
    status: int = 200
    headers: dict[str, str] = Field(default_factory=dict)
    body: Any = None
    delay_s: float = 0.0
    cut_after: int | None = None
    refusal: str | None = None
    cache_read_tokens: int = 0
    trickle_s: float = 0.0
    hangs: Literal["before", "headers", "body"] | None = None
    resets: bool = False
    padding: int = 0
    chunked: bool = False

    @property
    def reason(self) -> str:
        """Return the finish reason in the words of chat completions."""
        if self.finish_reason:
            return self.finish_reason
        return "tool_calls" if self.tool_calls else "stop"


class Exchange(NamedTuple):
    """The request's body, the reply, and the number of the request, from which ids are made."""

    request: Json
    reply: ModelReply
    number: int

    @property
    def model(self) -> str:
        return self.reply.model or str(self.request.get("model", "model"))

    def id(self, prefix: str) -> str:
        return f"{prefix}{self.number:08d}"

    def call_id(self, prefix: str, index: int) -> str:
        return f"{prefix}{self.number:06d}{index:02d}"


class Part(NamedTuple):
    """A part of a streamed answer.

    Attributes:
        empty: The part as its first event has it.
        inside: The events that follow, with its content in pieces.
        whole: The part as a plain answer has it.
    """

    empty: Json
    inside: list[Json]
    whole: Json


def _pieces(text: str, size: int = 7) -> list[str]:
    """Split the text as a model would stream it: in pieces that do not end where words do."""
    return [text[start : start + size] for start in range(0, len(text), size)]


# --- OpenAI chat completions ---


def _completion(exchange: Exchange) -> Json:
    reply = exchange.reply
    message: Json = {"role": "assistant", "content": reply.text or None, "refusal": reply.refusal}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = [
            _completion_call(exchange, index) for index in range(len(reply.tool_calls))
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.reason}
    return _completion_head(exchange, "chat.completion") | {
        "choices": [choice],
        "usage": _completion_usage(exchange),
    }


def _completion_events(exchange: Exchange) -> Events:
    """Return the completion in chunks, then ``[DONE]``.

    The usage is in a last chunk if the request includes it.
    """
    reply = exchange.reply
    deltas: list[Json] = [{"role": "assistant", "content": "", "refusal": None}]
    deltas += [{"reasoning_content": piece} for piece in _pieces(reply.reasoning)]
    deltas += [{"content": piece} for piece in _pieces(reply.text)]
    for index, call in enumerate(reply.tool_calls):
        begun = {
            **_completion_call(exchange, index),
            "index": index,
            "function": {"name": call.name, "arguments": ""},
        }
        rest = [
            {"index": index, "function": {"arguments": piece}}
            for piece in _pieces(call.arguments_json)
        ]
        deltas += [{"tool_calls": [part]} for part in (begun, *rest)]
    counted = bool((exchange.request.get("stream_options") or {}).get("include_usage"))
    head = _completion_head(exchange, "chat.completion.chunk")
    if counted:
        head["usage"] = None
    choices: list[Json] = [
        {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None} for delta in deltas
    ]
    choices.append({"index": 0, "delta": {}, "logprobs": None, "finish_reason": reply.reason})
    chunks = [head | {"choices": [choice]} for choice in choices]
    if counted:
        chunks.append(head | {"choices": [], "usage": _completion_usage(exchange)})
    return [*((None, chunk) for chunk in chunks), (None, "[DONE]")]


def _completion_failure(exchange: Exchange) -> Json:
    status = exchange.reply.status
    code = "rate_limit_exceeded" if status == 429 else None
    kind = "server_error" if status >= 500 else "invalid_request_error"
    message = exchange.reply.text or f"status {status}"
    return {"error": {"message": message, "type": code or kind, "param": None, "code": code}}


def _completion_head(exchange: Exchange, kind: str) -> Json:
    return {
        "id": exchange.id("chatcmpl-"),
        "object": kind,
        "created": _CREATED,
        "model": exchange.model,
    }


def _completion_call(exchange: Exchange, index: int) -> Json:
    call = exchange.reply.tool_calls[index]
    function = {"name": call.name, "arguments": call.arguments_json}
    return {"id": exchange.call_id("call_", index), "type": "function", "function": function}


def _completion_usage(exchange: Exchange) -> Json:
    reply = exchange.reply
    read = reply.input_tokens + reply.cache_read_tokens
    return {
        "prompt_tokens": read,
        "completion_tokens": reply.output_tokens,
        "total_tokens": read + reply.output_tokens,
        "prompt_tokens_details": {"cached_tokens": reply.cache_read_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


# --- Anthropic Messages ---

_MESSAGE_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
_MESSAGE_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def _message(exchange: Exchange) -> Json:
    reply = exchange.reply
    message = _message_head(exchange, reply.output_tokens)
    message["content"] = [part.whole for part in _message_parts(exchange)]
    message["stop_reason"] = _MESSAGE_REASONS.get(reply.reason, reply.reason)
    return message


def _message_events(exchange: Exchange) -> Events:
    """Return the message in pieces.

    They are start, the blocks with their deltas, the stop reason with the usage, and stop.
    """
    reply = exchange.reply
    events: list[Any] = [
        {"type": "message_start", "message": _message_head(exchange, 1)},
        {"type": "ping"},
    ]
    for index, part in enumerate(_message_parts(exchange)):
        events.append({"type": "content_block_start", "index": index, "content_block": part.empty})
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in part.inside
        ]
        events.append({"type": "content_block_stop", "index": index})
    reason = {
        "stop_reason": _MESSAGE_REASONS.get(reply.reason, reply.reason),
        "stop_sequence": None,
    }
    events.append(
        {"type": "message_delta", "delta": reason, "usage": {"output_tokens": reply.output_tokens}}
    )
    events.append({"type": "message_stop"})
    return [(event["type"], event) for event in events]


def _message_failure(exchange: Exchange) -> Json:
    kind = _MESSAGE_ERRORS.get(exchange.reply.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": exchange.reply.text or kind}}


def _message_head(exchange: Exchange, output_tokens: int) -> Json:
    reply = exchange.reply
    usage = {"input_tokens": reply.input_tokens, "output_tokens": output_tokens}
    if reply.cache_read_tokens:
        usage |= {
            "cache_read_input_tokens": reply.cache_read_tokens,
            "cache_creation_input_tokens": 0,
        }
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


def _message_parts(exchange: Exchange) -> list[Part]:
    reply = exchange.reply
    parts: list[Part] = []
    if reply.reasoning:
        deltas = [
            {"type": "thinking_delta", "thinking": piece} for piece in _pieces(reply.reasoning)
        ]
        deltas.append({"type": "signature_delta", "signature": "c2lnbmVk"})
        block = {"type": "thinking", "thinking": reply.reasoning, "signature": "c2lnbmVk"}
        parts.append(Part(block | {"thinking": "", "signature": ""}, deltas, block))
    if reply.text:
        deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(reply.text)]
        parts.append(
            Part({"type": "text", "text": ""}, deltas, {"type": "text", "text": reply.text})
        )
    for index, call in enumerate(reply.tool_calls):
        pieces = ("", *_pieces(call.arguments_json))
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        empty = {
            "type": "tool_use",
            "id": exchange.call_id("toolu_", index),
            "name": call.name,
            "input": {},
        }
        try:
            arguments = json.loads(call.arguments_json)
        except ValueError:
            arguments = {}  # only the stream's deltas can carry text that is no JSON
        parts.append(Part(empty, deltas, empty | {"input": arguments}))
    return parts


# --- OpenAI Responses ---

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def _response(exchange: Exchange) -> Json:
    reply = exchange.reply
    reason = _INCOMPLETE.get(reply.reason)
    usage = {
        "input_tokens": reply.input_tokens,
        "output_tokens": reply.output_tokens,
        "total_tokens": reply.input_tokens + reply.output_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    output = [part.whole for part in _response_parts(exchange)]
    return _response_head(exchange) | {
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "output": output,
        "usage": usage,
    }


def _response_events(exchange: Exchange) -> Events:
    """Return the response in pieces.

    They are created, the items with their deltas, and at the end the whole response again.
    """
    whole = _response(exchange)
    begun = _response_head(exchange)
    events: list[Json] = [
        {"type": f"response.{step}", "response": begun} for step in ("created", "in_progress")
    ]
    for index, part in enumerate(_response_parts(exchange)):
        place = {"item_id": part.whole["id"], "output_index": index}
        events.append(
            {"type": "response.output_item.added", "output_index": index, "item": part.empty}
        )
        events += [place | event for event in part.inside]
        events.append(
            {"type": "response.output_item.done", "output_index": index, "item": part.whole}
        )
    events.append({"type": f"response.{whole['status']}", "response": whole})
    return [
        (event["type"], event | {"sequence_number": number}) for number, event in enumerate(events)
    ]


def _response_head(exchange: Exchange) -> Json:
    return {
        "id": exchange.id("resp_"),
        "object": "response",
        "created_at": _CREATED,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": exchange.request.get("instructions"),
        "metadata": {},
        "model": exchange.model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": exchange.request.get("previous_response_id"),
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None,
    }


def _response_parts(exchange: Exchange) -> list[Part]:
    reply = exchange.reply
    number = exchange.number
    parts: list[Part] = []
    if reply.reasoning:
        summary = {"type": "summary_text", "text": reply.reasoning}
        item: Json = {"id": f"rs_{number:08d}", "type": "reasoning", "summary": [summary]}
        inside = _text_events(
            "response.reasoning_summary_part", "response.reasoning_summary_text", summary, "summary"
        )
        parts.append(Part(item | {"summary": []}, inside, item))
    if reply.text:
        part: Json = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        item = {
            "id": f"msg_{number:08d}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }
        inside = _text_events(
            "response.content_part", "response.output_text", part, "content", logprobs=[]
        )
        parts.append(Part(item | {"content": [], "status": "in_progress"}, inside, item))
    for index, call in enumerate(reply.tool_calls):
        item = {
            "id": f"fc_{number:06d}{index:02d}",
            "type": "function_call",
            "status": "completed",
            "call_id": exchange.call_id("call_", index),
            "name": call.name,
            "arguments": call.arguments_json,
        }
        kind = "response.function_call_arguments"
        inside = [
            {"type": f"{kind}.delta", "delta": piece} for piece in _pieces(call.arguments_json)
        ]
        inside.append({"type": f"{kind}.done", "name": call.name, "arguments": call.arguments_json})
        parts.append(Part(item | {"arguments": "", "status": "in_progress"}, inside, item))
    return parts


def _text_events(
    part_event: str, text_event: str, part: Json, field: str, **more: Any
) -> list[Json]:
    """Return a part of an item that begins empty, its text in pieces, and the whole part."""
    place = {f"{field}_index": 0}
    text = part["text"]
    events: list[Json] = [{"type": f"{part_event}.added", **place, "part": part | {"text": ""}}]
    for piece in _pieces(text):
        events.append({"type": f"{text_event}.delta", **place, "delta": piece, **more})
    events.append({"type": f"{text_event}.done", **place, "text": text, **more})
    events.append({"type": f"{part_event}.done", **place, "part": part})
    return events


# --- OpenAI embeddings ---


def _embeddings(exchange: Exchange) -> Json:
    """Return one embedding of `HashingEmbedder` for each text, in the requested form and length."""
    inputs = exchange.request.get("input")
    texts = [str(text) for text in inputs] if isinstance(inputs, list) else [str(inputs)]
    embedder = HashingEmbedder(dimensions=exchange.request.get("dimensions") or _DIMENSIONS)
    rows = embedder.embed(texts)
    vectors: list[Any] = rows.tolist()
    if exchange.request.get("encoding_format") == "base64":
        vectors = [b64encode(row.astype("<f4").tobytes()).decode() for row in rows]
    data = [
        {"object": "embedding", "index": index, "embedding": vector}
        for index, vector in enumerate(vectors)
    ]
    usage = {
        "prompt_tokens": exchange.reply.input_tokens,
        "total_tokens": exchange.reply.input_tokens,
    }
    return {"object": "list", "data": data, "model": exchange.model, "usage": usage}


class Format(NamedTuple):
    """Describes a wire format.

    It has the plain body of a reply, its events if it has streams, and the body of an error.
    """

    plain: Callable[[Exchange], Json]
    events: Callable[[Exchange], Events] | None = None
    failure: Callable[[Exchange], Json] = _completion_failure


FORMATS = {
    "/messages": Format(_message, _message_events, _message_failure),
    "/chat/completions": Format(_completion, _completion_events),
    "/responses": Format(_response, _response_events),
    "/embeddings": Format(_embeddings),
}
"""By the end of the path."""
BATCHES = "/messages/batches"


class MessageBatch:
    """A batch of Anthropic's Messages, and its results."""

    def __init__(self, id: str, exchanges: list[tuple[str, Exchange]]) -> None:
        self.id = id
        self.polls = 0
        self.results: list[Json] = [
            {"custom_id": key, "result": _batch_result(exchange)} for key, exchange in exchanges
        ]

    def state(self, url: str, *, has_ended: bool) -> Json:
        kinds = [result["result"]["type"] if has_ended else "processing" for result in self.results]
        names = ("processing", "succeeded", "errored", "canceled", "expired")
        moment = "2026-07-01T10:00:00Z"
        results_url = f"{url}/v1{BATCHES}/{self.id}/results"
        return {
            "id": self.id,
            "type": "message_batch",
            "processing_status": "ended" if has_ended else "in_progress",
            "request_counts": {name: kinds.count(name) for name in names},
            "created_at": moment,
            "expires_at": "2026-07-02T10:00:00Z",
            "ended_at": moment if has_ended else None,
            "archived_at": None,
            "cancel_initiated_at": None,
            "results_url": results_url if has_ended else None,
        }


def _batch_result(exchange: Exchange) -> Json:
    if exchange.reply.status == _EXPIRED:
        return {"type": "expired"}
    if exchange.reply.status >= 400:
        return {"type": "errored", "error": {**_message_failure(exchange), "request_id": None}}
    return {"type": "succeeded", "message": _message(exchange)}

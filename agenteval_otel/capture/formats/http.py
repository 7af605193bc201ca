"""Responses of web frameworks and HTTP clients whose body is at hand: Starlette, FastAPI, httpx, requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agenteval_otel.capture.answers import add_answer, add_plain
from agenteval_otel.capture.fields import field, json_object
from agenteval_otel.capture.reading import Reading
from agenteval_otel.capture.response_formats import response_format
from agenteval_otel.capture.text import to_text

__all__ = ["read_http_response"]


@response_format("http", libraries=("httpx", "requests", "starlette"), fields=("body", "status_code", "_content"))
def read_http_response(reading: Reading, answer: Any) -> bool:
    """A web framework's response whose body is at hand."""
    body = field(answer, "body") or field(answer, "_content")
    if not isinstance(body, bytes) or not isinstance(field(answer, "status_code"), int):
        return False
    text = to_text(body)
    read = json_object(text)
    if not isinstance(read, Mapping) or not add_answer(reading, read):
        add_plain(reading, text if read is None else read)
    return True

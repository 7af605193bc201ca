"""The wire format of OpenAI embeddings: ``POST /v1/embeddings``. The vectors know words and no meaning."""

from __future__ import annotations

import base64
import re
import struct
from typing import Any, Final
from zlib import crc32

from agenteval_otel.testing.model_server.completions import failure
from agenteval_otel.testing.model_server.exchange import Event, Exchange

__all__ = ["events", "failure", "plain"]

_DIMENSIONS: Final = 64
_WORD: Final = re.compile(r"\w+")


def plain(exchange: Exchange) -> dict[str, Any]:
    """One embedding a text, in the form and the length that were asked for; texts that share words are near."""
    inputs = exchange.request.get("input")
    texts = inputs if isinstance(inputs, list) else [inputs]
    length = int(exchange.request.get("dimensions") or _DIMENSIONS)
    encoded = exchange.request.get("encoding_format") == "base64"
    data = [
        {"object": "embedding", "index": index, "embedding": _encoded(row) if encoded else row}
        for index, row in enumerate(_vector(str(text), length) for text in texts)
    ]
    tokens = exchange.reply.input_tokens
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": exchange.model, "usage": usage}


def events(exchange: Exchange) -> list[Event]:
    """Embeddings are not streamed."""
    return []


def _vector(text: str, length: int) -> list[float]:
    row = [0.0] * length
    for word in _WORD.findall(text.casefold()) or [text]:
        mixed = crc32(word.encode("utf-8", "surrogatepass"))
        row[mixed % length] += 1.0 if mixed & 0x8000_0000 else -1.0
    return row if any(row) else [1.0, *row[1:]]


def _encoded(row: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode()

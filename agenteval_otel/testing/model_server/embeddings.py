"""The wire format of OpenAI embeddings: ``POST /v1/embeddings``. Vectors of words, without their meaning."""

from __future__ import annotations

import base64
import re
import struct
from typing import Any
from zlib import crc32

from agenteval_otel.testing.model_server.reply import Exchange

_DIMENSIONS = 64
_WORD = re.compile(r"\w+")


def plain(exchange: Exchange) -> dict[str, Any]:
    """One embedding for each text, in the requested form and length; texts that share words are near."""
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


def _vector(text: str, length: int) -> list[float]:
    row = [0.0] * length
    for word in _WORD.findall(text.casefold()) or [text]:
        mixed = crc32(word.encode("utf-8", "surrogatepass"))
        row[mixed % length] += 1.0 if mixed & 0x8000_0000 else -1.0
    return row if any(row) else [1.0, *row[1:]]


def _encoded(row: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode()

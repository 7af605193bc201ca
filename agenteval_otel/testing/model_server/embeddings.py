"""The wire format of OpenAI embeddings: ``POST /v1/embeddings``, with the vectors of `HashingEmbedder`."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from agenteval_otel.embedders import HashingEmbedder
from agenteval_otel.testing.model_server.reply import Exchange

_DIMENSIONS = 64


def plain(exchange: Exchange) -> dict[str, Any]:
    """One embedding for each text, in the requested form and length; texts that share words are near."""
    inputs = exchange.request.get("input")
    texts = list(map(str, inputs)) if isinstance(inputs, list) else [str(inputs)]
    rows = HashingEmbedder(dimensions=exchange.request.get("dimensions") or _DIMENSIONS).embed(texts)
    vectors: list[Any] = rows.tolist()
    if exchange.request.get("encoding_format") == "base64":
        vectors = [b64encode(row.astype("<f4").tobytes()).decode() for row in rows]
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    usage = {"prompt_tokens": exchange.reply.input_tokens, "total_tokens": exchange.reply.input_tokens}
    return {"object": "list", "data": data, "model": exchange.model, "usage": usage}

"""What the tests of hosted embedders share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from agenteval_otel.embedders import OpenAICompatibleEmbedder
from agenteval_otel.errors import ModelError
from agenteval_otel.evaluators.embedders.base import EmbedderUsage
from agenteval_otel.testing import ModelReply, ModelServer

__all__ = ["CANARY", "TEXTS", "embedded", "embedding_reply", "failure", "hosted"]

CANARY = "sk-canary-7d2c4b9e61"
TEXTS = ("the parcel arrives on Tuesday", "the parcel arrives on Friday", "a bicycle")


def hosted(server: ModelServer, **settings: Any) -> OpenAICompatibleEmbedder:
    """An embedder that asks the server; waits of retries are short."""
    reported = {
        "model": "embed-1",
        "api_key": CANARY,
        "retry_base_s": 0.001,
        "deadline_s": 20.0,
        **settings,
    }
    return OpenAICompatibleEmbedder(base_url=f"{server.url}/v1", **reported)


class Embedded(NamedTuple):
    vectors: Any
    usage: EmbedderUsage | None


def embedded(embedder: OpenAICompatibleEmbedder, texts: Sequence[str] = TEXTS) -> Embedded:
    """The vectors of the texts and what they took, on a loop of its own."""
    return Embedded(*asyncio.run(embedder.embedded(texts)))


def failure(embedder: OpenAICompatibleEmbedder, texts: Sequence[str] = TEXTS) -> ModelError:
    """How one call fails."""
    with pytest.raises(ModelError) as raised:
        embedded(embedder, texts)
    return raised.value


def embedding_reply(
    make: Callable[[int, str], Any], *, indexed: bool = True
) -> Callable[[dict[str, Any]], ModelReply]:
    """A reply whose embeddings are made of their index and their text."""

    def reply(body: dict[str, Any]) -> ModelReply:
        data = [
            {"object": "embedding", "embedding": make(index, text)}
            | ({"index": index} if indexed else {})
            for index, text in enumerate(body["input"])
        ]
        return ModelReply(body={"object": "list", "data": data, "usage": {"prompt_tokens": 7}})

    return reply

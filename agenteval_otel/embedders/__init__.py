"""Embedders: texts in, vectors out, for evaluators that compare meaning or wording.

`base` holds the contract, `hashing` the built-in embedder, `openai_compatible` and `sentence_transformers` those with a
model, `adapter` takes an object of the program's. Importing this package loads no numpy and no vendor; the first
embedding does.
"""

from __future__ import annotations

from agenteval_otel.embedders.adapter import CallableEmbedder
from agenteval_otel.embedders.base import Embedded, Embedder, EmbedderUsage
from agenteval_otel.embedders.hashing import HashingEmbedder
from agenteval_otel.embedders.openai_compatible import OpenAICompatibleEmbedder
from agenteval_otel.embedders.sentence_transformers import SentenceTransformerEmbedder

__all__ = [
    "CallableEmbedder",
    "Embedded",
    "Embedder",
    "EmbedderUsage",
    "HashingEmbedder",
    "OpenAICompatibleEmbedder",
    "SentenceTransformerEmbedder",
]

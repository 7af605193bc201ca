"""Embedders: texts in, vectors out.

Importing this package loads no numpy and no vendor. The first embedding does.
"""

from __future__ import annotations

from agenteval_otel.evaluators.embedders.base import Embedder
from agenteval_otel.evaluators.embedders.hashing import HashingEmbedder
from agenteval_otel.evaluators.embedders.openai_compatible import OpenAICompatibleEmbedder
from agenteval_otel.evaluators.embedders.sentence_transformers import SentenceTransformerEmbedder

__all__ = ["Embedder", "HashingEmbedder", "OpenAICompatibleEmbedder", "SentenceTransformerEmbedder"]

"""The public names of `agenteval_otel.evaluators.embedders`."""

from agenteval_otel.evaluators.embedders import (
    Embedder,
    HashingEmbedder,
    OpenAICompatibleEmbedder,
    SentenceTransformerEmbedder,
)

__all__ = [
    "Embedder",
    "HashingEmbedder",
    "OpenAICompatibleEmbedder",
    "SentenceTransformerEmbedder",
]

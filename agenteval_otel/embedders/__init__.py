"""Embedders: texts in, vectors out, for evaluators that compare meaning or wording.

`base` holds the contract, `hashing` the embedder that is built in, `given` takes other people's objects. Runs where the
evaluator runs that asks. Importing this room loads no numpy; the first embedding does.
"""

from __future__ import annotations

from agenteval_otel.embedders.base import Embedder
from agenteval_otel.embedders.given import GivenEmbedder, as_embedder
from agenteval_otel.embedders.hashing import HashingEmbedder

__all__ = ["Embedder", "GivenEmbedder", "HashingEmbedder", "as_embedder"]

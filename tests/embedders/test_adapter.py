"""Embedders of other makers, and what may stand where one is asked for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from agenteval_otel import EvaluationRunConfig
from agenteval_otel.embedders import HashingEmbedder
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators.embedders.base import CallableEmbedder, as_embedder


def lengths(texts: list[str]) -> list[list[float]]:
    return [[float(len(text)), 1.0] for text in texts]


async def later(texts: list[str]) -> list[list[float]]:
    return lengths(texts)


MAKERS = {
    "function": lengths,
    "embed": SimpleNamespace(embed=lengths),
    "embed_documents": SimpleNamespace(embed_documents=lengths),
    "encode": SimpleNamespace(encode=lengths),
}


@pytest.mark.parametrize("model", MAKERS.values(), ids=list(MAKERS))
def test_objects_of_other_libraries_embed(model: Any) -> None:
    """Each method name works."""
    embedder = as_embedder(model)
    assert isinstance(embedder, CallableEmbedder)
    assert embedder.embed(("a", "abc")) == [[1.0, 1.0], [3.0, 1.0]]
    assert not embedder.is_async


def test_an_async_method_is_awaited() -> None:
    """An `async def` is recognised before it is called."""
    embedder = as_embedder(SimpleNamespace(embed=later))
    assert embedder.is_async
    assert asyncio.run(embedder.embedded(["ab"])) == ([[2.0, 1.0]], None)


@pytest.mark.parametrize("form", [dict, SimpleNamespace])
def test_vectors_may_have_a_name(form: Any) -> None:
    """As in the answers of several clients."""
    embedder = as_embedder(lambda texts: form(embeddings=lengths(texts)))
    assert asyncio.run(embedder.embedded(["ab"])) == ([[2.0, 1.0]], None)


def test_as_embedder_takes_several_forms() -> None:
    """An embedder, its class, its type or its settings; other values are refused with the known
    types.
    """
    item = HashingEmbedder(dimensions=64)
    assert as_embedder(item) is item
    assert as_embedder(HashingEmbedder) == as_embedder("hashing") == HashingEmbedder()
    assert as_embedder({"type": "hashing", "dimensions": 64}) == item
    for wrong in (7, object(), None, int):
        with pytest.raises(
            ConfigurationError, match=r"embedder: expected an embedder, .*hashing.*, found"
        ):
            as_embedder(wrong, path="embedder")
    with pytest.raises(
        ConfigurationError, match=r"unknown embedder type 'hashin' \(did you mean 'hashing'\?\)"
    ):
        as_embedder("hashin")


def test_a_well_known_model_is_an_embedder_by_its_name() -> None:
    """AgentDock's ``embeddingModel`` may be a name; its key is in the usual variable."""
    embedder: Any = as_embedder("text-embedding-3-small")
    assert (embedder.type, embedder.model) == ("openai_compatible", "text-embedding-3-small")
    assert embedder.api_key_env == "OPENAI_API_KEY"
    config = {
        "type": "NLPAccuracy",
        "config": {"criterionName": "near", "embeddingModel": "text-embedding-3-small"},
    }
    (evaluator,) = EvaluationRunConfig.model_validate({"evaluatorConfigs": [config]}).evaluators
    assert evaluator.resolved_execution == "async"


def test_a_wrapped_object_is_named_and_not_dumped() -> None:
    """Its dump and its fingerprint name its class and hold nothing of the object."""
    embedder = as_embedder(MAKERS["embed"])
    assert embedder.model_dump()["name"] == "types.SimpleNamespace"
    assert "model" not in embedder.model_dump()
    assert as_embedder(lengths).model_dump()["name"] == "tests.embedders.test_adapter.lengths"
    assert embedder.fingerprint != as_embedder(Named()).fingerprint


class Named:
    def embed(self, texts: list[str]) -> list[list[float]]:
        return lengths(texts)

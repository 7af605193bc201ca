"""Embedders that ask a model, as NLPAccuracy uses them: scores, failures, what they took, and where
they run.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from agenteval_otel import (
    EvaluationInput,
    EvaluationResult,
    EvaluationRunConfig,
    run_evaluation_sync,
)
from agenteval_otel.embedders import SentenceTransformerEmbedder
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import NLPAccuracy
from agenteval_otel.testing import ModelReply, ModelServer
from tests.embedders.asking import hosted

GIVEN = EvaluationInput(
    response="The parcel arrives on Tuesday.", ground_truth="The parcel arrives on Friday."
)


def accuracy(server: ModelServer, **settings: Any) -> NLPAccuracy:
    return NLPAccuracy(criterion_name="meaning", embedder=hosted(server, **settings))


def scored(evaluator: NLPAccuracy, value: EvaluationInput = GIVEN) -> EvaluationResult:
    return run_evaluation_sync(value, EvaluationRunConfig(evaluators=[evaluator])).results[0]


def test_both_texts_are_one_request_and_are_counted() -> None:
    """The result has the cosine, and its metadata the model with its tokens."""
    with ModelServer([ModelReply(input_tokens=14)]) as server:
        evaluator = accuracy(server)
        result = scored(evaluator)
        assert [request["input"] for request in server.requests] == [
            [GIVEN.response, GIVEN.ground_truth]
        ]
    assert evaluator.resolved_execution == "async"
    assert result.calls_model
    assert isinstance(result.score, float)
    assert 0.7 < result.score < 1.0
    assert result.metadata == {"embedder": {"model": "embed-1", "calls": 1, "inputTokens": 14}}


@pytest.mark.parametrize(
    ("reply", "error_type"),
    [
        (ModelReply(status=401), "authentication"),
        (ModelReply(body={"data": [{"embedding": [1.0, 0.0]}]}), "invalid_embedding"),
        (ModelReply(hangs="body"), "timeout"),
    ],
    ids=["refused", "too few", "silent"],
)
def test_a_failure_is_no_score(reply: ModelReply, error_type: str) -> None:
    """A failed result has the error type and the usage, and nothing enters an average."""
    with ModelServer([reply]) as server:
        run = run_evaluation_sync(
            GIVEN, EvaluationRunConfig(evaluators=[accuracy(server, max_retries=0, deadline_s=0.5)])
        )
    (result,) = run.results
    assert (result.score, result.error_type, run.overall_score) == (None, error_type, None)
    assert result.metadata is not None
    assert result.metadata["embedder"]["calls"] == 1


def test_a_missing_extra_is_named_at_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration error names the extra to install."""
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)  # as where it is not installed
    embedder = {"type": "sentence_transformers", "model": "all-MiniLM-L6-v2"}
    message = (
        r"evaluators\[0\]\.embedder: .*pip install \"agenteval-otel\[sentence-transformers\]\""
    )
    with pytest.raises(ConfigurationError, match=message):
        EvaluationRunConfig.model_validate(
            {"evaluators": [{"type": "NLPAccuracy", "embedder": embedder}]}
        )


def test_a_missing_model_is_refused_or_fails(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing folder is refused at load, and a name that is also in the current folder; a model
    that cannot be loaded fails the evaluation.
    """
    (tmp_path / "sentence_transformers").mkdir()
    (tmp_path / "sentence_transformers" / "__init__.py").write_text(
        "raise ImportError('is not imported at load')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    # which it sets for a process of its own
    for name in ("HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM"):
        monkeypatch.setenv(name, "1")
    with pytest.raises(ConfigurationError, match="model: there is no such folder"):
        SentenceTransformerEmbedder(model=str(tmp_path / "absent"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "all-MiniLM-L6-v2").mkdir()
    with pytest.raises(ConfigurationError, match=r"model: .*write \./all-MiniLM-L6-v2"):
        SentenceTransformerEmbedder(model="all-MiniLM-L6-v2")
    SentenceTransformerEmbedder(model="./all-MiniLM-L6-v2")
    embedder = SentenceTransformerEmbedder(model=str(tmp_path))
    evaluator = NLPAccuracy(criterion_name="meaning", embedder=embedder)
    assert evaluator.resolved_execution == "process"
    assert NLPAccuracy.from_child(evaluator.to_child()) == evaluator
    embedder.prepare()
    result = scored(evaluator)
    assert (result.score, result.error_type) == (None, "model_unavailable")
    assert (
        embedder.fingerprint
        == SentenceTransformerEmbedder(model=str(tmp_path), threads=2).fingerprint
    )

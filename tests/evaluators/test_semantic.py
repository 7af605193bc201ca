"""NLPAccuracy."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest

from agenteval_otel import (
    EvaluationCriteria,
    EvaluationInput,
    EvaluationRunConfig,
    run_evaluation_sync,
)
from agenteval_otel.embedders import Embedder
from agenteval_otel.engine.execution.wire import NotPortable, load_evaluator, serialize_evaluator
from agenteval_otel.errors import ConfigurationError, EvaluationSkipped
from agenteval_otel.evaluators import NLPAccuracy
from agenteval_otel.models import Message
from tests.evaluators.support import result_of

ROWS = {
    "x": [1.0, 0.0],
    "y": [0.0, 1.0],
    "z": [0.0, 0.0],
    "-x": [-1.0, 0.0],
    "3-4": [3.0, 4.0],
    "long": [1, 2, 3],
}


class Doubling(Embedder, type="doubling"):
    """An embedder of another module: the length of a text, and its double."""

    times: float = 2.0

    def embed(self, texts: Any) -> Any:
        return [[len(text), len(text) * self.times] for text in texts]


def table(texts: list[str]) -> list[list[float]]:
    return [ROWS[text] for text in texts]


def run(
    response: Any,
    ground_truth: Any,
    *,
    embedder: Any = table,
    scale: str = "numeric",
    **fields: Any,
) -> Any:
    model = SimpleNamespace(embed=embedder) if callable(embedder) else embedder
    evaluator = NLPAccuracy(criterion_name="N", embedder=model, **fields)
    criteria = [EvaluationCriteria(name="N", scale=scale)]
    return result_of(evaluator, response, criteria=criteria, ground_truth=ground_truth)


@pytest.mark.parametrize(
    ("response", "ground_truth", "cosine"),
    [("x", "x", 1), ("x", "y", 0), ("x", "-x", -1), ("x", "3-4", 0.6)],
)
def test_the_score_is_the_cosine(response: str, ground_truth: str, cosine: float) -> None:
    """A negative one is 0 on ``numeric``, and itself where the scale has a place for it."""
    result = run(response, ground_truth)
    assert result.score == result.normalized == max(0, cosine)
    assert run(response, ground_truth, scale="likeness").score == cosine
    assert f"cosine {cosine:.4f}" in result.reasoning


def test_a_text_without_anything_to_compare_is_no_score() -> None:
    """A zero vector has no angle: a failed result, for equal texts too; AgentDock's 0 in its own
    form.
    """
    for ground_truth in ("x", "z"):
        failed = run("z", ground_truth)
        assert (failed.score, failed.error_type) == (None, "missing_text")
    assert run("!!!", "!!!", embedder="hashing").error_type == "missing_text"
    config = {"type": "NLPAccuracy", "config": {"criterionName": "N", "embeddingModel": "hashing"}}
    given = EvaluationInput(
        response="!!!", ground_truth="a", criteria=(EvaluationCriteria(name="N", scale="numeric"),)
    )
    (result,) = run_evaluation_sync(given, EvaluationRunConfig(evaluator_configs=[config])).results
    assert result.score == 0


@pytest.mark.parametrize(
    ("threshold", "reached"), [(0.6, True), (0.61, False), (0, True), (-1, True)]
)
@pytest.mark.parametrize("scale", ["binary", "pass/fail"])
def test_a_threshold_decides_on_two_valued_scales(
    scale: str, threshold: float, reached: bool
) -> None:
    """It is inclusive, and 0 is one; a miss has a reason."""
    result = run("x", "3-4", scale=scale, similarity_threshold=threshold)
    assert result.score is reached
    assert result.passed is reached
    assert result.reason_code == (None if reached else "below_threshold")


def test_elsewhere_the_cosine_stays() -> None:
    """On other scales a threshold is only mentioned; without one a scale of two values takes no
    cosine between them.
    """
    mentioned = run("x", "3-4", similarity_threshold=0.9)
    assert mentioned.score == 0.6
    assert mentioned.reasoning == "cosine 0.6000 (CallableEmbedder), threshold 0.9 not reached"
    assert run("x", "3-4", scale="binary").error_type == "invalid_score"


@pytest.mark.parametrize(
    ("response", "ground_truth"), [("", "x"), ("x", ""), ("x", None), (None, "x")]
)
def test_without_text_there_is_no_score(response: Any, ground_truth: Any) -> None:
    """It is a failure."""
    result = run(response, ground_truth, without_reference="fail")
    assert (result.status, result.error_type, result.score) == ("failed", "missing_text", None)


def test_without_ground_truth_it_abstains() -> None:
    """Most answers have no reference: that is no failure, unless it is asked for; the originals'
    form asks for it.
    """
    with pytest.raises(EvaluationSkipped, match="no ground truth"):
        run("x", None)
    original = {"type": "NLPAccuracy", "config": {"criterionName": "N", "embedder": "hashing"}}
    (evaluator,) = EvaluationRunConfig(evaluator_configs=[original]).evaluators
    assert isinstance(evaluator, NLPAccuracy)
    assert evaluator.without_reference == "fail"


def test_what_is_no_text_is_json() -> None:
    """Data counts whole, in the JSON that it came in; a message counts by its text, where it has
    one.
    """
    requests: list[str] = []

    def embed(texts: list[str]) -> list[list[float]]:
        requests.extend(texts)
        return [[1.0] for _ in texts]

    message = {"role": "assistant", "contentParts": [{"type": "image", "url": "é"}]}
    run(message, {"x": [1, None]}, embedder=embed)
    run(Message(role="assistant", content="a", tool_name="t"), 7.0, embedder=embed)
    run(["a", "b"], ["a", "c"], embedder=embed)
    run("a", False, embedder=embed)
    assert requests[0] == json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    assert requests[1] == '{"x":[1,null]}'
    assert requests[2:] == ["a", "7", '["a","b"]', '["a","c"]', "a", "false"]


def test_of_several_references_the_nearest_counts() -> None:
    """All are embedded in one request; an embedder that gives fewer vectors fails."""
    vectors = {"answer": [1.0, 0.0], "far": [0.0, 1.0], "near": [0.8, 0.6]}
    result = run(
        "answer", ["far", "near"], embedder=lambda texts: [vectors[text] for text in texts]
    )
    assert result.score == pytest.approx(0.8)
    short = run("answer", ["far", "near"], embedder=lambda texts: [[1.0], [1.0]])
    assert (short.error_type, "expected 3 vectors" in (short.error or "")) == (
        "invalid_embedding",
        True,
    )


def test_what_has_no_json_form_is_a_failure() -> None:
    """A circle, and what is nested too deep, is not blamed on the embedder."""
    circle: dict[str, Any] = {}
    circle["again"] = circle
    deep: list[Any] = []
    for _ in range(100_000):  # Python 3.14 writes JSON to a depth of some 50,000
        deep = [deep]
    for ground_truth in (circle, deep):
        result = run("x", ground_truth)
        assert (result.error_type, result.error) == (
            "invalid_text",
            "the ground_truth has no JSON form",
        )


def fails(texts: list[str]) -> Any:
    raise TimeoutError("no answer")


BROKEN = {
    "raises": (fails, "TimeoutError"),
    "one": (lambda texts: [[1.0]], "invalid_embedding"),
    "none": (lambda texts: None, "invalid_embedding"),
    "words": (lambda texts: ["a", "b"], "invalid_embedding"),
    "empty": (lambda texts: [[], []], "invalid_embedding"),
    "nan": (lambda t: [[math.nan], [1]], "invalid_embedding"),
    "numbers": (lambda texts: [1, 2], "invalid_embedding"),
    "lengths": (table, "invalid_embedding"),
    "beyond": (lambda texts: [[10**400], [1]], "invalid_embedding"),
}


@pytest.mark.parametrize(("embedder", "word"), BROKEN.values(), ids=list(BROKEN))
def test_a_broken_embedder_is_a_failure(embedder: Any, word: str) -> None:
    """What it raises, and what is no pair of vectors of one length, is a failed result with a word
    for it.
    """
    result = run("x", "long", embedder=embedder)
    assert (result.status, result.error_type, result.score, result.filler) == (
        "failed",
        word,
        None,
        0,
    )


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_lengths_do_not_matter(scale: float) -> None:
    """Vectors whose squares would vanish or run over have their cosine all the same."""
    assert (
        run("x", "y", embedder=lambda texts: [[3 * scale, 4 * scale], [4 / scale, 3 / scale]]).score
        == 0.96
    )


def test_settings_are_checked_at_load() -> None:
    """What no run could use is refused with its field and what is known."""
    with pytest.raises(
        ConfigurationError, match=r'evaluatorConfigs\[0\]\.embedder: required .*"hashing", which'
    ):
        EvaluationRunConfig(
            evaluator_configs=[{"type": "NLPAccuracy", "config": {"criterionName": "N"}}]
        )


def test_it_reaches_the_worker_process() -> None:
    """With an embedder of any module, by its class and settings; an object has no JSON form, and
    stays here.
    """
    evaluator = NLPAccuracy(criterion_name="N", embedder=Doubling(times=3.0))
    assert load_evaluator(json.loads(json.dumps(serialize_evaluator(evaluator)))) == evaluator
    with pytest.raises(NotPortable):
        serialize_evaluator(NLPAccuracy(criterion_name="N", embedder=SimpleNamespace(embed=table)))


def test_two_encodings_of_a_letter_are_embedded_as_one() -> None:
    """Whatever the embedder makes of accents as marks, it does not see them."""
    embedded: list[str] = []

    def note(texts: list[str]) -> list[list[float]]:
        embedded.extend(texts)
        return [[1.0, 0.0] for _ in texts]

    assert run("cafe\u0301", "caf\u00e9", embedder=note).score == 1.0
    assert embedded == ["caf\u00e9", "caf\u00e9"]

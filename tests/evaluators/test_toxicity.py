"""Toxicity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.components.loading import resolve
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator, Toxicity
from agenteval_otel.models import EvaluationCriteria, EvaluationResult
from tests.evaluators.support import result_of


def run(response: Any, *terms: str, scale: str | None = None, **fields: Any) -> EvaluationResult:
    evaluator = Toxicity.load({"criterionName": "Tox", "toxicTerms": terms, **fields})
    criteria = None if scale is None else [EvaluationCriteria(name="Tox", scale=scale)]
    return result_of(evaluator, response, criteria=criteria)


def test_terms_are_listed_once_as_configured_in_order() -> None:
    """Case variants and repeated occurrences: each configured term once, in the order of the
    configuration.
    """
    result = run("Bad bad, worst", "worst", "BAD", "bad", "", "fine", "worst")
    assert result.metadata == {"foundToxicTerms": ["worst", "BAD", "bad"]}
    assert (result.score, result.passed, result.label, result.reason_code) == (
        False,
        False,
        "fail",
        "toxic_term",
    )
    assert run("good", "bad").metadata == {"foundToxicTerms": []}


@pytest.mark.parametrize("scale", ["binary", "numeric", "likert5", "pass/fail", "mine"])
def test_the_score_is_true_for_clean_on_every_scale(scale: str) -> None:
    """Clean is true and 1, toxic false and 0, whatever the scale."""
    for text, clean in (("good", True), ("bad", False), ("", True)):
        result = run(text, "bad", scale=scale)
        assert result.score is clean
        assert result.normalized == float(clean)


def test_the_reasoning_lists_terms_and_nothing_of_the_text() -> None:
    """The text around a term stays out; a long list is cut."""
    result = run("my secret neighbour is bad", "bad", "worse")
    assert result.reasoning == "1 of 2 terms found on response: bad"
    terms = [f"t{number}" for number in range(30)]
    reasoning = run(" ".join(terms), *terms).reasoning
    assert reasoning is not None
    assert reasoning.endswith("t19, 10 more")


def test_terms_may_come_from_a_file(tmp_path: Path) -> None:
    """One a line, without the space around them; what the file says becomes part of the
    configuration.
    """
    file = tmp_path / "terms.txt"
    file.write_bytes(b"\xef\xbb\xbfbad\r\n\r\n  shut up \nbad\n\xd1\x85\xd0\xb0\xd0\xbc")
    evaluator = Toxicity(criterion_name="Tox", toxic_terms=("worst",), terms_file=str(file))
    assert evaluator.toxic_terms == ("worst", "bad", "shut up", "хам")
    file.unlink()
    assert resolve(Evaluator, evaluator.model_dump(mode="json")) == evaluator
    assert Toxicity.from_child(evaluator.to_child()).fingerprint == evaluator.fingerprint


def test_a_file_that_is_wrong_is_refused(tmp_path: Path) -> None:
    """What is not there, or not UTF-8, is an error at load."""
    (tmp_path / "latin").write_bytes(b"fine\nb\xe9te")
    for name, message in (("latin", "latin: not UTF-8"), ("nowhere", "nowhere: cannot be read")):
        with pytest.raises(ConfigurationError, match=f"^a.terms_file: .*{message}"):
            Toxicity.load({"criterionName": "Tox", "termsFile": str(tmp_path / name)}, path="a")

"""Fingerprints: what an answer depends on is in them, what is paid, kept or waited for is not."""

from __future__ import annotations

from typing import Any

import pytest

from agenteval_otel.evaluators import LLMJudge
from agenteval_otel.judges import AnthropicJudge
from tests.judges.asking import CANARY

OF_NO_MATTER: dict[str, Any] = {
    "spend": {"usd_per_day": 1},
    "breaker": None,
    "cache": {},
    "api_key": CANARY,
    "api_key_env": "OTHER",
    "deadline_s": 5,
    "max_retries": 0,
    "retry_share": 0.5,
    "retry_base_s": 1,
    "max_answer_bytes": 4_096,
    "extra_headers": {"x-team": "a"},
    "cached_from_tokens": None,
}
OF_MATTER: dict[str, Any] = {
    "model": "m-2",
    "base_url": "https://other.example",
    "response_format": "none",
    "extra_body": {"thinking": 1},
}


def judge(**settings: Any) -> AnthropicJudge:
    return AnthropicJudge.load({"model": "m-1", **settings})


def evaluator(judge: AnthropicJudge, **settings: Any) -> LLMJudge:
    return LLMJudge(criterion_name="c", description="Right?", judge=judge, **settings)


def test_every_field_is_classified() -> None:
    """A new field needs a decision."""
    assert set(OF_NO_MATTER) | set(OF_MATTER) == set(AnthropicJudge.model_fields)
    assert AnthropicJudge.fingerprint_exclude == set(OF_NO_MATTER)


@pytest.mark.parametrize("name", [*OF_NO_MATTER, *OF_MATTER])
def test_only_fields_of_the_answer_change_the_version(name: str) -> None:
    """Another model, or another way to call it, is another instrument: the cache key changes with
    the version.
    """
    other = judge(**{name: (OF_NO_MATTER | OF_MATTER)[name]})
    assert (evaluator(other).fingerprint == evaluator(judge()).fingerprint) is (
        name in OF_NO_MATTER
    )
    assert (other.fingerprint_source() == judge().fingerprint_source()) is (name in OF_NO_MATTER)
    assert CANARY not in other.fingerprint_source()


@pytest.mark.parametrize(
    "settings",
    [
        {"description": "Kind?"},
        {"system_prompt": "Judge."},
        {"scale": "likert5"},
        {"max_tokens": 99},
    ],
)
def test_the_wording_changes_the_version(settings: dict[str, Any]) -> None:
    """Rubric, prompt and scale are part of it."""
    changed = LLMJudge(
        **{"criterion_name": "c", "description": "Right?", "judge": judge(), **settings}
    )
    assert changed.fingerprint != evaluator(judge()).fingerprint

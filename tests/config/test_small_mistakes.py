"""Small mistakes in settings: each is refused with its place, or means what was meant."""

from __future__ import annotations

from typing import Any

import pytest

from agenteval_otel import EvaluationInput, Settings, configure
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Contains


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"telemetry": {"headers": {"authorization": "a\nb"}}},
            "telemetry.headers: a name and a value are one line",
        ),
        (
            {
                "evaluators": [Contains(substrings=["a"])],
                "criteria": {"default": [{"name": "contains", "threshold": 7}]},
            },
            "the threshold 7 lies outside of the scale 'numeric', 0 to 1",
        ),
    ],
)
def test_what_could_never_work_is_refused(fields: dict[str, Any], message: str) -> None:
    """A header of two lines, and a threshold that no score of the evaluator's scale reaches."""
    with pytest.raises(ConfigurationError, match=message):
        configure(**fields)


def test_no_storage_is_an_empty_list() -> None:
    """``storage:`` without a value, as YAML has it, is no storage."""
    assert Settings(storage=None).storage == ()


def test_a_list_of_documents_is_a_context() -> None:
    """As `annotate(context=[...])` takes it."""
    assert EvaluationInput(context=["a", {"b": 1}]).context == {"documents": ["a", {"b": 1}]}

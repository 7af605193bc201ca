"""The section ``load_shedding`` of the settings: in a file, in variables, and what is wrong with it."""

from __future__ import annotations

import pytest

from agenteval_otel import Settings
from agenteval_otel.config import load_settings
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.pipeline.load_shedding import LoadSheddingSettings


def test_variables_reach_into_the_section() -> None:
    """A variable with two underscores sets a field of the section; the others keep their defaults."""
    settings = load_settings(environment={"AGENTEVAL_LOAD_SHEDDING__ENABLED": "false"}).settings
    assert settings.load_shedding == LoadSheddingSettings(enabled=False)


def test_a_bound_can_be_null() -> None:
    """Null takes a bound away."""
    assert Settings(load_shedding={"max_loop_lag_s": None}).load_shedding.max_loop_lag_s is None


@pytest.mark.parametrize(
    ("section", "path"),
    [
        ({"max_drain_s": 0}, "load_shedding.max_drain_s"), ({"queue_share": 1}, "load_shedding.queue_share"),
        ({"min_rate": 2}, "load_shedding.min_rate"),
        ({"max_loop_lag_s": float("nan")}, "load_shedding.max_loop_lag_s"),
    ],
)  # fmt: skip
def test_an_error_names_the_field(section: dict[str, float], path: str) -> None:
    """A wrong bound and an unknown field fail at load, each with its path."""
    with pytest.raises(ConfigurationError) as failure:
        Settings(load_shedding=section)
    assert [where for where, _ in failure.value.problems] == [path]

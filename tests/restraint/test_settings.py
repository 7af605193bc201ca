"""The section ``restraint`` of the settings: in a file, in variables, and what is wrong with it."""

from __future__ import annotations

import pytest

from agenteval_otel import Settings
from agenteval_otel.config import load_settings
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.restraint import RestraintSettings


def test_variables_reach_into_the_section() -> None:
    """A field of the section is set by a variable with two underscores; the others keep their defaults."""
    found = load_settings(environment={"AGENTEVAL_RESTRAINT__ENABLED": "false"}).settings.restraint
    assert found == RestraintSettings(enabled=False)


def test_a_limit_can_be_null() -> None:
    """Null takes a limit away."""
    assert Settings(restraint={"loop_lag_s": None}).restraint.loop_lag_s is None


@pytest.mark.parametrize(
    ("section", "path"),
    [
        ({"queue_share": 0}, "restraint.queue_share"), ({"cpu": 1}, "restraint.cpu"),
        ({"least_share": 2}, "restraint.least_share"), ({"loop_lag_s": float("nan")}, "restraint.loop_lag_s"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(section: dict[str, float], path: str) -> None:
    """A wrong limit and an unknown field fail at load, each named."""
    with pytest.raises(ConfigurationError) as failure:
        Settings(restraint=section)
    assert [where for where, _ in failure.value.problems] == [path]

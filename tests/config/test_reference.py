"""The written reference of the settings: nothing in it is without words, and its example runs."""

from __future__ import annotations

import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from agenteval_otel import Settings
from agenteval_otel.config import AgentSettings, Criterion
from agenteval_otel.config.schema import attributes_of, json_schema
from agenteval_otel.engine.load_shedding import LoadSheddingSettings
from agenteval_otel.engine.objectives import BreachSettings
from agenteval_otel.sampling import Escalation
from agenteval_otel.sampling.trace import SamplingSettings
from agenteval_otel.storage import OtlpStorageProvider
from tests.config.support import load

DOCS = Path(__file__).resolve().parents[2] / "docs"
EXAMPLE = re.findall(
    r"^```yaml\n(.*?)^```", (DOCS / "configuration.md").read_text(), re.DOTALL | re.MULTILINE
)[0]


MODELS = (
    Settings,
    AgentSettings,
    BreachSettings,
    Criterion,
    Escalation,
    LoadSheddingSettings,
    OtlpStorageProvider,
)


@pytest.mark.parametrize("model", [*MODELS, SamplingSettings])
def test_every_field_is_described(model: type) -> None:
    """Every field of the settings has a description."""
    for_code = {"tracer_provider", "logger_provider", "meter_provider"}
    assert set(model.model_fields) - for_code == set(attributes_of(model)) - for_code  # type: ignore[attr-defined]


@pytest.mark.parametrize("profile", [None, "production", "staging", "ci"])
def test_the_example_is_right(profile: str | None, tmp_path: Path) -> None:
    """The example of the introduction loads, with each of its profiles."""
    settings = load(tmp_path, EXAMPLE, profile=profile).settings
    assert settings.sample_rate == (0.05 if profile == "production" else 0.2)
    assert settings.enabled is (profile != "ci")


def test_the_schema_agrees_with_the_example() -> None:
    """An editor that checks the example by the schema marks nothing."""
    jsonschema.Draft202012Validator(json_schema()).validate(yaml.safe_load(EXAMPLE))

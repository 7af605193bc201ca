"""The files of collector-config/ are what its settings give: nothing drifts, and nothing lies there
by hand.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agenteval_otel.config.load import load_settings
from agenteval_otel.config.process import build_loaded
from agenteval_otel.provisioning import ALL, MonitoringPlan, files_for
from agenteval_otel.provisioning.files import MARK, GeneratedFiles, differing

SHIPPED = Path(__file__).resolve().parents[2] / "collector-config"
SETTINGS = SHIPPED / "agenteval.yaml"
BY_HAND = {"README.md", "agenteval.yaml"}
WRITE_THEM = "agenteval-otel provision all --settings collector-config/agenteval.yaml --output collector-config"


@pytest.fixture(scope="module", name="plan")
def plan_fixture() -> MonitoringPlan:
    """What the shipped settings evaluate."""
    return MonitoringPlan.of(build_loaded(load_settings(SETTINGS)))


@pytest.fixture(scope="module", name="generated")
def generated_fixture(plan: MonitoringPlan) -> GeneratedFiles:
    return files_for(ALL, plan)


def test_what_is_shipped_is_what_is_generated(generated: GeneratedFiles) -> None:
    """Every file says what its settings give now, and what wrote it; nothing else lies there but
    what is known.
    """
    assert differing(SHIPPED, generated) == [], f"run: {WRITE_THEM}"
    assert [name for name, text in generated.items() if MARK not in text] == []
    there = {path.relative_to(SHIPPED).as_posix() for path in SHIPPED.rglob("*") if path.is_file()}
    assert there - generated.keys() == BY_HAND

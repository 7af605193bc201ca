"""docs/escalation.md: its settings load, and its table names every rule."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from agenteval_otel.config import load_settings
from agenteval_otel.sampling import Escalation, Sampler
from agenteval_otel.sampling.rules import RuleSampler
from tests.docs.generator import DOCS

PAGE = (DOCS / "escalation.md").read_text()


def test_the_settings_load_as_they_stand(tmp_path: Path) -> None:
    """The file that a reader copies is right, and its rules are what the page says."""
    (block,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    file = tmp_path / "settings.yaml"
    file.write_text(block)
    escalation = load_settings(str(file)).settings.escalation
    assert escalation is not None
    assert [rule.type for rule in escalation.rules] == [
        item["type"] for item in yaml.safe_load(block)["escalation"]["rules"]
    ]


def test_every_rule_and_every_field_is_named() -> None:
    """The tables know all rules of the package and all fields of an escalation."""
    tables = "\n".join(line for line in PAGE.splitlines() if line.startswith("|"))
    rules = {
        name for name, item in Sampler.registry.items()
        if issubclass(item, RuleSampler) and item.__module__.startswith("agenteval_otel.")
    }  # fmt: skip
    assert {name for name in {*rules, *Escalation.model_fields} if f"`{name}`" not in tables} == set()

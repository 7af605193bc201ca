"""Components: chosen by type, strict about fields, fingerprinted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agenteval_otel.components import Component
from agenteval_otel.components.component import Registry
from agenteval_otel.components.loading import resolve
from agenteval_otel.errors import ConfigurationError


class Tool(Component, contract="tool"):
    """A contract of this test."""


class Hammer(Tool, type="Hammer"):
    weight_kg: float = 1.0
    parts: list[int] = []


class Anvil(Tool, type="Anvil"):
    pass


def test_a_mapping_is_resolved_by_its_type() -> None:
    """The word under ``type`` chooses the class; fields may be in camelCase; a dump builds the same
    component.
    """
    assert resolve(Tool, {"type": "Hammer", "weightKg": 2}) == Hammer(weight_kg=2.0)
    hammer = Hammer(weight_kg=3.5, parts=[1])
    assert resolve(Tool, hammer) is hammer
    assert hammer.model_dump()["type"] == "Hammer"
    assert resolve(Tool, hammer.model_dump(mode="json")) == hammer
    assert resolve(Tool, hammer.model_dump(mode="json", by_alias=True)) == hammer


def test_an_unknown_type_names_the_known_ones() -> None:
    """A misspelled type is refused with the path and what there is, a type of another class or
    contract as well.
    """
    unknown = (
        r"tools\[0\]: unknown tool type 'Hamer' \(did you mean 'Hammer'\?\)\. Known: Anvil, Hammer"
    )
    with pytest.raises(ConfigurationError, match=unknown):
        resolve(Tool, {"type": "Hamer"}, path="tools[0]")
    with pytest.raises(ConfigurationError, match="'Hammer' is not 'Anvil'"):
        Anvil.load({"type": "Hammer"})
    assert "Hammer" not in Component.registry
    with pytest.raises(
        ConfigurationError, match="a mapping with 'type' or a type's name, found int"
    ):
        resolve(Tool, 7)


def test_wrong_fields_are_refused_with_their_path() -> None:
    """Unknown fields name the known ones, wrong values say what was found, deeply nested ones
    where.
    """
    with pytest.raises(
        ConfigurationError, match=r"tools\[1\]\.colour: unknown field\. Known: parts, weight_kg"
    ):
        resolve(Tool, {"type": "Hammer", "colour": "red"}, path="tools[1]")
    with pytest.raises(ConfigurationError, match="found 'heavy'") as caught:
        resolve(Tool, {"type": "Hammer", "weight_kg": "heavy"})
    assert caught.value.path == "weight_kg"
    with pytest.raises(ConfigurationError) as caught:
        resolve(Tool, {"type": "Hammer", "parts": [1, "two"]}, path="tool")
    assert caught.value.path == "tool.parts[1]"


def test_an_announced_type_is_imported_when_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word that a room announces is known, listed and taken at once; its module is imported by
    who asks for it.
    """
    source = """
from tests.test_components import Tool
class Saw(Tool, type="Saw"):
    pass
"""
    (tmp_path / "a_room_of_saws.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(Tool, "registry", Registry())
    Tool.registry.announce("a_room_of_saws", "Saw")
    assert "Saw" in Tool.registry
    assert list(Tool.registry) == ["Saw"]
    assert len(Tool.registry) == 1
    assert "a_room_of_saws" not in sys.modules
    try:
        with pytest.raises(
            ConfigurationError, match=r"type \'Saw\' is taken by a_room_of_saws\.Saw"
        ):
            type("Blade", (Tool,), {}, type="Saw")
        saw = resolve(Tool, "Saw")
        assert saw.__class__.__module__ == "a_room_of_saws"
        assert dict(Tool.registry) == {"Saw": saw.__class__}
    finally:
        sys.modules.pop("a_room_of_saws", None)


def test_the_fingerprint_follows_the_configuration() -> None:
    """Equal configurations share a fingerprint, different ones do not."""
    assert Hammer(weight_kg=2).fingerprint == Hammer(weight_kg=2.0).fingerprint
    assert Hammer().fingerprint != Hammer(weight_kg=2).fingerprint
    assert len(Hammer().fingerprint) == 12

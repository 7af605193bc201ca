"""What the tests of settings share: files, and a pipeline that evaluates inline and keeps."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from agenteval_otel import configure
from agenteval_otel.config import Loaded, SettingsError, load_settings
from tests.testing.doubles import Keeping

__all__ = ["configured", "load", "written_settings", "wrong"]


def written_settings(folder: Path, text: str, *, name: str = "settings.yaml") -> Path:
    """A settings file of that text."""
    file = folder / name
    file.write_text(dedent(text), encoding="utf-8")
    return file


def load(folder: Path, text: str, *, name: str = "settings.yaml", **arguments: Any) -> Loaded:
    """The settings of a file of that text."""
    return load_settings(written_settings(folder, text, name=name), **arguments)


def wrong(
    folder: Path, text: str, *, name: str = "settings.yaml", **arguments: Any
) -> SettingsError:
    """What is wrong with a file of that text."""
    with pytest.raises(SettingsError) as caught:
        load(folder, text, name=name, **arguments)
    return caught.value


def configured(folder: Path, text: str, **arguments: Any) -> Keeping:
    """Configure the process by a file of that text; what it evaluates, inline, is kept."""
    kept = Keeping()
    configure(written_settings(folder, text), storage=[kept], dispatcher="inline", **arguments)
    return kept

"""The harnesses of the real programs and their builder: what the tests of this folder rely on."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from .build import BUILD_COMMAND, build
from .fixtures import REQUIRE_VARIABLE, require
from .recipes import PROGRAMS, Program, Step

WRITES_A_PROGRAM = "import pathlib; pathlib.Path('made').write_text('program')"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENTEVAL_BACKENDS", str(tmp_path))
    return tmp_path


def program(script: str) -> Program:
    step = Step("the tool", (sys.executable, "-c", script))
    return Program(name="tool", version="1.0", executable="made", needs=(sys.executable,), steps=(step,))


def test_a_program_is_built_once(cache: Path) -> None:
    """The second build finds the first one's result; nothing temporary is left."""
    lines: list[str] = []
    made = program(WRITES_A_PROGRAM)
    assert build(made, say=lines.append) == build(made, say=lines.append)
    assert "already built" in lines[-1]
    assert [entry.name for entry in cache.iterdir()] == [made.key]
    assert program("pass").key != made.key, "a stale program is never taken for the present one"


def test_a_missing_program_skips_or_fails_with_the_command(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests skip with the one command, and fail where the environment requires every backend."""
    monkeypatch.delenv(REQUIRE_VARIABLE, raising=False)
    with pytest.raises(pytest.skip.Exception, match=re.escape(BUILD_COMMAND)):
        require("collector")
    monkeypatch.setenv(REQUIRE_VARIABLE, "1")
    with pytest.raises(pytest.fail.Exception, match=re.escape(BUILD_COMMAND)):
        require("collector")


def test_the_manifest_is_of_one_version() -> None:
    """Every component of the Collector's manifest has the version that the cache key names."""
    (collector,) = (entry for entry in PROGRAMS if entry.name == "collector")
    text = collector.recipe.read_text()
    versions = re.findall(r"^  - gomod: \S+ v(\S+)$", text, re.MULTILINE)
    assert len(versions) == text.count("gomod:")
    assert {*versions, *re.findall(r"^  version: (\S+)$", text, re.MULTILINE)} == {collector.version}

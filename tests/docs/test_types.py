"""README's Python blocks pass strict type checkers that know nothing of pydantic."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.generator import DOCS

ROOT = DOCS.parent
MYPY = "[mypy]\nstrict = true\nno_incremental = true\ncache_dir = {cache}\n"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The blocks one after another, as a reader pastes them, and a subclass's constructor with every kind of field."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    script = tmp_path / "readme.py"
    script.write_text("\n".join(blocks))
    return script


def mypy(script: Path) -> str:
    """What mypy prints; without a plugin."""
    configuration = script.with_name("mypy.ini")
    configuration.write_text(MYPY.format(cache=script.parent / "cache"))
    command = [sys.executable, "-m", "mypy", "--config-file", str(configuration), str(script)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout


def test_mypy_accepts_the_readme(script: Path) -> None:
    """Constructors of evaluators and settings are known to ``mypy --strict`` without the pydantic plugin."""
    assert "Success" in (shown := mypy(script)), shown


def test_mypy_refuses_a_misspelled_field(script: Path) -> None:
    """The constructor has the fields' names, not any."""
    script.write_text("from agenteval_otel.evaluators import KeywordCoverage\n"
                      "KeywordCoverage(criterion_name='a', keyword=['b'])\n")  # fmt: skip
    assert 'Unexpected keyword argument "keyword"' in mypy(script)


@pytest.mark.skipif(shutil.which("pyright") is None, reason="pyright is not installed")
def test_pyright_accepts_the_readme(script: Path) -> None:
    """So are they to pyright."""
    command = ["pyright", "--pythonpath", sys.executable, "--outputjson", str(script)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    assert [one["message"] for one in found["generalDiagnostics"] if one["severity"] == "error"] == []

"""What the documents repeat of the code is what the code says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.generator import DOCS, load_script


def test_no_document_is_out_of_date() -> None:
    """Generated parts stand in their document as they would be written now (else:
    `python docs/generate.py`).
    """
    command = [sys.executable, str(DOCS / "generate.py"), "--check"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout


def test_a_stale_document_is_named_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --check nothing is written and the exit code is 1; without it the part is written and
    the prose stays.
    """
    generator = load_script("generate")
    generator.DOCS = tmp_path / "docs"
    shutil.copytree(DOCS, generator.DOCS)
    document = generator.DOCS / "reference/metrics.md"
    before = document.read_text()
    stale = before.replace("| `agenteval.queue.size`", "| `agenteval.queue.length`")
    assert stale != before
    document.write_text(stale)
    assert generator.main(["--check"]) == 1
    assert "reference/metrics.md" in capsys.readouterr().err
    assert document.read_text() == stale
    assert generator.main([]) == 0
    assert document.read_text() == before

"""What the documents repeat of the code is what the code says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.generator import DOCS, load_script

DOCUMENTS = sorted([*DOCS.glob("*.md"), *DOCS.glob("evaluators/*.md")])


@pytest.fixture
def copied(tmp_path: Path) -> Any:
    """The generator at work on a copy of the documents."""
    generator = load_script("generate")
    generator.DOCS = tmp_path
    for document in [*DOCUMENTS, *DOCS.glob("rubrics/*.md")]:
        copy = tmp_path / document.relative_to(DOCS)
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(document, copy)
    return generator


def test_no_document_is_out_of_date() -> None:
    """Generated parts stand in their document as they would be written now (else: `python docs/generate.py`)."""
    command = [sys.executable, str(DOCS / "generate.py"), "--check"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout


def test_every_part_has_its_place() -> None:
    """Each part that the generator knows is in one document, between markers that it finds; and no other is."""
    parts = load_script("generate").PARTS
    text = "".join(document.read_text() for document in DOCUMENTS)
    assert sorted(re.findall(r"<!-- generated: (.*?) -->", text)) == sorted(parts)
    assert text.count("<!-- end of generated -->") == len(parts)


def test_a_stale_document_is_named_and_written(copied: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """With --check nothing is written and the exit code is 1; without it the part is written and the prose stays."""
    document = copied.DOCS / "telemetry.md"
    before = document.read_text()
    stale = before.replace("| `agenteval.queue.size`", "| `agenteval.queue.length`")
    assert stale != before
    document.write_text(stale)
    assert copied.main(["--check"]) == 1
    assert "telemetry.md" in capsys.readouterr().err
    assert document.read_text() == stale
    assert copied.main([]) == 0
    assert document.read_text() == before
    assert copied.main(["--check"]) == 0

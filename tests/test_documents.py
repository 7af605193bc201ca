"""Documents are true: their code runs, and outcomes are explained."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agenteval_otel import semconv

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("collector-config/*.md"),
        *ROOT.glob("examples/*.md"),
    ]
)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks_of(document: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE)


def run_block(text: str, folder: Path) -> str:
    """What the program prints, run without a warning in a folder where nothing is set."""
    (folder / "blocks.py").write_text(text)
    environment = {"PATH": "", "HOME": str(folder), "PYTHONWARNINGS": "error"}
    finished = subprocess.run(
        [sys.executable, "blocks.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert "Traceback" not in finished.stderr
    return finished.stdout + finished.stderr


@pytest.mark.parametrize("document", [path for path in DOCUMENTS if blocks_of(path)], ids=name_of)
def test_code_blocks_run_one_after_another(document: Path, tmp_path: Path) -> None:
    """A reader who pastes a document's Python blocks into an empty folder sees them run, without a
    warning.
    """
    run_block("\n".join(blocks_of(document)), tmp_path)


README = (ROOT / "README.md").read_text()
_SHOWN = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)
README_BLOCKS = _SHOWN.findall(README)


@pytest.mark.parametrize(("block", "shown"), README_BLOCKS, ids=range(len(README_BLOCKS)))
def test_each_block_of_readme_runs_alone(block: str, shown: str, tmp_path: Path) -> None:
    """A reader may paste any of them first. It prints what stands below it."""
    printed = run_block(block, tmp_path)
    if shown:
        assert printed == shown


def test_readme_stays_short_and_shows_what_it_promises() -> None:
    """It has at most 300 lines, and five of its blocks show what they print."""
    assert len(README.splitlines()) <= 300
    assert sum(bool(shown) for _, shown in README_BLOCKS) >= 5


def test_the_outcomes_are_explained() -> None:
    """Every outcome of the accounting is explained in docs/concepts.md."""
    text = (ROOT / "docs" / "concepts.md").read_text()
    assert [outcome for outcome in semconv.OUTCOMES if f"`{outcome}`" not in text] == []

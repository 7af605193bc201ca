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
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("collector-config/*.md"), *ROOT.glob("examples/*.md")]
)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", [path for path in DOCUMENTS if "```python" in path.read_text()], ids=name_of)
def test_code_blocks_run_one_after_another(document: Path, tmp_path: Path) -> None:
    """A reader who pastes a document's Python blocks into an empty folder sees them run, without a warning."""
    blocks = re.findall(r"^```python\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE)
    script = tmp_path / "blocks.py"
    script.write_text("\n".join(blocks))
    environment = {"PATH": "", "HOME": str(tmp_path), "PYTHONWARNINGS": "error"}
    finished = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert "Traceback" not in finished.stderr


def test_the_outcomes_are_explained() -> None:
    """Every outcome of the accounting is explained in docs/concepts.md."""
    text = (ROOT / "docs" / "concepts.md").read_text()
    assert [outcome for outcome in semconv.OUTCOMES if f"`{outcome}`" not in text] == []

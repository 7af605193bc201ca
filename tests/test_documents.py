"""Documents are true: their code runs, their names exist."""

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


def run(script: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in an empty folder, without an OTLP endpoint, with warnings as errors."""
    environment = {"PATH": "", "HOME": str(folder), "PYTHONWARNINGS": "error"}
    command = [sys.executable, str(script)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("document", [path for path in DOCUMENTS if "```python" in path.read_text()], ids=name_of)
def test_code_blocks_run_one_after_another(document: Path, tmp_path: Path) -> None:
    """A reader who pastes a document's Python blocks into an empty folder sees them run."""
    blocks = re.findall(r"^```python\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE)
    script = tmp_path / "blocks.py"
    script.write_text("\n".join(blocks))
    finished = run(script, tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "Traceback" not in finished.stderr


def test_the_telemetry_reference_names_everything_that_is_emitted() -> None:
    """Every name in `semconv.py` stands in docs/telemetry.md, and every agenteval.* name there in `semconv.py`."""
    text = (ROOT / "docs" / "telemetry.md").read_text()
    names = {
        value for value in vars(semconv).values() if isinstance(value, str) and re.match(r"(gen_ai|agenteval)\.", value)
    }
    names |= {value.name for value in vars(semconv).values() if isinstance(value, semconv.Instrument)}
    assert {name for name in names if f"`{name}`" not in text} == set()
    assert set(re.findall(r"`(agenteval\.[a-z_.0-9]+)`", text)) <= names


def test_the_outcomes_are_explained() -> None:
    """Every outcome of the accounting is explained in docs/concepts.md."""
    text = (ROOT / "docs" / "concepts.md").read_text()
    assert [outcome for outcome in semconv.OUTCOMES if f"`{outcome}`" not in text] == []

"""README's Python blocks and constructors pass strict type checkers that know nothing of pydantic."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.generator import DOCS

ROOT = DOCS.parent
README = "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL))
MYPY = "[mypy]\nstrict = true\nno_incremental = true\ncache_dir = {cache}\n"
MISSPELLED = """
from agenteval_otel import EvaluationRunConfig, Suite
from agenteval_otel.evaluators import KeywordCoverage, Length, LLMJudge, RuleBased
KeywordCoverage(criterion_name='a', keyword=['b'])
RuleBased(rules=[Length(criterion='short', maximum=80)])
LLMJudge("polite?", jugde="openai:m")
LLMJudge("polite?", judge=3)
EvaluationRunConfig(evaluator=[])
Suite(evaluators=[], title='x')
"""
SHORT = """
from agenteval_otel import Score
from agenteval_otel.evaluators import Coherence, LLMJudge
from agenteval_otel.judges import Judge
async def ask(prompt: str, system: str) -> str:
    return prompt
polite = LLMJudge('Is the answer polite?', judge='anthropic:claude-haiku-4-5', threshold=1)
judge: Judge = polite.judge
judges = [Coherence(judge=judge), Coherence(judge=ask), Coherence(judge={'type': 'openai', 'model': 'm'})]
score = Score(0.5, reasoning='half of it')
"""


def mypy(script: Path) -> list[str]:
    """The errors of ``mypy --strict`` without a plugin."""
    configuration = script.with_name("mypy.ini")
    configuration.write_text(MYPY.format(cache=script.parent / "cache"))
    command = [sys.executable, "-m", "mypy", "--config-file", str(configuration), str(script)]
    report = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout
    return [line for line in report.splitlines() if ": error:" in line]


def pyright(script: Path) -> list[str]:
    """The errors of pyright."""
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--pythonpath",
        sys.executable,
        "--outputjson",
        str(script),
    ]
    report = json.loads(
        subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout
    )
    assert report["summary"]["filesAnalyzed"] == 1
    return [item["message"] for item in report["generalDiagnostics"] if item["severity"] == "error"]


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_the_readme_passes(checker: Callable[[Path], list[str]], tmp_path: Path) -> None:
    """The blocks one after another, as a reader pastes them."""
    script = tmp_path / "readme.py"
    script.write_text(README)
    assert checker(script) == []


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_short_forms_are_typed(checker: Callable[[Path], list[str]], tmp_path: Path) -> None:
    """The one positional argument of a judge and of a score, and whatever may stand for a judge."""
    script = tmp_path / "short.py"
    script.write_text(SHORT)
    assert checker(script) == []


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_misspelled_argument_is_refused(
    checker: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    """Constructors know their fields: an evaluator's, a rule's, a run configuration's and a
    suite's.
    """
    script = tmp_path / "misspelled.py"
    script.write_text(MISSPELLED)
    errors = checker(script)
    for name in ("keyword", "maximum", "jugde", "judge", "evaluator", "title"):
        assert any(f'"{name}"' in error for error in errors), (name, errors)

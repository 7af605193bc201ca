"""README's Python blocks and constructors pass strict type checkers that know nothing of pydantic."""

from __future__ import annotations

import json
import re
import subprocess
import sys
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


def mypy(folder: Path) -> list[str]:
    """The errors of ``mypy --strict`` without a plugin, with their files."""
    configuration = folder / "mypy.ini"
    configuration.write_text(MYPY.format(cache=folder / "cache"))
    command = [sys.executable, "-m", "mypy", "--config-file", str(configuration), str(folder)]
    report = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout
    return [line for line in report.splitlines() if ": error:" in line]


def pyright(folder: Path) -> list[str]:
    """The errors of pyright, with their files."""
    options = ["--pythonpath", sys.executable, "--outputjson", str(folder)]
    command = [sys.executable, "-m", "pyright", *options]
    report = json.loads(
        subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout
    )
    assert report["summary"]["filesAnalyzed"] == 3
    return [
        f"{item['file']}: {item['message']}"
        for item in report["generalDiagnostics"]
        if item["severity"] == "error"
    ]


@pytest.fixture(scope="module", params=[mypy, pyright])
def errors(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What a type checker says of the three scripts, which it reads in one run."""
    folder = tmp_path_factory.mktemp("scripts")
    for name, text in (("readme", README), ("short", SHORT), ("misspelled", MISSPELLED)):
        (folder / f"{name}.py").write_text(text)
    return list(request.param(folder))


def test_the_readme_passes(errors: list[str]) -> None:
    """The blocks one after another, as a reader pastes them."""
    assert [error for error in errors if "readme.py" in error] == []


def test_short_forms_are_typed(errors: list[str]) -> None:
    """The one positional argument of a judge and of a score, and whatever may stand for a judge."""
    assert [error for error in errors if "short.py" in error] == []


def test_a_misspelled_argument_is_refused(errors: list[str]) -> None:
    """Constructors know their fields: an evaluator's, a rule's, a run configuration's and a
    suite's.
    """
    for name in ("keyword", "maximum", "jugde", "judge", "evaluator", "title"):
        found = [error for error in errors if "misspelled.py" in error and f'"{name}"' in error]
        assert found, (name, errors)

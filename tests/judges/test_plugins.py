"""Judges of other packages: settings name them when, and only when, they list the module or the
entry point.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agenteval_otel import EvaluationInput, EvaluationRunConfig, run_evaluation_sync
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.judges import Judge

PLUGIN = """
from agenteval_otel.judges import Judge, JudgeRequest, Verdict, parse_answer

class LongestWins(Judge, type="longest_wins"):
    least: int = 1

    async def judge(self, request: JudgeRequest) -> Verdict:
        raw = '{"evidence": [], "reason": "by length", "score": %s}' % str(len(request.prompt) >= self.least).lower()
        return Verdict(answer=parse_answer(raw, request.answer_form), raw=raw, model=self.model)
"""
CONFIG = {
    "evaluators": [
        {
            "type": "LLMJudge",
            "criterion_name": "long",
            "judge": {"type": "longest_wins", "least": 5},
        }
    ]
}


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module, and a package's entry point that leads to it."""
    (tmp_path / "judging_of_test_plugins.py").write_text(PLUGIN)
    information = tmp_path / "judging-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: judging\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[agenteval_otel.judges]\nlongest = judging_of_test_plugins:LongestWins\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    Judge.registry.pop("longest_wins", None)
    sys.modules.pop("judging_of_test_plugins", None)


@pytest.mark.parametrize("name", ["longest", "judging_of_test_plugins"])
@pytest.mark.usefixtures("plugin")
def test_judges_come_from_listed_plugins(name: str) -> None:
    """Settings list the entry point or the module; otherwise the type is unknown."""
    with pytest.raises(
        ConfigurationError, match=r"evaluators\[0\]\.judge: unknown judge type 'longest_wins'"
    ):
        EvaluationRunConfig.model_validate(CONFIG)
    config = EvaluationRunConfig.model_validate({**CONFIG, "plugins": [name]})
    (result,) = run_evaluation_sync(EvaluationInput(response="An answer."), config).results
    assert (result.score, result.reasoning) == (True, "by length")

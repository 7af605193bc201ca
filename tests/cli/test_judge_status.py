"""`judge status`: trust, agreement and refusals of judges, from a page of metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from agenteval_otel.cli import main
from agenteval_otel.offline.reports.figures import DASH

PAGE = """\
# TYPE agenteval_judge_agreement gauge
agenteval_judge_agreement{gen_ai_evaluation_name="polite",agenteval_judge_model="m",agenteval_judge_check="canary",instance="1"} 0.95
agenteval_judge_agreement{gen_ai_evaluation_name="polite",agenteval_judge_model="m",agenteval_judge_check="canary",instance="2"} 0.4
agenteval_judge_agreement{gen_ai_evaluation_name="true",agenteval_judge_model="m",agenteval_judge_check="people",instance="1"} 1
agenteval_judge_untrusted{gen_ai_evaluation_name="polite",agenteval_judge_model="m",agenteval_judge_check="canary",instance="2"} UNTRUSTED
agenteval_judge_untrusted{gen_ai_evaluation_name="true",agenteval_judge_model="m",agenteval_judge_check="people",instance="1"} 0
agenteval_judge_drift{gen_ai_evaluation_name="true",agenteval_judge_model="m"} 0.034
agenteval_judge_length_correlation{gen_ai_evaluation_name="true",agenteval_judge_model="m",instance="1"} -0.62
agenteval_judge_length_correlation{gen_ai_evaluation_name="true",agenteval_judge_model="m",instance="2"} 0.2
agenteval_judge_calls_total{agenteval_judge_model="m",agenteval_outcome="answered"} 97
agenteval_judge_calls_total{agenteval_judge_model="m",agenteval_outcome="refusal"} 2
agenteval_judge_calls_total{agenteval_judge_model="m",agenteval_outcome="malformed_answer"} 1
agenteval_judge_calls_total{agenteval_judge_model="m",agenteval_outcome="cached"} 50
agenteval_judge_changes_total{agenteval_judge_model="m"} 1
"""  # noqa: E501 - lines of a page


@pytest.mark.parametrize(("untrusted", "code", "word"), [(1, 1, "no: canary"), (0, 0, "yes")])
def test_the_worst_of_all_processes_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], untrusted: int, code: int, word: str
) -> None:
    """A judge that is not trusted anywhere is an exit code of 1."""
    page = tmp_path / "metrics.txt"
    page.write_text(PAGE.replace("UNTRUSTED", str(untrusted)))
    assert main(["judge", "status", "--from", str(page)]) == code
    heading, polite, true, _, calls = capsys.readouterr().out.replace(DASH, "-").splitlines()
    assert heading.split() == [
        "criterion",
        "judge",
        "trusted",
        "canary",
        "repeat",
        "position",
        "people",
        "drift",
        "length",
    ]
    assert polite.split() == ["polite", "m", *word.split(), "40", "%", "-", "-", "-", "-", "-"]
    assert true.split() == ["true", "m", "yes", "-", "-", "-", "100", "%", "0.03", "-0.62"]
    assert calls == "m: 100 calls, 2.0 % refused, 1.0 % unreadable, 1 change of the model"


@pytest.mark.parametrize(
    ("page", "problem"), [("", "no judge is watched"), (None, "cannot be read")]
)
def test_a_page_without_judges_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], page: str | None, problem: str
) -> None:
    """Silence is not trust."""
    file = tmp_path / "metrics.txt"
    if page is not None:
        file.write_text(page)
    assert main(["judge", "status", "--from", str(file)]) == 2
    assert problem in capsys.readouterr().err

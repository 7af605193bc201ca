"""`judge status`: trust, agreement and refusals of judges, from a page of metrics."""

from __future__ import annotations

import pytest

from agenteval_otel.offline.reports.figures import DASH
from tests.cli.conftest import CommandLine

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
    cli: CommandLine, untrusted: int, code: int, word: str
) -> None:
    """A judge that is not trusted anywhere is an exit code of 1."""
    cli.file("page", PAGE.replace("UNTRUSTED", str(untrusted)))
    shown = cli("judge status --from page", code=code).replace(DASH, "-")
    heading, polite, true, _, calls = (" ".join(line.split()) for line in shown.splitlines())
    assert heading == "criterion judge trusted canary repeat position people drift length"
    assert polite == f"polite m {word} 40 % - - - - -"
    assert true == "true m yes - - - 100 % 0.03 -0.62"
    assert calls == "m: 100 calls, 2.0 % refused, 1.0 % unreadable, 1 change of the model"


def test_a_page_without_judges_is_an_error(cli: CommandLine) -> None:
    """Silence is not trust."""
    cli("judge status --from page", code=2)
    assert "cannot be read" in cli.err
    cli.file("page", "")
    cli("judge status --from page", code=2)
    assert "no judge is watched" in cli.err

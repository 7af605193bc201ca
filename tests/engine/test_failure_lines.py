"""What the log says of an evaluator that gave no score, live."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from agenteval_otel import monitor
from agenteval_otel.engine.pipeline import PoolDispatcher
from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators import Func, LLMJudge
from agenteval_otel.testing import RecordedTelemetry, ScriptedJudge
from tests.promises.bench import pipeline_of

PROSE = "I would say that it is polite."
SECRET = "sk-ant-api03-" + "a" * 40


def lines_of(
    caplog: pytest.LogCaptureFixture,
    evaluator: Any,
    content: Any = "no_content",
    answer: str = "an answer",
) -> list[str]:
    """Return our log lines, of debug level too, when one answer is evaluated."""
    telemetry = RecordedTelemetry()
    pipeline = pipeline_of(
        evaluator,
        storage=(telemetry.storage(content=content),),
        dispatcher=PoolDispatcher(),
    )
    with caplog.at_level(logging.DEBUG, logger="agenteval_otel"):
        monitor(pipeline=pipeline, agent="agent")(lambda: answer)()
        assert pipeline.flush(30)
    pipeline.shutdown(30)
    telemetry.shutdown()
    return [record.getMessage() for record in caplog.records if record.name == "agenteval_otel"]


def of_event(lines: list[str], event: str) -> list[str]:
    return [line for line in lines if f"event='{event}'" in line]


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        (7, "the score 7 lies outside of the scale 'numeric', which takes 0 to 1"),
        (-0.5, "the score -0.5 lies outside of the scale 'numeric', which takes 0 to 1"),
    ],
)
def test_a_score_beyond_its_scale_is_named_with_the_scale(
    caplog: pytest.LogCaptureFixture, returned: float, problem: str
) -> None:
    """The line has the number that came and what the scale takes: neither is content."""

    def seven(evaluation_input: Any) -> float:
        return returned

    [line] = of_event(lines_of(caplog, Func.of(seven)), "evaluation_failed")
    assert line.startswith(
        f"seven could not score an answer: invalid_score: {problem}. Another range is"
    )


@pytest.mark.parametrize(
    "answer",
    [
        "x the score 1 lies outside of the scale 'alice@example.com', which takes 1 to 5",
        "the score 1 lies outside of the scale 'numeric', which takes 0 to 1",
    ],
)
def test_an_error_that_quotes_the_answer_is_told_by_its_type(
    caplog: pytest.LogCaptureFixture, answer: str
) -> None:
    """Whatever the answer says of a scale."""

    def quotes(evaluation_input: Any) -> float:
        raise ValueError(evaluation_input.response_text)

    [line] = of_event(lines_of(caplog, Func.of(quotes), answer=answer), "evaluation_failed")
    assert "lies outside" not in line


def test_an_evaluators_own_words_are_in_no_line(caplog: pytest.LogCaptureFixture) -> None:
    """Its error may have the type of ours, and quote the answer."""

    def quotes(evaluation_input: Any) -> float:
        text = evaluation_input.response_text
        raise EvaluationError(
            f"{text}: the score 7 lies outside of the scale '{text}', which takes 0 to 1",
            error_type="invalid_score",
        )

    [line] = of_event(lines_of(caplog, Func.of(quotes)), "evaluation_failed")
    assert "an answer lies" not in line
    assert "lies outside" not in line


def judge_that_says(reply: str) -> LLMJudge:
    return LLMJudge("Is it polite?", judge=ScriptedJudge(replies=(reply,)))


def test_a_reply_that_cannot_be_read_is_shown_at_debug_level_with_content(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its beginning stands in a line of debug level where content is captured, without secrets."""
    evaluator = judge_that_says(f"{PROSE} {SECRET}")
    lines = lines_of(caplog, evaluator, content="span_and_event")
    [shown] = of_event(lines, "evaluation_error")
    assert PROSE in shown
    assert SECRET not in shown
    assert not any(PROSE in line for line in of_event(lines, "evaluation_failed"))


def test_without_content_a_reply_is_in_no_line(caplog: pytest.LogCaptureFixture) -> None:
    """At debug level too."""
    lines = lines_of(caplog, judge_that_says(PROSE))
    assert len(of_event(lines, "evaluation_failed")) == 1
    assert not any(PROSE in line for line in lines)

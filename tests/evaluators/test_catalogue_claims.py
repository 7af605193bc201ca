"""Claims: the judge lists and decides, code counts; what cannot be counted is no score."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest

from agenteval_otel import EvaluationCriteria, EvaluationInput
from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators import LLMJudge, Rubric
from agenteval_otel.evaluators.judges.prompt import CaseText
from agenteval_otel.evaluators.llm_judge.replies import CriterionReply, claims_reply
from agenteval_otel.evaluators.llm_judge.rubric import Claims
from agenteval_otel.testing import ScriptedJudge
from tests.evaluators.catalogue import FULL, built, results

TEXT = "The order was **sent** on Monday, and it's due on \u201cTuesday\u201d. It costs 4.50 EUR \U0001f44d"
CLAIMS = Claims(listed="a statement of the response.", holds="true if it is so.", most=4)


def claim(quote: Any, holds: Any = True, evidence: Any = "e") -> dict[str, Any]:
    return {"quote": quote, "evidence": evidence, "holds": holds}


def of(*listed: Any, claims: Claims = CLAIMS, source: Any = TEXT) -> CriterionReply:
    return claims_reply(list(listed), claims, CaseText(source), None)


def unquoted(reply: CriterionReply) -> int:
    return int(reply.facts.get("unfoundQuotes", 0))


def test_the_score_is_the_share_that_holds() -> None:
    """Claims that hold, by claims; each stands in the metadata with its evidence."""
    answer = {
        "claims": [claim("sent on Monday"), claim("due on", False), claim("4.50 EUR")],
        "reason": "r",
    }
    (result,) = results(
        built("Truth", ScriptedJudge(replies=(answer,))), EvaluationInput(response=TEXT)
    )
    assert result.score == result.normalized == pytest.approx(2 / 3)
    assert (result.passed, result.reasoning) == (False, "r")
    assert [item["holds"] for item in (result.metadata or {})["claims"]] == [True, False, True]
    assert "unfoundQuotes" not in (result.metadata or {})


@pytest.mark.parametrize(
    ("scale", "score", "normalized"),
    [
        ("numeric", 0.5, 0.5),
        ("likert5", 3.0, 0.5),
        ("0-10", 5.0, 0.5),
        ("pass/fail", False, 0.0),
        ("binary", False, 0),
    ],
)
def test_a_share_on_other_scales(scale: str, score: Any, normalized: float) -> None:
    """A criterion of the input on another range gets the share of it; one of two levels passes
    where all hold.
    """
    rubric = Rubric(criterion_name="c", scale="numeric", claims=CLAIMS)
    answer = {"claims": [claim("sent"), claim("due", False)], "reason": ""}
    requests = EvaluationCriteria(name="c", scale=scale)
    judge = LLMJudge(judge=ScriptedJudge(fallback=answer), rubrics=[rubric])
    (result,) = results(judge, EvaluationInput(response=TEXT, criteria=(requests,)))
    assert (result.score, type(result.score)) == (score, type(score))
    assert result.normalized == normalized


@pytest.mark.parametrize(
    "quote",
    [
        "sent on Monday",
        "THE ORDER WAS SENT",
        'it\u2019s due on "Tuesday"',
        "The order ... sent on Monday",
        "The order [...] due on Tuesday",
        "order\u2026Tuesday",
        "It costs\n4.50 EUR",
        "\U0001f44d",
        "4,50 EUR",
    ],
)
def test_quotes_are_found_as_models_write_them(quote: str) -> None:
    """Other quotation marks, emphasis, space, case, and dots where something was left out, are the
    same words.
    """
    assert unquoted(of(claim(quote))) == 0


@pytest.mark.parametrize(
    ("quote", "source"),
    [
        ("caf\u00e9", unicodedata.normalize("NFD", "Un caf\u00e9 cr\u00e8me.")),
        (unicodedata.normalize("NFD", "caf\u00e9"), "Un caf\u00e9 cr\u00e8me."),
        ("\uff11\uff10\uff10 yen", "It costs 100 yen."),
        ("first line\\nsecond", "The first line\nsecond line."),
        ("the pass\\u200bword", "It is the pass\u200bword."),
        ("C:\\new", "It is in C:\\new today."),
        ("first line\nsecond", {"text": "The first line\nsecond line."}),
        ('due on "Tuesday"', {"text": ['It is due on "Tuesday"']}),
        ('"amount": 5', {"amount": 5}),
    ],
)
def test_quotes_are_found_whatever_form_the_text_is_written_in(quote: str, source: Any) -> None:
    """Composed or not, in full width, as it stands in JSON or as JSON says it, and in what is no
    text itself.
    """
    assert unquoted(of(claim(quote), source=source)) == 0


def test_only_of_tool_calls_each_entry_is_a_claim() -> None:
    """A conversation, which is a list too, is a text to quote from."""
    messages = [
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "It is sent, and due."},
    ]
    spoken = Claims(listed="a statement.", holds="true if so.", source="history")
    assert (
        of(
            claim("It is sent"), claim("due", False), claim("Hello"), claims=spoken, source=messages
        ).raw
        == 2 / 3
    )


@pytest.mark.parametrize("size", [10, 40])
def test_tool_calls_that_are_shortened_stay_one_claim_each(size: int) -> None:
    """Long results are cut call by call, so that the judge sees each call, and its verdicts can be
    counted.
    """
    calls = [
        {"name": "search", "arguments": {"q": "x"}, "result": "found " * 400} for _ in range(size)
    ]
    value = EvaluationInput.model_validate({**FULL.model_dump(), "tool_calls": calls})
    answer = {"claims": [claim("search")] * (size - 1) + [claim("search", False)], "reason": ""}
    evaluator = built("ToolCallAccuracy", ScriptedJudge(fallback=answer))
    (result,) = results(evaluator, value)
    assert result.score == (size - 1) / size
    prompt, case = evaluator.question_for(value)[0].prompt, evaluator.question_for(value)[1]
    assert prompt.count("search") >= size
    assert len(prompt) < 2 * evaluator.max_field_chars
    assert case["tool_calls"].left_out > 0


@pytest.mark.parametrize(
    "quote", ["sent on Friday", "Tuesday ... Monday", "It is free", "\U0001f44e"]
)
def test_quotes_that_are_not_there_do_not_count(quote: str) -> None:
    """Neither for nor against: the share is that of the others, and their number is told; alone
    they are a failure.
    """
    reply = of(claim("sent"), claim("due", False), claim(quote, False))
    assert (reply.raw, unquoted(reply), len(reply.facts["claims"])) == (0.5, 1, 2)
    with pytest.raises(EvaluationError, match="1 of 1 quotes") as caught:
        of(claim(quote))
    assert caught.value.error_type == "malformed_answer"


@pytest.mark.parametrize(
    "listed",
    [
        None,
        "none",
        {"quote": "sent"},
        ["sent"],
        [claim("sent"), None],
        [claim("")],
        [claim("  ")],
        [claim(7)],
        [claim("sent", "true")],
        [claim("sent", 1)],
        [claim("sent", None)],
        [claim("sent"), {"quote": "due"}],
        [claim("sent", evidence=["e"])],
        [claim("sent"), claim("x1"), claim("x2")],
    ],
)
def test_what_are_no_claims_is_a_failure(listed: Any) -> None:
    """One that is wrong spoils the list: what would be left is not what the judge found."""
    with pytest.raises(EvaluationError) as caught:
        claims_reply(listed, CLAIMS, CaseText(TEXT), None)
    assert caught.value.error_type == "malformed_answer"


def test_more_claims_than_are_asked_for_are_a_failure() -> None:
    """The judge was told the most that there may be."""
    with pytest.raises(EvaluationError) as caught:
        of(*[claim("sent")] * 5)
    assert caught.value.error_type == "out_of_range"


def test_no_claims_are_a_skip() -> None:
    """A share of nothing is no score; the reason says so, and the call is still counted."""
    with pytest.raises(EvaluationSkipped, match=r"^no claims$"):
        of()
    judge = ScriptedJudge(fallback={"claims": [], "reason": "It refuses."}, output_tokens=5)
    (result,) = results(built("Groundedness", judge))
    assert (result.status, result.skip_reason) == ("skipped", "no claims")
    assert (result.metadata or {})["judge"]["outputTokens"] == 5


def test_every_tool_call_has_its_verdict() -> None:
    """As many verdicts as calls, each with its call's name; else nobody knows which call was meant."""
    calls = [
        {"name": "search", "arguments": {"q": "x"}},
        {"name": "pay", "arguments": {"amount": 3}},
    ]
    every = Claims(listed="each call.", holds="true if right.", source="tool_calls", most=1)
    assert of(claim("search"), claim("pay", False), claims=every, source=calls).raw == 0.5
    for wrong in ([claim("search")], [claim("search"), claim("pay"), claim("pay")], []):
        with pytest.raises(EvaluationError, match="verdicts for 2 entries"):
            of(*wrong, claims=every, source=calls)
    with pytest.raises(EvaluationError, match="quotes"):
        of(claim("pay"), claim("search"), claims=every, source=calls)


def test_a_claim_is_quoted_from_what_the_judge_was_shown() -> None:
    """Of a text whose middle was left out, words of the middle are no quote."""
    text = "It begins here. " + "x" * 2_000 + " hidden words " + "y" * 2_000 + " It ends here."
    answer = {
        "claims": [claim("begins here"), claim("ends here"), claim("hidden words")],
        "reason": "",
    }
    evaluator = built("Truth", ScriptedJudge(fallback=answer), max_field_chars=200)
    (result,) = results(evaluator, EvaluationInput(response=text))
    assert (result.score, (result.metadata or {})["unfoundQuotes"]) == (1.0, 1)


@pytest.mark.parametrize("gap", [" ", "[ ", ".", "\\u200b", "\u0301"])
def test_long_omissions_are_no_words(gap: str) -> None:
    """However much space or how many marks stand in a quote, its words are compared."""
    quote = "it is" + gap * (1_900 // len(gap)) + "sent"
    assert unquoted(of(claim(quote), source=f"it is{'a' * 1_900}sent, it is sent")) == 0

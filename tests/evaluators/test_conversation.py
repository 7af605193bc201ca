"""Whole conversations: one input of all turns, and the evaluators that look at it."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from agenteval_otel import (
    EvaluationInput,
    EvaluationRunConfig,
    run_evaluation_sync,
    run_evaluations_sync,
)
from agenteval_otel.errors import ConfigurationError, EvaluationSkipped
from agenteval_otel.evaluators import (
    Contradiction,
    Evaluator,
    Repetition,
    ResponseHealth,
    SelfHarm,
    TaskAdherence,
    ToolLoops,
    TrajectoryMatch,
    TurnsToResolution,
    UnansweredQuestions,
)
from agenteval_otel.models import EvaluationResult
from agenteval_otel.testing import ScriptedJudge
from tests.evaluators.support import result_of

WRITING = (
    "book_reservation",
    "cancel_reservation",
    "send_certificate",
    "update_reservation_baggages",
    "update_reservation_flights",
    "update_reservation_passengers",
)


def turn(
    prompt: str, response: str = "Here is what I know of it.", **fields: Any
) -> dict[str, Any]:
    return {"prompt": prompt, "response": response, **fields}


def whole(*turns: dict[str, Any], **fields: Any) -> EvaluationInput:
    return EvaluationInput.model_validate({"conversation": list(turns), **fields})


def of(evaluator: Evaluator, *turns: dict[str, Any]) -> EvaluationResult:
    return result_of(evaluator, None, **{"conversation": list(turns)})


def test_a_conversation_is_one_input_with_all_that_its_turns_have() -> None:
    """The last answer and its question, all before as history, all calls in order, sums where every
    turn has a part.
    """
    first = turn(
        "Hi",
        "Hello.",
        tool_calls=[{"name": "a"}],
        cost=0.5,
        duration_s=1.0,
        usage={"input_tokens": 3},
    )
    last = turn(
        "Bye",
        "Farewell.",
        tool_calls=[{"name": "b"}, {"name": "a"}],
        cost=0.25,
        usage={"input_tokens": 4},
    )
    first["message_history"] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]
    conversation = whole(
        first, {**last, "conversation_id": "c-1", "message_history": first["message_history"]}
    )
    assert (conversation.prompt, conversation.response, conversation.conversation_id) == (
        "Bye",
        "Farewell.",
        "c-1",
    )
    assert [call.name for call in conversation.tool_calls or ()] == ["a", "b", "a"]
    assert (conversation.cost, conversation.duration_s) == (0.75, None)
    assert conversation.usage is not None
    assert (conversation.usage.input_tokens, conversation.usage.output_tokens) == (7, None)
    history = [(message.role, message.content) for message in conversation.message_history or ()]
    assert history == [
        ("system", "Be brief."),
        ("user", "Hi"),
        ("assistant", "Hello."),
        ("user", "Bye"),
    ]
    assert (
        EvaluationInput.model_validate(conversation.model_dump(exclude_defaults=True))
        == conversation
    )
    assert whole(first, last, response="mine").response == "mine"


def test_a_conversation_is_read_from_its_messages() -> None:
    """A turn begins with the user's message; results go to calls by id, else in order; the last
    word is no answer.
    """
    conversation = EvaluationInput(
        conversation=[  # type: ignore[arg-type]
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Find it"},
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [{"id": "1", "name": "a"}, {"id": "2", "name": "b"}],
            },
            {"role": "tool", "tool_call_id": "2", "content": "two"},
            {"role": "tool", "content": "one"},
            {"role": "assistant", "content": "Here."},
            {"role": "user", "content": "And"},
            {"role": "user", "content": "that?"},
            {"role": "assistant", "content": "There."},
            {"role": "user", "content": "Thanks"},
        ]
    )
    assert conversation.conversation is not None
    assert [(part.prompt, part.response) for part in conversation.conversation] == [
        ("Find it", "I look.\n\nHere."),
        ("And\n\nthat?", "There."),
        ("Thanks", None),
    ]
    assert [(call.name, call.result) for call in conversation.tool_calls or ()] == [
        ("a", "one"),
        ("b", "two"),
    ]
    assert (conversation.prompt, conversation.response) == ("And\n\nthat?", "There.")
    assert [message.role for message in conversation.message_history or ()] == [
        "system",
        "user",
        "assistant",
        "user",
    ]


def test_a_turn_is_no_conversation() -> None:
    """Conversations do not nest, and one without turns is none."""
    with pytest.raises((ValidationError, ConfigurationError), match="a turn is one answer"):
        EvaluationInput(conversation=[whole(turn("a"))])
    assert EvaluationInput(response="a", conversation=[]).conversation is None


def test_a_conversation_is_for_evaluators_that_look_at_conversations() -> None:
    """Those of answers are skipped, unless they are told to look at it; nor is an answer one."""
    conversation = whole(turn("a"), turn("b", "Something else altogether."))
    statuses = []
    for evaluates in ("answer", "conversation"):
        config = EvaluationRunConfig(evaluators=[ResponseHealth(evaluates=evaluates)])
        (result,) = run_evaluation_sync(conversation, config).results
        statuses.append(result.status)
    assert statuses == ["skipped", "scored"]
    config = EvaluationRunConfig(evaluators=[Repetition()])
    (result,) = run_evaluation_sync(EvaluationInput(response="Yes."), config).results
    assert (result.status, result.skip_reason) == ("skipped", "no conversation")


SIGNS: list[tuple[dict[str, Any], float, dict[str, Any] | None]] = [
    ({"tools": ["book"]}, 1.0, {"turns": 2}),
    ({"phrases": ["IS BOOKED"]}, 1.0, {"turns": 2}),
    ({"user_phrases": ["thank you"]}, 2 / 3, {"turns": 3}),
    ({"end_mark": True}, 0.5, {"turns": 4}),
    ({"tools": ["cancel"]}, 0.0, None),
]


@pytest.mark.parametrize(
    ("signs", "score", "metadata"), SIGNS, ids=[next(iter(case[0])) for case in SIGNS]
)
def test_turns_are_counted_until_the_first_sign(signs: Any, score: float, metadata: Any) -> None:
    """A call that did not fail, a phrase of the answer, one of the user's in the turn before, or
    the end mark.
    """
    result = of(
        TurnsToResolution(max_turns=2, **signs),
        turn("Book it", tool_calls=[{"name": "book", "result": "Error: no seats"}]),
        turn("Another", "It is booked.", tool_calls=[{"name": "book", "result": "{}"}]),
        turn("And my bag?"),
        turn("Thank you!", conversation_ends=True),
    )
    assert result.score == pytest.approx(score)
    assert result.passed is (score == 1.0)
    assert result.metadata == metadata
    assert result.reason_code == (
        None if score == 1.0 else "too_many_turns" if score else "not_resolved"
    )


def test_an_answer_that_says_what_one_before_said_is_repeated() -> None:
    """Nearly word for word, without case and spacing; short ones do not count, and one answer
    repeats nothing.
    """
    same = "Your parcel is on its way and arrives on Tuesday."
    result = of(
        Repetition(),
        turn("a", same),
        turn("b", "OK"),
        turn("c", "Please tell me the number of your order."),
        turn("d", same.upper() + " "),
    )
    assert (result.score, result.passed, result.reason_code) == (0.5, False, "repeated_answer")
    assert result.metadata == {"turns": [4]}
    assert (
        of(
            Repetition(), turn("a", same), turn("b", "The shop is closed on Mondays, I am afraid.")
        ).score
        == 1.0
    )
    with pytest.raises(EvaluationSkipped, match="fewer than two answers"):
        of(Repetition(), turn("a", same), turn("b", "OK"))


def test_a_question_that_is_asked_again_was_not_answered() -> None:
    """Nearly word for word, after an answer; one of a turn that got none is not held against it."""
    question = "When does my parcel arrive in Oslo?"
    result = of(
        UnansweredQuestions(),
        turn(f"Hello. {question} Where is it now, please?"),
        turn("And the colour?"),
        turn("When does my parcel arrive in Oslo ??"),
    )
    assert (result.score, result.passed) == (pytest.approx(2 / 3), False)
    assert (result.reason_code, result.metadata) == ("asked_again", {"turns": [3]})
    assert of(UnansweredQuestions(), turn(question, ""), turn(question)).score == 1.0
    assert of(UnansweredQuestions(), turn("いつ荷物がオスロに届きますか\uff1f")).score == 1.0
    with pytest.raises(EvaluationSkipped, match="no questions"):
        of(UnansweredQuestions(), turn("Tell me. Really?"))


def test_a_conversation_that_ends_in_an_error_is_scored() -> None:
    """What was said before the handler raised is there; a judge has no last answer to look at."""
    judge = ScriptedJudge(fallback={"evidence": [], "reason": "r", "score": 5})
    config = EvaluationRunConfig(
        evaluators=[Repetition(), TaskAdherence(judge=judge, evaluates="conversation")]
    )
    turns = [
        turn("a", "The first of the answers."),
        turn("b", "Another answer than that."),
        {"prompt": "c"},
    ]
    results = run_evaluation_sync(
        whole(*turns[:2], {**turns[2], "error_type": "KeyError"}), config
    ).results
    assert [result.status for result in results] == ["scored", "skipped"]


def asked(judge: ScriptedJudge) -> list[str]:
    return [request.prompt for request in judge.requests]


def test_a_judge_sees_the_whole_conversation() -> None:
    """Its messages as history, and that all of the assistant's count; also where the criterion is
    of harm.
    """
    judge = ScriptedJudge(fallback={"evidence": [], "reason": "r", "score": True})
    turns = [turn("How much?", "It costs 10."), turn("Sure?", "It costs 12.")]
    result = of(Contradiction(judge=judge), *turns)
    assert (result.status, result.passed) == ("scored", True)
    (prompt,) = asked(judge)
    assert "whole conversation" in prompt
    assert all(text in prompt for text in ("How much?", "It costs 10.", "Sure?", "It costs 12."))
    harm = ScriptedJudge(fallback={"evidence": [], "reason": "r", "score": 5})
    of(SelfHarm(judge=harm, evaluates="conversation"), *turns)
    assert "It costs 10." in asked(harm)[0]
    of(SelfHarm(judge=harm), *turns)
    assert "It costs 10." not in asked(harm)[1]


def test_every_turn_is_redacted_before_a_judge_sees_it() -> None:
    """And in a worker process a conversation arrives whole."""
    judge = ScriptedJudge(fallback={"evidence": [], "reason": "r", "score": True})
    turns = [
        turn("I am joe.doe@example.com", "Hello, how can I help you?"),
        turn("So?", "All is done that you want."),
    ]
    evaluators = [Contradiction(judge=judge), Repetition(execution="process")]
    results = run_evaluation_sync(whole(*turns), EvaluationRunConfig(evaluators=evaluators)).results
    assert [result.score for result in results] == [True, 1.0]
    assert "joe.doe" not in asked(judge)[0]
    assert "Hello, how can I help you?" in asked(judge)[0]


def test_a_long_conversation_is_judged_in_windows_of_its_turns() -> None:
    """Each turn is in a window, the last of one in the next too, the system's message in all; the
    worst counts.
    """
    replies = [
        {"evidence": [], "reason": "r", "score": score} for score in (5, 2, 4, 5, 5, 5, 5, 5)
    ]
    judge = ScriptedJudge(replies=tuple(replies))
    turns = [turn(f"question {number}", f"answer {number} " + "x" * 250) for number in range(6)]
    turns[0]["message_history"] = [{"role": "system", "content": "Never say x."}]
    evaluator = TaskAdherence(judge=judge, evaluates="conversation", max_field_chars=1_000)
    result = of(evaluator, *turns)
    prompts = asked(judge)
    assert len(prompts) == 3
    assert (result.score, (result.metadata or {})["windows"]) == (2, 3)
    assert all("Never say x." in prompt for prompt in prompts)
    shown = [{number for number in range(6) if f"answer {number} " in prompt} for prompt in prompts]
    assert set().union(*shown) == set(range(6))
    assert all(left & right for left, right in pairwise(shown))
    few = ScriptedJudge(fallback=replies[0])
    of(
        TaskAdherence(judge=few, evaluates="conversation", max_field_chars=1_000, max_windows=2),
        *turns,
    )
    assert few.calls == 2


def test_long_conversations_take_milliseconds() -> None:
    """Forty turns of text that is all alike in parts: every one is compared, none is repeated."""
    turns = [
        turn(
            f"Is order {number} there by now?",
            "".join(Random(number).choices("abcdefghijklmnop ", k=5_000)),
        )
        for number in range(40)
    ]
    assert of(Repetition(), *turns).score == 1.0


@pytest.fixture
def airline(shared: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in (shared / "data" / "tau_airline_sample.jsonl").read_text().splitlines()
    ]


def test_airline_conversations_are_scored_as_wholes(airline: list[dict[str, Any]]) -> None:
    """No failure; and against the benchmark's reward the calls that write tell most, as they are
    what it looks at.
    """
    inputs = [
        EvaluationInput(
            conversation=row["messages"],
            conversation_id=row["id"],
            ground_truth=[
                {"name": call["name"], "arguments": call["kwargs"]}
                for call in row["expected_actions"]
            ],
        )
        for row in airline
    ]
    evaluators = [
        TurnsToResolution(max_turns=5, tools=WRITING),
        Repetition(),
        UnansweredQuestions(),
        ToolLoops(evaluates="conversation"),
        TrajectoryMatch(evaluates="conversation", order="unordered", tools=WRITING),
        TrajectoryMatch(
            criterion_name="all_there",
            evaluates="conversation",
            order="unordered",
            arguments="expected",
            allow_extra=True,
            tools=WRITING,
        ),
    ]
    results = run_evaluations_sync(inputs, EvaluationRunConfig(evaluators=evaluators))
    assert not any(
        result.status == "failed" for aggregated in results for result in aggregated.results
    )
    by_id = {
        row["id"]: {result.criterion_name: result for result in aggregated.results}
        for row, aggregated in zip(airline, results, strict=True)
    }
    loop = by_id["airline-09-2"]["tool_loops"]
    assert (loop.reason_code, loop.score) == ("loop", pytest.approx(18 / 23))
    assert by_id["airline-13-0"]["repetition"].metadata == {"turns": [10, 11, 13]}
    verdicts: dict[bool, list[float]] = {True: [], False: []}
    for row in airline:
        verdicts[row["reward"] == 1.0].append(
            float(by_id[row["id"]]["all_there"].normalized or 0.0)
        )
    pairs = [(good > bad) + (good == bad) / 2 for good in verdicts[True] for bad in verdicts[False]]
    assert sum(pairs) / len(pairs) > 0.9
    assert asyncio.run(Repetition().evaluate(inputs[0], ())) == []

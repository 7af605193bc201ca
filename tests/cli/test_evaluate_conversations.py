"""`agenteval-otel evaluate` on conversations: rows that are turns, and rows that hold a whole one."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.conftest import CommandLine

TURNS = [
    {
        "conversation_id": "b",
        "prompt": "Where is my order today?",
        "response": "It is on its way to you.",
        "timestamp": 2,
    },
    {
        "conversation_id": "a",
        "prompt": "Is anyone there today?",
        "response": "Hello, how can I help?",
        "timestamp": 1,
    },
    {
        "conversation_id": "b",
        "prompt": "Where is my order today??",
        "response": "It is on its way to you.",
        "timestamp": 3,
    },
    {
        "conversation_id": "b",
        "prompt": "I have an order.",
        "response": "Which order do you mean?",
        "timestamp": 1,
    },
    {"prompt": "alone", "response": "A row without a conversation."},
]


EVALUATE = "evaluate turns.jsonl --settings settings.json"


def evaluated(cli: CommandLine, rows: list[Any], *evaluators: str) -> list[Any]:
    """The stored results, as (prompt of the last turn, turns, scores)."""
    cli.file("settings.json", json.dumps({"evaluators": evaluators}))
    cli.file("turns.jsonl", "\n".join(map(json.dumps, rows)))
    output = cli(f"{EVALUATE} --quiet --results - --report table=table")
    stored = map(json.loads, output.splitlines())
    return [
        (
            item["inputSnapshot"]["prompt"],
            len(item["inputSnapshot"].get("conversation", ())),
            {result["criterionName"]: result.get("score") for result in item["results"]},
        )
        for item in stored
    ]


def test_turns_are_put_together_by_their_conversation(cli: CommandLine) -> None:
    """In the order of their times, where the last one stands; what has no conversation is skipped."""
    results = evaluated(cli, TURNS, "Repetition", "UnansweredQuestions")
    assert results == [
        ("Is anyone there today?", 1, {"repetition": None, "unanswered_questions": 1.0}),
        ("Where is my order today??", 3, {"repetition": 0.5, "unanswered_questions": 0.0}),
        ("alone", 0, {"repetition": None, "unanswered_questions": None}),
    ]
    assert "no conversation" in (cli.folder / "table").read_text()


def test_answers_and_conversations_are_scored_in_one_run(cli: CommandLine) -> None:
    """Each turn by the evaluators of answers, each conversation by its own, and the counts are
    right.
    """
    results = evaluated(cli, TURNS, "Repetition", "ResponseHealth")
    assert [(turns, list(scores)) for _, turns, scores in results] == [
        (0, ["response_health"]),
        (0, ["response_health"]),
        (1, ["repetition"]),
        (0, ["response_health"]),
        (0, ["response_health"]),
        (3, ["repetition"]),
        (0, ["response_health"]),
    ]
    assert "7 inputs" in (cli.folder / "table").read_text()


def test_a_row_may_hold_a_conversation(cli: CommandLine) -> None:
    """As turns or as messages; without evaluators of conversations nothing applies to it."""
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello to you, and welcome."},
    ] * 2
    rows = [{"conversation": messages}, {"conversation": TURNS[:1]}]
    assert [(turns, scores) for _, turns, scores in evaluated(cli, rows, "Repetition")] == [
        (2, {"repetition": 0.0}),
        (1, {"repetition": None}),
    ]


def test_a_wrong_turn_has_its_line(cli: CommandLine) -> None:
    """As every wrong row; and answers that are yet to be made are no conversations."""
    cli.file("settings.json", '{"evaluators": ["Repetition"]}')
    cli.file("turns.jsonl", '{"conversation": [{"promt": "x"}]}')
    cli(EVALUATE, code=2)
    assert "turns.jsonl:1" in cli.err
    assert "promt" in cli.err
    cli(f"{EVALUATE} --run json:dumps", code=2)
    assert "--run" in cli.err

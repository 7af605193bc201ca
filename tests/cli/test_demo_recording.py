"""Recorded conversations: what a line may be, and what becomes of the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.cli.demo.recording import RecordedTurn, Recording
from agenteval_otel.errors import ConfigurationError


def recorded(tmp_path: Path, *lines: Any) -> Recording:
    """A recording of these lines: bytes as they are, anything else as JSON."""
    file = tmp_path / "conversations.jsonl"
    file.write_bytes(b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines))
    return Recording(str(file))


def test_a_conversation_is_cut_into_turns(tmp_path: Path) -> None:
    """Each message of the user gets the agent's last text and the tool calls on the way, with their results."""
    call = {"id": "a", "type": "function", "function": {"name": "lookup", "arguments": '{"order": 4711}'}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "name": "lookup", "content": "in transit"},
        {"role": "assistant", "content": "On its way."},
        {"role": "user", "content": "Thanks"},
        {"role": "user", "content": "And when?"},
        {"role": "assistant", "content": [{"type": "text", "text": "Tomo"}, {"type": "text", "text": "rrow."}]},
        {"role": "user", "content": "Bye"},
    ]
    turns = list(recorded(tmp_path, {"id": "c-1", "messages": messages}).turns())
    assert turns == [
        RecordedTurn("c-1", messages[:2], "On its way.", [{**call, "result": "in transit"}]),
        RecordedTurn("c-1", messages[:7], "Tomorrow.", []),
    ]


def test_a_pair_is_a_turn(tmp_path: Path) -> None:
    """Lines of prompt and response are read too; a prompt may be missing; a line without id is named by its number."""
    turns = list(recorded(tmp_path, {"prompt": "Hi", "response": "Hello"}, {"id": 7, "response": ""}).turns())
    assert turns == [
        RecordedTurn("line-1", [{"role": "user", "content": "Hi"}], "Hello", []), RecordedTurn("7", [], "", []),
    ]  # fmt: skip


def test_what_cannot_be_read_is_told_by_line(tmp_path: Path) -> None:
    """Malformed lines are counted, the first ones told with number and reason; the others are read."""
    recording = recorded(
        tmp_path, {"prompt": "Hi", "response": "Hello"}, b"nope", b"", b"\xff\xfe", [1], {"a": 1, "b": 2},
        {"messages": {}}, {"messages": [{"content": "x"}]}, {"messages": [{"role": "user", "content": "x"}]},
        {"prompt": "x", "response": None}, {"prompt": "Hi", "response": "Hello"},
    )  # fmt: skip
    assert len(list(recording.turns())) == 2
    assert (recording.line, recording.conversations, recording.malformed) == (11, 2, 8)
    assert recording.problems == [
        (2, "not JSON"), (4, "not UTF-8"), (5, "a list where an object was expected"),
        (6, "neither messages nor prompt and response, found a, b"), (7, "messages is a dict, expected a list"),
    ]  # fmt: skip
    assert recording.done == 1.0


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"messages": [{"role": "user"}, 7]}, "messages[1] is no object with a role"),
        ({"messages": [{"role": "user", "content": "x"}]}, "no message of the assistant"),
        ({"messages": []}, "no message of the assistant"),
    ],
)
def test_a_wrong_conversation_is_explained(tmp_path: Path, record: Any, reason: str) -> None:
    """What is wrong with a conversation is said by the message."""
    recording = recorded(tmp_path, record, {"response": "Hello"})
    assert [turn.answer for turn in recording.turns()] == ["Hello"]
    assert recording.problems == [(1, reason)]


def test_odd_shapes_are_taken_as_they_come(tmp_path: Path) -> None:
    """Tool calls that are none, ids that are no text and contents of other kinds break nothing."""
    messages = [
        {"role": "assistant", "content": 7, "tool_calls": "none"},
        {"role": "assistant", "content": None, "tool_calls": [7, {"id": ["x"], "function": {"name": "f"}}]},
        {"role": "tool", "tool_call_id": 7, "content": "x"},
    ]
    (turn,) = recorded(tmp_path, b"\xef\xbb\xbf" + json.dumps({"messages": messages}).encode()).turns()
    assert turn == RecordedTurn("line-1", [], "", [{"id": ["x"], "function": {"name": "f"}, "result": None}])


def test_a_deep_line_and_an_endless_one_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line nested beyond reading and one longer than the limit are malformed; memory stays bounded."""
    monkeypatch.setattr("agenteval_otel.cli.demo.recording._MAX_LINE", 1 << 20)
    recording = recorded(tmp_path, b"[" * 200_000, b"x" * (3 << 20), {"response": "Hello"})
    assert [turn.answer for turn in recording.turns()] == ["Hello"]
    assert recording.problems == [(1, "not JSON"), (2, "longer than 1 MiB")]
    assert recording.line == 3


def test_a_file_without_conversations_is_refused(tmp_path: Path) -> None:
    """Missing, a folder, empty or without any conversation: an error that says what was expected."""
    for path, found in (
        (tmp_path / "missing.jsonl", "No such file"), (tmp_path, "Is a directory"), (_file(tmp_path, b""), "is empty"),
        (_file(tmp_path, b"\n \n"), "no conversation"), (_file(tmp_path, b"{}\n"), "line 1: neither messages nor"),
    ):  # fmt: skip
        with pytest.raises(ConfigurationError, match=found) as caught:
            Recording(str(path))
        assert '{"prompt": ..., "response": ...}' in str(caught.value)
        assert caught.value.path == "--traffic"


def _file(folder: Path, content: bytes) -> Path:
    file = folder / f"{len(content)}.jsonl"
    file.write_bytes(content)
    return file


@pytest.mark.shared
def test_the_airline_conversations(shared: Path) -> None:
    """Real conversations are read whole: every turn has its question, and every tool call its result."""
    recording = Recording(str(shared / "data" / "tau_airline_sample.jsonl"))
    turns = list(recording.turns())
    assert (recording.conversations, recording.malformed) == (68, 0)
    assert len(turns) > 500
    assert all(turn.messages[-1]["role"] == "user" for turn in turns)
    calls = [call for turn in turns for call in turn.tool_calls]
    assert len(calls) == 442
    assert all(isinstance(call["result"], str) for call in calls)

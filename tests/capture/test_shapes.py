"""Shapes of the handler's own making, of conversations, and of what stands between handlers and
clients.
"""

from __future__ import annotations

import dataclasses
import json
import types
from typing import Any

import pytest
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from agenteval_otel.capture.messages import turns_of
from tests.capture.support import facts_of, history_of, returned, streamed
from tests.instrumentation.support import Seen

MESSAGE = {"role": "assistant", "content": "Tomorrow."}
CALLS = [{"id": "c", "name": "track", "arguments": {"id": 7}, "result": "on its way"}]


class Answer(BaseModel):
    answer: str
    usage: dict[str, int] | None = None


@dataclasses.dataclass
class Report:
    title: str
    rows: list[Answer]


class Reply:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Where is my parcel?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "track", "arguments": '{"id": 7}'},
            },
            {"id": "call_2", "name": "notify", "arguments": {"to": "ann"}},
            "not a call",
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "name": "track", "content": "on its way"},
    {"role": "user", "content": "When will it come?"},
    {"role": "assistant", "content": "Tomorrow."},
]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            {"answer": "Tomorrow.", "usage": {"input_tokens": 1, "output_tokens": 2}},
            ("Tomorrow.", None, (1, 2)),
        ),
        (Answer(answer="Tomorrow.", usage={"prompt_tokens": 3}), ("Tomorrow.", None, (3, None))),
        (
            {"response": MESSAGE, "tool_calls": CALLS},
            ("Tomorrow.", [("track", {"id": 7}, "on its way")], None),
        ),
        ({"message": MESSAGE, "done": True}, ("Tomorrow.", None, None)),
        (
            [
                {"type": "text", "text": "Tomor"},
                {"type": "image"},
                {"type": "text", "text": "row."},
            ],
            ("Tomorrow.", None, None),
        ),
        ({"role": "model", "parts": [{"text": "Tomorrow."}]}, ("Tomorrow.", None, None)),
        (
            {"role": "assistant", "content": {"when": "tomorrow"}},
            ('{"when": "tomorrow"}', None, None),
        ),
        (JSONResponse({"answer": "Tomorrow."}), ("Tomorrow.", None, None)),
        (json.dumps({"answer": "a JSON answer"}), ('{"answer": "a JSON answer"}', None, None)),
        (
            Report("a", [Answer(answer="b")]),
            ('{"title": "a", "rows": [{"answer": "b", "usage": null}]}', None, None),
        ),
        ([], ("[]", None, None)),
        ({}, ("{}", None, None)),
        ({"content": None, "answer": "text"}, ("text", None, None)),
        (Reply(content=7, text="text"), ("text", None, None)),
        (types.SimpleNamespace(message="text"), ("text", None, None)),
        (["a", "b"], ('["a", "b"]', None, None)),
    ],
)
def test_answers_of_the_handlers_own_making(answer: Any, expected: Any) -> None:
    """Models, dataclasses, dictionaries and parts give their text; a JSON answer stays as it is;
    facts stand beside.
    """
    captured = returned(answer)
    assert facts_of(captured)[:3] == expected
    assert (captured.model, captured.response_id, captured.finish_reason) == (None, None, None)


@pytest.mark.parametrize(
    ("chunks", "text"),
    [
        (
            [
                "a",
                {"delta": "b"},
                {"delta": {"content": "c"}},
                {"text": "d"},
                b"e",
                None,
                Answer(answer="f"),
            ],
            "abcdef",
        ),
        (["data: Hel\n\n", "data: lo\n\ndata: [DONE]\n\n"], "Hello"),
        (
            ['data: {"token": "x", "text": "Hel"}\n\n', 'event: end\ndata: {"text": "lo"}\n\n'],
            "Hello",
        ),
        ([": ping\n\n", "id: 1\ndata: a\ndata: b\n\n"], "a\nb"),
        (["data: is what we need\n", "and no event"], "data: is what we need\nand no event"),
        ([b"caf\xc3", b"\xa9"], "caf\u00e9"),
        ([1, 2, 3], "123"),
        ([{"step": 1}, "text"], "text"),
        ([], ""),
        (["\ud83d", "\ude80"], "\U0001f680"),
        (["Hel", "lo", {"content": " wor"}, Reply(text="ld"), b"!"], "Hello world!"),
        (["Tomor", "row.", MESSAGE], "Tomorrow."),
    ],
)
def test_streams_of_the_handlers_own_making(chunks: list[Any], text: str) -> None:
    """Text is joined, events are opened, a whole message at the end is not said twice, other
    objects are no text.
    """
    assert streamed(chunks).response == text


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("Where?", "Where?"),
        ({"question": "Where?", "k": 1}, "Where?"),
        (Answer(answer="x"), '{"answer": "x", "usage": null}'),
        ({"role": "user", "content": "Where?"}, "Where?"),
        ([{"type": "text", "text": "Where?"}], "Where?"),
        ({"message": {"role": "user", "content": "Where?"}}, "Where?"),
        ([("system", "x"), ("human", "Where?")], "Where?"),
        ({"messages": [{"role": "user", "content": "Where?"}], "system": "Be nice."}, "Where?"),
        ([{"role": "system", "content": "x"}], None),
        ([{"text": "no role"}], '[{"text": "no role"}]'),
        (CONVERSATION, "When will it come?"),
        (tuple(CONVERSATION), "When will it come?"),
        (
            {
                "jsonrpc": "2.0",
                "method": "message/send",
                "params": {
                    "message": {"role": "user", "parts": [{"kind": "text", "text": "Where?"}]}
                },
            },
            "Where?",
        ),
        (
            {
                "appName": "a",
                "userId": "u-1",
                "newMessage": {"role": "user", "parts": [{"text": "Where?"}]},
            },
            "Where?",
        ),
        ({"input": {"question": "Where?"}, "config": {}}, "Where?"),
        ({"assistant_id": "a", "input": {"messages": [("human", "Where?")]}}, "Where?"),
        ({"model": "m", "input": "Where?"}, "Where?"),
        (Reply(title="a report", _hidden="x"), None),
        (object(), None),
        (iter("x"), None),
        (7, "7"),
        (None, None),
    ],
)
def test_prompts(prompt: Any, expected: str | None) -> None:
    """The question is found in texts, messages, parts, requests of agent servers and states; an
    object that says nothing is none.
    """
    assert returned("x", prompt=prompt).prompt == expected


def test_system_text_history_and_conversation() -> None:
    """Beside the prompt: the system text first, then the history, then the question; the id from
    where it stands.
    """
    seen = Seen()

    @seen.monitor
    def handler(
        question: str, history: Any = None, system: Any = None, session_id: Any = None
    ) -> str:
        return "x"

    handler("Now?", history=[["Then?", "No."]], system="Be nice.", session_id="s-1")
    reported = [(item.role, item.content) for item in seen.last.message_history or ()]
    assert reported == [
        ("system", "Be nice."),
        ("user", "Then?"),
        ("assistant", "No."),
        ("user", "Now?"),
    ]
    assert seen.last.conversation_id == "s-1"
    handler("Now?")
    assert (seen.last.message_history, seen.last.conversation_id) == (None, None)
    seen.monitor(lambda request: "x")({"message": "Now?", "conversation_id": 7})
    assert (seen.last.prompt, seen.last.conversation_id) == ("Now?", "7")
    seen.pipeline.shutdown(5)


def test_the_history_keeps_roles_contents_and_tool_calls() -> None:
    """A conversation in OpenAI's form becomes messages; tool calls have id, name, arguments and
    result.
    """
    history = history_of(CONVERSATION)
    assert history is not None
    assert [message["role"] for message in history] == [
        "system",
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]
    assert history[2]["content"] is None
    assert history[2]["tool_calls"] == [
        {"id": "call_1", "name": "track", "arguments": {"id": 7}, "result": "on its way"},
        {"id": "call_2", "name": "notify", "arguments": {"to": "ann"}, "result": None},
    ]
    assert (history[3]["tool_call_id"], history[3]["tool_name"]) == ("call_1", "track")


DATA = "iVBORw0KGgo" * 2_000
MEDIA: dict[str, list[Any]] = {
    "chat completions": [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
        {"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}},
        {"type": "file", "file": {"file_data": DATA, "filename": "terms.pdf"}},
    ],
    "responses": [
        {"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"},
        {"type": "input_file", "file_data": DATA, "filename": "terms.pdf"},
    ],
    "anthropic": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
        {"type": "document", "source": {"type": "base64", "data": DATA}},
    ],
    "gemini": [
        {"inlineData": {"mimeType": "image/png", "data": DATA}},
        {"fileData": {"fileUri": "f"}},
    ],
    "bedrock": [
        {"image": {"format": "png", "source": {"bytes": DATA}}},
        {"document": {"name": DATA}},
    ],
    "langchain": [
        {"type": "audio", "source_type": "base64", "data": DATA, "mime_type": "audio/wav"}
    ],
}


@pytest.mark.parametrize("media", MEDIA.values(), ids=MEDIA)
def test_images_audio_and_files_are_no_text(media: list[Any]) -> None:
    """Beside them the text is the prompt and the answer, in each client's form; their data is
    nowhere.
    """
    content = [*media[:1], {"type": "text", "text": "See this."}, *media[1:]]
    asked = [{"role": "user", "content": content}]
    captured = returned({"role": "assistant", "content": content}, prompt=asked)
    assert (captured.prompt, captured.response) == ("See this.", "See this.")
    assert DATA[:100] not in captured.model_dump_json()


@pytest.mark.parametrize("role", ["user", "human", "assistant", "system", "developer", "tool", "x"])
@pytest.mark.parametrize("text", ["", "Hello", "\ud800\0é", "data:image/png;base64,AAAA"])
def test_a_plain_message_is_read_like_one_with_further_fields(role: str, text: str) -> None:
    """Most messages have a role and a text alone. They are read in fewer steps, with the same result."""
    further = {"role": role, "content": text, "unknown": None}
    assert history_of([{"role": role, "content": text}]) == history_of([further])
    message = {"role": role, "content": text}
    assert dataclasses.asdict(turns_of(message)[0]) == dataclasses.asdict(turns_of(further)[0])

"""What the providers' own clients give, whole and streamed: Anthropic, OpenAI's chat completions
and Responses API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import anthropic
import openai
import pytest

from agenteval_otel import annotate
from agenteval_otel.testing import ModelReply, ModelServer
from tests.capture.support import (
    ANSWER,
    ASKED,
    CALLING,
    LOOK,
    ONLY_CALLING,
    WEATHER,
    facts_of,
    returned,
    streamed,
)
from tests.instrumentation.support import Seen

CALL = ("weather", WEATHER["arguments"], None)
MESSAGE: Any = {
    "model": "claude-x",
    "max_tokens": 99,
    "messages": [{"role": "user", "content": "How is it?"}],
}
CHAT: Any = {"model": "gpt-x", "messages": ASKED}
COUNTED: Any = {**CHAT, "stream_options": {"include_usage": True}}
RESPONSE: Any = {"model": "gpt-x", "input": "How is the weather?", "instructions": "Be nice."}


@pytest.fixture
def gpt() -> Iterator[openai.OpenAI]:
    with (
        ModelServer([CALLING]) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="test") as client,
    ):
        yield client


@pytest.fixture
def claude() -> Iterator[anthropic.Anthropic]:
    with (
        ModelServer([CALLING]) as server,
        anthropic.Anthropic(base_url=server.url, api_key="test") as client,
    ):
        yield client


class Api(NamedTuple):
    """One way to ask a model: the place of `create` on the client, its arguments, and what has to
    be found.
    """

    client: Any
    path: str
    resource: Callable[[Any], Any]
    whole: dict[str, Any]
    chunks: dict[str, Any]
    found: tuple[Any, ...]
    response_id: str
    content: Callable[[Any], Any]

    def open(self, server: ModelServer) -> Any:
        return self.client(base_url=server.url + self.path, api_key="test")


APIS = {
    "messages": Api(
        anthropic.Anthropic,
        "",
        lambda client: client.messages,
        MESSAGE,
        MESSAGE,
        (LOOK, [CALL], (7, 9), "claude-x", "tool_use"),
        "msg_00000001",
        lambda message: message.content,
    ),
    "completions": Api(
        openai.OpenAI,
        "/v1",
        lambda client: client.chat.completions,
        CHAT,
        COUNTED,
        (LOOK, [CALL], (7, 9), "gpt-x", "tool_calls"),
        "chatcmpl-00000001",
        lambda completion: completion.choices[0].message,
    ),
    "responses": Api(
        openai.OpenAI,
        "/v1",
        lambda client: client.responses,
        RESPONSE,
        RESPONSE,
        (LOOK, [CALL], (7, 9), "gpt-x", "completed"),
        "resp_00000001",
        lambda response: response.output,
    ),
}


@pytest.fixture(params=APIS.values(), ids=APIS)
def api(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def resource(api: Api) -> Iterator[Any]:
    with ModelServer([CALLING]) as server, api.open(server) as client:
        yield api.resource(client)


def dumped(value: Any) -> Any:
    return (
        [dumped(item) for item in value]
        if isinstance(value, list)
        else value.model_dump(warnings=False)
    )


def test_whole_answers(api: Api, resource: Any) -> None:
    """The object, its dictionary and a mapping around it tell the same; its content alone what it
    knows.
    """
    answer = resource.create(**api.whole)
    for form in (answer, dumped(answer), {"response": answer}):
        captured = returned(form)
        assert facts_of(captured) == api.found
        assert captured.response_id == answer.id == api.response_id
    content = api.content(answer)
    for form in (content, dumped(content)):
        assert facts_of(returned(form))[:2] == (LOOK, [CALL])


def test_streams(api: Api, resource: Any) -> None:
    """Chunks, as objects and as dictionaries, tell what the whole would; text of the handler stays
    in its place.
    """
    chunks = list(resource.create(**api.chunks, stream=True))
    for form in (chunks, dumped(chunks)):
        captured = streamed(form)
        assert facts_of(captured) == api.found
        assert (captured.response_id, captured.stream_end) == (api.response_id, "completed")
    assert streamed(["One moment. ", *chunks, b" Done."]).response == f"One moment. {LOOK} Done."


def test_an_answer_that_only_calls_tools(api: Api) -> None:
    """An answer without text has the text ``""`` and its calls."""
    with ModelServer([ONLY_CALLING]) as server, api.open(server) as client:
        assert facts_of(returned(api.resource(client).create(**api.whole)))[:2] == ("", [CALL])
        assert facts_of(streamed(api.resource(client).create(**api.whole, stream=True)))[:2] == (
            "",
            [CALL],
        )


def test_the_events_as_a_proxy_passes_them_on(api: Api, resource: Any) -> None:
    """Server-sent events as bytes cut anywhere, or as lines, are read as the events that they
    carry.
    """
    with resource.with_streaming_response.create(**api.chunks, stream=True) as response:
        raw = b"".join(response.iter_bytes())
    for size in (7, 100, len(raw)):
        assert (
            facts_of(streamed([raw[start : start + size] for start in range(0, len(raw), size)]))
            == api.found
        )
    assert facts_of(streamed(raw.decode().splitlines(keepends=True))) == api.found


HELPER_TEXTS = {"text", "content.delta"}


def test_the_stream_helper(api: Api, resource: Any) -> None:
    """Text that the helper repeats, in events and in its final message, counts once; its events
    alone are text.
    """
    with resource.stream(**api.whole) as stream:
        events = list(stream)
    usage = api.found[2] if api.whole is api.chunks else None
    final = [stream.get_final_message()] if hasattr(stream, "get_final_message") else []
    for form in (events, [*events, *final]):
        assert facts_of(streamed(form)) == (*api.found[:2], usage, *api.found[3:])
    texts = [event for event in events if event.type in HELPER_TEXTS]
    assert not texts or streamed(texts).response == LOOK


def test_streams_that_lack_their_end(gpt: openai.OpenAI) -> None:
    """Without usage or the last event a stream tells what came."""
    uncounted = streamed(gpt.chat.completions.create(**CHAT, stream=True))
    assert facts_of(uncounted) == (LOOK, [CALL], None, "gpt-x", "tool_calls")
    cut = streamed(list(gpt.responses.create(**RESPONSE, stream=True))[:-1])
    assert facts_of(cut) == (LOOK, [CALL], None, "gpt-x", None)
    assert (cut.response_id or "").startswith("resp_")


def test_why_it_stopped() -> None:
    """A response that was cut off says by what; a refusal is what the model said."""
    refusal = {"role": "assistant", "content": None, "refusal": "I will not."}
    answer = {"model": "m", "choices": [{"index": 0, "message": refusal, "finish_reason": "stop"}]}
    assert facts_of(returned(answer)) == ("I will not.", None, None, "m", "stop")
    cut = ModelReply(text="cut", finish_reason="length")
    with (
        ModelServer([cut]) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="test") as gpt,
    ):
        assert returned(gpt.responses.create(**RESPONSE)).finish_reason == "max_output_tokens"
        assert (
            streamed(gpt.responses.create(**RESPONSE, stream=True)).finish_reason
            == "max_output_tokens"
        )
        assert returned(gpt.chat.completions.create(**CHAT)).finish_reason == "length"


def test_a_clients_stream_belongs_to_its_reader(gpt: openai.OpenAI) -> None:
    """A handler that returns the client's stream is not evaluated: reading it here would take it
    from its reader.
    """
    seen = Seen()
    stream = gpt.chat.completions.create(**CHAT, stream=True)
    assert seen.monitor(lambda prompt: stream)("asked") is stream
    assert seen.outcomes == {"capture_failed": 1}
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == LOOK
    seen.pipeline.shutdown(5)


def test_a_usage_object_as_a_fact(gpt: openai.OpenAI) -> None:
    """`annotate(usage=...)` takes the client's own object."""
    seen = Seen()

    @seen.monitor
    def handler(question: str) -> str | None:
        completion = gpt.chat.completions.create(**CHAT)
        annotate(
            usage=completion.usage,
            tool_calls=completion.choices[0].message.tool_calls,
            model=completion.model,
        )
        return completion.choices[0].message.content

    handler("How is it?")
    assert facts_of(seen.last) == (LOOK, [CALL], (7, 9), "gpt-x", None)


def test_a_stream_that_breaks_off(claude: anthropic.Anthropic) -> None:
    """What came is told, what did not come is not made up: no finish reason, no output tokens."""
    events = list(claude.messages.create(**MESSAGE, stream=True))
    texts = [
        index
        for index, event in enumerate(events)
        if event.type == "content_block_delta" and event.delta.type == "text_delta"
    ]
    assert facts_of(streamed(events[: texts[0] + 1])) == (
        LOOK[:7],
        None,
        (7, None),
        "claude-x",
        None,
    )
    with claude.messages.with_streaming_response.create(**MESSAGE, stream=True) as response:
        raw = b"".join(response.iter_bytes())
    assert streamed([raw[: raw.index(b"text_delta") + 20]]).response == "", (
        "an event that broke off says nothing"
    )


def test_a_loop_with_tools_is_a_conversation() -> None:
    """The request's own messages, with the parts that call tools and bring results, are prompt and
    history.
    """
    with (
        ModelServer([ONLY_CALLING, ANSWER]) as server,
        anthropic.Anthropic(base_url=server.url, api_key="t") as claude,
    ):
        messages: list[Any] = [
            {"role": "user", "content": [{"type": "text", "text": "How is it?"}]}
        ]
        first = claude.messages.create(**{**MESSAGE, "messages": messages})
        result = {"type": "tool_result", "tool_use_id": first.content[0].id, "content": "sunny"}  # type: ignore[union-attr]
        messages += [
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": [result]},
        ]
        last = claude.messages.create(**{**MESSAGE, "messages": messages})
    captured = returned(last, prompt=messages, system="Be nice.")
    assert (captured.prompt, captured.response) == ("How is it?", "It is sunny.")
    assert captured.message_history is not None
    assert [message.role for message in captured.message_history] == [
        "system",
        "user",
        "assistant",
        "tool",
    ]
    assert captured.message_history[0].content == "Be nice."
    (call,) = captured.message_history[2].tool_calls or ()
    assert (call.name, call.result) == ("weather", "sunny")
    whole = returned([*messages, {"role": "assistant", "content": last.content}])
    assert facts_of(whole)[:2] == ("It is sunny.", [("weather", WEATHER["arguments"], "sunny")])


def chunk_of(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"tool_calls": list(calls)}, "finish_reason": None}
    return {"id": "c", "model": "m", "choices": [choice], **more}


def piece(index: int | None, arguments: str, id: str | None = None, name: str | None = None) -> Any:
    function = {"arguments": arguments} | ({} if name is None else {"name": name})
    place = {} if index is None else {"index": index}
    return place | ({} if id is None else {"id": id}) | {"function": function}


CITY, ZONE = '{"city": "Oslo"}', '{"zone": "CET"}'
PARALLEL: dict[str, list[Any]] = {
    "index 0 twice": [
        chunk_of(piece(0, CITY, "a", "weather")),
        chunk_of(piece(0, ZONE, "b", "time")),
    ],
    "index 0 twice, in pieces": [
        chunk_of(piece(0, "", "a", "weather")),
        chunk_of(piece(0, CITY[:6])),
        chunk_of(piece(0, CITY[6:])),
        chunk_of(piece(0, "", "b", "time")),
        chunk_of(piece(0, ZONE)),
    ],
    "no index": [
        chunk_of(piece(None, CITY, "a", "weather")),
        chunk_of(piece(None, ZONE, "b", "time")),
    ],
    "no index in one chunk": [
        chunk_of(piece(None, CITY, "a", "weather"), piece(None, ZONE, "b", "time"))
    ],
    "interleaved": [
        chunk_of(piece(0, "", "a", "weather"), piece(1, "", "b", "time")),
        chunk_of(piece(1, ZONE[:6])),
        chunk_of(piece(0, CITY[:6])),
        chunk_of(piece(1, ZONE[6:]), piece(0, CITY[6:])),
    ],
    "id and name in each piece": [
        chunk_of(piece(0, CITY[:6], "a", "weather")),
        chunk_of(piece(0, CITY[6:], "a", "weather")),
        chunk_of(piece(0, ZONE[:6], "b", "time")),
        chunk_of(piece(0, ZONE[6:], "b", "time")),
    ],
}


@pytest.mark.parametrize("chunks", PARALLEL.values(), ids=PARALLEL)
def test_parallel_calls_however_a_provider_numbers_them(chunks: list[Any]) -> None:
    """Two calls stay two, each with its own arguments."""
    calls = [("weather", {"city": "Oslo"}, None), ("time", {"zone": "CET"}, None)]
    assert facts_of(streamed(chunks))[1] == calls


def test_many_calls_of_one_message() -> None:
    """Twelve calls in pieces are twelve calls in their order."""
    numbers = range(12)
    names = [f"tool_{number}" for number in numbers]
    chunks = [chunk_of(piece(n, "", f"c{n}", names[n])) for n in numbers]
    chunks += [chunk_of(piece(n, f'{{"n": {n}}}')) for n in reversed(numbers)]
    calls = [(names[n], {"n": n}, None) for n in numbers]
    assert facts_of(streamed(chunks))[1] == calls


def test_chunks_that_hold_no_text() -> None:
    """Chunks without choices, of a content filter and with usage that grows add no text; the last
    usage counts.
    """
    filtered = {"id": "", "model": "", "choices": [], "prompt_filter_results": [{"hate": "safe"}]}
    offsets = {"index": 0, "finish_reason": None, "content_filter_results": {}}
    chunks: list[Any] = [filtered]
    for number, text in enumerate(("It is ", "due.")):
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
        usage = {"prompt_tokens": 7, "completion_tokens": number + 1}
        chunks.append({"id": "c", "model": "m", "choices": [choice], "usage": usage})
        chunks.append({"id": "", "model": "", "choices": [offsets | {"delta": {}}]})
    chunks.append({"id": "c", "model": "m", "choices": [], "usage": None})
    assert facts_of(streamed(chunks)) == ("It is due.", None, (7, 2), "m", None)

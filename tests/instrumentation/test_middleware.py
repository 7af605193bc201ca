"""Middleware: requests of captured routes are monitored calls; what is read of them, and what each
counts as.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.instrumentation import asgi
from agenteval_otel.sampling import ErrorSampler
from tests.instrumentation.middleware import Kind, Reply, both, replies
from tests.instrumentation.support import Seen

JSON = "application/json"


@both
@pytest.mark.parametrize(
    ("path", "content_type", "body", "prompt"),
    [
        ("/chat", "application/json", b'{"question": "When?", "other": 1}', "When?"),
        (
            "/chat",
            "application/json",
            b'{"messages": [{"role": "user", "content": "When?"}]}',
            "When?",
        ),
        ("/chat", "application/vnd.api+json; charset=utf-8", b'{"input": "When?"}', "When?"),
        ("/chat", "application/x-www-form-urlencoded", b"prompt=When%3F&x=1", "When?"),
        ("/chat", "text/plain", b"When?", "When?"),
        ("/chat?query=When%3F", "text/plain", b"", "When?"),
        ("/chat", "application/json", b'{"question": ', '{"question": '),
        ("/chat", "text/plain", b"", None),
    ],
)
def test_prompts_are_read_from_body_or_query(
    seen: Seen, kind: Kind, path: str, content_type: str, body: bytes, prompt: str | None
) -> None:
    """JSON and forms by the usual fields, else text; without a body the query. The application gets
    all of it.
    """
    got: list[bytes] = []

    def reply(request: bytes) -> Reply:
        got.append(request)
        return replies(b"It is due.")(request)

    kind.ask(seen, reply, path=path, data=body, content_type=content_type)
    assert (seen.last.prompt, seen.last.response, got) == (prompt, "It is due.", [body])


@both
@pytest.mark.parametrize(
    ("reply", "response", "end"),
    [
        (
            replies(
                b'{"choices": [{"message": {"role": "assistant", "content": "Due."}}]}',
                content_type=JSON,
            ),
            "Due.",
            None,
        ),
        (replies(b'{"ans', b'wer": "Due."}', content_type=JSON), "Due.", None),
        (replies(b"Du", b"e.", content_length="4"), "Due.", None),
        (replies(b"Du", b"e."), "Due.", "completed"),
        (
            replies(b"data: D", b"ue.\n\ndata: [DONE]\n\n", content_type="text/event-stream"),
            "Due.",
            "completed",
        ),
        (replies(status=204), "", None),
    ],
)
def test_responses_are_read_as_they_were_sent(
    seen: Seen, kind: Kind, reply: Callable[[Any], Reply], response: str, end: str | None
) -> None:
    """A known response by its format, a text or a stream as text, server-sent events by their data."""
    sent = kind.ask(seen, reply)
    assert sent == b"".join(reply(b"")[2])
    assert (seen.last.response, seen.last.stream_end, seen.last.error_type) == (response, end, None)


@both
@pytest.mark.parametrize(
    ("method", "path", "routes", "agent"),
    [
        ("POST", "/chat", ["/chat"], "/chat"),
        ("GET", "/chat", ["POST /chat"], None),
        ("POST", "/chat/", ["/chat"], None),
        ("HEAD", "/chat", ["/chat"], None),
        ("OPTIONS", "/chat", ["/*"], None),
        ("POST", "/v1/x/ask", {"/v1/{name}/ask": "asker", "/v1/*": "rest"}, "asker"),
        ("POST", "/v1/x/y/ask", {"/v1/{name}/ask": "asker", "/v1/*": "rest"}, "rest"),
        ("POST", "/caf%C3%A9", ["/café"], "/café"),
        ("POST", "/v1.0", ["/v1+0", "/v1?0"], None),
    ],
)
def test_only_requests_of_captured_routes_are_calls(
    seen: Seen, kind: Kind, method: str, path: str, routes: Any, agent: str | None
) -> None:
    """By path and method; the agent is named by the mapping, or after the route."""
    kind.ask(seen, replies(b"Due."), method, path, routes=routes)
    assert [made.agent for made in seen.inputs] == ([] if agent is None else [agent])
    assert seen.outcomes == ({} if agent is None else {"evaluated": 1})


@both
def test_every_request_ends_in_one_outcome(seen: Seen, kind: Kind) -> None:
    """Compressed and binary bodies are passed on unread and counted; what is longer than the limit
    is marked.
    """
    assert (
        gzip.decompress(kind.ask(seen, replies(gzip.compress(b"Due."), content_encoding="gzip")))
        == b"Due."
    )
    kind.ask(seen, replies(b"\x89PNG", content_type="image/png"))
    assert seen.outcomes == {"capture_failed": 2}
    assert seen.pipeline.accounting.failures.pop("capture:unreadable_body") == 2
    kind.ask(
        seen, replies(b"0123456789"), data=b"x" * 20, content_type="text/plain", max_body_bytes=8
    )
    assert (seen.last.response, seen.last.prompt, seen.last.metadata) == (
        "01234567",
        "xxxxxxxx",
        {"agenteval.snapshot": "truncated"},
    )
    assert seen.pipeline.accounting.failures.pop("capture") == 1, "of the request"
    kind.ask(seen, replies(b"sorry", status=503))
    assert (seen.last.response, seen.last.error_type) == ("", "503")
    kind.ask(seen, replies(b"what?", status=404))
    assert (seen.last.response, seen.last.error_type) == ("what?", None)
    assert seen.outcomes == {"capture_failed": 2, "evaluated": 3}


@both
def test_functions_pick_prompt_response_and_facts(seen: Seen, kind: Kind) -> None:
    """They see the bodies decoded; `capture` sees the request with its headers as well. What they
    raise is counted.
    """
    reply = replies(b'{"data": ["Due.", 1]}', content_type="application/json")
    question = json.dumps({"turn": {"said": "When?"}}).encode()

    def facts(request: dict[str, Any], body: Any) -> dict[str, Any]:
        assert (request["method"], request["path"], request["query"]) == ("POST", "/chat", "a=1")
        return {"tags": {"tenant": request["headers"]["x-tenant"]}, "turns": body["data"][1]}

    picks: dict[str, Any] = {
        "prompt": lambda body: body["turn"]["said"],
        "response": lambda body: body["data"][0],
    }
    kind.ask(seen, reply, path="/chat?a=1", data=question, capture=facts, **picks)
    assert (seen.last.prompt, seen.last.response, seen.last.turns) == ("When?", "Due.", 1)
    assert seen.last.tags == {"tenant": "acme"}
    stream = replies(b"data: 1\n\n", b'data: {"x": "Due."}\n\n', content_type="text/event-stream")
    kind.ask(seen, stream, response=lambda events: events[1]["x"])
    assert (seen.last.response, seen.last.stream_end) == ("Due.", "completed")
    kind.ask(seen, reply, response=lambda body: body["missing"])
    assert seen.outcomes == {"evaluated": 2, "capture_failed": 1}
    assert seen.pipeline.accounting.failures.pop("capture:capture_raised") == 1


@both
def test_sampling_is_that_of_monitor(kind: Kind) -> None:
    """Before the call by ratio; after it by rules, which see that the response is an error; off by
    the switch.
    """
    for settings, expected in (
        ({"ratio": 0.0}, {"not_sampled": 2}),
        ({"enabled": False}, {"disabled": 2}),
    ):
        seen = Seen(**settings)
        kind.ask(seen, replies(b"Due."))
        kind.ask(seen, replies(b"", status=500))
        assert (seen.outcomes, seen.inputs) == (expected, [])
    seen = Seen()
    kind.ask(seen, replies(b"Due."), sampler=ErrorSampler())
    kind.ask(seen, replies(b"", status=500), sampler=ErrorSampler())
    assert seen.outcomes == {"not_sampled": 1, "evaluated": 1}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"routes": []}, "routes: expected a list of paths"),
        ({"routes": "/chat"}, "routes: expected a list of paths"),
        ({"routes": ["chat"]}, "routes[0]: expected a path such as"),
        ({"agent": " "}, "agent: expected a name"),
        ({"prompt": "text"}, "prompt: expected a function"),
        ({"sample_rate": 2}, "sample_rate"),
        ({"max_body_bytes": 0}, "max_body_bytes: expected a number of bytes"),
    ],
)
def test_wrong_settings_fail_at_start(seen: Seen, arguments: dict[str, Any], problem: str) -> None:
    """When the middleware is made, with the path of what is wrong."""
    with pytest.raises(ConfigurationError) as failure:
        asgi.AgentEvalMiddleware(
            None, **({"routes": ["/chat"], "pipeline": seen.pipeline} | arguments)
        )
    assert problem in str(failure.value)

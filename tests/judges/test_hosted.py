"""Hosted judges that answer: what is sent, what comes back, and the connections that carry both."""

from __future__ import annotations

import asyncio
import copy
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agenteval_otel import EvaluationInput, monitor
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import LLMJudge
from agenteval_otel.evaluators.judges.adapter import as_judge
from agenteval_otel.evaluators.judges.answers import constrained_form
from agenteval_otel.judges import (
    AnthropicJudge,
    Judge,
    JudgeRequest,
    JudgeUsage,
    OpenAICompatibleJudge,
)
from agenteval_otel.testing import ModelReply, ModelServer, ScriptedJudge
from tests.judges.asking import CANARY, FORM, GOOD, QUESTION, ask, hosted
from tests.promises.bench import pipeline_of

BOTH = pytest.mark.parametrize("kind", [AnthropicJudge, OpenAICompatibleJudge])
PLAIN = {
    "type": "object",
    "properties": {"reason": {"type": "string"}, "score": {"type": "integer"}},
    "required": ["reason", "score"],
    "additionalProperties": False,
}


@BOTH
def test_a_verdict_has_its_usage(kind: type[Judge]) -> None:
    """It has the object, the raw text, tokens by kind, the model and the id."""
    reply = ModelReply(
        text=f"```json\n{GOOD}\n```",
        input_tokens=200,
        output_tokens=20,
        cache_read_tokens=100,
        model="m-2026",
    )
    with ModelServer([reply]) as server:
        result = ask(hosted(kind, server))
    assert result.answer == {"reason": "it is on the matter", "score": 4}
    assert result.raw == reply.text
    assert (result.model, result.from_cache) == ("m-2026", False)
    assert result.response_id in ("msg_00000001", "chatcmpl-00000001")
    assert result.usage == JudgeUsage(input_tokens=200, output_tokens=20, cache_read_tokens=100)
    assert 0 < result.duration_s < 20


def test_the_request_to_anthropic() -> None:
    """It has the form as structured output, no temperature, and the key in the SDK's header."""
    with ModelServer([GOOD]) as server:
        ask(hosted(AnthropicJudge, server, extra_body={"service_tier": "standard_only"}))
        assert server.requests == [
            {
                "model": "judge-1",
                "max_tokens": 1024,
                "system": "You judge.",
                "service_tier": "standard_only",
                "messages": [{"role": "user", "content": QUESTION.prompt}],
                "output_config": {"format": {"type": "json_schema", "schema": PLAIN}},
            }
        ]
        assert server.paths == ["/v1/messages"]
        assert CANARY in str(server.headers[0])


MARK = {"type": "ephemeral"}


def test_a_long_beginning_is_marked_for_anthropics_cache() -> None:
    """From the least length on, the last block that is the same in every question has the mark;
    nothing else of the request changes.
    """
    rubric = "Judge by this rubric. " * 200
    fixed = QUESTION.model_copy(update={"prompt": f"{rubric}The case.", "fixed_chars": len(rubric)})
    system = QUESTION.model_copy(update={"system": rubric})
    for request, settings, content, instruction in (
        (
            fixed,
            {},
            [
                {"type": "text", "text": rubric, "cache_control": MARK},
                {"type": "text", "text": "The case."},
            ],
            "You judge.",
        ),
        (
            system,
            {},
            QUESTION.prompt,
            [{"type": "text", "text": rubric, "cache_control": MARK}],
        ),
        (fixed, {"cached_from_tokens": None}, fixed.prompt, "You judge."),
        (fixed, {"cached_from_tokens": 4_096}, fixed.prompt, "You judge."),
    ):
        with ModelServer([GOOD]) as server:
            ask(hosted(AnthropicJudge, server, **settings), request)
            [body] = server.requests
        assert body["messages"] == [{"role": "user", "content": content}]
        assert body["system"] == instruction


def test_the_beginning_of_a_question_is_the_same_for_every_case() -> None:
    """What an evaluator asks about two cases begins with the same `fixed_chars` characters."""
    evaluator = LLMJudge("Is it polite?", judge=ScriptedJudge())
    first, second = (
        evaluator.question_for(EvaluationInput(prompt=text, response=text))[0]
        for text in ("One.", "Two, and more.")
    )
    assert first.fixed_chars == second.fixed_chars > 100
    assert first.prompt[: first.fixed_chars] == second.prompt[: first.fixed_chars]


def test_the_request_to_a_compatible_server() -> None:
    """It has the form in the configured way, and further fields."""
    ways: list[tuple[dict[str, Any], Any, bool]] = [
        (
            {},
            {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": PLAIN, "strict": True},
            },
            False,
        ),
        (
            {"strict_form": False},
            {"type": "json_schema", "json_schema": {"name": "answer", "schema": PLAIN}},
            False,
        ),
        ({"response_format": "json_object"}, {"type": "json_object"}, True),
        ({"response_format": "none"}, None, True),
    ]
    for settings, sent, in_words in ways:
        with ModelServer([GOOD]) as server:
            ask(hosted(OpenAICompatibleJudge, server, extra_body={"seed": 7}, **settings))
            body = server.requests[0]
            assert server.headers[0]["authorization"] == f"Bearer {CANARY}"
        assert body.get("response_format") == sent
        assert ("JSON Schema" in body["messages"][0]["content"]) is in_words
        assert (body["seed"], body["max_completion_tokens"], "temperature" in body) == (
            7,
            1024,
            False,
        )


def test_forms_fit_constrained_decoding() -> None:
    """They have no limits at any level, and closed objects; a field named like a keyword stays."""
    form = {
        "type": "object",
        "properties": {
            "minimum": {"type": "number", "minimum": 1},
            "all": {
                "type": "array",
                "maxItems": 3,
                "items": {"type": "object", "properties": {}, "minProperties": 1},
            },
            "or": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]},
        },
    }
    assert constrained_form(form) == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "minimum": {"type": "number"},
            "all": {
                "type": "array",
                "items": {"type": "object", "properties": {}, "additionalProperties": False},
            },
            "or": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
    }


@BOTH
def test_surrogates_are_replaced_in_requests(kind: type[Judge]) -> None:
    """Half a surrogate pair in a judged answer breaks no call."""
    with ModelServer([GOOD]) as server:
        ask(
            hosted(kind, server), JudgeRequest(system="\udc00", prompt="a\ud800b", answer_form=FORM)
        )
        assert "a\ufffdb" in str(server.requests[0])


@BOTH
def test_one_judge_serves_several_loops(kind: type[Judge]) -> None:
    """Each loop has its own connections and closes them when it ends."""
    with ModelServer([GOOD]) as server:
        judge = hosted(kind, server)
        assert [ask(judge).answer["score"] for _ in range(3)] == [4, 4, 4]
        with ThreadPoolExecutor(4) as pool:
            assert [
                verdict.answer["score"] for verdict in pool.map(lambda _: ask(judge), range(4))
            ] == [4, 4, 4, 4]


@BOTH
def test_connections_are_kept_within_a_loop(kind: type[Judge]) -> None:
    """Calls on one loop reuse connections until `close`."""

    async def several(judge: Judge) -> int:
        for _ in range(3):
            await judge.judge(QUESTION)
        await judge.close()
        await judge.judge(QUESTION)
        return len(server.requests)

    with ModelServer([GOOD]) as server:
        assert asyncio.run(several(hosted(kind, server))) == 4
        assert server.connections == 2


def run_program(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    "kind", ["OpenAICompatibleJudge", pytest.param("AnthropicJudge", marks=pytest.mark.slow)]
)
def test_a_forked_worker_has_connections_of_its_own(kind: str) -> None:
    """A child of a process with connections opens new ones."""
    run_program(f"""
import asyncio, os
from agenteval_otel.judges import {kind}, JudgeRequest
from agenteval_otel.testing import ModelServer
with ModelServer(['{{"score": 4}}']) as server:
    judge = {kind}(model="m", base_url=server.url, api_key="key")
    async def ask():
        return (await judge.judge(JudgeRequest(prompt="p"))).answer["score"]
    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(ask()) == 4
    before = server.connections
    child = os.fork()
    if child == 0:
        asyncio.events._set_running_loop(None)
        own = asyncio.new_event_loop()
        os._exit(0 if own.run_until_complete(ask()) == 4 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert server.connections == before + 1
    assert loop.run_until_complete(ask()) == 4
    assert server.connections == before + 1
    loop.run_until_complete(judge.close())
    loop.close()
""")


def test_judges_are_chosen_by_settings() -> None:
    """A mapping becomes the judge it names; errors name the field and the known choices."""
    judge = as_judge({"type": "anthropic", "model": "claude-x", "deadlineS": 12})
    assert isinstance(judge, AnthropicJudge)
    assert (judge.deadline_s, judge.api_key_env) == (12, "ANTHROPIC_API_KEY")
    assert AnthropicJudge.load(judge.model_dump()) == judge
    secret = AnthropicJudge(model="m", api_key=CANARY)
    assert AnthropicJudge.load(secret.model_dump(context={"secrets": True})) == secret
    for wrong, named in (
        ({"type": "anthropic", "model": "m", "max_retries": 3}, "max_retries"),
        ({"type": "anthropic", "model": "m", "deadline_s": 0}, "deadline_s"),
        ({"type": "anthropic", "model": "cheap", "extra_body": {"model": "dear"}}, "extra_body"),
    ):
        with pytest.raises(ConfigurationError, match=named):
            as_judge(wrong)


def test_a_copy_has_guards_of_its_own() -> None:
    """The guarded judge is one object; copies have their own."""
    judge = AnthropicJudge(model="m", api_key=CANARY, breaker={"failures": 3}, cache={"entries": 5})  # type: ignore[arg-type]
    assert judge.guarded() is judge.guarded()
    for copied in (
        judge.model_copy(update={"model": "n"}),
        copy.deepcopy(judge),
        pickle.loads(pickle.dumps(judge)),
    ):
        assert copied.guarded() is not judge.guarded()
        assert copied.guarded().inner is copied
    assert (judge.guarded().inner, judge.guarded().model) == (judge, "m")


@pytest.mark.slow
def test_the_first_calls_may_be_concurrent() -> None:
    """One thread imports the client for 64 concurrent first calls."""
    run_program("""
import asyncio
from agenteval_otel.judges import JudgeRequest, AnthropicJudge
from agenteval_otel.testing import ModelServer

async def burst(judge):
    await asyncio.gather(*(judge.judge(JudgeRequest(prompt="q")) for _ in range(64)))

with ModelServer(['{"score": 1}']) as server:
    asyncio.run(burst(AnthropicJudge(model="m", base_url=server.url, api_key="key")))
""")


def open_connections() -> set[threading.Thread]:
    """Return the connections that clients hold open: a server has a thread for each."""
    return {thread for thread in threading.enumerate() if "process_request" in thread.name}


@BOTH
def test_a_pipeline_that_ends_closes_its_judges_connections(kind: type[Judge]) -> None:
    """The background thread's loop finishes what closes them, before it is closed itself."""
    others = open_connections()
    with ModelServer(['{"score": 1}']) as server:
        judge = hosted(kind, server)
        pipeline = pipeline_of(LLMJudge(judge=judge, description="Is it polite?"))
        monitor(pipeline=pipeline)(str.upper)("text")
        assert pipeline.flush(20.0)
        [connection] = open_connections() - others
        assert pipeline.shutdown(10.0)
        assert len(server.requests) == 1
        connection.join(20.0)
        assert not connection.is_alive()

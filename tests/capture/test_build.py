"""From the captured call to the evaluation input."""

from __future__ import annotations

from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest

from agenteval_otel.capture.annotations import hashed
from agenteval_otel.capture.build import build_input
from agenteval_otel.capture.calls import CapturedCall
from agenteval_otel.capture.reasons import CaptureError
from agenteval_otel.models import EvaluationInput, MemoryStats, Message, ToolCall
from agenteval_otel.redaction import PatternRedactor
from tests.capture.hostile import Broken

SECOND = 1_000_000_000
REPEL = Broken("__str__", ValueError("no text"))


def call_of(**fields: Any) -> CapturedCall:
    call = CapturedCall("support")
    call.prompt, call.answer = "Why?", "Because."
    call.started_ns, call.ended_ns = 5 * SECOND, 7 * SECOND
    for name, value in fields.items():
        setattr(call, name, value)
    return call


def build(call: CapturedCall, **arguments: Any) -> tuple[EvaluationInput, list[str]]:
    bad: list[str] = []
    call.keep_facts()
    return build_input(call, on_bad_fact=lambda name, *_: bad.append(name), **arguments), bad


def test_the_captured_call_is_the_input() -> None:
    """Prompt, answer, agent, times and end of the call stand in the input."""
    built, bad = build(call_of())
    assert (built.prompt, built.response, built.agent, built.agent_id) == (
        "Why?",
        "Because.",
        "support",
        "support",
    )
    assert (built.timestamp, built.duration_s, built.error_type, built.stream_end) == (
        7_000,
        2.0,
        None,
        None,
    )
    assert bad == []
    assert build(call_of(ended_ns=1))[0].duration_s == 0.0, "the clock was set back"


def test_good_facts_are_laid_over() -> None:
    """Annotated facts stand in their fields, in the shape of the model."""
    facts = {
        "context": ["a document"],
        "ground_truth": "it\ud800 is so",
        "tool_calls": [{"name": "find", "arguments": {"q": 1}}],
        "usage": {"input_tokens": 3, "outputTokens": 4},
        "cost": 0.01,
        "model": "m-1",
        "finish_reason": "stop",
        "response_id": 17,
        "conversation_id": None,
        "session_id": "s",
        "agent_id": "a",
        "agent_config": {"t": 0},
        "message_history": [{"role": "user", "content": "hi"}],
        "metadata": {"k": 1},
        "prompt": "asked",
        "response": {"content": "answered"},
        "turns": 3,
        "memory_stats": {"keys": 2, "totalEntries": 5, "oldest": "2026-01-01T00:00:00Z"},
    }
    built, bad = build(call_of(facts=facts))
    assert bad == []
    assert (built.context, built.ground_truth) == ({"documents": ["a document"]}, "it\ufffd is so")
    assert built.tool_calls == [ToolCall(name="find", arguments={"q": 1})]
    assert built.usage is not None
    assert (built.usage.input_tokens, built.usage.output_tokens) == (3, 4)
    assert (built.cost, built.model, built.finish_reason, built.response_id) == (
        0.01,
        "m-1",
        "stop",
        "17",
    )
    assert (built.conversation_id, built.session_id, built.agent_id) == (None, "s", "a")
    assert built.message_history == [Message(role="user", content="hi")]
    assert (built.prompt, built.response, built.metadata) == ("asked", "answered", {"k": 1})
    assert (built.turns, built.memory_stats) == (
        3,
        MemoryStats(keys=2, total_entries=5, oldest="2026-01-01T00:00:00Z"),
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cost", "dear"),
        ("usage", "much"),
        ("tool_calls", [7]),
        ("tool_calls", "find"),
        ("context", 7),
        ("agent_config", []),
        ("metadata", "x"),
        ("message_history", [1]),
        ("model", REPEL),
        ("prompt", REPEL),
        ("response", REPEL),
        ("turns", "many"),
        ("memory_stats", [1]),
    ],
)
def test_a_bad_fact_is_left_out_and_named(name: str, value: Any) -> None:
    """A fact that is unknown, does not fit or breaks is reported by name; the rest of the input
    stands.
    """
    built, bad = build(call_of(facts={name: value, "feeling": "good", "session_id": "kept"}))
    assert sorted(bad) == sorted({name, "feeling"})
    assert (built.session_id, built.response, built.prompt) == ("kept", "Because.", "Why?")


def test_what_is_said_goes_before_what_is_found() -> None:
    """A fact replaces what the answer tells; None says nothing, so what was found stands."""
    answer = {
        "role": "assistant",
        "content": "Because.",
        "model": "m-1",
        "stop_reason": "end_turn",
        "id": "r-1",
    }
    built, bad = build(
        call_of(answer=answer, facts={"model": "m-2", "finish_reason": None, "response": None})
    )
    assert (built.model, built.finish_reason, built.response_id) == ("m-2", "end_turn", "r-1")
    assert (built.response, bad) == ("Because.", [])


def test_the_mark_of_an_answer_that_is_cut_stands_beside_the_metadata() -> None:
    """That not the whole answer is evaluated is added to the metadata; metadata that does not fit
    is left out.
    """
    answer = "x" * 300_000
    built, bad = build(call_of(answer=answer, facts={"metadata": {"k": 1}}))
    assert (built.metadata, bad) == ({"k": 1, "agenteval.snapshot": "truncated"}, [])
    built, bad = build(call_of(answer=answer, facts={"metadata": "x"}))
    assert (built.metadata, bad) == ({"agenteval.snapshot": "truncated"}, ["metadata"])
    assert build(call_of(answer=answer, facts={"response": "said"}))[0].metadata is None


def test_facts_of_a_capture_function() -> None:
    """``capture=`` sees the arguments by name and the answer; what it says goes before what was
    annotated.
    """

    def handler(question: str, *, user: str) -> str: ...

    def capture(arguments: dict[str, Any], answer: Any) -> dict[str, Any]:
        return {"session_id": arguments["user"], "ground_truth": answer.upper()}

    call = call_of(arguments=(("q",), {"user": "ann"}), facts={"session_id": "other", "model": "m"})
    built, bad = build(call, capture=capture, function=handler)
    assert (built.session_id, built.ground_truth, built.model, bad) == ("ann", "BECAUSE.", "m", [])


@pytest.mark.parametrize(
    "capture", [lambda arguments, answer: 1 / 0, lambda arguments, answer: 7, lambda: {}]
)
def test_a_capture_function_that_breaks(capture: Any) -> None:
    """A capture function that raises or gives no mapping fails the capture, with its name and
    without content.
    """

    def handler(question: str) -> str: ...

    with pytest.raises(CaptureError, match="capture="):
        build(call_of(arguments=(("q",), {})), capture=capture, function=handler)


def test_annotations_are_short_texts() -> None:
    """Numbers and booleans become text, long values are cut, empty ones are left out; the user's id
    is hashed.
    """
    facts = {
        "prompt_name": " refunds ",
        "prompt_version": 3,
        "user_id": UUID(int=7),
        "environment": "",
        "tags": {"tenant": "a" * 1_000, "beta": True, "none": None, "share": 0.5, "lone": "\ud800"},
    }
    built, bad = build(call_of(facts=facts))
    assert (built.prompt_name, built.prompt_version, built.environment, bad) == (
        "refunds",
        "3",
        None,
        [],
    )
    assert built.user_id == sha256(str(UUID(int=7)).encode()).hexdigest()[:32]
    assert built.tags is not None
    assert len(built.tags.pop("tenant")) < 256
    assert built.tags == {"beta": "true", "share": "0.5", "lone": "\ufffd"}


SLUG = "a tag's key must be a slug: a letter a-z or A-Z, then at most 63 of these, digits, '_', '.', '-'"


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (
            {"prompt_verison": 3},
            "unknown fact (did you mean 'prompt_version'?). Your own facts go into tags={...}",
        ),
        ({"tags": ["beta"]}, "expected a mapping such as tags={'tenant': 'acme'}"),
        ({"tags": {"a b": 1, "kept": 1}}, SLUG),
        ({"tags": {7: 1, "kept": 1}}, SLUG),
        ({"tags": {"list": [1], "kept": 1}}, "a tag's value must be text, a number or a boolean"),
        (
            {"tags": {f"t{index}": 1 for index in range(20)}},
            "at most 16 tags, further ones are left out",
        ),
        ({"user_id": {"id": 1}}, "expected text or a number"),
        ({"prompt_name": ["a"]}, "expected text or a number"),
    ],
)
def test_a_wrong_annotation_is_left_out_and_explained(facts: dict[str, Any], why: str) -> None:
    """The words name what was expected and quote nothing; the other tags stay."""
    reasons: list[tuple[str, ...]] = []
    call = call_of(facts=facts)
    call.keep_facts()
    built = build_input(call, on_bad_fact=lambda *reason: reasons.append(reason))
    assert reasons == [(next(iter(facts)), why)]
    tags = list(facts.get("tags", ()))[:16]
    assert list(built.tags or ()) == [key for key in tags if key not in ("a b", 7, "list", "beta")]


def test_a_hash_passes_redaction() -> None:
    """No hash is taken for a number of a card, a phone or a secret."""
    redactor = PatternRedactor()
    hashes = [hashed(f"user-{number}") for number in range(20_000)]
    assert [text for text in hashes if redactor.redact(text) != text] == []


OPENAI_CACHED = {"cached_tokens": 80}
CLAUDE_CACHED = {"cache_read_input_tokens": 80, "cache_creation_input_tokens": 10}


@pytest.mark.parametrize(
    ("name", "usage", "tokens"),
    [
        ("usage", {"prompt_tokens": 3, "completion_tokens": 4}, (3, 4)),
        ("usage", {"input_tokens": 3, "output_tokens": 4}, (3, 4)),
        ("usage", {"inputTokens": 3, "outputTokens": 4}, (3, 4)),
        ("usage", {"request_tokens": 3, "response_tokens": 4}, (3, 4)),
        ("usage", {"input_token_count": 3, "output_token_count": 4}, (3, 4)),
        ("usage", {"prompt_token_count": 3, "candidates_token_count": 4}, (3, 4)),
        ("token_usage", {"promptTokens": 3, "completionTokens": 4}, (3, 4)),
        ("usage_metadata", {"promptTokenCount": 3, "candidatesTokenCount": 4}, (3, 4)),
        ("tokens", {"input": 3, "output": 4}, (3, 4)),
        ("usage", {"tokens_evaluated": 3, "tokens_predicted": 4}, (3, 4)),
        ("usage", {"input_token_count": 3, "generated_token_count": 4}, (3, 4)),
        # OpenAI counts cached tokens within the input, Anthropic beside it.
        ("usage", {"prompt_tokens": 100, "prompt_tokens_details": OPENAI_CACHED}, (100, None)),
        ("usage", {"input_tokens": 100, "input_tokens_details": OPENAI_CACHED}, (100, None)),
        ("usage", {"input_tokens": 10, "output_tokens": 3} | CLAUDE_CACHED, (100, 3)),
    ],
)
def test_usage_is_read_in_any_client_s_words(
    name: str, usage: dict[str, Any], tokens: tuple[int, int | None]
) -> None:
    """Beside a message, in a dictionary of the handler's own, and where it is annotated. A cached
    token counts once, as the GenAI conventions ask.
    """
    calls = [
        call_of(answer={"role": "assistant", "content": "A", "usage": usage}),
        call_of(answer={"answer": "A", name: usage}),
        call_of(facts={"usage": usage}),
    ]
    for call in calls:
        built, _ = build(call)
        assert built.usage is not None
        assert (built.usage.input_tokens, built.usage.output_tokens) == tokens


def test_numbers_that_are_no_usage_are_none() -> None:
    """A number under such a name, and numbers of the answer itself, are no usage."""
    answer = {"answer": "A", "tokens": 7, "input": 3, "output": 4}
    assert build(call_of(answer=answer))[0].usage is None

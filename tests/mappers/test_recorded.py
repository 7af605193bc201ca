"""Spans that the real libraries made, read: the same question, tool and answer in every dialect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.mappers.support import NAMES, answer_of, answers_of, read_recording, recording

ROOT = Path(__file__).resolve().parents[2]
QUESTION, ANSWER = "What is the weather in Paris?", "It is 21 degrees and sunny in Paris."
SYSTEM = "You are a weather assistant."
RESULT = {"city": "Paris", "degrees": 21, "sky": "sunny"}

# An agent with a tool, as one answer.
AGENTS = (
    "genai_agent", "pydantic_ai_agent", "pydantic04_agent", "openinference_langchain", "openinference_langchain_stream",
    "openinference_langgraph_unnamed", "openllmetry_openai", "openllmetry040_openai", "openllmetry_langchain",
    "openllmetry_langchain_stream", "vercel_ai_generate", "vercel_ai_stream", "vercel_ai5_stream",
    "langfuse_agent", "langfuse_langchain",
    "mlflow_agent", "mlflow_langchain", "mlflow_conventions", "langsmith_agent", "langsmith_langchain", "strands_agent",
    "strands_conventions",
)  # fmt: skip
# Two model calls of a loop in one trace, without an agent's span.
LOOPS = ("openaiv2_tools", "semconv128_tools", "logfire_openai", "logfire3_openai")
# One model call, plain or streamed.
CALLS = (
    "genai_chat", "genai_events", "genai_stream", "genai_responses", "logfire_anthropic", "logfire_openai_responses",
    "logfire_openai_stream", "logfire3_openai_stream", "openinference_openai_stream", "openinference_openai_responses",
    "openllmetry_openai_stream", "openllmetry_openai_responses", "langfuse_stream", "mlflow_stream", "langsmith_stream",
)  # fmt: skip
WITHOUT_CONTENT = {
    "adk_no_content": "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
    "genai_no_content": "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
    "pydantic_ai_no_content": "include_content",
    "openinference_no_content": "OPENINFERENCE_HIDE_INPUTS",
    "openllmetry_no_content": "TRACELOOP_TRACE_CONTENT",
    "vercel_ai_no_content": "recordInputs",
}


def history_of(mapped: Any) -> list[tuple[str, str | None]]:
    return [(message.role, message.content) for message in mapped.input.message_history]


@pytest.mark.parametrize("name", NAMES)
def test_every_recording_is_read_as_a_whole(name: str) -> None:
    """No mapper raises, no scope but the application's own is unknown, and the recording says its
    libraries.
    """
    assert recording(name)["libraries"]
    for reading in read_recording(name):
        assert not reading.failed
        assert set(reading.not_understood) <= {"app"}
        assert reading.left_out == 0


@pytest.mark.parametrize("name", NAMES)
def test_the_documentation_has_the_recorded_versions(name: str) -> None:
    """Of every library, in the table of dialects."""
    text = (ROOT / "docs/spans.md").read_text()
    missing = [
        (library, version)
        for library, version in recording(name)["libraries"].items()
        if version not in text
    ]
    assert not missing


@pytest.mark.parametrize("name", [*AGENTS, *LOOPS, *CALLS])
def test_an_answer_has_its_question_instructions_and_tokens(name: str) -> None:
    """Prompt, system instructions, answer, model and tokens of all model calls are there."""
    mapped = answer_of(name)
    assert mapped.content_switch is None
    assert mapped.input.prompt == QUESTION
    assert mapped.input.response is not None
    assert mapped.input.response.strip() == ANSWER  # Strands ends its text with a line
    assert history_of(mapped)[:2] == [("system", SYSTEM), ("user", QUESTION)]
    assert mapped.input.model in ("gpt-5-mini", "claude-sonnet-4-5")
    calls = 1 if name in CALLS else 2
    assert mapped.input.turns == calls
    if not name.endswith("_openai_stream") or "logfire" not in name:  # which reports none
        usage = mapped.input.usage
        assert usage is not None
        assert (usage.input_tokens, usage.output_tokens) == ((40, 9) if calls == 1 else (70, 14))


@pytest.mark.parametrize("name", [*AGENTS, *LOOPS])
def test_tool_calls_have_arguments_and_results(name: str) -> None:
    """One call, as the model made it, with what the tool gave; its time where the tool has a span."""
    [call] = answer_of(name).input.tool_calls or ()
    assert (call.name, call.arguments) == ("get_weather", {"city": "Paris"})
    assert call.result == RESULT
    assert (call.duration_s is not None) is (name in AGENTS)
    assert call.error is None


def test_an_agent_of_googles_kit_is_one_answer() -> None:
    """With the variables that the log names; its tools' results are wrapped by the kit."""
    mapped = answer_of("adk_agent")
    assert (mapped.input.prompt, mapped.input.response) == (QUESTION, ANSWER)
    [(role, instructions), *_] = history_of(mapped)
    assert role == "system"
    assert instructions is not None
    assert instructions.startswith(SYSTEM)
    usage = mapped.input.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, mapped.input.turns) == (70, 14, 2)
    [call] = mapped.input.tool_calls or ()
    assert (call.name, call.arguments) == ("get_weather", {"city": "Paris"})
    result = json.loads(call.result) if isinstance(call.result, str) else call.result
    assert json.loads(result["result"]) == RESULT


@pytest.mark.parametrize(
    ("name", "agent"),
    [
        ("adk_agent", "weather"),
        ("genai_agent", "weather"),
        ("pydantic_ai_agent", "weather"),
        ("openinference_langchain", "weather_agent"),
        ("openinference_langgraph_unnamed", "LangGraph"),
        ("openllmetry_openai", "weather"),
        ("openllmetry_langchain", "weather_agent"),
        ("vercel_ai_generate", "weather"),
        ("langfuse_agent", "weather"),
        ("mlflow_agent", "weather"),
        ("mlflow_langchain", "weather_agent"),
        ("langsmith_agent", "weather"),
        ("langsmith_langchain", "weather_agent"),
        ("strands_agent", "weather"),
        ("genai_chat", None),
    ],
)
def test_the_agent_has_its_name(name: str, agent: str | None) -> None:
    """As the dialect says it; a lone model call has none."""
    assert answer_of(name).input.agent == agent


@pytest.mark.parametrize("name", WITHOUT_CONTENT)
def test_missing_content_is_told_from_an_empty_answer(name: str) -> None:
    """There is no response, only what is known without content, and how content is switched on."""
    mapped = answer_of(name)
    assert mapped.content_switch is not None
    assert WITHOUT_CONTENT[name] in mapped.content_switch
    assert mapped.input.response is mapped.input.prompt is mapped.input.message_history is None
    assert mapped.input.usage is not None
    assert mapped.input.finish_reason == "stop"


@pytest.mark.parametrize(
    ("name", "switch"),
    [("langfuse_no_content", "capture_input"), ("langsmith_no_content", "LANGSMITH_HIDE_INPUTS")],
)
def test_missing_content_of_a_platform_is_told_too(name: str, switch: str) -> None:
    """There are its tokens and its model, and how content is switched on."""
    mapped = answer_of(name)
    assert switch in (mapped.content_switch or "")
    assert mapped.input.response is mapped.input.prompt is None
    assert mapped.input.usage is not None
    assert (mapped.input.usage.input_tokens, mapped.input.model) == (40, "gpt-5-mini")


@pytest.mark.parametrize(
    "name",
    [
        "genai_failing_tool",
        "vercel_ai_failing_tool",
        "langfuse_failing_tool",
        "strands_failing_tool",
    ],
)
def test_a_failed_tool_says_why(name: str) -> None:
    """The error stands with the call; the answer itself has not failed."""
    mapped = answer_of(name)
    [call] = mapped.input.tool_calls or ()
    assert call.error == "the weather service does not answer"
    assert mapped.input.error_type is None


@pytest.mark.parametrize(
    ("name", "error_type"),
    [
        ("genai_error", "BadRequestError"),
        ("pydantic_ai_error", "ModelRequestRejectedError"),
        ("vercel_ai_error", "AI_APICallError"),
    ],
)
def test_a_failed_call_has_an_error_type_and_an_empty_answer(name: str, error_type: str) -> None:
    """Its question is there; the class of the exception stands without its module."""
    mapped = answer_of(name)
    assert mapped.input.error_type == error_type
    assert mapped.input.prompt == "fail with status 400"
    assert mapped.input.response == ""


def test_nested_agents_are_part_of_the_outer_answer() -> None:
    """The outer agent's tool calls are its own; tokens and cost are those of both agents."""
    mapped = answer_of("pydantic_ai_two_agents")
    assert mapped.input.agent == "concierge"
    assert [call.name for call in mapped.input.tool_calls or ()] == ["ask_expert"]
    assert mapped.input.usage is not None
    assert mapped.input.usage.input_tokens == 140
    assert mapped.input.turns == 2


def test_nested_agents_are_answers_of_their_own_where_that_is_set() -> None:
    """The inner agent has its own question, tool calls and tokens."""
    outer, inner = answers_of("pydantic_ai_two_agents", nested_agents=True)
    assert (outer.input.agent, inner.input.agent) == ("concierge", "expert")
    assert inner.input.prompt == "Weather in Paris?"
    assert [call.name for call in inner.input.tool_calls or ()] == ["get_weather"]
    assert inner.input.usage is not None
    assert inner.input.usage.input_tokens == 70


def test_agents_that_hand_over_are_one_answer() -> None:
    """Where the outermost span has no name, the first agent's counts; tool calls of all agents are
    there.
    """
    handed_over, alone = answers_of("openinference_openai_agents")
    assert handed_over.input.agent == "triage"
    assert [call.name for call in handed_over.input.tool_calls or ()] == ["transfer_to_expert"]
    assert alone.input.agent == "expert"
    assert handed_over.input.response == alone.input.response == ANSWER


@pytest.mark.parametrize(
    ("name", "documents"),
    [
        ("openinference_langchain_chain", ["Paris is sunny in June.", "Bring a hat."]),
        ("mlflow_langchain_chain", ["Paris is sunny in June.", "Bring a hat."]),
        ("langsmith_langchain_chain", ["Paris is sunny in June.", "Bring a hat."]),
        ("genai_retrieval", [{"id": "guide-1", "score": 0.9}, {"id": "guide-2", "score": 0.7}]),
    ],
)
def test_retrieved_documents_are_the_context(name: str, documents: list[Any]) -> None:
    """Of a chain, or of a workflow around one model call."""
    mapped = answer_of(name)
    assert mapped.input.context == {"documents": documents}
    assert mapped.input.response == ANSWER


def test_user_prompt_version_tags_and_environment_come_from_the_dialects_own_attributes() -> None:
    """The user's id stays as it is, apart from the input: what is kept of it is not the mapper's to
    say.
    """
    both = {"beta": "true", "tenant": "acme"}
    tags = {
        "openinference_openai": both,
        "vercel_ai_generate": both,
        "langfuse_agent": both,
        "langsmith_agent": both,
        "openllmetry_openai": {"tenant": "acme"},
        "pydantic_ai_agent": {"tenant": "acme"},
    }
    answers = {name: answers_of(name)[-1] for name in tags}
    assert {name: answer.input.tags for name, answer in answers.items()} == tags
    for name, answer in answers.items():
        assert answer.user_id == (None if name == "pydantic_ai_agent" else "ann@example.com")
        assert answer.input.user_id is None
        if name not in ("langfuse_agent", "langsmith_agent"):
            assert answer.input.environment == "staging"
    assert answers["openinference_openai"].input.prompt_version == "v7"
    for name in ("openinference_openai", "langfuse_agent", "langsmith_agent"):
        known = answers[name].input
        assert known.conversation_id == known.session_id == "session-1"


@pytest.mark.parametrize(
    "name",
    [
        "genai_agent",
        "openinference_langchain",
        "openllmetry_openai",
        "vercel_ai_generate",
        "langfuse_agent",
        "langfuse_langchain",
        "mlflow_agent",
        "langsmith_agent",
        "langsmith_langchain",
    ],
)
def test_definitions_of_tools_are_there_for_judges(name: str) -> None:
    """As the provider takes them."""
    config = answer_of(name).input.agent_config
    assert config is not None
    assert "get_weather" in str(config["tools"])


@pytest.mark.parametrize(
    "name",
    [
        "genai_stream",
        "openllmetry_openai_stream",
        "vercel_ai_stream",
        "langfuse_stream",
        "mlflow_stream",
        "langsmith_stream",
    ],
)
def test_a_streamed_answer_says_how_it_ended(name: str) -> None:
    """Where the dialect says that it was streamed."""
    assert answer_of(name).input.stream_end == "completed"


def test_the_cost_is_that_of_all_model_calls() -> None:
    """Where the dialect has it."""
    assert answer_of("pydantic_ai_agent").input.cost == pytest.approx(4.55e-05)


def test_a_conversations_earlier_messages_are_its_history() -> None:
    """The question is the user's last message."""
    mapped = answer_of("vercel_ai_messages")
    assert mapped.input.prompt == QUESTION
    assert [role for role, _ in history_of(mapped)] == ["system", "user", "assistant", "user"]


def test_a_client_and_its_instrumentation_count_once() -> None:
    """The Anthropic client has a span of its own below that of the instrumentation."""
    mapped = answer_of("openinference_anthropic")
    assert mapped.mapper == "openinference"
    assert mapped.input.usage is not None
    assert mapped.input.usage.input_tokens == 30

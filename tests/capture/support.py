"""What the tests of the clients share: the model's replies, monitored handlers, and what has to be
found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from agenteval_otel.capture import Reading, answers, build
from agenteval_otel.capture.detached import take
from agenteval_otel.models import EvaluationInput, ToolCall
from agenteval_otel.testing import ModelReply
from tests.instrumentation.support import Seen

__all__ = [
    "ANSWER", "ASKED", "CALLING", "LOOK", "ONLY_CALLING", "WEATHER", "facts_of", "history_of", "passed_on",
    "read_answer", "read_chunks", "returned", "streamed",
]  # fmt: skip

WEATHER: Any = {"name": "weather", "arguments": {"city": "Kyōto"}}
LOOK = "Let me look."
CALLING = ModelReply(
    text=LOOK, tool_calls=(WEATHER,), input_tokens=7, output_tokens=9, reasoning="The user asks."
)
ONLY_CALLING = ModelReply(tool_calls=(WEATHER,), input_tokens=7, output_tokens=9)
ANSWER = ModelReply(text="It is sunny.", input_tokens=20, output_tokens=4)
ASKED: list[Any] = [
    {"role": "system", "content": "Be nice."},
    {"role": "user", "content": "How is the weather?"},
]


def returned(answer: Any, prompt: Any = "asked", **arguments: Any) -> EvaluationInput:
    """What is captured of a handler that returns this answer."""
    seen = Seen()

    @seen.monitor
    def handler(prompt: Any, **rest: Any) -> Any:
        return answer

    handler(prompt, **arguments)
    return _only(seen)


def streamed(chunks: Any) -> EvaluationInput:
    """What is captured of a handler that passes these chunks on."""
    seen = Seen()

    @seen.monitor
    def handler(prompt: Any) -> Any:
        yield from chunks

    for _ in handler("asked"):
        pass
    return _only(seen)


def passed_on(stream: Callable[[], Any]) -> EvaluationInput:
    """What is captured of an async handler that passes on what this async generator function gives."""
    seen = Seen()

    @seen.monitor
    async def handler(prompt: Any) -> Any:
        async for chunk in stream():
            yield chunk

    async def consume() -> None:
        async for _ in handler("asked"):
            pass

    asyncio.run(consume())
    return _only(seen)


def facts_of(captured: EvaluationInput) -> tuple[Any, ...]:
    """The facts that a client's answer tells: text, calls (name, arguments, result), tokens, model,
    finish reason.
    """
    calls = captured.tool_calls
    return (
        captured.response,
        None if calls is None else [_call(call) for call in calls],
        None
        if captured.usage is None
        else (captured.usage.input_tokens, captured.usage.output_tokens),
        captured.model,
        captured.finish_reason,
    )


def _call(call: ToolCall) -> tuple[Any, ...]:
    assert call.id, "a call has its id"
    return call.name, call.arguments, call.result


def _only(seen: Seen) -> EvaluationInput:
    assert seen.outcomes == {"evaluated": 1}
    assert seen.pipeline.accounting.failures == {}
    seen.pipeline.shutdown(5)
    (captured,) = seen.inputs
    return captured


def read_answer(answer: Any) -> Reading:
    """What an answer says, taken from the host first."""
    return answers.read_answer(take(answer).value)


def read_chunks(chunks: list[Any]) -> Reading:
    """What a stream says, each chunk taken from the host first."""
    return answers.read_chunks([take(chunk).value for chunk in chunks])


def history_of(value: Any) -> list[dict[str, Any]] | None:
    """The messages of a conversation, taken from the host first."""
    read_turns = build.read_prompt(take(value).value).read_turns
    return None if read_turns is None else build.history_fields(read_turns())

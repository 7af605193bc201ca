"""What the tests of judges share: a question, both hosted judges, and an answer to the question."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from agenteval_otel.errors import JudgeError
from agenteval_otel.judges import (
    AnthropicJudge,
    Judge,
    JudgeRequest,
    OpenAICompatibleJudge,
    Verdict,
)
from agenteval_otel.testing import ModelServer

__all__ = ["CANARY", "FORM", "GOOD", "QUESTION", "ask", "failure", "hosted", "outcomes", "types_of"]

CANARY = "sk-canary-5f1e9b7c2d"
FORM = {
    "type": "object",
    "properties": {
        "reason": {"type": "string"},
        "score": {"type": "integer", "minimum": 1, "maximum": 5},
    },
    "required": ["reason", "score"],
}
QUESTION = JudgeRequest(
    system="You judge.", prompt='{"answer": "The tower is tall."}', answer_form=FORM
)
GOOD = '{"reason": "it is on the matter", "score": 4}'


def hosted(kind: type[Judge], server: ModelServer, **settings: Any) -> Judge:
    """A judge of the kind that asks the server; waits of retries are short."""
    fields = {
        "model": "judge-1",
        "api_key": CANARY,
        "retry_base_s": 0.001,
        "deadline_s": 20.0,
        **settings,
    }
    if kind is AnthropicJudge:
        return AnthropicJudge(base_url=server.url, **fields)
    return OpenAICompatibleJudge(base_url=f"{server.url}/v1", **fields)


def ask(judge: Judge, request: JudgeRequest = QUESTION) -> Verdict:
    """One answer, on a loop of its own."""
    return asyncio.run(judge.judge(request))


def outcomes(judge: Judge, number: int) -> list[Verdict | JudgeError]:
    """The outcomes of so many questions, one after the other on one loop."""

    async def all_of() -> list[Verdict | JudgeError]:
        result: list[Verdict | JudgeError] = []
        for _ in range(number):
            try:
                result.append(await judge.judge(QUESTION))
            except JudgeError as error:
                result.append(error)
        return result

    return asyncio.run(all_of())


def failure(judge: Judge, request: JudgeRequest = QUESTION) -> JudgeError:
    """How one question fails."""
    with pytest.raises(JudgeError) as raised:
        ask(judge, request)
    return raised.value


def types_of(result: Sequence[Verdict | JudgeError]) -> list[str]:
    """The error types of failures, ``answer`` for answers."""
    return [item.error_type if isinstance(item, JudgeError) else "answer" for item in result]

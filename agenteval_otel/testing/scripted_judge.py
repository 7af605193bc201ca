"""ScriptedJudge: a judge with prepared answers, for tests, examples and runs without a key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import Field, PrivateAttr, field_validator

from agenteval_otel.errors import JudgeError
from agenteval_otel.http_client.replies import RETRYABLE
from agenteval_otel.judges import Judge, JudgeRequest, JudgeUsage, Verdict
from agenteval_otel.judges.answers import parse_answer
from agenteval_otel.judges.base import ERROR_TYPES
from agenteval_otel.runtime.fork import ForkSafeLock

Reply = str | dict[str, Any]

_LOCK = ForkSafeLock()


class ScriptedJudge(Judge, type="scripted"):
    """Answers from a script: the replies in order, then the fallback. Sends nothing and costs nothing.

    Replies are parsed as a model's are, so a text that is no JSON object fails in the same way. Several threads and
    loops may use it; the order is then that of their requests.

    Attributes:
        model: The name in its verdicts.
        replies: Objects, or texts as a model would write them; one of ``{"error": "rate_limited"}`` fails in that way.
        fallback: The answer after the last reply; None fails with ``empty_answer``.
        answer: A function from the request to a reply, instead of the replies. Left out of dumps.
        error: Every call fails in this way, one of `judges.ERROR_TYPES`.
        fail_first: Number of calls that fail first, with `error` or else ``server_error``; then the script begins.
        delay_s: Wait before each answer; ends early when the caller gives up.
        input_tokens, output_tokens: Reported as the usage of each call, failed calls included.
    """

    model: str = "scripted"
    replies: tuple[Reply, ...] = ()
    fallback: Reply | None = None
    answer: Callable[[JudgeRequest], Reply] | None = Field(default=None, exclude=True)
    error: str | None = None
    fail_first: int = Field(default=0, ge=0)
    delay_s: float = Field(default=0.0, ge=0)
    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    _requests: list[JudgeRequest] = PrivateAttr(default_factory=list)

    @field_validator("error")
    @classmethod
    def _error_is_known(cls, value: str | None) -> str | None:
        if value is not None and value not in ERROR_TYPES:
            raise ValueError(f"expected one of {', '.join(ERROR_TYPES)}")
        return value

    @property
    def calls(self) -> int:
        """Number of requests, failures and callers that gave up included."""
        return len(self._requests)

    @property
    def requests(self) -> tuple[JudgeRequest, ...]:
        """The requests, in order."""
        return tuple(self._requests)

    def reset(self) -> None:
        """Forget the calls; the script begins again."""
        with _LOCK:
            self._requests.clear()

    async def judge(self, request: JudgeRequest) -> Verdict:
        """The next reply of the script.

        Raises:
            JudgeError: The script says so, or the reply is not one JSON object.
        """
        with _LOCK:
            number = len(self._requests)
            self._requests.append(request)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        usage = JudgeUsage(input_tokens=self.input_tokens, output_tokens=self.output_tokens)
        failure = self._failure(number)
        reply = None if failure else self._reply(number - self.fail_first, request)
        if isinstance(reply, Mapping) and set(reply) == {"error"} and reply["error"] in ERROR_TYPES:
            failure = str(reply["error"])
        if failure:
            raise JudgeError(
                f"the script says {failure}", error_type=failure, retryable=failure in RETRYABLE, usage=usage
            )
        raw = reply if isinstance(reply, str) else "" if reply is None else json.dumps(reply)
        try:
            verdict = parse_answer(raw, request.answer_form)
        except JudgeError as error:
            error.usage = usage
            raise
        return Verdict(
            answer=verdict, raw=raw, usage=usage, model=self.model, response_id=f"scripted-{number}",
            duration_s=self.delay_s,
        )  # fmt: skip

    def _failure(self, number: int) -> str | None:
        if number < self.fail_first:
            return self.error or "server_error"
        return self.error if not self.fail_first else None

    def _reply(self, number: int, request: JudgeRequest) -> Reply | None:
        if self.answer is not None:
            return self.answer(request)
        return self.replies[number] if number < len(self.replies) else self.fallback

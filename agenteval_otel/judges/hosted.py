"""Hosted judges: what asking a judge over HTTP has in common, whoever provides it.

One question: at most two retries, all within one deadline; then one JSON object, or a failure of a known kind with what
was used all the same.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

from agenteval_otel.errors import JudgeError, ModelError
from agenteval_otel.http_client.model import HostedModel, Try
from agenteval_otel.http_client.replies import Reply, encodable
from agenteval_otel.judges.answers import parse_answer
from agenteval_otel.judges.base import Judge, JudgeRequest, JudgeUsage, Verdict
from agenteval_otel.judges.breaker import BreakerSettings

__all__ = ["Answered", "HostedJudge"]


class Answered(NamedTuple):
    """What a response says: the answer's text, or the failure that it tells of; and what was used either way."""

    text: str
    usage: JudgeUsage
    model: str
    response_id: str | None
    failure: tuple[str, str] | None = None


class HostedJudge(HostedModel, Judge):
    """A judge that is asked over HTTP, as every `HostedModel`.

    Attributes:
        breaker: When the endpoint is left alone; None is never.
    """

    unversioned: ClassVar[frozenset[str]] = HostedModel.unversioned | Judge.unversioned

    breaker: BreakerSettings | None = BreakerSettings()

    @abstractmethod
    async def _send(self, client: Any, request: JudgeRequest) -> Reply:
        """Ask once.

        Raises:
            ModelError: ``connection_error``, ``timeout`` or ``bad_request``: there is no response.
        """

    @abstractmethod
    def _answered(self, message: dict[str, Any]) -> Answered:
        """What the JSON object of a response without an error says."""

    async def judge(self, request: JudgeRequest) -> Verdict:
        """The model's answer; ends at the deadline at the latest."""
        sendable = _sendable(request)
        return await self._ask(lambda tried: self._once(sendable, tried))

    async def _once(self, request: JudgeRequest, tried: Try) -> Verdict:
        question = f"{request.system}\n{request.prompt}"
        reply = self._answered(await tried.message(lambda client: self._send(client, request), question))
        usage = reply.usage.model_copy(update={"calls": tried.calls})
        if reply.failure is not None:
            raise JudgeError(reply.failure[1], error_type=reply.failure[0], usage=usage)
        try:
            answer = parse_answer(reply.text, request.answer_form)
        except JudgeError as error:
            error.usage = usage
            raise
        return Verdict(
            answer=answer, raw=reply.text, usage=usage, model=reply.model or self.model,
            response_id=reply.response_id, duration_s=tried.age_s(),
        )  # fmt: skip

    def _failed(self, error: ModelError, calls: int) -> JudgeError:
        usage = error.usage if isinstance(error, JudgeError) else None
        return JudgeError(
            str(error), error_type=error.error_type, retryable=error.retryable, retry_after_s=error.retry_after_s,
            usage=usage or (JudgeUsage(calls=calls) if calls else None),
        )  # fmt: skip


def _sendable(request: JudgeRequest) -> JudgeRequest:
    """Half a surrogate pair has no encoding."""
    if request.system.isascii() and request.prompt.isascii():
        return request
    return request.model_copy(update={"system": encodable(request.system), "prompt": encodable(request.prompt)})

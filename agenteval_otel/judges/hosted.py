"""HostedJudge: what judges behind HTTP have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from agenteval_otel.errors import JudgeError, ModelError
from agenteval_otel.http_client.model import Attempts, HostedModel
from agenteval_otel.http_client.replies import Reply, encodable
from agenteval_otel.judges.answers import parse_answer
from agenteval_otel.judges.base import Judge
from agenteval_otel.judges.breaker import BreakerSettings
from agenteval_otel.judges.request import JudgeRequest, JudgeUsage, Verdict


class HostedJudge(HostedModel, Judge):
    """A judge behind HTTP; settings as of every `HostedModel`.

    Attributes:
        breaker: When its endpoint is left alone; None is never.
    """

    unversioned: ClassVar[frozenset[str]] = HostedModel.unversioned | Judge.unversioned

    breaker: BreakerSettings | None = BreakerSettings()

    @abstractmethod
    async def _send(self, client: Any, key: str | None, request: JudgeRequest) -> Reply:
        """Send once; raises `ModelError` where there is no response."""

    @abstractmethod
    def _usage_of(self, message: dict[str, Any]) -> JudgeUsage:
        """The tokens that a response counts."""

    @abstractmethod
    def _text_of(self, message: dict[str, Any]) -> str:
        """The text of the answer; raises `JudgeError` where the response is a refusal, cut off or unfinished."""

    async def judge(self, request: JudgeRequest) -> Verdict:
        """The model's answer; ends at the deadline at the latest."""
        if not (request.system.isascii() and request.prompt.isascii()):
            texts = {"system": encodable(request.system), "prompt": encodable(request.prompt)}
            request = request.model_copy(update=texts)
        return await self._ask(lambda attempts: self._verdict(request, attempts))

    async def _verdict(self, request: JudgeRequest, attempts: Attempts) -> Verdict:
        question = f"{request.system}\n{request.prompt}"
        message = await self._message(attempts, lambda client, key: self._send(client, key, request), question)
        usage = self._usage_of(message).model_copy(update={"calls": attempts.calls})
        try:
            raw = self._text_of(message)
            answer = parse_answer(raw, request.answer_form)
        except JudgeError as error:
            error.usage = usage
            raise
        model, response_id = message.get("model"), message.get("id")
        return Verdict(
            answer=answer, raw=raw, usage=usage, model=model if model and isinstance(model, str) else self.model,
            response_id=response_id if isinstance(response_id, str) else None, duration_s=attempts.age_s(),
        )  # fmt: skip

    def _failed(self, error: ModelError, calls: int) -> JudgeError:
        usage = error.usage or (JudgeUsage(calls=calls) if calls else None)
        return JudgeError(
            str(error), error_type=error.error_type, retryable=error.retryable, retry_after_s=error.retry_after_s,
            usage=usage,
        )  # fmt: skip

"""Hosted judges: what asking a model over HTTP has in common, whoever provides it.

One question: at most two retries, all within one deadline; then one JSON object, or a failure of a known kind with what
was used all the same.
"""

from __future__ import annotations

import asyncio
import os
import sys
from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar, Final, NamedTuple

from pydantic import Field, SecretStr, SerializationInfo, field_serializer, field_validator, model_validator

from agenteval_otel.components import PartError
from agenteval_otel.errors import ConfigurationError, JudgeError
from agenteval_otel.judges.addresses import check_url
from agenteval_otel.judges.answers import encodable, parse_answer
from agenteval_otel.judges.base import Judge, JudgeRequest, JudgeUsage, Verdict
from agenteval_otel.judges.clients import Clients
from agenteval_otel.judges.quiet import quietly
from agenteval_otel.judges.replies import Reply, Secrets, error_of, object_of, status_of
from agenteval_otel.judges.retries import RetryBudget, wait_before

__all__ = ["Answered", "HostedJudge", "no_connection", "not_written"]

_MAX_ANSWER_BYTES: Final = 262_144


class Answered(NamedTuple):
    """What a response says: the answer's text, or the failure that it tells of; and what was used either way."""

    text: str
    usage: JudgeUsage
    model: str
    response_id: str | None
    failure: tuple[str, str] | None = None


class HostedJudge(Judge):
    """A judge that is asked over HTTP. Each question has one deadline, for its retries and the waits between them too.

    Rate limits, overload, errors of the server and broken connections are tried again, at most `max_retries` times and
    never before the provider asks to come back; over time at most `retry_share` of the calls. Answers that came but are
    none are not asked for again: they were paid for. No redirect is followed.

    Attributes:
        model: The model that is asked, as its provider names it.
        base_url: Where it is asked. A host's name has to lead to public addresses, unless `allow_private`.
        api_key: The key itself. Never shown, dumped or logged.
        api_key_env: Name of the environment variable that holds the key, read with every question.
        deadline_s: Seconds until a question is given up, whatever it waits for.
        max_retries: How often a question is asked again, 0 to 2.
        retry_share: Retries a call over time; a judge that has hardly been asked yet has two free.
        retry_base_s: The first wait in seconds, doubled each time, less up to a half by chance.
        max_answer_bytes: Longest response that is read.
        allow_private: Whether a host's name may lead to addresses that are not public, such as a service's in the
            same cluster. Loopback and private addresses that are written as numbers, and localhost, need no leave.
        extra_body: Further fields of the request, as the provider documents them.
        extra_headers: Further headers of the request.
    """

    client_modules: ClassVar[tuple[str, ...]]

    model: str = Field(min_length=1, max_length=256)
    base_url: str = Field(max_length=2_048)
    api_key: SecretStr | None = None
    api_key_env: str | None = None
    deadline_s: float = Field(default=30.0, gt=0, le=600)
    max_retries: int = Field(default=2, ge=0, le=2)
    retry_share: float = Field(default=0.1, ge=0, le=1)
    retry_base_s: float = Field(default=0.5, ge=0, le=8)
    max_answer_bytes: int = Field(default=_MAX_ANSWER_BYTES, ge=1_024, le=8_388_608)
    allow_private: bool = False
    extra_body: dict[str, Any] = Field(default_factory=dict)
    extra_headers: dict[str, str] = Field(default_factory=dict)

    @field_validator("api_key")
    @classmethod
    def _key_can_be_sent(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _can_be_sent(value.get_secret_value()):
            raise ValueError("expected a key of visible ASCII characters")
        return value

    @model_validator(mode="after")
    def _address_is_one(self) -> HostedJudge:
        try:
            check_url(self.base_url, allow_private=self.allow_private)
        except ValueError as error:
            raise PartError(ConfigurationError(str(error), path="base_url"), of_model=True) from None
        return self

    @field_serializer("api_key", when_used="unless-none")
    def _key_for_who_asks(self, value: SecretStr, info: SerializationInfo) -> str:
        return value.get_secret_value() if (info.context or {}).get("secrets") else "***"

    @abstractmethod
    def _connect(self, key: str | None) -> Any:
        """A client for the running loop."""

    @abstractmethod
    async def _send(self, client: Any, request: JudgeRequest) -> Reply:
        """Ask once.

        Raises:
            JudgeError: ``connection_error``, ``timeout`` or ``bad_request``: there is no response.
        """

    @abstractmethod
    def _answered(self, message: dict[str, Any]) -> Answered:
        """What the JSON object of a response without an error says."""

    async def judge(self, request: JudgeRequest) -> Verdict:
        """The model's answer; ends at the deadline at the latest."""
        for name in self.client_modules:  # takes seconds, which are none of the provider's, and none of the loop's
            if name not in sys.modules:
                await asyncio.to_thread(import_module, name)
        asked = _Question(_sendable(request), asyncio.get_running_loop().time)
        failure: JudgeError | None = None
        try:
            async with asyncio.timeout(self.deadline_s):
                with quietly():
                    return await self._until_answered(asked)
        except TimeoutError:
            failure = JudgeError(f"no answer from the judge within {self.deadline_s:g} s", error_type="timeout")
        except JudgeError as error:
            failure = error
        if failure.usage is None and asked.calls:
            failure.usage = JudgeUsage(calls=asked.calls)
        # Outside of the handlers: the client's own error, which holds the request with its headers, stays behind.
        failure.__context__ = failure.__cause__ = None
        raise failure.with_traceback(None)

    async def close(self) -> None:
        """Close the connections of the running event loop; it closes them itself when it ends."""
        await self._clients.close()

    async def _until_answered(self, asked: _Question) -> Verdict:
        self._budget.called()
        for retry in range(self.max_retries + 1):
            try:
                return await self._once(asked)
            except JudgeError as error:
                wait_s = wait_before(retry, self.retry_base_s, error.retry_after_s)
                hopeless = not error.retryable or retry == self.max_retries or wait_s > self.deadline_s - asked.age_s()
                if hopeless or not self._budget.take():
                    raise
            await asyncio.sleep(wait_s)
        raise AssertionError("unreachable")

    async def _once(self, asked: _Question) -> Verdict:
        key = self._key()
        client = await self._clients.get(key, lambda: self._connect(key))
        asked.calls += 1
        reply = await self._send(client, asked.request)
        if not 200 <= reply.status < 300:
            raise error_of(reply, self._secrets(key, asked.request))
        message = object_of(reply)
        if "error" in message and (status := status_of(message["error"])):
            raise error_of(reply._replace(status=status), self._secrets(key, asked.request))
        found = self._answered(message)
        usage = found.usage.model_copy(update={"calls": asked.calls})
        if found.failure is not None:
            raise JudgeError(found.failure[1], error_type=found.failure[0], usage=usage)
        try:
            answer = parse_answer(found.text, asked.request.answer_form)
        except JudgeError as error:
            error.usage = usage
            raise
        return Verdict(
            answer=answer, raw=found.text, usage=usage, model=found.model or self.model,
            response_id=found.response_id, duration_s=asked.age_s(),
        )  # fmt: skip

    def _key(self) -> str | None:
        if self.api_key is not None:
            return self.api_key.get_secret_value()
        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env, "").strip()
        if not _can_be_sent(key):
            wrong = "holds characters that no key has" if key else "is not set"
            raise JudgeError(
                f"the judge's key is missing: the environment variable {self.api_key_env} {wrong}",
                error_type="authentication",
            )
        return key

    def _secrets(self, key: str | None, request: JudgeRequest) -> Secrets:
        keys = (key or "", *self.extra_headers.values())
        return Secrets(tuple(one for one in keys if one), f"{request.system}\n{request.prompt}")

    @cached_property
    def _clients(self) -> Clients:
        return Clients()

    @cached_property
    def _budget(self) -> RetryBudget:
        return RetryBudget(self.retry_share)


def no_connection(error: BaseException) -> JudgeError:
    """The failure of a connection that was not made, or broke; the client's words stay behind."""
    return JudgeError(
        f"no connection to the judge ({type(error).__name__})", error_type="connection_error", retryable=True
    )


def not_written(error: Exception) -> JudgeError:
    """The failure of a request that the client cannot write, which its settings bring about."""
    return JudgeError(f"the question could not be written ({type(error).__name__})", error_type="bad_request")


class _Question:
    """A request under way: how often it was sent, and since when."""

    def __init__(self, request: JudgeRequest, clock: Callable[[], float]) -> None:
        self.request, self.calls = request, 0
        self._clock, self._begun = clock, clock()

    def age_s(self) -> float:
        return self._clock() - self._begun


def _sendable(request: JudgeRequest) -> JudgeRequest:
    """Half a surrogate pair has no encoding."""
    if request.system.isascii() and request.prompt.isascii():
        return request
    return request.model_copy(update={"system": encodable(request.system), "prompt": encodable(request.prompt)})


def _can_be_sent(key: str) -> bool:
    return bool(key) and key.isascii() and key.isprintable() and " " not in key

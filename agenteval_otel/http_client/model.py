"""HostedModel: a model behind HTTP: its address, key, deadline and retries."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar, Final, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, SerializationInfo, field_serializer, field_validator, model_validator

from agenteval_otel.components import Component
from agenteval_otel.components.explained import ComponentError
from agenteval_otel.errors import ConfigurationError, ModelError
from agenteval_otel.http_client.client import LoopClients, client_for, quietly, trusted
from agenteval_otel.http_client.replies import Reply, error_of, object_of, status_of
from agenteval_otel.http_client.retries import RetryBudget, wait_before
from agenteval_otel.runtime.fork import ForkSafeLock

T = TypeVar("T")

_LOADING: Final = ForkSafeLock()
_LOADED: Final[set[str]] = set()


class HostedModel(Component):
    """A model behind HTTP. Each request has one deadline, which covers its retries and the waits between them.

    Rate limits, overload, errors of the server and broken connections are retried, at most `max_retries` times and
    never before the provider asks to come back; over time at most `retry_share` of the calls. Invalid responses are not
    retried, since they are billed. No redirect is followed.

    Attributes:
        model: The model's name at its provider.
        base_url: ``http`` or ``https``, a public or a private address. The key and the request go only there.
        api_key: The key itself. Never shown, dumped or logged.
        api_key_env: Name of the environment variable that holds the key, read for each request.
        deadline_s: Seconds until a request is given up.
        max_retries: Most retries of a request, 0 to 2.
        retry_share: Retries per call over time; the first two are free.
        retry_base_s: The first wait in seconds, doubled each time, less up to a half by chance.
        max_answer_bytes: Longest response that is read.
        extra_body: Further fields of the request, as the provider documents them.
        extra_headers: Further headers of the request.
    """

    client_modules: ClassVar[tuple[str, ...]] = ("httpx2",)
    error_class: ClassVar[type[ModelError]] = ModelError
    usage_class: ClassVar[Callable[..., Any]]  # takes the number of calls
    # No answer depends on these.
    fingerprint_exclude: ClassVar[frozenset[str]] = frozenset({
        "api_key", "api_key_env", "deadline_s", "max_retries", "retry_share", "retry_base_s", "max_answer_bytes",
        "extra_headers",
    })  # fmt: skip

    model: str = Field(min_length=1, max_length=256)
    base_url: str = Field(max_length=2_048)
    api_key: SecretStr | None = None
    api_key_env: str | None = None
    deadline_s: float = Field(default=30.0, gt=0, le=600)
    max_retries: int = Field(default=2, ge=0, le=2)
    retry_share: float = Field(default=0.1, ge=0, le=1)
    retry_base_s: float = Field(default=0.5, ge=0, le=8)
    max_answer_bytes: int = Field(default=262_144, ge=1_024, le=8_388_608)
    extra_body: dict[str, Any] = Field(default_factory=dict)
    extra_headers: dict[str, str] = Field(default_factory=dict)

    @field_validator("extra_body")
    @classmethod
    def _names_no_other_model(cls, value: dict[str, Any]) -> dict[str, Any]:
        if "model" in value:
            raise ValueError("only 'model' names the model: prices, limits and caches go by it")
        return value

    @field_validator("api_key")
    @classmethod
    def _key_can_be_sent(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _can_be_sent(value.get_secret_value()):
            raise ValueError("expected a key of visible ASCII characters")
        return value

    @model_validator(mode="after")
    def _base_url_is_an_address(self) -> Self:
        problem = _problem_of(self.base_url)
        if problem is not None:  # an error of a field would show its value, with a password
            raise ComponentError(ConfigurationError(problem, path="base_url"), of_model=True)
        return self

    @field_serializer("api_key", when_used="unless-none")
    def _dumped_key(self, value: SecretStr, info: SerializationInfo) -> str:
        return value.get_secret_value() if (info.context or {}).get("secrets") else "***"

    def _connect(self, key: str | None) -> Any:
        """A client for the running loop; `_post` sends the key."""
        client = client_for(self.base_url, max_bytes=self.max_answer_bytes)
        client.headers.update(self.extra_headers)
        return client

    async def _post(self, path: str, body: dict[str, Any], client: Any, key: str | None) -> Reply:
        """Send once, by a client of `_connect`; raises `ModelError` where there is no response."""
        sends_key = key is not None and "authorization" not in client.headers  # else one of `extra_headers`
        headers = {"authorization": f"Bearer {key}"} if sends_key else None
        try:
            response = await client.post(path, json=body, headers=headers)
        except (ModelError, TimeoutError):
            raise
        except (TypeError, ValueError) as error:
            raise not_written(error) from None
        except Exception as error:
            raise no_connection(error) from None
        return Reply(response.status_code, response.headers, response.content)

    def config_problem(self) -> str | None:
        """That its key is missing, with the name of the environment variable; None where it is there."""
        if self.api_key is not None or self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env, "").strip()
        if _can_be_sent(key):
            return None
        wrong = "holds characters that no key has" if key else "is not set"
        return f"the key is missing: the environment variable {self.api_key_env} {wrong}"

    async def close(self) -> None:
        """Close the connections of the running event loop; it closes them itself when it ends."""
        await self._clients.close()

    async def _ask(self, send: Callable[[Attempts], Awaitable[T]]) -> T:
        """The result of `send`, retried where that may help; ends at the deadline at the latest."""
        if not _LOADED.issuperset(self.client_modules):  # takes seconds: not on the loop, and not of the deadline
            await asyncio.to_thread(_load, self.client_modules)
        attempts = Attempts()
        try:
            async with asyncio.timeout(self.deadline_s):
                with quietly():
                    return await self._with_retries(attempts, send)
        except TimeoutError:
            failure = ModelError(f"no answer within {self.deadline_s:g} s", error_type="timeout")
        except ModelError as error:
            failure = error
        # A new error, outside of the handlers: the client's own, which holds the request and its headers, stays behind.
        failure = self.error_class(
            str(failure), error_type=failure.error_type, retryable=failure.retryable,
            usage=failure.usage or (self.usage_class(calls=attempts.calls) if attempts.calls else None),
            retry_after_s=failure.retry_after_s,
        )  # fmt: skip
        raise failure

    async def _with_retries(self, attempts: Attempts, send: Callable[[Attempts], Awaitable[T]]) -> T:
        self._retry_budget.count_call()
        retry = 0
        while True:
            try:
                return await send(attempts)
            except ModelError as error:
                wait_s = wait_before(retry, self.retry_base_s, error.retry_after_s)
                left_s = self.deadline_s - attempts.age_s()
                if not error.retryable or retry == self.max_retries or wait_s > left_s or not self._retry_budget.take():
                    raise
            retry += 1
            await asyncio.sleep(wait_s)

    async def _message(
        self, attempts: Attempts, send: Callable[[Any, str | None], Awaitable[Reply]], question: str
    ) -> dict[str, Any]:
        """Send once, by a client and a key: the JSON object of a response without an error, else `ModelError`.

        No error repeats the question.
        """
        key = self._key()
        client = await self._clients.get(lambda: self._connect(key))
        attempts.calls += 1
        reply = await send(client, key)
        headers = self.extra_headers.values()
        # With and without a scheme such as ``Bearer``.
        keys = [secret for secret in (key, *headers, *(text.rpartition(" ")[2] for text in headers)) if secret]
        if not 200 <= reply.status < 300:
            raise error_of(reply, keys, question)
        message = object_of(reply)
        status = status_of(message.get("error"))
        if status is not None:
            raise error_of(reply._replace(status=status), keys, question)
        return message

    def _key(self) -> str | None:
        if self.api_key is not None:
            return self.api_key.get_secret_value()
        if self.api_key_env is None:
            return None
        if (problem := self.config_problem()) is not None:
            raise ModelError(problem, error_type="authentication")
        return os.environ.get(self.api_key_env, "").strip()

    @cached_property
    def _clients(self) -> LoopClients:
        return LoopClients()

    @cached_property
    def _retry_budget(self) -> RetryBudget:
        return RetryBudget(self.retry_share)


class Attempts:
    """The requests of one call: how many were sent, and since when."""

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._started, self.calls = self._clock(), 0

    def age_s(self) -> float:
        return self._clock() - self._started


def _load(names: tuple[str, ...]) -> None:
    """Import the client's modules, on one thread at a time, since they import each other; read the certificates."""
    with _LOADING:
        for name in names:
            import_module(name)
        with suppress(ImportError):  # anyio's own module; else it is imported with the first connection
            import_module("anyio._backends._asyncio")
        trusted()
        _LOADED.update(names)


def no_connection(error: BaseException) -> ModelError:
    """The failure of a connection that was not made, or broke; without the client's message."""
    return ModelError(
        f"no connection to the provider ({type(error).__name__})", error_type="connection_error", retryable=True
    )


def not_written(error: Exception) -> ModelError:
    """The failure of a request that the client cannot write, because of the settings."""
    return ModelError(f"the request could not be written ({type(error).__name__})", error_type="bad_request")


def _problem_of(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or not url.isprintable() or " " in url:
        return "expected an address such as https://host/v1"
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        return "expected an address without user, query and fragment; a key belongs to 'api_key'"
    return None


def _can_be_sent(key: str) -> bool:
    return bool(key) and key.isascii() and key.isprintable() and " " not in key

"""HostedModel: a model that is asked over HTTP: where, with which key, how long, and how often again."""

from __future__ import annotations

import asyncio
import os
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar, Final, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, SerializationInfo, field_serializer, field_validator, model_validator

from agenteval_otel.components import Component, PartError
from agenteval_otel.errors import ConfigurationError, ModelError
from agenteval_otel.http_client.client import client_for, quietly, trusted
from agenteval_otel.http_client.clients import Clients
from agenteval_otel.http_client.replies import Reply, Secrets, error_of, object_of, status_of
from agenteval_otel.http_client.retries import RetryBudget, wait_before
from agenteval_otel.runtime.fork import ForkSafeLock

__all__ = ["HostedModel", "Try", "no_connection", "not_written"]

T = TypeVar("T")

_MAX_ANSWER_BYTES: Final = 262_144
_LOADING: Final = ForkSafeLock()
_LOADED: Final[set[str]] = set()


class HostedModel(Component):
    """A model that is asked over HTTP. Each question has one deadline, for its retries and the waits between them too.

    Rate limits, overload, errors of the server and broken connections are tried again, at most `max_retries` times and
    never before the provider asks to come back; over time at most `retry_share` of the calls. Answers that came but are
    none are not asked for again: they were paid for. No redirect is followed.

    Attributes:
        model: The model that is asked, as its provider names it.
        base_url: Where it is asked: ``http`` or ``https``, public or private. The key and the question go only there.
        api_key: The key itself. Never shown, dumped or logged.
        api_key_env: Name of the environment variable that holds the key, read with every question.
        deadline_s: Seconds until a question is given up, whatever it waits for.
        max_retries: How often a question is asked again, 0 to 2.
        retry_share: Retries a call over time; a model that has hardly been asked yet has two free.
        retry_base_s: The first wait in seconds, doubled each time, less up to a half by chance.
        max_answer_bytes: Longest response that is read.
        extra_body: Further fields of the request, as the provider documents them.
        extra_headers: Further headers of the request.
    """

    client_modules: ClassVar[tuple[str, ...]] = ("httpx2",)
    # No answer depends on these.
    unversioned: ClassVar[frozenset[str]] = frozenset({
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
    max_answer_bytes: int = Field(default=_MAX_ANSWER_BYTES, ge=1_024, le=8_388_608)
    extra_body: dict[str, Any] = Field(default_factory=dict)
    extra_headers: dict[str, str] = Field(default_factory=dict)

    @field_validator("extra_body")
    @classmethod
    def _asks_no_other_model(cls, value: dict[str, Any]) -> dict[str, Any]:
        if "model" in value:
            raise ValueError("the model is said by 'model' alone: prices, limits and caches go by it")
        return value

    @field_validator("api_key")
    @classmethod
    def _key_can_be_sent(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _can_be_sent(value.get_secret_value()):
            raise ValueError("expected a key of visible ASCII characters")
        return value

    @model_validator(mode="after")
    def _address_is_one(self) -> Self:
        try:
            _check_url(self.base_url)
        except ValueError as error:
            raise PartError(ConfigurationError(str(error), path="base_url"), of_model=True) from None
        return self

    @field_serializer("api_key", when_used="unless-none")
    def _key_for_who_asks(self, value: SecretStr, info: SerializationInfo) -> str:
        return value.get_secret_value() if (info.context or {}).get("secrets") else "***"

    def _connect(self, key: str | None) -> Any:
        """A client for the running loop."""
        client = client_for(self.base_url, max_bytes=self.max_answer_bytes)
        if key is not None:
            client.headers["authorization"] = f"Bearer {key}"
        client.headers.update(self.extra_headers)
        return client

    async def _post(self, client: Any, path: str, body: dict[str, Any]) -> Reply:
        """Send once, by a client of `_connect`.

        Raises:
            ModelError: ``connection_error`` or ``bad_request``: there is no response.
        """
        try:
            response = await client.post(path, json=body)
        except (ModelError, TimeoutError):
            raise
        except (TypeError, ValueError) as error:
            raise not_written(error) from None
        except Exception as error:
            raise no_connection(error) from None
        return Reply(response.status_code, response.headers, response.content)

    @abstractmethod
    def _failed(self, error: ModelError, calls: int) -> ModelError:
        """The failure in the words of who asked, with what it took where it does not say so yet."""

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

    async def _ask(self, once: Callable[[Try], Awaitable[T]]) -> T:
        """What asking once gives, asked again where that may help; ends at the deadline at the latest."""
        if not _LOADED.issuperset(self.client_modules):  # takes seconds: none of the provider's, and none of the loop's
            await asyncio.to_thread(_load, self.client_modules)
        tried = Try(self)
        failure: ModelError | None = None
        try:
            async with asyncio.timeout(self.deadline_s):
                with quietly():
                    return await self._until_answered(tried, once)
        except TimeoutError:
            failure = ModelError(f"no answer within {self.deadline_s:g} s", error_type="timeout")
        except ModelError as error:
            failure = error
        failure = self._failed(failure, tried.calls)
        # Outside of the handlers: the client's own error, which holds the request with its headers, stays behind.
        failure.__context__ = failure.__cause__ = None
        raise failure.with_traceback(None)

    async def _until_answered(self, tried: Try, once: Callable[[Try], Awaitable[T]]) -> T:
        self._budget.called()
        for retry in range(self.max_retries + 1):
            try:
                return await once(tried)
            except ModelError as error:
                wait_s = wait_before(retry, self.retry_base_s, error.retry_after_s)
                hopeless = not error.retryable or retry == self.max_retries or wait_s > self.deadline_s - tried.age_s()
                if hopeless or not self._budget.take():
                    raise
            await asyncio.sleep(wait_s)
        raise AssertionError("unreachable")

    def _key(self) -> str | None:
        if self.api_key is not None:
            return self.api_key.get_secret_value()
        if self.api_key_env is None:
            return None
        if (problem := self.config_problem()) is not None:
            raise ModelError(problem, error_type="authentication")
        return os.environ.get(self.api_key_env, "").strip()

    @cached_property
    def _clients(self) -> Clients:
        return Clients()

    @cached_property
    def _budget(self) -> RetryBudget:
        return RetryBudget(self.retry_share)


class Try:
    """A question under way: how often it was sent, and since when."""

    def __init__(self, model: HostedModel) -> None:
        self._model, self._clock = model, asyncio.get_running_loop().time
        self._begun = self._clock()
        self.calls = 0

    def age_s(self) -> float:
        """Seconds since it began."""
        return self._clock() - self._begun

    async def message(self, send: Callable[[Any], Awaitable[Reply]], question: str) -> dict[str, Any]:
        """Ask once, and give the JSON object of a response without an error.

        Args:
            send: Asks by a client.
            question: What is asked: no error repeats it.

        Raises:
            ModelError: There is no such response.
        """
        model = self._model
        key = model._key()
        client = await model._clients.get(key, lambda: model._connect(key))
        self.calls += 1
        reply = await send(client)
        secrets = Secrets(tuple(secret for secret in (key or "", *model.extra_headers.values()) if secret), question)
        if not 200 <= reply.status < 300:
            raise error_of(reply, secrets)
        message = object_of(reply)
        if "error" in message and (status := status_of(message["error"])):
            raise error_of(reply._replace(status=status), secrets)
        return message


def _load(names: tuple[str, ...]) -> None:
    """Import the client's modules, on one thread at a time: several that import a circle find it half there. And read
    the certificates."""
    with _LOADING:
        for name in names:
            import_module(name)
        with suppress(ImportError):  # it is anyio's own business; else it is imported with the first connection
            import_module("anyio._backends._asyncio")
        trusted()
        _LOADED.update(names)


def no_connection(error: BaseException) -> ModelError:
    """The failure of a connection that was not made, or broke; the client's words stay behind."""
    return ModelError(
        f"no connection to the provider ({type(error).__name__})", error_type="connection_error", retryable=True
    )


def not_written(error: Exception) -> ModelError:
    """The failure of a request that the client cannot write, which its settings bring about."""
    return ModelError(f"the question could not be written ({type(error).__name__})", error_type="bad_request")


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("expected an address such as https://host/v1") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or not url.isprintable() or " " in url:
        raise ValueError("expected an address such as https://host/v1")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError("expected an address without user, query and fragment; a key belongs to 'api_key'")


def _can_be_sent(key: str) -> bool:
    return bool(key) and key.isascii() and key.isprintable() and " " not in key

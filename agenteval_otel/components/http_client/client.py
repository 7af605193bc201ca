"""HTTP requests to models: their address, key, deadline and retries, and a client per event loop.

No redirect is followed, since it would carry the key along. Compression is not asked for: a small
body may grow huge. httpx2 is imported here only, by `HostedModel.prepare` or with the first
request.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextvars import ContextVar
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    Field,
    SecretStr,
    SerializationInfo,
    field_serializer,
    field_validator,
    model_validator,
)

from agenteval_otel.components import Component
from agenteval_otel.components.explained import ComponentError
from agenteval_otel.components.http_client.replies import (
    Reply,
    error_of,
    object_of,
    status_of,
    unreadable,
)
from agenteval_otel.components.retry import RetryBudget, wait_before
from agenteval_otel.errors import ConfigurationError, ModelError
from agenteval_otel.runtime.fork import ForkSafeLock

if TYPE_CHECKING:
    import ssl

    import httpx2

T = TypeVar("T")
_LOADING: Final = ForkSafeLock()
_LOADED: Final[set[str]] = set()
_ERROR_BYTES: Final = 65_536
_KEPT_OPEN = 64
_IDLE_S = 30.0
_LOGGERS: Final = ("anthropic", "httpx2", "httpcore2")
_requesting: ContextVar[bool] = ContextVar("agenteval_requesting", default=False)


class HostedModel(Component):
    """Asks a model behind HTTP. Each request has one deadline.

    The deadline covers the retries of the request and the waits between them.

    Rate limits, overload, errors of the server and broken connections are retried, at most
    `max_retries` times and never before the provider asks to come back. Over time, at most
    `retry_share` of the calls are retried. Invalid responses are not retried, since they are
    billed. No redirect is followed.

    Attributes:
        model: The model's name at its provider.
        base_url: ``http`` or ``https``, a public or a private address. The key and the request go
            only there.
        api_key: The key itself. Never shown, dumped or logged.
        api_key_env: Name of the environment variable that holds the key, read for each request.
        deadline_s: Time limit of a request in seconds, retries included.
        max_retries: Maximum number of retries of a request, 0 to 2.
        retry_share: Maximum retries per call over time. The first two are always allowed.
        retry_base_s: First wait in seconds. It is doubled each time, then randomly shortened by up
            to a half.
        max_answer_bytes: Maximum size of a response.
        extra_body: Further fields of the request, as the provider documents them.
        extra_headers: Further headers of the request.
    """

    client_modules: ClassVar[tuple[str, ...]] = ("httpx2",)
    error_class: ClassVar[type[ModelError]] = ModelError
    usage_class: ClassVar[Callable[..., Any]]  # takes the number of calls
    # No answer depends on these.
    fingerprint_exclude: ClassVar[frozenset[str]] = frozenset(
        {
            "api_key",
            "api_key_env",
            "deadline_s",
            "max_retries",
            "retry_share",
            "retry_base_s",
            "max_answer_bytes",
            "extra_headers",
        }
    )

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
        if value is not None and not can_be_sent(value.get_secret_value()):
            raise ValueError("expected a key of visible ASCII characters")
        return value

    @model_validator(mode="after")
    def _base_url_is_an_address(self) -> Self:
        problem = problem_of(self.base_url)
        if problem is not None:  # an error of a field would show its value, with a password
            raise ComponentError(ConfigurationError(problem, path="base_url"), of_model=True)
        return self

    @field_serializer("api_key", when_used="unless-none")
    def _dumped_key(self, value: SecretStr, info: SerializationInfo) -> str:
        return value.get_secret_value() if (info.context or {}).get("secrets") else "***"

    def _connect(self, key: str | None) -> Any:
        """Return a client for the running loop. `_post` sends the key."""
        client = client_for(self.base_url, max_bytes=self.max_answer_bytes)
        client.headers.update(self.extra_headers)
        return client

    async def _post(
        self, path: str, body: dict[str, Any], client: httpx2.AsyncClient, key: str | None
    ) -> Reply:
        """Send once, by a client of `_connect`. Raises `ModelError` if there is no response."""
        # else one of `extra_headers`
        sends_key = key is not None and "authorization" not in client.headers
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
        """Return that its key is missing, with the name of the environment variable.

        Return None if it is there.
        """
        try:
            self._key()
        except ModelError as error:
            return str(error)
        return None

    def prepare(self) -> None:
        """Import the client's modules and read the certificates.

        Blocks, with `AnthropicJudge` for seconds.
        """
        if not _LOADED.issuperset(self.client_modules):
            load_clients(self.client_modules)

    async def close(self) -> None:
        """Close the connections of the running event loop.

        The loop closes them itself when it ends.
        """
        await self._clients.close()

    def is_loaded(self) -> bool:
        """Tell whether the client's modules are imported."""
        return _LOADED.issuperset(self.client_modules)

    async def _ask(self, send: Callable[[Attempts], Awaitable[T]]) -> T:
        """Return the result of `send`, retried if that may help.

        It ends at the deadline at the latest.
        """
        attempts = Attempts()
        try:
            self._key()  # without one nothing is imported
            if not self.is_loaded():  # in a monitored process only where the key came later
                await asyncio.to_thread(self.prepare)  # not on the loop, and not of the deadline
            async with asyncio.timeout(self.deadline_s):
                with quietly():
                    return await self._with_retries(attempts, send)
        except TimeoutError:
            failure = ModelError(f"no answer within {self.deadline_s:g} s", error_type="timeout")
        except ModelError as error:
            failure = error
        usage = failure.usage or None
        if usage is None and attempts.calls:
            usage = self.usage_class(calls=attempts.calls)
        # Raised outside of the handlers, so that the client's error, which holds request and
        # headers, is not chained.
        raised = self.error_class(
            str(failure),
            error_type=failure.error_type,
            retryable=failure.retryable,
            usage=usage,
            retry_after_s=failure.retry_after_s,
        )
        raised.reply_begins = failure.reply_begins
        raised.is_unreadable = failure.is_unreadable
        raise raised

    async def _with_retries(
        self, attempts: Attempts, send: Callable[[Attempts], Awaitable[T]]
    ) -> T:
        self._retry_budget.count_call()
        retry = 0
        while True:
            try:
                return await send(attempts)
            except ModelError as error:
                wait_s = wait_before(retry, self.retry_base_s, error.retry_after_s)
                left_s = self.deadline_s - attempts.age_s()
                if (
                    not error.retryable
                    or retry == self.max_retries
                    or wait_s > left_s
                    or not self._retry_budget.take()
                ):
                    raise
            retry += 1
            await asyncio.sleep(wait_s)

    async def _message(
        self, attempts: Attempts, send: Callable[[Any, str | None], Awaitable[Reply]], question: str
    ) -> dict[str, Any]:
        """Send once, by a client and a key.

        Return the JSON object of a response without an error. Any other response raises
        `ModelError`.
        """
        key = self._key()
        client = await self._clients.get(lambda: self._connect(key))
        attempts.calls += 1
        reply = await send(client, key)
        headers = self.extra_headers.values()
        # With and without a scheme such as ``Bearer``.
        without_schemes = [text.rpartition(" ")[2] for text in headers]
        keys = [secret for secret in (key, *headers, *without_schemes) if secret]
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
        key = os.environ.get(self.api_key_env, "").strip()
        if not can_be_sent(key):
            wrong = "holds characters that no key has" if key else "is not set"
            problem = f"the key is missing: the environment variable {self.api_key_env} {wrong}"
            raise ModelError(problem, error_type="authentication")
        return key

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
        self._started = self._clock()
        self.calls = 0

    def age_s(self) -> float:
        return self._clock() - self._started


def load_clients(names: tuple[str, ...]) -> None:
    """Import the client's modules, and read the certificates.

    One thread does so at a time, since the modules import each other.
    """
    with _LOADING:
        for name in names:
            import_module(name)
        # anyio's own module; else it is imported with the first connection
        with contextlib.suppress(ImportError):
            import_module("anyio._backends._asyncio")
        trusted()
        _LOADED.update(names)


def no_connection(error: BaseException) -> ModelError:
    return ModelError(
        f"no connection to the provider ({type(error).__name__})",
        error_type="connection_error",
        retryable=True,
    )


def not_written(error: Exception) -> ModelError:
    return ModelError(
        f"the request could not be written ({type(error).__name__})", error_type="bad_request"
    )


def problem_of(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or not url.isprintable() or " " in url:
        return "expected an address such as https://host/v1"
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        return (
            "expected an address without user, query and fragment. A key has a setting of its own"
        )
    return None


def can_be_sent(key: str) -> bool:
    return bool(key) and key.isascii() and key.isprintable() and " " not in key


@cache
def trusted() -> ssl.SSLContext:
    """Return the certificates that clients trust, read once a process.

    Reading them is too slow for an event loop.
    """
    import httpx2

    return httpx2.create_ssl_context()


def client_for(url: str, *, max_bytes: int) -> httpx2.AsyncClient:
    """Return a client for one address and the running event loop.

    A body longer than `max_bytes` fails. The body of an error is cut at 64 KiB.
    """
    import httpx2

    _filter_logs()

    class Bounded(_Bounded, httpx2.AsyncByteStream): ...

    # Building a request, sending it and reading the response are separate turns of the loop: each
    # is short.
    async def before(request: httpx2.Request) -> None:
        await asyncio.sleep(0)
        request.headers["accept-encoding"] = "identity"

    async def after(response: httpx2.Response) -> None:
        await asyncio.sleep(0)
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise unreadable("is compressed")  # so its size is unknown
        is_error = response.status_code >= 400
        most_bytes = _ERROR_BYTES if is_error else max_bytes
        response.stream = Bounded(response.stream, most_bytes, cuts=is_error)

    limits = httpx2.Limits(max_keepalive_connections=_KEPT_OPEN, keepalive_expiry=_IDLE_S)
    return httpx2.AsyncClient(
        base_url=url,
        timeout=None,
        follow_redirects=False,
        verify=trusted(),
        event_hooks={"request": [before], "response": [after]},
        limits=limits,
    )


class ResponseTooLong(ModelError):
    """A response is beyond the limit."""


class _Bounded:
    """A body that fails beyond the limit, or is cut there."""

    def __init__(self, stream: Any, limit: int, *, cuts: bool) -> None:
        self._stream = stream
        self._limit = limit
        self._cuts = cuts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._limit
        async for part in self._stream:
            left -= len(part)
            if left < 0 and self._cuts:
                return
            if left < 0:
                raise ResponseTooLong(
                    f"the response is longer than {self._limit} bytes",
                    error_type="malformed_answer",
                )
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()
        await asyncio.sleep(0)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Keep the context's requests from being logged by the clients or traced: both show content."""
    from opentelemetry import context
    from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY

    # Older instrumentation reads the plain key.
    suppressed = context.set_value("suppress_instrumentation", True)
    token = context.attach(context.set_value(_SUPPRESS_INSTRUMENTATION_KEY, True, suppressed))
    flag = _requesting.set(True)
    try:
        yield
    finally:
        _requesting.reset(flag)
        context.detach(token)


def _filter_logs() -> None:
    """Add the filter to the clients' loggers, which exist once the clients are imported."""
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.partition(".")[0] in _LOGGERS and isinstance(logger, logging.Logger):
            logger.addFilter(_is_of_the_host)


def _is_of_the_host(record: logging.LogRecord) -> bool:
    return not _requesting.get()


class LoopClients:
    """Holds the clients of a model, one per event loop and forked process.

    They are closed when the loop ends or the model is gone.
    """

    def __init__(self) -> None:
        self._clients: dict[tuple[int, asyncio.AbstractEventLoop], _OpenClient] = {}
        weakref.finalize(self, _close_soon, self._clients).atexit = False

    async def get(self, connect: Callable[[], Any]) -> Any:
        place = os.getpid(), asyncio.get_running_loop()
        if place not in self._clients:
            for pid, loop in list(self._clients):
                if pid != place[0] or loop.is_closed():
                    self._clients.pop((pid, loop), None)
            # Forget clients whose loop was closed without shutting down its generators.
            for client in [client for client in _OPEN if client.loop.is_closed()]:
                _OPEN.discard(client)
            self._clients[place] = _OpenClient(connect())
            # The generator is started, because a loop only finishes those that have begun.
            await anext(self._clients[place].closing)
        return self._clients[place].client

    async def close(self) -> None:
        client = self._clients.pop((os.getpid(), asyncio.get_running_loop()), None)
        if client is not None:
            await client.closing.aclose()


class _OpenClient:
    """Holds a client, and an async generator that closes it.

    The generator does so when the event loop shuts down its generators.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self.loop = asyncio.get_running_loop()
        self.closing = self._until_closed()
        _OPEN.add(self)

    async def _until_closed(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await self._close()

    def close_soon(self) -> None:
        self.closing_task = self.loop.create_task(self._close())  # a loop keeps no task alive

    async def _close(self) -> None:
        with quietly():
            await (self.client.aclose() if hasattr(self.client, "aclose") else self.client.close())
        _OPEN.discard(self)


_OPEN: Final[set[_OpenClient]] = set()
"""Keeps each client's generator alive for its loop to close: a model is often freed just before the
loop ends.
"""


def _close_soon(clients: dict[tuple[int, asyncio.AbstractEventLoop], _OpenClient]) -> None:
    """Close the clients of a model that is gone, each on its loop."""
    for (_, loop), client in clients.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(client.close_soon, context=contextvars.Context())

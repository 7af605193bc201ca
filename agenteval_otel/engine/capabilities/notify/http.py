"""Places behind HTTP: their address, and one request whose answer is not believed too easily."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self
from urllib.parse import urlsplit

from pydantic import SecretStr, model_validator

from agenteval_otel.components.delivery import DeliveryError
from agenteval_otel.components.explained import ComponentError
from agenteval_otel.components.http_client.client import client_for, load_clients, quietly
from agenteval_otel.components.http_client.replies import Reply, error_of
from agenteval_otel.engine.capabilities.notify.place import (
    MALFORMED,
    UNANSWERED,
    MessagePlace,
)
from agenteval_otel.errors import ConfigurationError, ModelError

_MAX_ANSWER_BYTES: Final = 65_536
_NOT_SENT: Final = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout"})
"""Errors of the client before a byte of the request has left."""


class HttpPlace(MessagePlace):
    """Posts messages to an address, which is a secret. No redirect is followed.

    Attributes:
        url: The address, best as a variable: ``${SLACK_WEBHOOK_URL}``. Never shown or logged.
    """

    text_field: ClassVar[str] = "url"

    url: SecretStr

    @property
    def label(self) -> str:
        """Return its type, and the host that it posts to."""
        return f"{self.type} at {urlsplit(self.url.get_secret_value()).hostname}"

    @property
    def target(self) -> str:
        """Return its address, which is a secret."""
        return self.url.get_secret_value()

    @model_validator(mode="before")
    @classmethod
    def _is_one_text(cls, data: object) -> Any:
        url = data.get("url", "") if isinstance(data, Mapping) else ""
        if not isinstance(url, str | SecretStr):
            # an error of a field would show its value
            raise ComponentError(ConfigurationError("expected a text", path="url"), of_model=True)
        return data

    @model_validator(mode="after")
    def _has_an_address_to_post_to(self) -> Self:
        if not _is_address(self.url.get_secret_value()):
            wrong = "expected an address such as https://host/path, without a user"
            # an error of a field would show its value
            raise ComponentError(ConfigurationError(wrong, path="url"), of_model=True)
        return self

    async def post(
        self, body: bytes, headers: Mapping[str, str] | None = None, *, is_read: bool = True
    ) -> bytes:
        """Post JSON, and return what was answered with a status of success.

        Args:
            is_read: Read the answer. Else its status is all that counts.

        Raises:
            DeliveryError: There was no such answer.
        """
        load_clients(("httpx2",))
        sent = {"content-type": "application/json", **(headers or {})}
        try:
            with quietly():
                async with client_for("", max_bytes=_MAX_ANSWER_BYTES) as client:
                    # the status counts also where the answer is compressed or long
                    client.event_hooks = {**client.event_hooks, "response": []}
                    address = self.url.get_secret_value()
                    # for the address and for TLS: what does not connect has not arrived
                    connect_s = self.timeout_s / 3
                    limits = (connect_s, None, None, None)
                    request = client.build_request(
                        "POST", address, content=body, headers=sent, timeout=limits
                    )
                    response = await client.send(request, stream=True)
                    self._check(Reply(response.status_code, response.headers, b""))
                    return await self._read(response) if is_read else b""
        except (TimeoutError, DeliveryError):
            raise
        except ModelError as error:
            raise self.failure(str(error), error.error_type) from None
        except Exception as error:
            name = type(error).__name__
            error_type = "connection_error" if name in _NOT_SENT else UNANSWERED
            raise self.failure(f"no answer ({name})", error_type, retryable=True) from None

    async def _read(self, response: Any) -> bytes:
        answer = b""
        async for part in response.aiter_raw():
            answer += part
            if len(answer) > _MAX_ANSWER_BYTES:
                problem = f"the response is longer than {_MAX_ANSWER_BYTES} bytes"
                raise self.failure(problem, MALFORMED)
        return answer

    def _check(self, reply: Reply) -> None:
        if 200 <= reply.status < 300:
            return
        if 300 <= reply.status < 400:
            raise self.failure(f"answered with status {reply.status}, a redirect", "redirect")
        error = error_of(reply, (), "")
        raise self.failure(
            f"answered with status {reply.status}",
            error.error_type,
            retryable=error.retryable,
            retry_after_s=error.retry_after_s,
        )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        has_host = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return False
    is_plain = url.isascii() and url.isprintable() and " " not in url
    has_user = parts.username is not None or parts.password is not None
    return bool(has_host) and is_plain and not has_user and not parts.fragment

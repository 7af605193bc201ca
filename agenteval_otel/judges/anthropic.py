"""The judge that asks Anthropic's models, through their SDK, which is met here and imported with the first question."""

from __future__ import annotations

import os
from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from agenteval_otel.errors import ModelError
from agenteval_otel.http_client.client import client_for
from agenteval_otel.http_client.model import no_connection, not_written
from agenteval_otel.http_client.replies import Reply, count_of, joined
from agenteval_otel.judges.base import JudgeRequest, JudgeUsage
from agenteval_otel.judges.forms import in_words, plain_form
from agenteval_otel.judges.hosted import Answered, HostedJudge

__all__ = ["AnthropicJudge"]

_PUBLIC: Final = "https://api.anthropic.com"
_STOPPED: Final = {
    "refusal": ("refusal", "the judge refused to answer"),
    "max_tokens": ("truncated", "the judge's answer was cut off at its most tokens"),
    "model_context_window_exceeded": ("context_overflow", "the question and the answer did not fit the judge's window"),
}


class AnthropicJudge(HostedJudge, type="anthropic"):
    """Asks a Claude model by ``messages.create``, its answer held to the form by the provider's structured output.

    The SDK's own retries and its own tracing are off. No temperature is sent: newer models take none.

    Attributes:
        base_url: Where the API is; a proxy of the same form may stand there.
        response_format: ``json_schema`` has the provider hold the answer to its form; ``none`` says the form in the
            instruction, for what stands between and does not know the field.
    """

    client_modules: ClassVar[tuple[str, ...]] = ("anthropic", "anthropic.resources.messages")

    base_url: str = Field(default=_PUBLIC, max_length=2_048)
    api_key_env: str | None = "ANTHROPIC_API_KEY"
    response_format: Literal["json_schema", "none"] = "json_schema"

    def _connect(self, key: str | None) -> Any:
        from anthropic import AsyncAnthropic

        http = client_for(self.base_url, max_bytes=self.max_answer_bytes)
        return AsyncAnthropic(
            api_key=key, base_url=self.base_url, http_client=http, max_retries=0, open_telemetry=False,
            default_headers={**_not_ours(), **self.extra_headers}, timeout=self.deadline_s,
        )  # fmt: skip

    async def _send(self, client: Any, request: JudgeRequest) -> Reply:
        import anthropic

        try:
            raw = await client.messages.with_raw_response.create(**self._body(request))
            response = raw.http_response
        except anthropic.APIStatusError as error:
            response = error.response
        except anthropic.APITimeoutError:
            raise ModelError("the connection timed out", error_type="timeout", retryable=True) from None
        except anthropic.APIConnectionError as error:
            if isinstance(error.__cause__, ModelError):  # of the bounds that we set
                raise error.__cause__ from None
            raise no_connection(error.__cause__ or error) from None
        except anthropic.AnthropicError as error:
            raise ModelError(f"the client failed ({type(error).__name__})", error_type="authentication") from None
        except (TypeError, ValueError) as error:
            raise not_written(error) from None
        return Reply(response.status_code, response.headers, response.content)

    def _body(self, request: JudgeRequest) -> dict[str, Any]:
        structured = self.response_format == "json_schema"
        system = request.system if structured else in_words(request.system, request.answer_form)
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": request.max_tokens,
            "messages": [{"role": "user", "content": request.prompt}],
        }
        if system:
            body["system"] = system
        if structured:
            form = {"type": "json_schema", "schema": plain_form(request.answer_form)}
            body["output_config"] = {"format": form}
        if self.extra_body:
            body["extra_body"] = self.extra_body
        return body

    def _answered(self, message: dict[str, Any]) -> Answered:
        usage = message.get("usage")
        used = JudgeUsage(
            input_tokens=count_of(usage, "input_tokens"),
            output_tokens=count_of(usage, "output_tokens"),
            cache_read_tokens=count_of(usage, "cache_read_input_tokens"),
            cache_write_tokens=count_of(usage, "cache_creation_input_tokens"),
        )
        text, failure = _text_of(message)
        model, response_id = message.get("model"), message.get("id")
        return Answered(
            text, used, model if isinstance(model, str) else "",
            response_id if isinstance(response_id, str) else None, failure,
        )  # fmt: skip


def _not_ours() -> dict[str, Any]:
    """Headers that the environment sets for the host's own clients, such as a gateway's token: left out of ours."""
    from anthropic import Omit

    lines = os.environ.get("ANTHROPIC_CUSTOM_HEADERS", "").split("\n")
    return {name.strip(): Omit() for name, colon, _ in (line.partition(":") for line in lines) if colon}


def _text_of(message: dict[str, Any]) -> tuple[str, tuple[str, str] | None]:
    """The text of the message, or the failure that its stop reason or its parts are."""
    stopped, parts = message.get("stop_reason"), message.get("content")
    if isinstance(stopped, str) and stopped in _STOPPED:
        return "", _STOPPED[stopped]
    if stopped not in ("end_turn", None) or not isinstance(parts, list):
        return "", ("malformed_answer", "the judge's response is not a finished message")
    text = joined([part for part in parts if isinstance(part, dict) and part.get("type") == "text"])
    return (
        ("", ("malformed_answer", "the judge's response is not a finished message")) if text is None else (text, None)
    )

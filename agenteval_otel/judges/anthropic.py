"""The judge behind Anthropic's SDK, which is met here only and imported by `prepare`."""

from __future__ import annotations

import os
from typing import Any, ClassVar, Literal

from pydantic import Field

from agenteval_otel.errors import ModelError
from agenteval_otel.http_client.client import client_for, no_connection, not_written
from agenteval_otel.http_client.replies import Reply, count_of, joined
from agenteval_otel.judges.answers import JudgeRequest, constrained_form, with_form
from agenteval_otel.judges.hosted import HostedJudge, check_finished, unfinished
from agenteval_otel.models.judge_calls import JudgeUsage


class AnthropicJudge(HostedJudge, type="anthropic"):
    """Asks a Claude model by ``messages.create``, with the answer's form as the provider's structured output.

    The SDK's own retries and its own tracing are off. No temperature is sent: newer models take none.

    Attributes:
        base_url: Address of the API, or of a proxy of the same form.
        response_format: ``json_schema`` has the provider hold the answer to its form; ``none`` describes the form in
            the instruction, for proxies that do not know the field.
    """

    client_modules: ClassVar[tuple[str, ...]] = ("anthropic", "anthropic.resources.messages")

    base_url: str = Field(default="https://api.anthropic.com", max_length=2_048)
    api_key_env: str | None = "ANTHROPIC_API_KEY"
    response_format: Literal["json_schema", "none"] = "json_schema"

    def _connect(self, key: str | None) -> Any:
        from anthropic import AsyncAnthropic, Omit

        # The SDK would read keys and headers of the host's environment, such as a gateway's token, and send them to
        # `base_url`, which may be a proxy.
        lines = os.environ.get("ANTHROPIC_CUSTOM_HEADERS", "").split("\n")
        left_out = [name.strip() for name, colon, _ in (line.partition(":") for line in lines) if colon]
        left_out += () if key else ("X-Api-Key", "Authorization")
        headers: dict[str, Any] = dict.fromkeys(left_out, Omit())
        client = AsyncAnthropic(
            api_key=key or "none", base_url=self.base_url, max_retries=0, open_telemetry=False, timeout=self.deadline_s,
            http_client=client_for(self.base_url, max_bytes=self.max_answer_bytes),
            default_headers=headers | self.extra_headers,
        )  # fmt: skip
        client.auth_token = None
        return client

    async def _send(self, client: Any, key: str | None, request: JudgeRequest) -> Reply:
        import anthropic

        if key is not None and client.api_key != key:  # it has changed since the client was made
            client = client.with_options(api_key=key)
        try:
            raw = await client.messages.with_raw_response.create(**self._body(request))
            response = raw.http_response
        except anthropic.APIStatusError as error:
            response = error.response
        except anthropic.APIConnectionError as error:
            if isinstance(error.__cause__, ModelError):  # of the bounds of `client_for`
                raise error.__cause__ from None
            raise no_connection(error.__cause__ or error) from None
        except anthropic.AnthropicError as error:
            raise ModelError(f"the client failed ({type(error).__name__})", error_type="authentication") from None
        except (TypeError, ValueError) as error:
            raise not_written(error) from None
        return Reply(response.status_code, response.headers, response.content)

    def _body(self, request: JudgeRequest) -> dict[str, Any]:
        structured = self.response_format == "json_schema"
        system = request.system if structured else with_form(request.system, request.answer_form)
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": request.max_tokens,
            "messages": [{"role": "user", "content": request.prompt}],
        }
        if system:
            body["system"] = system
        if structured:
            form = {"type": "json_schema", "schema": constrained_form(request.answer_form)}
            body["output_config"] = {"format": form}
        if self.extra_body:
            body["extra_body"] = self.extra_body
        return body

    def _usage_of(self, message: dict[str, Any]) -> JudgeUsage:
        usage = message.get("usage")
        return JudgeUsage(
            input_tokens=count_of(usage, "input_tokens"),
            output_tokens=count_of(usage, "output_tokens"),
            cache_read_tokens=count_of(usage, "cache_read_input_tokens"),
            cache_write_tokens=count_of(usage, "cache_creation_input_tokens"),
        )

    def _text_of(self, message: dict[str, Any]) -> str:
        check_finished(message.get("stop_reason"), "end_turn")
        parts, text = message.get("content"), None
        if isinstance(parts, list):
            text = joined([part for part in parts if isinstance(part, dict) and part.get("type") == "text"])
        if text is None:
            raise unfinished()
        return text

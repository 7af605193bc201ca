"""The judge on Anthropic's SDK, which only this module uses and `prepare` imports."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field

from agenteval_otel.components.http_client.client import (
    client_for,
    no_connection,
    not_written,
    quietly,
)
from agenteval_otel.components.http_client.replies import (
    Reply,
    count_of,
    encodable,
    error_of,
    joined,
)
from agenteval_otel.errors import JudgeError, ModelError
from agenteval_otel.evaluators.judges.answers import (
    JudgeRequest,
    Verdict,
    constrained_form,
    with_form,
)
from agenteval_otel.evaluators.judges.hosted import HostedJudge, check_finished, unfinished
from agenteval_otel.models.judge_calls import JudgeUsage

if TYPE_CHECKING:
    from anthropic.resources.messages import AsyncBatches
    from anthropic.types.messages import MessageBatchResult

_BATCH_S: Final = 120.0
_BATCH_BYTES: Final = 256 * 1024 * 1024
_CHARS_PER_TOKEN: Final = 4


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Translate errors of the SDK to `ModelError`, except those that have a response."""
    import anthropic

    try:
        yield
    except anthropic.APIStatusError:
        raise
    except anthropic.APIConnectionError as error:
        if isinstance(error.__cause__, ModelError):  # of the bounds of `client_for`
            raise error.__cause__ from None
        raise no_connection(error.__cause__ or error) from None
    except anthropic.AnthropicError as error:
        raise ModelError(
            f"the client failed ({type(error).__name__})", error_type="authentication"
        ) from None
    except (TypeError, ValueError) as error:
        raise not_written(error) from None


def _marked(text: str) -> dict[str, Any]:
    """Return a block at whose end the provider may keep what it has read."""
    return {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}


async def _batch_id(batches: Any, items: list[dict[str, Any]]) -> str:
    batch = await batches.create(requests=items)
    return str(batch.id)


class AnthropicJudge(HostedJudge, type="anthropic"):
    """Asks a Claude model by ``messages.create``.

    The answer's form is sent as the provider's structured output. The SDK's own retries and its own
    tracing are off. No temperature is sent: newer models take none.

    Attributes:
        base_url: Address of the API, or of a proxy of the same form.
        response_format: ``json_schema`` makes the provider enforce the form of the answer. ``none``
            describes the form in the instruction, for proxies that do not support the field.
        cached_from_tokens: From about how many tokens on, four characters each, what is the same in
            every question is marked for the provider's prompt cache. A marked beginning costs more
            when it is written and a tenth when it is read. The provider ignores the mark if the
            beginning is too short for the model. None marks nothing.
    """

    client_modules: ClassVar[tuple[str, ...]] = ("anthropic", "anthropic.resources.messages")
    takes_batches: ClassVar[bool] = True
    fingerprint_exclude: ClassVar[frozenset[str]] = HostedJudge.fingerprint_exclude | {
        "cached_from_tokens"
    }

    base_url: str = Field(default="https://api.anthropic.com", max_length=2_048)
    api_key_env: str | None = "ANTHROPIC_API_KEY"
    response_format: Literal["json_schema", "none"] = "json_schema"
    cached_from_tokens: int | None = Field(default=1_024, ge=1)

    def _connect(self, key: str | None, *, max_bytes: int | None = None) -> Any:
        from anthropic import AsyncAnthropic, Omit

        # The SDK would read keys and headers of the host's environment, such as a gateway's token,
        # and send them to `base_url`, which may be a proxy.
        left_out: list[str] = []
        for line in os.environ.get("ANTHROPIC_CUSTOM_HEADERS", "").split("\n"):
            name, colon, _ = line.partition(":")
            if colon:
                left_out.append(name.strip())
        if not key:
            left_out += ("X-Api-Key", "Authorization")
        headers: dict[str, Any] = dict.fromkeys(left_out, Omit())
        client = AsyncAnthropic(
            api_key=key or "none",
            base_url=self.base_url,
            max_retries=0,
            open_telemetry=False,
            timeout=self.deadline_s,
            http_client=client_for(self.base_url, max_bytes=max_bytes or self.max_answer_bytes),
            default_headers=headers | self.extra_headers,
        )
        client.auth_token = None
        return client

    async def _send(self, client: Any, key: str | None, request: JudgeRequest) -> Reply:
        import anthropic

        if key is not None and client.api_key != key:  # it has changed since the client was made
            client = client.with_options(api_key=key)
        try:
            with _translated():
                raw = await client.messages.with_raw_response.create(**self._body(request))
                response = raw.http_response
        except anthropic.APIStatusError as error:
            response = error.response
        return Reply(response.status_code, response.headers, response.content)

    async def submit_batch(self, requests: Mapping[str, JudgeRequest]) -> str:
        items = []
        for key, request in requests.items():
            texts = {"system": encodable(request.system), "prompt": encodable(request.prompt)}
            body = self._body(request.model_copy(update=texts))
            extra = body.pop("extra_body", {})
            items.append({"custom_id": key, "params": {**body, **extra}})
        return str(await self._of_batches(lambda batches: _batch_id(batches, items)))

    async def batch_answers(
        self, batch_id: str, requests: Mapping[str, JudgeRequest]
    ) -> dict[str, Verdict | JudgeError] | None:
        async def read(batches: AsyncBatches) -> dict[str, Verdict | JudgeError] | None:
            batch = await batches.retrieve(batch_id)
            if batch.processing_status != "ended":
                return None
            if batch.results_url is None:  # archived: after 29 days
                return {}
            results = await batches.results(batch_id)
            return {
                item.custom_id: self._batch_answer(item.result, requests[item.custom_id])
                async for item in results
                if item.custom_id in requests
            }

        answers = await self._of_batches(read)
        if answers is None:
            return None
        gone = JudgeError("the provider has no answer in the batch", error_type="server_error")
        return {key: answers.get(key, gone) for key in requests}

    def _batch_answer(
        self, result: MessageBatchResult, request: JudgeRequest
    ) -> Verdict | JudgeError:
        if result.type == "succeeded":
            try:
                return self._verdict_of(
                    result.message.model_dump(), request, calls=1, duration_s=0.0
                )
            except JudgeError as error:
                return error
        if result.type == "errored":
            word = str(getattr(result.error.error, "type", ""))
            error_type = "bad_request" if word == "invalid_request_error" else "server_error"
            return JudgeError(
                "the provider refused the request in the batch", error_type=error_type
            )
        return JudgeError(f"the request's batch has {result.type}", error_type="timeout")

    async def _of_batches(self, use: Callable[[Any], Awaitable[Any]]) -> Any:
        """Call `use` with the SDK's batch client, without retries. Raises `JudgeError`."""
        try:
            key = self._key()
            if not self.is_loaded():
                await asyncio.to_thread(self.prepare)
            import anthropic

            try:
                async with (
                    asyncio.timeout(_BATCH_S),
                    self._connect(key, max_bytes=_BATCH_BYTES) as client,
                ):
                    with quietly():
                        return await use(client.messages.batches)
            except anthropic.APIStatusError as error:
                response = error.response
                reply = Reply(response.status_code, response.headers, response.content)
                failure = error_of(reply, [key or ""], "")
                was_taken = response.status_code >= 500
            except anthropic.APIConnectionError as error:
                failure = no_connection(error.__cause__ or error)
                was_taken = type(error.__cause__).__name__ not in ("ConnectError", "ConnectTimeout")
            except TimeoutError:
                failure = ModelError(f"no answer within {_BATCH_S:g} s", error_type="timeout")
                was_taken = True
        except ModelError as error:  # without a key
            failure = error
            was_taken = False
        judge_error = JudgeError(
            str(failure), error_type=failure.error_type, retryable=failure.retryable
        )
        judge_error.may_be_charged = was_taken
        raise judge_error

    def _body(self, request: JudgeRequest) -> dict[str, Any]:
        structured = self.response_format == "json_schema"
        system = request.system if structured else with_form(request.system, request.answer_form)
        fixed = request.prompt[: request.fixed_chars]
        is_marked = self._is_long_enough(system, fixed)
        content: str | list[dict[str, Any]] = request.prompt
        if is_marked and 0 < len(fixed) < len(request.prompt):
            content = [_marked(fixed), {"type": "text", "text": request.prompt[len(fixed) :]}]
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": request.max_tokens,
            "messages": [{"role": "user", "content": content}],
        }
        if system:
            ends_there = is_marked and content is request.prompt
            body["system"] = [_marked(system)] if ends_there else system
        if structured:
            form = {"type": "json_schema", "schema": constrained_form(request.answer_form)}
            body["output_config"] = {"format": form}
        if self.extra_body:
            body["extra_body"] = self.extra_body
        return body

    def _is_long_enough(self, system: str, fixed: str) -> bool:
        """Tell whether the beginning of every question is worth the provider's prompt cache."""
        least = self.cached_from_tokens
        return least is not None and (len(system) + len(fixed)) // _CHARS_PER_TOKEN >= least

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
        parts = message.get("content")
        if not isinstance(parts, list):
            raise unfinished()
        texts = [part for part in parts if isinstance(part, dict) and part.get("type") == "text"]
        text = joined(texts)
        if text is None:
            raise unfinished()
        return text

"""Judges behind HTTP: what they have in common, and the one behind ``/chat/completions``."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from agenteval_otel.components.http_client.client import Attempts, HostedModel
from agenteval_otel.components.http_client.replies import Reply, count_of, encodable, joined
from agenteval_otel.errors import JudgeError, ModelError
from agenteval_otel.evaluators.judges.answers import (
    JudgeRequest,
    Verdict,
    constrained_form,
    parse_answer,
    with_form,
)
from agenteval_otel.evaluators.judges.base import Judge
from agenteval_otel.evaluators.judges.breaker import BreakerSettings
from agenteval_otel.models.judge_calls import JudgeUsage

_CUT_OFF: Final = "truncated", "the judge's answer was cut off at `max_tokens`"
_FAILED: Final = {
    "length": _CUT_OFF,
    "max_tokens": _CUT_OFF,
    "content_filter": ("refusal", "the provider's filter withheld the judge's answer"),
    "refusal": ("refusal", "the judge refused to answer"),
    "model_context_window_exceeded": (
        "context_overflow",
        "the request and the answer exceed the model's window",
    ),
}


_FINISHED: Final = ("stop", "eos", "eos_token", "stop_sequence")
"""How servers name the end of a whole answer: OpenAI's word, and those of llama.cpp and TGI."""


class HostedJudge(HostedModel, Judge):
    """Asks a judge behind HTTP. Its settings are those of every `HostedModel`.

    Attributes:
        breaker: When calls to its endpoint are suspended. None is never.
    """

    fingerprint_exclude: ClassVar[frozenset[str]] = (
        HostedModel.fingerprint_exclude | Judge.fingerprint_exclude
    )
    error_class: ClassVar[type[ModelError]] = JudgeError
    usage_class: ClassVar[type[JudgeUsage]] = JudgeUsage

    breaker: BreakerSettings | None = BreakerSettings()

    @abstractmethod
    async def _send(self, client: Any, key: str | None, request: JudgeRequest) -> Reply:
        """Send once. Raises `ModelError` if there is no response."""

    @abstractmethod
    def _usage_of(self, message: dict[str, Any]) -> JudgeUsage: ...

    @abstractmethod
    def _text_of(self, message: dict[str, Any]) -> str:
        """Return the text of the answer.

        Raises `JudgeError` if the response is a refusal, cut off or unfinished.
        """

    async def judge(self, request: JudgeRequest) -> Verdict:
        """Return the model's answer. Ends at the deadline at the latest."""
        texts = {"system": encodable(request.system), "prompt": encodable(request.prompt)}
        request = request.model_copy(update=texts)
        return await self._ask(lambda attempts: self._verdict(request, attempts))

    async def _verdict(self, request: JudgeRequest, attempts: Attempts) -> Verdict:
        question = f"{request.system}\n{request.prompt}"
        message = await self._message(
            attempts, lambda client, key: self._send(client, key, request), question
        )
        return self._verdict_of(message, request, calls=attempts.calls, duration_s=attempts.age_s())

    def _verdict_of(
        self, message: dict[str, Any], request: JudgeRequest, *, calls: int, duration_s: float
    ) -> Verdict:
        usage = self._usage_of(message).model_copy(update={"calls": calls})
        try:
            raw = encodable(self._text_of(message))
            answer = parse_answer(raw, request.answer_form)
        except JudgeError as error:
            error.usage = usage
            raise
        return Verdict(
            answer=answer,
            raw=raw,
            usage=usage,
            duration_s=duration_s,
            model=_text_in(message, "model") or self.model,
            response_id=_text_in(message, "id"),
            system_fingerprint=_text_in(message, "system_fingerprint"),
        )


def _text_in(message: dict[str, Any], name: str) -> str | None:
    value = message.get(name)
    return encodable(value) if isinstance(value, str) else None


class OpenAICompatibleJudge(HostedJudge, type="openai_compatible"):
    """Asks a model by ``POST <base_url>/chat/completions``.

    No temperature is sent. `extra_body` may hold one.

    Without `api_key` and `api_key_env` no key is sent: a key in the environment may be another
    provider's.

    Attributes:
        base_url: Address of the server, with the version's part of the path, as in
            ``https://api.openai.com/v1``.
        response_format: ``json_schema`` makes the server enforce the form of the answer.
            ``json_object`` only requests JSON, and ``none`` nothing. Both describe the form in the
            instruction.
        strict_form: Whether ``json_schema`` sends ``strict: true`` for strict adherence to the
            form. Some servers do not support the field.
        max_tokens_field: The request's field for the token limit. Older servers support only
            ``max_tokens``.
    """

    response_format: Literal["json_schema", "json_object", "none"] = "json_schema"
    strict_form: bool = True
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"

    async def _send(self, client: Any, key: str | None, request: JudgeRequest) -> Reply:
        return await self._post("chat/completions", self._body(request), client, key)

    def _body(self, request: JudgeRequest) -> dict[str, Any]:
        structured = self.response_format == "json_schema"
        system = request.system if structured else with_form(request.system, request.answer_form)
        messages = [{"role": "system", "content": system}] if system else []
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [*messages, {"role": "user", "content": request.prompt}],
            self.max_tokens_field: request.max_tokens,
        }
        if structured:
            form: dict[str, Any] = {
                "name": "answer",
                "schema": constrained_form(request.answer_form),
            }
            if self.strict_form:
                form["strict"] = True
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        elif self.response_format == "json_object":
            body["response_format"] = {"type": "json_object"}
        return body | self.extra_body

    def _usage_of(self, message: dict[str, Any]) -> JudgeUsage:
        usage = message.get("usage")
        details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
        cached = count_of(details, "cached_tokens")
        return JudgeUsage(
            # which count cached tokens too
            input_tokens=max(0, count_of(usage, "prompt_tokens") - cached),
            cache_read_tokens=cached,
            output_tokens=count_of(usage, "completion_tokens"),
        )

    def _text_of(self, message: dict[str, Any]) -> str:
        choices = message.get("choices")
        choice = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
        completion = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(choice, dict) or not isinstance(completion, dict):
            raise unfinished()
        check_finished(choice.get("finish_reason"), *_FINISHED)
        if completion.get("refusal"):
            check_finished("refusal", "stop")
        if completion.get("tool_calls"):
            raise unfinished()
        # Some servers leave all that a model of thoughts says in the other field.
        content = completion.get("content") or completion.get("reasoning_content")
        text = joined(content) if isinstance(content, list) else content or ""
        if not isinstance(text, str):
            raise unfinished()
        return text


class OpenAIJudge(OpenAICompatibleJudge, type="openai"):
    """Asks a model of OpenAI's.

    It is `OpenAICompatibleJudge` with OpenAI's address and the key of ``OPENAI_API_KEY``.
    """

    base_url: str = Field(default="https://api.openai.com/v1", max_length=2_048)
    api_key_env: str | None = "OPENAI_API_KEY"


def check_finished(reason: object, *expected: str) -> None:
    """Raise `JudgeError` if a message ended for a reason that is not expected."""
    if isinstance(reason, str) and reason in _FAILED:
        error_type, problem = _FAILED[reason]
        raise JudgeError(problem, error_type=error_type)
    if reason is not None and reason not in expected:
        raise unfinished()


def unfinished() -> JudgeError:
    return JudgeError(
        "the judge's response is not one finished message", error_type="malformed_answer"
    )

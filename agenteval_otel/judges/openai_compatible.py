"""The judge that asks any model behind ``/chat/completions``, as OpenAI and many servers and gateways speak it."""

from __future__ import annotations

from typing import Any, Final, Literal

from agenteval_otel.http_client.replies import Reply, count_of, joined
from agenteval_otel.judges.base import JudgeRequest, JudgeUsage
from agenteval_otel.judges.forms import in_words, plain_form
from agenteval_otel.judges.hosted import Answered, HostedJudge

__all__ = ["OpenAICompatibleJudge"]

_FINISHED: Final = {
    "length": ("truncated", "the judge's answer was cut off at its most tokens"),
    "content_filter": ("refusal", "the judge's answer was kept back by the provider's filter"),
}
_REFUSED: Final = ("refusal", "the judge refused to answer")
_UNFINISHED: Final = ("malformed_answer", "the judge's response is not one finished message")


class OpenAICompatibleJudge(HostedJudge, type="openai_compatible"):
    """Asks a model by ``POST <base_url>/chat/completions``. No temperature is sent; `extra_body` may hold one.

    Without `api_key` and `api_key_env` no key is sent: a key in the environment is for one provider, and this may be
    another.

    Attributes:
        base_url: Where the server is, with the version's part of the path, as in ``https://api.openai.com/v1``.
        response_format: ``json_schema`` has the server hold the answer to its form. ``json_object`` has it answer with
            JSON, and ``none`` asks for nothing; with both the form is said in the instruction.
        strict_form: Whether ``json_schema`` asks for the form to be kept strictly; some servers do not know the field.
        max_tokens_field: The request's field for the most tokens; older servers know ``max_tokens`` only.
    """

    response_format: Literal["json_schema", "json_object", "none"] = "json_schema"
    strict_form: bool = True
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"

    async def _send(self, client: Any, request: JudgeRequest) -> Reply:
        return await self._post(client, "chat/completions", self._body(request))

    def _body(self, request: JudgeRequest) -> dict[str, Any]:
        structured = self.response_format == "json_schema"
        system = request.system if structured else in_words(request.system, request.answer_form)
        messages = [{"role": "system", "content": system}] if system else []
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [*messages, {"role": "user", "content": request.prompt}],
            self.max_tokens_field: request.max_tokens,
        }
        if structured:
            form: dict[str, Any] = {"name": "answer", "schema": plain_form(request.answer_form)}
            if self.strict_form:
                form["strict"] = True
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        elif self.response_format == "json_object":
            body["response_format"] = {"type": "json_object"}
        return body | self.extra_body

    def _answered(self, message: dict[str, Any]) -> Answered:
        usage = message.get("usage")
        details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
        read, cached = count_of(usage, "prompt_tokens"), count_of(details, "cached_tokens")
        used = JudgeUsage(
            # Here, what was kept is counted with what was read.
            input_tokens=max(0, read - cached), cache_read_tokens=cached,
            output_tokens=count_of(usage, "completion_tokens"),
        )  # fmt: skip
        text, failure = _text_of(message)
        model, response_id = message.get("model"), message.get("id")
        return Answered(
            text, used, model if isinstance(model, str) else "",
            response_id if isinstance(response_id, str) else None, failure,
        )  # fmt: skip


def _text_of(completion: dict[str, Any]) -> tuple[str, tuple[str, str] | None]:
    """The text of the one choice, or the failure that its finish reason or its message are."""
    choices = completion.get("choices")
    choice = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        return "", _UNFINISHED
    reason = choice.get("finish_reason")
    if isinstance(reason, str) and reason in _FINISHED:
        return "", _FINISHED[reason]
    if message.get("refusal"):
        return "", _REFUSED
    if reason not in ("stop", None) or message.get("tool_calls"):
        return "", _UNFINISHED
    text = message.get("content")
    if text is None or isinstance(text, str):
        return text or "", None
    whole = joined(text) if isinstance(text, list) else None
    return ("", _UNFINISHED) if whole is None else (whole, None)

"""PhoenixStorageProvider: each score as an annotation of Phoenix, at the span that it judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from pydantic import SecretStr

from agenteval_otel.components.delivery import DeliveryError
from agenteval_otel.storage.scores import Requests, ScoreStorageProvider, SpanScore, in_parts

_KINDS: Final = {"llm_judge": "LLM", "human": "HUMAN"}
_TRACES: Final = "/v1/traces"


class PhoenixStorageProvider(ScoreStorageProvider, type="phoenix"):
    """Sends each score to Phoenix, as an annotation of the evaluated span.

    The annotation has the score as a number, the label, and the reasoning as its explanation. Its
    identifier is made of answer, evaluator, version and criterion: sent again, it replaces the
    earlier one. Phoenix keeps annotations of spans that have not arrived for about ten minutes.
    Those that it then drops are not counted here.

    Attributes:
        endpoint: Its HTTP address, else ``PHOENIX_ENDPOINT`` or ``PHOENIX_COLLECTOR_ENDPOINT``.
        api_key: Where Phoenix asks for it, else ``PHOENIX_API_KEY``. Never shown, dumped or logged.
    """

    address_field: ClassVar[str] = "endpoint"
    variables: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "endpoint": ("PHOENIX_ENDPOINT", "PHOENIX_COLLECTOR_ENDPOINT"),
        "api_key": ("PHOENIX_API_KEY",),
    }

    endpoint: str | None = None
    api_key: SecretStr | None = None

    @property
    def address(self) -> str:
        return super().address.removesuffix(_TRACES)  # the variable may name the place of traces

    def open_sender(self) -> _Sender:
        return _Sender(self)


class _Sender:
    def __init__(self, provider: PhoenixStorageProvider) -> None:
        key = provider.setting("api_key")
        self._requests = Requests(
            provider, {} if key is None else {"authorization": f"Bearer {key}"}
        )

    async def send(self, values: Sequence[list[SpanScore]]) -> list[DeliveryError | None]:
        return await in_parts(self._send, values)

    async def _send(self, values: Sequence[list[SpanScore]]) -> None:
        annotations: list[dict[str, Any]] = []
        for answer in values:
            annotations += map(_body_of, answer)
        # Not `?sync=true`, which refuses them all where one span is missing: spans mostly come
        # later than their scores.
        await self._requests.ask("POST", "/v1/span_annotations", {"data": annotations})

    async def close(self) -> None:
        await self._requests.close()


def _body_of(score: SpanScore) -> dict[str, Any]:
    number = score.value
    label = score.result.label
    if isinstance(number, str):  # a category
        label = number
        number = score.result.normalized
    result: dict[str, Any] = {}
    if number is not None:
        result["score"] = float(number)
    if label is not None:
        result["label"] = label
    if score.comment is not None:
        result["explanation"] = score.comment
    return {
        "span_id": score.span_id,
        "name": score.name,
        "identifier": score.id,
        "metadata": score.about,
        "annotator_kind": _KINDS.get(score.result.evaluator_kind, "CODE"),
        "result": result,
    }

"""LangfuseStorageProvider: each score as a score of Langfuse, at the observation that it judges."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from pydantic import SecretStr

from agenteval_otel.components.delivery import DeliveryError
from agenteval_otel.storage.scores import Requests, ScoreStorageProvider, SpanScore, in_parts

_ENVIRONMENT: Final = re.compile(r"(?!langfuse)[a-z0-9_-]{1,40}")


class LangfuseStorageProvider(ScoreStorageProvider, type="langfuse"):
    """Sends each score to Langfuse.

    It is sent to the trace and the observation with the ids of the evaluated span.

    Numbers, booleans and categories keep their data type. The reasoning is the comment. A score has
    an id that is made of trace, span, evaluator, version and criterion: sent again it replaces
    itself. Scores may come before their trace.

    Attributes:
        host: Address of Langfuse, else ``LANGFUSE_BASE_URL``, ``LANGFUSE_HOST``, or Langfuse Cloud
            in the EU.
        public_key: The project's, else ``LANGFUSE_PUBLIC_KEY``.
        secret_key: The project's, else ``LANGFUSE_SECRET_KEY``. Never shown, dumped or logged.
    """

    address_field: ClassVar[str] = "host"
    default_address: ClassVar[str] = "https://cloud.langfuse.com"
    variables: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "host": ("LANGFUSE_BASE_URL", "LANGFUSE_HOST"),
        "public_key": ("LANGFUSE_PUBLIC_KEY",),
        "secret_key": ("LANGFUSE_SECRET_KEY",),
    }
    needs: ClassVar[tuple[str, ...]] = ("public_key", "secret_key")

    host: str | None = None
    public_key: str | None = None
    secret_key: SecretStr | None = None

    def open_sender(self) -> _Sender:
        return _Sender(self)


class _Sender:
    def __init__(self, provider: LangfuseStorageProvider) -> None:
        user = f"{provider.setting('public_key')}:{provider.setting('secret_key')}"
        self._requests = Requests(
            provider, {"authorization": f"Basic {b64encode(user.encode()).decode()}"}
        )
        self._takes_lists: bool | None = None

    async def send(self, values: Sequence[list[SpanScore]]) -> list[DeliveryError | None]:
        return await in_parts(self._send, values)

    async def _send(self, values: Sequence[list[SpanScore]]) -> None:
        scores: list[SpanScore] = []
        for answer in values:
            scores += answer
        if self._takes_lists is not False:
            try:
                await self._send_list(scores)
                self._takes_lists = True
                return
            except DeliveryError as error:
                if error.status != 400 or self._takes_lists:
                    raise
        # Servers before version 5 of the SDKs take a list as events only.
        await self._send_events(scores)
        self._takes_lists = False

    async def _send_list(self, scores: list[SpanScore]) -> None:
        message = await self._requests.ask(
            "POST", "/api/public/scores", list(map(_body_of, scores))
        )
        # it does not say which: sending all again is harmless, as they have ids
        if message.get("rejected"):
            raise DeliveryError("langfuse: rejects scores", error_type="bad_request", status=422)

    async def _send_events(self, scores: list[SpanScore]) -> None:
        # An event is processed once, by its own id; the score's id says what it replaces.
        events = [
            {
                "id": os.urandom(16).hex(),
                "type": "score-create",
                "timestamp": score.evaluated_at,
                "body": _body_of(score),
            }
            for score in scores
        ]
        message = await self._requests.ask("POST", "/api/public/ingestion", {"batch": events})
        statuses = [_status_of(error) for error in message.get("errors") or ()]
        if any(status >= 500 or status == 429 for status in statuses):
            problem = "langfuse: could not take all scores"
            raise DeliveryError(
                problem, error_type="server_error", status=max(statuses), retryable=True
            )
        if statuses:
            raise DeliveryError("langfuse: rejects scores", error_type="bad_request", status=422)

    async def close(self) -> None:
        await self._requests.close()


def _status_of(error: object) -> int:
    status = error.get("status") if isinstance(error, Mapping) else None
    return status if type(status) is int else 400


def _body_of(score: SpanScore) -> dict[str, Any]:
    value = score.value
    kind = "NUMERIC"
    if isinstance(value, bool):
        value = int(value)
        kind = "BOOLEAN"
    elif isinstance(value, str):
        kind = "CATEGORICAL"
    body: dict[str, Any] = {
        "id": score.id,
        "traceId": score.trace_id,
        "observationId": score.span_id,
        "name": score.name,
        "value": value,
        "dataType": kind,
        "timestamp": score.evaluated_at,
        "metadata": score.about,
    }
    if score.comment is not None:
        body["comment"] = score.comment
    if score.environment and _ENVIRONMENT.fullmatch(score.environment):
        body["environment"] = score.environment
    return body

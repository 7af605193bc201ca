"""MlflowStorageProvider: each score as an assessment of MLflow.

An assessment is at the trace and the span that the score judges.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from pydantic import SecretStr

from agenteval_otel.components.delivery import NOT_THERE_YET, DeliveryError
from agenteval_otel.storage.scores import Requests, ScoreStorageProvider, SpanScore

_AT_ONCE: Final = 8
_SOURCES: Final = {"llm_judge": "LLM_JUDGE", "human": "HUMAN"}
_CHANGEABLE: Final = "feedback,rationale,metadata"


class MlflowStorageProvider(ScoreStorageProvider, type="mlflow"):
    """Sends each score to MLflow's tracking server, as feedback on the evaluated span.

    The trace has the id ``tr-<trace id>`` there.

    MLflow uses this id for traces received by OTLP. It rejects assessments that arrive before their
    trace, so scores wait for it, up to `give_up_s`. An assessment's id is made of answer,
    evaluator, version and criterion. Sent again, it replaces the value, rationale and metadata.
    Failures are sent as assessments with an error.

    Attributes:
        tracking_uri: Address of the tracking server, else ``MLFLOW_TRACKING_URI``.
        token: Sent as a bearer token, else ``MLFLOW_TRACKING_TOKEN``. Never shown, dumped or
            logged.
        username: With `password` instead of a token, else ``MLFLOW_TRACKING_USERNAME``.
        password: Else ``MLFLOW_TRACKING_PASSWORD``. Never shown, dumped or logged.
    """

    address_field: ClassVar[str] = "tracking_uri"
    variables: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "tracking_uri": ("MLFLOW_TRACKING_URI",),
        "token": ("MLFLOW_TRACKING_TOKEN",),
        "username": ("MLFLOW_TRACKING_USERNAME",),
        "password": ("MLFLOW_TRACKING_PASSWORD",),
    }
    sends_failures: ClassVar[bool] = True
    # As often as OpenTelemetry exports spans by default: before that MLflow knows no trace.
    linger_s: ClassVar[float] = 5.0

    tracking_uri: str | None = None
    token: SecretStr | None = None
    username: str | None = None
    password: SecretStr | None = None

    def open_sender(self) -> _Sender:
        return _Sender(self)


class _Sender:
    """Sends one request for each score, as MLflow takes no more. Up to eight run at once."""

    def __init__(self, provider: MlflowStorageProvider) -> None:
        authorization = None
        # before the token, as MLflow's own client
        if (username := provider.setting("username")) is not None:
            user = f"{username}:{provider.setting('password') or ''}"
            authorization = f"Basic {b64encode(user.encode()).decode()}"
        elif (token := provider.setting("token")) is not None:
            authorization = f"Bearer {token}"
        headers = {} if authorization is None else {"authorization": authorization}
        self._requests = Requests(provider, headers)

    async def send(self, values: Sequence[list[SpanScore]]) -> list[DeliveryError | None]:
        turns = asyncio.Semaphore(_AT_ONCE)
        stopped_by = list[DeliveryError]()  # once there is one, nothing more is sent

        async def send_answer(scores: list[SpanScore]) -> DeliveryError | None:
            async with turns:
                try:
                    while scores and not stopped_by:
                        await self._send(scores[0])
                        scores.pop(0)  # what has arrived is not sent again with the rest
                except DeliveryError as error:
                    if error.error_type not in (NOT_THERE_YET, "bad_request"):
                        stopped_by.append(error)  # the others would get the same answer
                    return error
                return stopped_by[0] if scores else None

        return await asyncio.gather(*map(send_answer, values))

    async def _send(self, score: SpanScore) -> None:
        path = f"/api/3.0/mlflow/traces/tr-{score.trace_id}/assessments"
        body = _body_of(score)
        try:
            await self._requests.ask("POST", path, {"assessment": body})
        except DeliveryError as error:
            if error.status == 404:
                problem = f"{error}: it does not know the trace"
                raise DeliveryError(
                    problem, error_type=NOT_THERE_YET, status=404, retryable=True
                ) from None
            # MLflow reports an assessment that exists as status 500.
            is_replaced = error.status == 500 and await self._replace_existing(path, body)
            if not is_replaced:
                raise

    async def _replace_existing(self, path: str, body: dict[str, Any]) -> bool:
        """Replace the assessment with this id. Return False if there is none."""
        try:
            change = {"assessment": body, "update_mask": _CHANGEABLE}
            await self._requests.ask("PATCH", f"{path}/{body['assessment_id']}", change)
        except DeliveryError as error:
            if error.status == 404:
                return False
            raise
        return True

    async def close(self) -> None:
        await self._requests.close()


def _body_of(score: SpanScore) -> dict[str, Any]:
    result = score.result
    feedback = dict[str, Any]()
    if result.status == "failed":
        error_type = result.error_type or "error"
        message = {} if result.error == error_type else {"error_message": result.error}
        feedback["error"] = {"error_code": error_type, **message}
    else:
        feedback["value"] = score.value
    source = {
        "source_type": _SOURCES.get(result.evaluator_kind, "CODE"),
        "source_id": score.evaluator,
    }
    metadata = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in score.about.items()
    }
    body: dict[str, Any] = {
        "assessment_id": f"a-{score.id}",
        "assessment_name": score.name,
        "trace_id": f"tr-{score.trace_id}",
        "span_id": score.span_id,
        "feedback": feedback,
        "valid": True,
        "source": source,
        "create_time": score.evaluated_at,
        "last_update_time": score.evaluated_at,
        "metadata": metadata,
    }
    if score.comment is not None:
        body["rationale"] = score.comment
    return body

"""Results as scores of a span, and requests that carry them.

The providers for Langfuse, Phoenix and MLflow share this module. Each sends a result's scores to
where the team already looks at the traces. Sending is late and apart: `save_result` puts the scores
into a `BatchDelivery`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, ClassVar, Final, NamedTuple, Self

from pydantic import Field, SecretStr, SerializationInfo, field_validator, model_validator
from pydantic import field_serializer as serializer

from agenteval_otel.capture.text import cap
from agenteval_otel.components.delivery import BatchDelivery, BatchSender, DeliveryError
from agenteval_otel.components.explained import ComponentError
from agenteval_otel.components.http_client.client import (
    can_be_sent,
    client_for,
    load_clients,
    no_connection,
    problem_of,
    quietly,
)
from agenteval_otel.components.http_client.replies import Reply, error_of, object_of
from agenteval_otel.errors import ConfigurationError, ModelError
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
from agenteval_otel.runtime.masking import mask_text
from agenteval_otel.runtime.text import sanitise
from agenteval_otel.storage.base import EvaluationStorageProvider
from agenteval_otel.storage.erasure import ErasedPlace, Erasure

_NAME_CHARS: Final = 256
_COMMENT_CHARS: Final = 10_000
_SCORE_BYTES: Final = 1_200  # of a score without its comment, as an object and as JSON
_ANSWER_BYTES: Final = 262_144
_CLOSE_S: Final = 5.0
_ERASE_THERE: Final = "delete the person's traces there, with their scores"
_UNWANTED: Final = frozenset({400, 413, 422})  # what is sent is at fault: a part of it may be taken


class SpanScore(NamedTuple):
    """One result of a span, with the data that every receiver gets.

    Attributes:
        id: 32 hexadecimal digits, of the answer, the evaluator, its version and the criterion: the
            same when the same result is sent again.
        value: The raw score. None for a failure.
        comment: The reasoning, where it may leave.
        about: Evaluator, version, kind, sampling probability, verdict and reason code, as far as
            they are known.
    """

    id: str
    name: str
    value: bool | int | float | str | None
    comment: str | None
    trace_id: str
    span_id: str
    evaluated_at: str
    about: dict[str, Any]
    environment: str | None
    result: EvaluationResult

    @property
    def evaluator(self) -> str:
        return str(self.about["evaluator"])

    @property
    def size(self) -> int:
        return _SCORE_BYTES + 4 * len(self.comment or "")


class ScoreStorageProvider(EvaluationStorageProvider):
    """Sends each score to the span that it judges. Implement `open_sender`.

    A result without a span, or of a span that is not sampled, has nowhere to go: it counts as a
    failed save. So does what the receiver refuses, and what is still unsent after `give_up_s`.
    Skipped results are not sent.

    Attributes:
        headers: Sent with every request, such as those that a proxy requires. Never shown.
        timeout_s: Time limit of one request in seconds. After it, the request is sent again.
        give_up_s: Age of a result, in seconds, after which it is not sent again.
    """

    address_field: ClassVar[str]
    variables: ClassVar[Mapping[str, tuple[str, ...]]]
    """The environment variables that stand in for each setting. The first that is set counts."""
    needs: ClassVar[tuple[str, ...]] = ()
    default_address: ClassVar[str] = ""
    sends_failures: ClassVar[bool] = False
    linger_s: ClassVar[float] = 1.0

    headers: dict[str, str] = Field(default_factory=dict, repr=False, exclude=True)
    timeout_s: float = Field(default=10.0, gt=0, le=60)
    give_up_s: float = Field(default=60.0, gt=0, le=3_600)

    @abstractmethod
    def open_sender(self) -> BatchSender:
        """Open a new sender of lists of `SpanScore`, each the scores of one answer.

        Called on the thread that sends.
        """

    @model_validator(mode="after")
    def _has_an_address(self) -> Self:
        url = getattr(self, self.address_field)
        problem = None if url is None else problem_of(url)
        if problem is not None:  # an error of a field would show its value, with a password
            raise ComponentError(
                ConfigurationError(problem, path=self.address_field), of_model=True
            )
        return self

    @field_validator("headers")
    @classmethod
    def _are_one_line_each(cls, value: dict[str, str]) -> dict[str, str]:
        for text in (*value, *value.values()):
            if not text.isascii() or not text.isprintable():
                raise ValueError("a name and a value are one line of ASCII characters each")
        return value

    @serializer("*", when_used="unless-none")
    def _masked_keys(self, value: Any, info: SerializationInfo) -> Any:
        if not isinstance(value, SecretStr):
            return value
        return value.get_secret_value() if (info.context or {}).get("secrets") else "***"

    def setting(self, name: str) -> str | None:
        """Return the setting, else the value of its first variable that is set, else None."""
        value = getattr(self, name)
        if value is not None:
            return value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        for variable in self.variables.get(name, ()):
            text = os.environ.get(variable, "").strip()
            if text:
                return text
        return None

    @property
    def address(self) -> str:
        """Return where it sends to, without a slash at the end."""
        return (self.setting(self.address_field) or self.default_address).rstrip("/")

    def erase(self, erasure: Erasure, *, dry_run: bool = False) -> ErasedPlace:
        """Erase nothing: the receiver stores the scores itself, with their traces."""
        return ErasedPlace(
            f"{self.type} at {mask_text(self.address)}", problem=_ERASE_THERE, is_out_of_reach=True
        )

    def config_problem(self) -> str | None:
        """Return what keeps it from saving: an address or a key that is missing or cannot be sent.

        None if nothing does.
        """
        for name in (self.address_field, *self.needs):
            has_default = name == self.address_field and bool(self.default_address)
            if not has_default and not self.setting(name):
                variables = " or ".join(self.variables[name])
                return f"{name} is missing, and so is the variable {variables}"
        # of a variable: a setting is checked before
        if (problem := problem_of(self.address)) is not None:
            return f"{self.address_field}: {problem}"
        for name in self.variables:
            if name != self.address_field and not _can_go(self.setting(name)):
                return f"{name}: expected visible ASCII characters"
        return None

    def prepare(self) -> None:
        """Import the HTTP client."""
        load_clients(("httpx2",))

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        """Have the scores sent.

        Raises `DeliveryError` if they have no span, or too much waits already.
        """
        scores = scores_of(aggregated, with_failures=self.sends_failures)
        if not scores:
            return
        span = aggregated.span
        if span is None or not (span.is_remote or span.trace_flags & 1):
            kind = "is not sampled" if span else "is missing"
            raise DeliveryError(
                f"{self.type}: the trace of the answer {kind}", error_type="no_trace"
            )
        if (problem := self.config_problem()) is not None:
            raise DeliveryError(f"{self.type}: {problem}", error_type="not_configured")
        self.delivery.add(scores, sum(score.size for score in scores))

    @cached_property
    def delivery(self) -> BatchDelivery:
        """Return the queue and its thread, which the first result starts, also after `close`."""
        return BatchDelivery(
            self.type,
            self.open_sender,
            self._lose,
            give_up_s=self.give_up_s,
            linger_s=self.linger_s,
        )

    @cached_property
    def _reports(self) -> list[Callable[[BaseException], None]]:
        """Return the receiver of losses, in a list because a frozen model's fields cannot be set."""
        return []

    def report_losses_to(self, report: Callable[[BaseException], None]) -> None:
        self._reports[:] = [report]

    def _lose(self, error: Exception) -> None:
        for report in self._reports:
            report(error)

    def flush(self, timeout_s: float) -> bool:
        delivery: BatchDelivery | None = self.__dict__.get("delivery")
        return delivery is None or delivery.flush(timeout_s)

    async def close(self) -> None:
        """Send what waits, within 5 s, and give up the rest."""
        if (delivery := self.__dict__.pop("delivery", None)) is not None:
            await delivery.close(_CLOSE_S)


class Requests:
    """Requests to one receiver, on one event loop."""

    def __init__(self, provider: ScoreStorageProvider, headers: Mapping[str, str]) -> None:
        self._place = provider.type
        self._timeout_s = provider.timeout_s
        self._client = client_for(provider.address, max_bytes=_ANSWER_BYTES)
        self._client.headers.update({**headers, **provider.headers})

    async def ask(self, method: str, path: str, body: object) -> dict[str, Any]:
        """Return the JSON object of the response. Raises `DeliveryError` for all others."""
        try:
            with quietly():
                async with asyncio.timeout(self._timeout_s):
                    response = await self._client.request(method, path, json=body)
            reply = Reply(response.status_code, response.headers, response.content)
            if 200 <= reply.status < 300:
                return object_of(reply)
            failure = error_of(reply, (), "")
            raise self._error(f"answered with status {reply.status}", failure, reply.status)
        except TimeoutError:
            problem = f"no answer within {self._timeout_s:g} s"
            raise self._error(
                problem, ModelError("", error_type="timeout", retryable=True)
            ) from None
        except (TypeError, ValueError) as error:  # such as NaN
            failure = ModelError("", error_type="bad_request")
            raise self._error(f"cannot be written ({type(error).__name__})", failure, 400) from None
        except ModelError as error:
            raise self._error(str(error), error) from None
        except DeliveryError:
            raise
        except Exception as error:
            raise self._error(
                f"no connection ({type(error).__name__})", no_connection(error)
            ) from None

    def _error(self, problem: str, failure: ModelError, status: int | None = None) -> DeliveryError:
        return DeliveryError(
            f"{self._place}: {problem}",
            error_type=failure.error_type,
            status=status,
            retryable=failure.retryable,
            retry_after_s=failure.retry_after_s,
        )

    async def close(self) -> None:
        await self._client.aclose()


async def in_parts(
    send: Callable[[Sequence[Any]], Awaitable[None]], values: Sequence[Any]
) -> list[DeliveryError | None]:
    """Send the values together.

    If the receiver rejects them, send them in halves, so that only a bad value is lost.
    """
    try:
        await send(values)
    except DeliveryError as error:
        if error.status not in _UNWANTED or len(values) == 1:
            return [error] * len(values)
        middle = len(values) // 2
        return [*await in_parts(send, values[:middle]), *await in_parts(send, values[middle:])]
    return [None] * len(values)


def scores_of(aggregated: AggregatedEvaluationResult, *, with_failures: bool) -> list[SpanScore]:
    """Return the scores of a result.

    Those that failed are included if the receiver has a form for them, skips never.
    """
    statuses = ("scored", "failed") if with_failures else ("scored",)
    return [
        _score_of(result, aggregated) for result in aggregated.results if result.status in statuses
    ]


def _score_of(result: EvaluationResult, aggregated: AggregatedEvaluationResult) -> SpanScore:
    span = aggregated.span
    name = _name(result.criterion_name)
    evaluator = result.evaluator_id or result.evaluator_type
    trace_id = span.trace_id if span else ""
    span_id = span.span_id if span else ""
    # The answer's own id separates two answers of one span, or the response's where results of code
    # have no other. Another person's feedback replaces nothing.
    by = ""
    if result.evaluator_kind == "human":
        by = aggregated.user_id or str(result.ended_ns)
    parts = (
        trace_id,
        span_id,
        evaluator,
        name,
        result.evaluator_version or "",
        aggregated.call_id or aggregated.response_id or "",
        by,
    )
    about = {
        "evaluator": _name(evaluator),
        "evaluator_version": result.evaluator_version,
        "evaluator_kind": result.evaluator_kind,
        "sampling_probability": result.probability,
        "passed": result.passed,
        "label": _optional_name(result.label),
        "reason_code": _optional_name(result.reason_code),
        "agent": _optional_name(aggregated.agent),
    }
    identity = "\0".join(parts).encode("utf-8", "replace")
    id = hashlib.sha256(identity).hexdigest()[:32]
    known = {key: detail for key, detail in about.items() if detail is not None}
    value = result.score
    if isinstance(value, str):
        value = _name(value)
    comment = None
    if result.reasoning:
        comment = cap(sanitise(result.reasoning), _COMMENT_CHARS)
    ended_ns = result.ended_ns or aggregated.ended_ns or aggregated.timestamp * 1_000_000
    return SpanScore(
        id=id,
        name=name,
        value=value,
        comment=comment,
        trace_id=trace_id,
        span_id=span_id,
        evaluated_at=_evaluated_at(ended_ns),
        about=known,
        environment=aggregated.environment,
        result=result,
    )


def _name(text: str) -> str:
    return sanitise(text)[:_NAME_CHARS]


def _optional_name(text: str | None) -> str | None:
    return None if text is None else _name(text)


def _evaluated_at(time_ns: int) -> str:
    try:
        moment = datetime.fromtimestamp(time_ns / 1e9, UTC)
    except (OverflowError, ValueError, OSError):  # out of the calendar's range
        moment = datetime.now(UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _can_go(text: str | None) -> bool:
    return text is None or can_be_sent(text)

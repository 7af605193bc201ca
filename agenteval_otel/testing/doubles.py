"""Doubles for tests.

They are time that a test moves, telemetry that stays in memory, and a judge with prepared answers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import Field, PrivateAttr

from agenteval_otel.components.http_client.replies import RETRYABLE
from agenteval_otel.errors import JudgeError
from agenteval_otel.evaluators.judges import Judge, JudgeRequest, JudgeUsage, Verdict
from agenteval_otel.evaluators.judges.answers import parse_answer
from agenteval_otel.evaluators.judges.base import ERROR_TYPES
from agenteval_otel.runtime.fork import ForkSafeLock
from agenteval_otel.storage import OtlpStorageProvider

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.sampling import Sampler


class ManualClock:
    """Counts monotonic seconds that stand still until `advance` is called.

    It fits every ``clock`` parameter.
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def __call__(self) -> float:
        return self._now_s

    def __repr__(self) -> str:
        return f"<ManualClock {self._now_s:g} s>"

    def advance(self, seconds: float) -> None:
        """Move on. A negative step is a `ValueError`."""
        if seconds < 0:
            raise ValueError("monotonic time does not go back")
        self._now_s += seconds


class RecordedTelemetry:
    """Records spans, events and metrics with SDK providers in memory.

    It leaves the global providers alone.

        telemetry = RecordedTelemetry()
        configure(storage=[telemetry.storage()], dispatcher="inline")
        ...
        assert telemetry.events()[0].attributes["gen_ai.evaluation.score.label"] == "pass"

    Args:
        sampler: A sampler of the SDK for the tracer provider, where head sampling is part of the
            test.
    """

    def __init__(self, *, sampler: Sampler | None = None) -> None:
        resource = Resource.create({"service.name": "recorded"})
        self._spans = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self._logs = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
        self.tracer_provider = TracerProvider(
            sampler=sampler, resource=resource, shutdown_on_exit=False
        )
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self.logger_provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
        self.logger_provider.add_log_record_processor(SimpleLogRecordProcessor(self._logs))
        self.meter_provider = MeterProvider(
            [self._reader], resource=resource, shutdown_on_exit=False
        )

    def __repr__(self) -> str:
        return f"<RecordedTelemetry spans={len(self.spans())} events={len(self.events())}>"

    def storage(self, **settings: Any) -> OtlpStorageProvider:
        """Return an `OtlpStorageProvider` that emits into this recording."""
        return OtlpStorageProvider(
            tracer_provider=self.tracer_provider,
            logger_provider=self.logger_provider,
            meter_provider=self.meter_provider,
            **settings,
        )

    def tracer(self, name: str = "host") -> Any:
        """Return a tracer for the spans of the application under test."""
        return self.tracer_provider.get_tracer(name)

    def spans(self, prefix: str = "") -> list[ReadableSpan]:
        """Return the finished spans whose name begins with `prefix`, in the order of their end."""
        return [span for span in self._spans.get_finished_spans() if span.name.startswith(prefix)]

    def events(self) -> list[Any]:
        """Return the log records of the events, in order."""
        return [record.log_record for record in self._logs.get_finished_logs()]

    def points(self, metric: str) -> list[Any]:
        """Return the data points of a metric as collected now. Empty if there is none."""
        points: list[Any] = []
        for collected in self._collected():
            if collected.name == metric:
                points.extend(collected.data.data_points)
        return points

    def metrics(self) -> set[str]:
        """Return the names of all metrics that have data."""
        return {collected.name for collected in self._collected()}

    def _collected(self) -> list[Any]:
        data = self._reader.get_metrics_data()
        if not data:
            return []
        metrics: list[Any] = []
        for resource in data.resource_metrics:
            for scope in resource.scope_metrics:
                metrics.extend(scope.metrics)
        return metrics

    def shutdown(self) -> None:
        """Release the providers."""
        for provider in (self.tracer_provider, self.logger_provider, self.meter_provider):
            provider.shutdown()


ScriptedReply = str | dict[str, Any]
_LOCK = ForkSafeLock()


class ScriptedJudge(Judge, type="scripted"):
    """Answers from a script: the replies in order, then the fallback.

    Sends nothing and costs nothing.

    Replies are parsed as a model's are, so a text that is no JSON object fails in the same way.
    Several threads and loops may use it. The order is then that of their requests.

    Attributes:
        model: The name in its verdicts.
        replies: Objects, or texts as a model would write them. ``{"error": "rate_limited"}``, or
            another word of `judges.ERROR_TYPES`, fails in that way.
        fallback: The reply after the last one. None fails with ``empty_answer``.
        answer: A function from the request to a reply, instead of the replies. Left out of dumps.
        delay_s: Wait before each answer. Ends early when the caller gives up.
        input_tokens, output_tokens: Reported as the usage of each call, failed calls included.
    """

    model: str = "scripted"
    replies: tuple[ScriptedReply, ...] = ()
    fallback: ScriptedReply | None = None
    answer: Callable[[JudgeRequest], ScriptedReply] | None = Field(default=None, exclude=True)
    delay_s: float = Field(default=0.0, ge=0)
    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    _requests: list[JudgeRequest] = PrivateAttr(default_factory=list)

    @property
    def calls(self) -> int:
        """Return the number of requests, including failures and callers that gave up."""
        return len(self._requests)

    @property
    def requests(self) -> tuple[JudgeRequest, ...]:
        """Return the requests, in order."""
        return tuple(self._requests)

    async def judge(self, request: JudgeRequest) -> Verdict:
        """Return the next reply of the script.

        Raises `JudgeError` if the script says so, or the reply is not one JSON object.
        """
        with _LOCK:
            number = len(self._requests)
            self._requests.append(request)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        usage = JudgeUsage(input_tokens=self.input_tokens, output_tokens=self.output_tokens)
        reply = self._reply(number, request)
        if isinstance(reply, Mapping) and set(reply) == {"error"} and reply["error"] in ERROR_TYPES:
            failure = str(reply["error"])
            raise JudgeError(
                f"the script says {failure}",
                error_type=failure,
                retryable=failure in RETRYABLE,
                usage=usage,
            )
        if isinstance(reply, str):
            raw = reply
        elif reply is None:
            raw = ""
        else:
            raw = json.dumps(reply)
        try:
            verdict = parse_answer(raw, request.answer_form)
        except JudgeError as error:
            error.usage = usage
            raise
        return Verdict(
            answer=verdict,
            raw=raw,
            usage=usage,
            model=self.model,
            response_id=f"scripted-{number}",
            duration_s=self.delay_s,
        )

    def _reply(self, number: int, request: JudgeRequest) -> ScriptedReply | None:
        if self.answer is not None:
            return self.answer(request)
        if number < len(self.replies):
            return self.replies[number]
        return self.fallback

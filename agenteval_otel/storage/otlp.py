"""OtlpStorageProvider: the emitter's name among the storage providers.

The pipeline takes its `emitter`.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any, Literal

from opentelemetry import trace
from pydantic import Field, field_validator

from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.base import EvaluationStorageProvider
from agenteval_otel.telemetry.emitter import (
    ContentCapture,
    Detail,
    Emitter,
    Signal,
    score_attributes,
)
from agenteval_otel.telemetry.providers import Providers
from agenteval_otel.telemetry.spans import Placement, span_context_of
from agenteval_otel.telemetry.target import OtlpTarget, is_endpoint, telemetry_switched_off


class OtlpStorageProvider(EvaluationStorageProvider, type="otlp"):
    """Emits results through OpenTelemetry.

    Providers are resolved per signal when the first result comes: the explicit one, else the
    application's, else a private one when an endpoint is known (here or in
    ``OTEL_EXPORTER_OTLP_*``), else none and one warning.

    Attributes:
        endpoint: OTLP endpoint, such as ``http://localhost:4317``.
        protocol: ``grpc`` or ``http/protobuf``. When left out, it is taken from the environment,
            else from the port.
        headers: Sent with everything that is exported, such as an authorization. Never shown.
        detail: ``auto`` writes result spans for evaluators that call a model and for failures,
            ``result`` for all. ``response`` writes none of them, ``none`` no span at all.
        placement: The run span as a ``child`` of the evaluated span, or ``linked`` from a trace of
            its own.
        signals: The signals to emit.
        content: Which signals may carry content (prompt, answer, explanations). None follows
            ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT``, whose default is none.
        no_scores: Also emits an event for each criterion that has no score and did not fail, with
            the reason (``agenteval.evaluation.no_score``).
    """

    endpoint: str | None = None
    protocol: Literal["grpc", "http/protobuf"] | None = None
    headers: dict[str, str] = Field(default_factory=dict, repr=False, exclude=True)
    detail: Detail = "auto"
    placement: Placement = "child"
    signals: frozenset[Signal] = frozenset({"traces", "events", "metrics"})
    content: ContentCapture | None = None
    no_scores: bool = False
    tracer_provider: Any = Field(default=None, exclude=True, repr=False)
    logger_provider: Any = Field(default=None, exclude=True, repr=False)
    meter_provider: Any = Field(default=None, exclude=True, repr=False)

    @field_validator("endpoint")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value and not is_endpoint(value):
            raise ValueError("expected http://HOST:PORT such as http://localhost:4317")
        return value or None  # an empty variable says nothing

    @field_validator("headers")
    @classmethod
    def _are_one_line_each(cls, value: dict[str, str]) -> dict[str, str]:
        for text in (*value, *value.values()):
            if any(character in text for character in "\r\n\0"):
                raise ValueError("a name and a value are one line each")
        return value

    @cached_property
    def emitter(self) -> Emitter:
        providers = Providers(
            tracer_provider=self.tracer_provider,
            logger_provider=self.logger_provider,
            meter_provider=self.meter_provider,
            target=OtlpTarget(self.endpoint, self.protocol, self.headers),
        )
        return Emitter(
            providers,
            detail=self.detail,
            placement=self.placement,
            signals=self.signals,
            content=self.content,
            no_scores=self.no_scores,
        )

    def offline_emitter(self, placement: Placement) -> Emitter | None:
        """Return an emitter of spans and events for answers that are not live.

        None without endpoint, or if telemetry is switched off.

        Metrics are of live answers alone, so it emits none.
        """
        target = OtlpTarget(self.endpoint)
        if telemetry_switched_off(os.environ):
            return None
        if not any(target.is_configured(signal) for signal in ("TRACES", "LOGS")):
            return None
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        fields["placement"] = placement
        fields["signals"] = self.signals - {"metrics"}
        return OtlpStorageProvider(**fields).emitter

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        """Emit the result. Exporters send it later, in the background."""
        evaluated = span_context_of(aggregated.span) or trace.get_current_span().get_span_context()
        self.emitter.emit(
            aggregated, evaluated=evaluated, scores=score_attributes(aggregated.results)
        )

    async def close(self) -> None:
        """Shut our own providers down. Blocks its thread, so it is called on one of its own."""
        self.emitter.close()

"""Telemetry: providers, spans, events, metrics and the accounting."""

from agenteval_otel.telemetry.accounting import Accounting
from agenteval_otel.telemetry.providers import Providers
from agenteval_otel.telemetry.target import OtlpTarget

__all__ = ["Accounting", "OtlpTarget", "Providers"]

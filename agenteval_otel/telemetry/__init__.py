"""Telemetry: providers, spans, events, metrics and the accounting."""

from agenteval_otel.telemetry.accounting import Accounting
from agenteval_otel.telemetry.private import OtlpTarget
from agenteval_otel.telemetry.providers import Providers

__all__ = ["Accounting", "OtlpTarget", "Providers"]

"""What OpenTelemetry's environment variables say of telemetry as a whole."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["telemetry_switched_off"]


def telemetry_switched_off(environ: Mapping[str, str]) -> bool:
    """Whether every signal is switched off: by ``OTEL_SDK_DISABLED=true``, or each by ``OTEL_<SIGNAL>_EXPORTER=none``.

    A process without provider and endpoint is not switched off: it may evaluate for its accounting or its own storage.
    """
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return True
    exporters = (environ.get(f"OTEL_{signal}_EXPORTER", "") for signal in ("TRACES", "METRICS", "LOGS"))
    return all(exporter.strip().lower() == "none" for exporter in exporters)

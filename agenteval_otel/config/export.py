"""ExportSettings: what may wait for the receiver of our own exporters."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from agenteval_otel.components import Explained

__all__ = ["ExportSettings"]


class ExportSettings(BaseModel, metaclass=Explained):
    """What may wait for the receiver of our own exporters: docs/telemetry.md.

    Attributes:
        max_bytes: Memory that spans and events may take while their receiver is away, in bytes, of the whole process.
            Beyond it the oldest are dropped, and counted in ``agenteval.export.lost``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    max_bytes: int = Field(default=32 * 1024 * 1024, ge=65_536)

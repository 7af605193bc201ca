"""FlushJob: a flush that goes through the dispatcher, like a call."""

from __future__ import annotations

from agenteval_otel.storage import OtlpStorageProvider

__all__ = ["FlushJob"]


class FlushJob:
    """Sent through the dispatcher to have an emitter's providers flushed on the pool's thread."""

    def __init__(self, emitter: OtlpStorageProvider) -> None:
        self.emitter = emitter

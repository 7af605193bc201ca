"""Flushing: what providers hold is exported, from a thread of the caller's or from the pool's own."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from agenteval_otel.dispatch import Dispatcher
from agenteval_otel.storage import OtlpStorageProvider

__all__ = ["FlushJob", "flush_providers"]


class FlushJob:
    """Sent through the dispatcher to have an emitter's providers flushed on the pool's thread."""

    def __init__(self, emitter: OtlpStorageProvider) -> None:
        self.emitter = emitter


def flush_providers(providers: Iterable[Any], dispatcher: Dispatcher, deadline: float) -> bool:
    """Flush the emitters among the providers until the deadline, in monotonic seconds; True when all of it went out."""
    complete = True
    for emitter in [provider for provider in providers if isinstance(provider, OtlpStorageProvider)]:
        left_s = max(0.0, deadline - time.monotonic())
        try:
            complete = emitter.providers.flush(left_s) and complete
        except RuntimeError:
            # No thread can be started at exit: the pool's own thread does it, while we wait for it.
            dispatcher.submit(FlushJob(emitter), 0)
            complete = dispatcher.flush(max(0.0, deadline - time.monotonic())) and complete
    return complete

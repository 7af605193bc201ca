"""Contract of storage providers, and saving to several at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from agenteval_otel.capture.text import plain
from agenteval_otel.components import Component
from agenteval_otel.components.blocking import part_of, stepwise
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.runtime.worker import Worker, new_loop


class EvaluationStorageProvider(Component, contract="storage"):
    """Saves finished results. Implement `save_result`; called on the background thread, once for each response."""

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        """Save one aggregated result; errors are counted and the other providers still save."""
        raise NotImplementedError

    async def close(self) -> None:
        """Release files and connections; called once at shutdown."""


class FanOutStorage:
    """Saves to every provider, each within `timeout_s`; one that raises or hangs is reported by its name."""

    def __init__(
        self, providers: Sequence[Any], on_failure: Callable[[str, BaseException], None], *, timeout_s: float = 10.0
    ) -> None:
        self.providers, self._on_failure, self._timeout_s = tuple(providers), on_failure, timeout_s

    def __repr__(self) -> str:
        return f"<FanOutStorage {', '.join(map(_name, self.providers))}>"

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> int:
        """Save to all; returns the number of providers that saved."""
        saved = 0
        for provider in self.providers:
            try:
                part = part_of("storage", provider)
                with part:
                    saving = provider.save_result(aggregated)
                async with asyncio.timeout(self._timeout_s):
                    await stepwise(part, saving)
                saved += 1
            except (Exception, SystemExit) as error:
                self._on_failure(_name(provider), error)
        return saved

    def interrupted(self, error: BaseException) -> None:
        for provider in self.providers:
            self._on_failure(_name(provider), error)

    async def close(self) -> None:
        for provider in (provider for provider in self.providers if hasattr(provider, "close")):
            try:
                async with asyncio.timeout(self._timeout_s):
                    await provider.close()
            except Exception as error:
                self._on_failure(_name(provider), error)

    def close_within(self, timeout_s: float) -> None:
        """`close` on another thread, waiting at most so long: for code without an event loop, or inside one."""

        def close_here() -> None:
            # Without a free descriptor there is no loop.
            with contextlib.suppress(OSError), asyncio.Runner(loop_factory=new_loop) as runner:
                runner.get_loop()  # before there is a coroutine that would never be awaited
                runner.run(self.close())

        kept = EvaluationStorageProvider.close  # does nothing
        if any(getattr(type(provider), "close", kept) is not kept for provider in self.providers):
            worker = Worker("agenteval-close", max_waiting=1)
            worker.submit(close_here)  # refused at the interpreter's exit, which closes everything
            worker.close(timeout_s)


def _name(provider: Any) -> str:
    name = getattr(provider, "type", None)
    return name if isinstance(name, str) else type(provider).__name__


def without_objects(aggregated: AggregatedEvaluationResult) -> AggregatedEvaluationResult:
    """The result with JSON's types alone, where pydantic refuses to dump it: offline inputs may contain anything."""
    return AggregatedEvaluationResult.model_validate(plain(aggregated.model_dump(exclude_none=True)))

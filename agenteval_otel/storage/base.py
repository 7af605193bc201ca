"""Contract of storage providers, and saving to several at once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from agenteval_otel.capture.text import plain
from agenteval_otel.components import Component
from agenteval_otel.components.blocking import part_of, stepwise
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.runtime.worker import Worker, new_loop
from agenteval_otel.storage.erasure import ErasedPlace, Erasure


class EvaluationStorageProvider(Component, contract="storage"):
    """Saves finished results.

    Implement `save_result`. It is called on the background thread, once for each response.
    """

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        """Save one aggregated result. Errors are counted and the other providers still save."""
        raise NotImplementedError

    def flush(self, timeout_s: float) -> bool:
        """Tell whether what was taken is saved within the time.

        Blocks. Only for providers that save later.
        """
        return True

    async def close(self) -> None:
        """Release files and connections. Called once at shutdown."""

    def report_losses_to(self, report: Callable[[BaseException], None]) -> None:
        """Keep `report`, and call it for each result that was taken and could not be saved later.

        Any thread.
        """

    def erase(self, erasure: Erasure, *, dry_run: bool = False) -> ErasedPlace:
        """Remove the content of the results that are concerned, or with `dry_run` count them.

        Blocks.

        Not called on the background thread. A provider that cannot erase sets `problem`. Raises
        `StorageError`.
        """
        return ErasedPlace(self.type, problem="erase it there", is_out_of_reach=True)

    def config_problem(self) -> str | None:
        """Return what keeps it from saving, as far as that is seen now, such as a missing key.

        None if nothing does.
        """
        return None

    def prepare(self) -> None:
        """Import what saving needs.

        Blocks. Called at start, unless `config_problem` names a problem.
        """


class FanOutStorage:
    """Saves to every provider, each within `timeout_s`.

    A provider that raises or hangs is reported by its name.
    """

    def __init__(
        self,
        providers: Sequence[Any],
        on_failure: Callable[[str, BaseException], None],
        *,
        timeout_s: float = 10.0,
    ) -> None:
        self.providers = tuple(providers)
        self._on_failure = on_failure
        self._timeout_s = timeout_s
        self._typed = [
            provider
            for provider in self.providers
            if isinstance(provider, EvaluationStorageProvider)
        ]

    def __repr__(self) -> str:
        return f"<FanOutStorage {', '.join(map(_name, self.providers))}>"

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> int:
        """Save to all providers. Return the number of providers that saved."""
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

    def watch(self) -> None:
        """Have providers report later losses in the same way as immediate failures."""
        for provider in self._typed:
            provider.report_losses_to(partial(self._on_failure, _name(provider)))

    def interrupted(self, error: BaseException) -> None:
        for provider in self.providers:
            self._on_failure(_name(provider), error)

    def flush(self, timeout_s: float) -> bool:
        """Tell whether all providers saved their results in time.

        Each gets a share of the time, so none blocks the others.
        """
        deadline = time.monotonic() + timeout_s
        saved = True
        for left, provider in zip(range(len(self._typed), 0, -1), self._typed, strict=True):
            try:
                saved = provider.flush(max(0.0, deadline - time.monotonic()) / left) and saved
            except Exception as error:
                self._on_failure(_name(provider), error)
        return saved

    async def close(self) -> None:
        for provider in (provider for provider in self.providers if hasattr(provider, "close")):
            try:
                async with asyncio.timeout(self._timeout_s):
                    await provider.close()
            except Exception as error:
                self._on_failure(_name(provider), error)

    def close_within(self, timeout_s: float) -> None:
        """Run `close` on another thread, waiting at most so long.

        For code without an event loop, or inside one.
        """

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


def _name(provider: object) -> str:
    name = getattr(provider, "type", None)
    return name if isinstance(name, str) else type(provider).__name__


def without_objects(aggregated: AggregatedEvaluationResult) -> AggregatedEvaluationResult:
    """Return the result with JSON's types alone, for results that pydantic refuses to dump.

    Offline inputs may contain anything.
    """
    return AggregatedEvaluationResult.model_validate(
        plain(aggregated.model_dump(exclude_none=True))
    )

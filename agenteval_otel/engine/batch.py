"""`run_evaluations`: many inputs, one configuration, the results in the order of the inputs.

One runner and one executor for all. Inputs are taken from their iterable one by one, as there is room for them, so
it may be a generator over a file. An input that cannot be evaluated costs its own result only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any

from agenteval_otel.engine.blocking import blocking
from agenteval_otel.engine.config import EvaluationRunConfig
from agenteval_otel.engine.offline import OfflineRun
from agenteval_otel.engine.progress import progress_for
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationInput, RunError
from agenteval_otel.runtime.masking import message_of

__all__ = ["CONCURRENCY", "run_evaluations", "run_evaluations_sync"]

CONCURRENCY = 8
_MOST_AT_ONCE = 10_000
_MOST_BEHIND = 64
OnResult = Callable[[int, AggregatedEvaluationResult], None]


async def run_evaluations(
    inputs: Iterable[EvaluationInput],
    config: EvaluationRunConfig,
    *,
    concurrency: int = CONCURRENCY,
    on_result: OnResult | None = None,
    keep_results: bool = True,
    progress: bool = False,
) -> list[AggregatedEvaluationResult]:
    """Evaluate all inputs, on the running event loop; gives one result an input, in the order of the inputs.

    What is wrong with one input stands in the `run_errors` of its result, under the label ``EvaluationInput``.
    Cancelled, it ends what runs and leaves no task and no thread behind.

    Args:
        inputs: Taken lazily: never more than `concurrency` are held that are not evaluated yet, and none is taken that
            stands 64 times as many behind one that still runs.
        config: For all of them.
        concurrency: How many are evaluated at once.
        on_result: Called with the input's position and its result as each is there, on the event loop, in the order of
            completion. What it raises ends the batch and is raised here.
        keep_results: False keeps none and gives an empty list: for more inputs than memory holds, with `on_result`.
        progress: Show a bar on stderr; a line every ten seconds where that is no terminal.

    Raises:
        ConfigurationError: `inputs` is not an iterable of inputs (one input alone), or `concurrency` is no
            whole number from 1 to 10,000.
        Exception: Whatever the iterable or `on_result` raised.
    """
    if type(concurrency) is not int or not 1 <= concurrency <= _MOST_AT_ONCE:
        expected = f"expected a whole number from 1 to {_MOST_AT_ONCE}"
        raise ConfigurationError(f"{expected}, found {str(concurrency)[:40]}", path="concurrency")
    if not isinstance(inputs, Iterable) or isinstance(inputs, str | bytes | Mapping | EvaluationInput):
        raise ConfigurationError(f"expected EvaluationInputs, found {type(inputs).__name__}", path="inputs")
    total = len(inputs) if isinstance(inputs, Sized) else None
    results: dict[int, AggregatedEvaluationResult] = {}
    behind = _Behind(_MOST_BEHIND * concurrency)
    waiting = enumerate(inputs)
    broken = 0
    with OfflineRun(config) as run, progress_for(total, quiet=not progress) as shown:

        def finished(position: int, aggregated: AggregatedEvaluationResult) -> None:
            nonlocal broken
            broken += bool(aggregated.run_errors) or any(result.error for result in aggregated.results)
            shown.advance(broken)
            if keep_results:
                results[position] = aggregated
            if on_result is not None:
                on_result(position, aggregated)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency if total is None else min(concurrency, total)):
                    group.create_task(_evaluate(waiting, run, finished, behind))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # the first one ended the others
    return [results[position] for position in sorted(results)]


def run_evaluations_sync(
    inputs: Iterable[EvaluationInput],
    config: EvaluationRunConfig,
    *,
    concurrency: int = CONCURRENCY,
    on_result: OnResult | None = None,
    keep_results: bool = True,
    progress: bool = False,
) -> list[AggregatedEvaluationResult]:
    """`run_evaluations` for code without an event loop; blocks, inside of a running loop on a thread of its own."""
    return blocking(
        lambda: run_evaluations(
            inputs, config, concurrency=concurrency, on_result=on_result, keep_results=keep_results, progress=progress
        )
    )


async def _evaluate(
    waiting: Iterator[tuple[int, EvaluationInput]], run: OfflineRun, finished: OnResult, behind: _Behind
) -> None:
    for position, evaluation_input in waiting:
        try:
            aggregated = await run.evaluate(evaluation_input)
        except Exception as error:  # this input's own: the configuration was checked when it was built
            aggregated = _failed(evaluation_input, error)
        finished(position, aggregated)
        await asyncio.sleep(0)  # inputs that need no waiting would hold the loop to the last of them
        await behind.wait_after(position)


class _Behind:
    """Keeps the rest within reach of an input that takes long: who puts results in order holds what waits for it."""

    def __init__(self, most: int) -> None:
        self._most, self._oldest = most, 0
        self._done: set[int] = set()
        self._moved = asyncio.Event()

    async def wait_after(self, position: int) -> None:
        """The input at this position is done; wait while one that still runs stands too far before it."""
        self._done.add(position)
        if position == self._oldest:
            while self._oldest in self._done:
                self._done.remove(self._oldest)
                self._oldest += 1
            self._moved.set()
            self._moved = asyncio.Event()
        while position - self._oldest >= self._most:
            await self._moved.wait()


def _failed(evaluation_input: Any, error: Exception) -> AggregatedEvaluationResult:
    return AggregatedEvaluationResult(
        run_errors=(RunError(evaluator_type="EvaluationInput", message=message_of(error)),),
        timestamp=time.time_ns() // 1_000_000,
        input_snapshot=evaluation_input if isinstance(evaluation_input, EvaluationInput) else None,
    )

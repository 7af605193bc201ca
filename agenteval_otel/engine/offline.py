"""`run_evaluation`, and batches with their progress: the same runner as for live answers, so scores cannot differ."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sized
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Self, TypeVar

from agenteval_otel.capture.calls import CURRENT, EVALUATING
from agenteval_otel.engine.answers import facts_of
from agenteval_otel.engine.config import EvaluationRunConfig
from agenteval_otel.engine.response import aggregate
from agenteval_otel.engine.run import EvaluationRunner, combined
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.execution import Executor
from agenteval_otel.ground_truth.base import with_ground_truth
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationInput, EvaluationResult, RunError
from agenteval_otel.models.value import copy_with, snapshot_of
from agenteval_otel.redaction.outgoing import Redaction
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.masking import message_of
from agenteval_otel.scoring import AgentDockCriteria

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")
_LOOK_AGAIN_S = 0.1
_LINE_EVERY_S = 10.0
_DRAWN_EVERY_S = 0.1


def blocking(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The coroutine's result, from a new event loop; inside a running loop on a new thread. An interrupt ends it."""
    is_in_a_loop = False
    with contextlib.suppress(RuntimeError):
        is_in_a_loop = asyncio.get_running_loop() is not None
    if not is_in_a_loop:
        return asyncio.run(work())
    caller = asyncio.current_task()
    finished: Future[T] = Future()
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()

    async def watched() -> T:
        task = asyncio.current_task()
        assert task is not None
        begun.set_result((asyncio.get_running_loop(), task))
        return await work()

    def run() -> None:
        try:
            finished.set_result(asyncio.run(watched()))
        except BaseException as error:
            finished.set_exception(error)

    thread = threading.Thread(target=run, name="agenteval-offline")
    thread.start()
    try:
        while thread.is_alive() and not (caller is not None and caller.cancelling()):
            thread.join(_LOOK_AGAIN_S)  # the loop takes the interrupt as a cancellation, which cannot reach us here
    finally:
        if thread.is_alive():
            loop, task = begun.result()
            with contextlib.suppress(RuntimeError):  # it has ended meanwhile
                loop.call_soon_threadsafe(task.cancel)
        thread.join()
    return finished.result()


class OfflineRun:
    """One configuration at work, for one input or for many. Belongs to one event loop; `close` ends its threads."""

    def __init__(self, config: EvaluationRunConfig) -> None:
        if not isinstance(config, EvaluationRunConfig):
            raise ConfigurationError(
                f"expected an EvaluationRunConfig, found {type(config).__name__}; "
                "EvaluationRunConfig.model_validate(...) makes one of a mapping"
            )
        self.config = config
        self.executor = Executor(live=False)
        self.redaction = Redaction(config.redactors, _redaction_failed)
        self.runner = EvaluationRunner(
            config.selection.evaluators, criteria=config.criteria, executor=self.executor, redaction=self.redaction,
            escalation=config.escalation,
        )  # fmt: skip
        if not config.is_strict:
            self.runner.criteria = AgentDockCriteria.reading(self.runner.criteria)

    def close(self) -> None:
        self.executor.close()

    async def evaluate(self, evaluation_input: EvaluationInput) -> AggregatedEvaluationResult:
        config = self.config
        config.check_input(evaluation_input)
        snapshot = snapshot_of(evaluation_input)
        if not config.is_strict and snapshot.criteria:
            snapshot = copy_with(snapshot, {"criteria": AgentDockCriteria.reading(snapshot.criteria)})
        started_ns, tick = time.time_ns(), time.perf_counter_ns()
        token = CURRENT.set(EVALUATING)
        failures: list[BaseException] = []
        try:
            snapshot = await with_ground_truth(snapshot, config.ground_truth, failures.append)
            # Every input of a run is evaluated; what its configuration passes over lowers that of single criteria.
            outcome = await self.runner.run(snapshot, probability=None if config.escalation is None else 1.0)
        finally:
            CURRENT.reset(token)
        outcome.results[:] = map(_weighted, outcome.results)
        outcome.errors.extend(_error_of("GroundTruthStore", trouble) for trouble in failures)
        aggregated = aggregate(
            snapshot, outcome, runner=self.runner, started_ns=started_ns,
            ended_ns=started_ns + time.perf_counter_ns() - tick, metadata=snapshot_of(config.metadata),
            storage="none" if config.storage is None else "external", aggregation=config.aggregation,
            overall=combined(outcome, config.aggregation),
        )  # fmt: skip
        changes: dict[str, Any] = {"input_snapshot": snapshot}
        if config.selection.left_out:
            snapshot_of_config = aggregated.evaluation_config_snapshot or {}
            changes["evaluation_config_snapshot"] = snapshot_of_config | {"leftOut": list(config.selection.left_out)}
        return await self._saved(copy_with(aggregated, changes))

    async def _saved(self, aggregated: AggregatedEvaluationResult) -> AggregatedEvaluationResult:
        if self.config.storage is None:
            return aggregated
        try:
            await self.config.storage.save_result(self.redaction.result(aggregated))
        except (Exception, SystemExit) as error:  # a client of the user's own: the results are not lost with it
            failed = _error_of("StorageProvider", error)
            return copy_with(aggregated, {"run_errors": (*(aggregated.run_errors or ()), failed)})
        return aggregated


async def run_evaluation(evaluation_input: EvaluationInput, config: EvaluationRunConfig) -> AggregatedEvaluationResult:
    """Evaluate one input with the configured evaluators, on the running event loop; the result holds a snapshot of it.

    Results are in configured order. What raises (an evaluator, the storage, the aggregation) leaves an entry in
    `run_errors`, and the others continue. Evaluators that block run on a thread.

    Raises:
        ConfigurationError: The input's own criteria are invalid; before anything runs.
    """
    with contextlib.closing(OfflineRun(config)) as run:
        return await run.evaluate(evaluation_input)


def run_evaluation_sync(evaluation_input: EvaluationInput, config: EvaluationRunConfig) -> AggregatedEvaluationResult:
    """`run_evaluation` for code without an event loop; blocks, inside of a running loop on a thread of its own."""
    return blocking(lambda: run_evaluation(evaluation_input, config))


def _weighted(result: EvaluationResult) -> EvaluationResult:
    """With the probability that only its evaluator knows of, such as a spend limit's; all inputs are evaluated."""
    if result.probability is not None or result.probability_given_sampled == 1.0:
        return result
    return copy_with(result, facts_of(result, {"probability": 1.0}))


def _error_of(part: str, error: BaseException) -> RunError:
    return RunError(evaluator_type=part, message=message_of(error))


def _redaction_failed(redactor: str, error: BaseException) -> None:
    log.warning("redaction_failed", part=redactor, error_type=type(error).__name__)


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

    Errors of one input are in the `run_errors` of its result, under the label ``EvaluationInput``. Cancelling ends all
    running evaluations and leaves no task and no thread behind.

    Args:
        inputs: Taken lazily: never more than `concurrency` are held that are not evaluated yet, and none is taken that
            stands 64 times as many behind one that still runs.
        concurrency: How many are evaluated at once, from 1 to 10,000.
        on_result: Called with the input's position and its result, on the event loop, in the order of completion. An
            exception from it ends the batch and is raised here.
        keep_results: False returns an empty list: for more inputs than memory holds, with `on_result`.
        progress: Show a bar on stderr; if that is not a terminal, a line every ten seconds.

    Raises:
        ConfigurationError: `inputs` is not an iterable of inputs (one input alone), or a wrong `concurrency`.
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
    with contextlib.closing(OfflineRun(config)) as run, progress_for(total, quiet=not progress) as shown:

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
    """Bounds how far inputs run ahead of a slow one, whose successors' results have to be kept."""

    def __init__(self, most: int) -> None:
        self._most, self._oldest = most, 0
        self._done: set[int] = set()
        self._moved = asyncio.Event()

    async def wait_after(self, position: int) -> None:
        """Mark the input at this position as done; wait while an earlier one that still runs is too far behind."""
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


class Progress:
    """Counts inputs, and shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def advance(self, failed: int) -> None:
        """One more input is evaluated; so many had failures so far."""
        return


class Bar(Progress):
    """A bar with the count and the time that is left, gone when it is over; without a `total` the count alone."""

    def __init__(self, total: int | None, console: Console) -> None:
        from rich import progress as rich

        failures = rich.TextColumn("{task.fields[failed]}", style="red")
        columns = (rich.TextColumn("evaluating"), rich.BarColumn(bar_width=None), rich.MofNCompleteColumn(),
                   rich.TimeRemainingColumn(compact=True), failures)  # fmt: skip
        # Drawn by hand: a thread of its own is one that a batch could leave behind.
        self._bar = rich.Progress(*columns, console=console, transient=True, expand=True, auto_refresh=False)
        self._task = self._bar.add_task("evaluating", total=total, failed="")
        self._drawn_s = 0.0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.refresh()
        self._bar.stop()

    def advance(self, failed: int) -> None:
        self._bar.update(self._task, advance=1, failed=f"{failed:,} with failures" if failed else "")
        now_s = time.monotonic()
        if now_s - self._drawn_s >= _DRAWN_EVERY_S:
            self._drawn_s = now_s
            self._bar.refresh()


class Lines(Progress):
    """A line every ten seconds, for logs; none when it is over sooner."""

    def __init__(self, total: int | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._of = "" if total is None else f" of {total:,}"
        self._done, self._clock = 0, clock
        self._began = self._reported = clock()

    def advance(self, failed: int) -> None:
        self._done += 1
        now = self._clock()
        if now - self._reported < _LINE_EVERY_S:
            return
        self._reported = now
        line = f"{self._done:,}{self._of} inputs evaluated, {self._done / (now - self._began):,.1f} a second"
        with contextlib.suppress(OSError, ValueError):  # closed meanwhile: no reason to end a batch
            sys.stderr.write(line + (f", {failed:,} with failures\n" if failed else "\n"))
            sys.stderr.flush()


def progress_for(total: int | None, *, quiet: bool = False) -> Progress:
    if quiet or sys.stderr is None:
        return Progress()
    from rich.console import Console

    console = Console(stderr=True)
    return Bar(total, console) if console.is_terminal else Lines(total)

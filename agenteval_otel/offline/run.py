"""`run_evaluation`, and batches with their progress.

They use the same runner as for live answers, so scores cannot differ.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import time
from collections.abc import (
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Sized,
)
from functools import partial
from typing import Any, TypeVar

from agenteval_otel.capture.calls import CURRENT, EVALUATING
from agenteval_otel.capture.redaction.outgoing import Redaction
from agenteval_otel.capture.text import CAP_CHARS, cap
from agenteval_otel.engine.answers import facts_of
from agenteval_otel.engine.execution import Executor
from agenteval_otel.engine.response import aggregate
from agenteval_otel.engine.run import EvaluationRunner, combined, own_criteria
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators.ground_truth.base import with_ground_truth
from agenteval_otel.models import (
    AggregatedEvaluationResult,
    EvaluationInput,
    EvaluationResult,
    RunError,
)
from agenteval_otel.models.scoring import AgentDockCriteria
from agenteval_otel.models.value import copy_with, snapshot_of
from agenteval_otel.offline.config import EvaluationRunConfig, InputLike, as_input
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.loop import blocking
from agenteval_otel.runtime.masking import message_of

T = TypeVar("T")
_LINE_EVERY_S = 10.0
_FIRST_ESTIMATE_S = 3.0
_REWRITTEN_EVERY_S = 0.1
_BAR_WIDTH = 20

ANSWER = "answer"
"""The label of the run error where an answer could not be made."""
CONCURRENCY = 8
_MOST_AT_ONCE = 10_000
_MOST_BEHIND = 64
_MOST_PROBLEMS = 20
OnResult = Callable[[int, AggregatedEvaluationResult], None]
Answer = Callable[[EvaluationInput], Awaitable[EvaluationInput]]


class OfflineRun:
    """Evaluates one input or many by one configuration.

    It belongs to one event loop. `close` ends its threads, unless they are those of an `executor`
    that was given.
    """

    def __init__(
        self,
        config: EvaluationRunConfig,
        answer: Answer | None = None,
        executor: Executor | None = None,
    ) -> None:
        if not isinstance(config, EvaluationRunConfig):
            raise ConfigurationError(
                f"expected an EvaluationRunConfig, found {type(config).__name__}. "
                "EvaluationRunConfig.model_validate(...) makes one of a mapping"
            )
        self.config = config
        self.answer = answer
        self._owns_executor = executor is None
        self.executor = executor or Executor(live=False)
        self.redaction = Redaction(config.redactors, _redaction_failed)
        evaluators = config.selection.evaluators
        criteria = config.criteria
        if not config.is_strict:
            criteria = AgentDockCriteria.reading(criteria or own_criteria(evaluators))
        self.runner = EvaluationRunner(
            evaluators,
            criteria=criteria,
            executor=self.executor,
            redaction=_for_models(config),
            escalation=config.escalation,
        )

    def close(self) -> None:
        if self._owns_executor:
            self.executor.close()

    async def evaluate(self, evaluation_input: EvaluationInput) -> AggregatedEvaluationResult:
        config = self.config
        if self.answer is not None:
            try:
                evaluation_input = await self.answer(evaluation_input)
            # of the application: a failed input, never a score
            except (Exception, SystemExit) as error:
                return _failed(evaluation_input, error, ANSWER)
        config.check_input(evaluation_input)
        snapshot = snapshot_of(evaluation_input)
        if not config.is_strict and snapshot.criteria:
            criteria = AgentDockCriteria.reading(snapshot.criteria)
            snapshot = copy_with(snapshot, {"criteria": criteria})
        started_ns = time.time_ns()
        tick = time.perf_counter_ns()
        token = CURRENT.set(EVALUATING)
        failures: list[BaseException] = []
        try:
            snapshot = await with_ground_truth(snapshot, config.ground_truth, failures.append)
            # Every input of a run is evaluated. Only an escalation lowers the probability of
            # single criteria.
            probability = None if config.escalation is None else 1.0
            outcome = await self.runner.run(snapshot, probability=probability)
        finally:
            CURRENT.reset(token)
        outcome.results[:] = map(_weighted, outcome.results)
        outcome.errors.extend(_error_of("GroundTruthStore", trouble) for trouble in failures)
        aggregated = aggregate(
            snapshot,
            outcome,
            runner=self.runner,
            started_ns=started_ns,
            ended_ns=started_ns + time.perf_counter_ns() - tick,
            metadata=snapshot_of(config.metadata),
            storage="none" if config.storage is None else "external",
            aggregation=config.aggregation,
            overall=combined(outcome, config.aggregation),
        )
        changes: dict[str, Any] = {"input_snapshot": snapshot}
        if config.selection.left_out:
            snapshot_of_config = aggregated.evaluation_config_snapshot or {}
            changes["evaluation_config_snapshot"] = snapshot_of_config | {
                "leftOut": list(config.selection.left_out)
            }
        return await self._saved(copy_with(aggregated, changes))

    async def _saved(self, aggregated: AggregatedEvaluationResult) -> AggregatedEvaluationResult:
        if self.config.storage is None:
            return aggregated
        try:
            await self.config.storage.save_result(self.redaction.result(aggregated))
        # a client of the user's own: the results are not lost with it
        except (Exception, SystemExit) as error:
            earlier = aggregated.run_errors or ()
            failed = _error_of("StorageProvider", error)
            return copy_with(aggregated, {"run_errors": (*earlier, failed)})
        return aggregated


async def run_evaluation(
    evaluation_input: InputLike, config: EvaluationRunConfig | None = None, **fields: Any
) -> AggregatedEvaluationResult:
    """Evaluate one input with the configured evaluators, on the running event loop.

    The result holds a snapshot of the input. The input is an `EvaluationInput`, or a mapping of its
    fields. `fields` are those of an `EvaluationRunConfig`, such as ``evaluators=[...]``, where none
    is given. Code without an event loop calls `run_evaluation_sync`.

    Results are in configured order. What raises (an evaluator, the storage, the aggregation) leaves
    an entry in `run_errors`, and the others continue. Evaluators that block run on a thread.

    Raises:
        ConfigurationError: It is no input, a field is unknown or wrong, or its own criteria are.
            It is raised before anything runs.
    """
    evaluation_input = as_input(evaluation_input)
    with contextlib.closing(OfflineRun(_config_of(config, fields))) as run:
        return await run.evaluate(evaluation_input)


def run_evaluation_sync(
    evaluation_input: InputLike, config: EvaluationRunConfig | None = None, **fields: Any
) -> AggregatedEvaluationResult:
    """Evaluate one input as `run_evaluation` does, for code without an event loop.

    Blocks. All such calls share one loop on a thread of its own.
    """
    return blocking(lambda: run_evaluation(evaluation_input, config, **fields))


def _config_of(config: EvaluationRunConfig | None, fields: dict[str, Any]) -> Any:
    """Return the configuration that was given, or the one that the fields make."""
    if config is not None and fields:
        raise ConfigurationError("give an EvaluationRunConfig or its fields, not both")
    return EvaluationRunConfig(**fields) if config is None else config


def _weighted(result: EvaluationResult) -> EvaluationResult:
    """Return the result with its probability if its evaluator saw only a share of the inputs.

    A spend limit, for example, leaves inputs out. The run itself evaluates all.
    """
    if result.probability is not None or result.probability_given_sampled == 1.0:
        return result
    return copy_with(result, facts_of(result, {"probability": 1.0}))


def _error_of(part: str, error: BaseException) -> RunError:
    return RunError(evaluator_type=part, message=message_of(error))


def _for_models(config: EvaluationRunConfig) -> Redaction:
    """Return the redaction of what models see.

    It cuts texts first, as live, or at the larger limit of an evaluator.
    """
    limit = CAP_CHARS
    for evaluator in config.selection.evaluators:
        limit = max(limit, getattr(evaluator, "max_field_chars", 0))
    return Redaction(config.redactors, _redaction_failed, shorten=partial(cap, limit=limit))


def _redaction_failed(redactor: str, error: BaseException) -> None:
    log.warning("redaction_failed", part=redactor, error_type=type(error).__name__)


async def run_evaluations(
    inputs: Iterable[InputLike],
    config: EvaluationRunConfig,
    *,
    concurrency: int = CONCURRENCY,
    on_result: OnResult | None = None,
    keep_results: bool = True,
    progress: bool = False,
    answer: Answer | None = None,
) -> list[AggregatedEvaluationResult]:
    """Evaluate all inputs, on the running event loop.

    Return one result for each input, in the order of the inputs.

    What is wrong with the items of a list is raised before anything runs. An item that a lazy
    iterable gives costs only its own result: the error is in its `run_errors`, under the label
    ``EvaluationInput``. Cancelling ends all running evaluations and leaves no task and no thread
    behind.

    Args:
        inputs: `EvaluationInput` objects, or mappings of their fields. Read lazily: at most
            `concurrency` unevaluated ones are in memory. Reading pauses when it is 64 times as many
            positions ahead of an input that still runs.
        concurrency: How many are evaluated at once, from 1 to 10,000.
        on_result: Called with the input's position and its result, on the event loop, in the order
            of completion. An exception from it ends the batch and is raised here.
        keep_results: False returns an empty list: for more inputs than memory holds, with
            `on_result`.
        progress: Show the count on stderr. On no terminal it is shown every ten seconds.
        answer: Called for every input, to produce its answer: takes the input, returns it with its
            response. What it raises is an error of the input, under the label ``answer``, never a
            score.

    Raises:
        ConfigurationError: `inputs` is not an iterable of inputs (one input alone), an item of a
            list is no input (``inputs[3].prompt``), or a wrong `concurrency`.
        Exception: Whatever the iterable or `on_result` raised.
    """
    inputs = _accepted(inputs, concurrency)
    total = len(inputs) if isinstance(inputs, Sized) else None
    results: dict[int, AggregatedEvaluationResult] = {}
    running: dict[int, asyncio.Event] = {}  # by position, the oldest first
    waiting = enumerate(inputs)
    broken = 0
    with (
        contextlib.closing(OfflineRun(config, answer)) as run,
        contextlib.closing(Progress(total, shown=progress)) as shown,
    ):

        def finished(position: int, aggregated: AggregatedEvaluationResult) -> None:
            nonlocal broken
            has_errors = any(result.error for result in aggregated.results)
            if aggregated.run_errors or has_errors:
                broken += 1
            shown.advance(broken)
            if keep_results:
                results[position] = aggregated
            if on_result is not None:
                on_result(position, aggregated)

        tasks = concurrency if total is None else min(concurrency, total)
        most_behind = _MOST_BEHIND * concurrency
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(tasks):
                    group.create_task(_evaluate(waiting, run, finished, running, most_behind))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # the first one ended the others
    return [results[position] for position in sorted(results)]


def _accepted(inputs: Iterable[InputLike], concurrency: int) -> Iterable[InputLike]:
    if type(concurrency) is not int or not 1 <= concurrency <= _MOST_AT_ONCE:
        expected = f"expected a whole number from 1 to {_MOST_AT_ONCE}"
        raise ConfigurationError(f"{expected}, found {str(concurrency)[:40]}", path="concurrency")
    is_one_input = isinstance(inputs, str | bytes | Mapping | EvaluationInput)
    if is_one_input or not isinstance(inputs, Iterable):
        raise ConfigurationError(
            f"expected EvaluationInputs, found {type(inputs).__name__}", path="inputs"
        )
    return _checked(inputs) if isinstance(inputs, Sequence) else inputs


def run_evaluations_sync(
    inputs: Iterable[InputLike],
    config: EvaluationRunConfig,
    *,
    concurrency: int = CONCURRENCY,
    on_result: OnResult | None = None,
    keep_results: bool = True,
    progress: bool = False,
    answer: Answer | None = None,
) -> list[AggregatedEvaluationResult]:
    """Run `run_evaluations` for code without an event loop. Blocks.

    Inside of a running loop it runs on a thread of its own.
    """
    return blocking(
        lambda: run_evaluations(
            inputs,
            config,
            concurrency=concurrency,
            on_result=on_result,
            keep_results=keep_results,
            progress=progress,
            answer=answer,
        )
    )


def _checked(inputs: Sequence[InputLike]) -> list[EvaluationInput]:
    checked: list[EvaluationInput] = []
    problems: list[tuple[str | None, str]] = []
    for position, item in enumerate(inputs):
        try:
            checked.append(as_input(item, path=f"inputs[{position}]"))
        except ConfigurationError as error:
            problems += error.problems
    if problems:
        raise ConfigurationError.of(problems[:_MOST_PROBLEMS])
    return checked


async def _evaluate(
    waiting: Iterator[tuple[int, InputLike]],
    run: OfflineRun,
    finished: OnResult,
    running: dict[int, asyncio.Event],
    most_behind: int,
) -> None:
    for position, evaluation_input in waiting:
        over = asyncio.Event()
        running[position] = over
        try:
            checked = as_input(evaluation_input, path=f"inputs[{position}]")
            aggregated = await run.evaluate(checked)
        # this input's own: the configuration was checked when it was built
        except Exception as error:
            aggregated = _failed(evaluation_input, error)
        del running[position]
        over.set()
        finished(position, aggregated)
        # inputs that need no waiting would hold the loop to the last of them
        await asyncio.sleep(0)
        while running:
            oldest = next(iter(running))
            if position - oldest < most_behind:
                break
            # results of its successors may have to be kept until it is over
            await running[oldest].wait()


def _failed(
    evaluation_input: object, error: BaseException, label: str = "EvaluationInput"
) -> AggregatedEvaluationResult:
    return AggregatedEvaluationResult(
        run_errors=(_error_of(label, error),),
        timestamp=time.time_ns() // 1_000_000,
        input_snapshot=evaluation_input if isinstance(evaluation_input, EvaluationInput) else None,
    )


class Progress:
    """Counts evaluated inputs on stderr, with the time that is left.

    On a terminal it is one line with a bar, which is rewritten, else a line every 10 s.

    Args:
        total: How many there are. None where that is unknown.
        what: What is counted, in words.
        share: Returns how much of the work is done, from 0 to 1, where `total` is unknown.
        more: Returns further text for the progress line.
    """

    def __init__(
        self,
        total: int | None,
        *,
        shown: bool = True,
        clock: Callable[[], float] = time.monotonic,
        what: str = "inputs evaluated",
        share: Callable[[], float | None] = lambda: None,
        more: Callable[[], str] = lambda: "",
    ) -> None:
        self._total = total
        self._what = what
        self._share = share
        self._more = more
        self._stream = sys.stderr if shown else None
        self._rewrites = False
        # a stream of the host's own, or a closed one
        with contextlib.suppress(AttributeError, OSError, ValueError):
            self._rewrites = self._stream is not None and self._stream.isatty()
        self._done = 0
        self._clock = clock
        self._began = clock()
        self._written = self._began

    def advance(self, failed: int) -> None:
        """Count one more input as evaluated. `failed` is how many had failures so far."""
        self._done += 1
        now = self._clock()
        interval_s = _REWRITTEN_EVERY_S if self._rewrites else _LINE_EVERY_S
        if now - self._written < interval_s:
            return
        self._written = now
        elapsed_s = now - self._began
        of_total = "" if self._total is None else f" of {self._total:,}"
        share = self._done / self._total if self._total else self._share()
        parts = [f"{self._done:,}{of_total} {self._what}"]
        time_left = _left_in_words(share, elapsed_s)
        if time_left:
            parts.append(time_left)
        if failed:
            parts.append(f"{failed:,} with failures")
        parts.append(f"{self._done / elapsed_s:,.1f} a second")
        more = self._more()
        if more:
            parts.append(more)
        bar = _bar(share) if self._rewrites else ""
        if len(bar) + len(", ".join(parts[:2])) > self._width():
            bar = ""
        self._write(bar + self._fitting(parts, self._width() - len(bar)))

    def _fitting(self, parts: Sequence[str], width: int) -> str:
        """Return the first parts that fit in a line: a line that wraps cannot be rewritten."""
        line = parts[0]
        for part in parts[1:]:
            if self._rewrites and len(line) + len(part) + 2 > width:
                break
            line += f", {part}"
        return line

    @staticmethod
    def _width() -> int:
        return max(1, shutil.get_terminal_size().columns - 1)

    def close(self) -> None:
        if self._rewrites:
            self._write("")

    def _write(self, line: str) -> None:
        if self._stream is not None:
            # closed meanwhile: no reason to end a batch
            with contextlib.suppress(OSError, ValueError):
                if self._rewrites:
                    width = self._width()
                    self._stream.write(f"{line[:width]:<{width}}\r")
                else:
                    self._stream.write(f"{line}\n")
                self._stream.flush()


def _left_in_words(share: float | None, elapsed_s: float) -> str:
    if share is None or not 0.0 < share <= 1.0 or elapsed_s < _FIRST_ESTIMATE_S:
        return ""
    left_s = elapsed_s * (1.0 - share) / share
    if left_s < 90.0:
        return f"about {left_s:.0f} s left"
    if left_s < 5_400.0:
        return f"about {left_s / 60:.0f} min left"
    return f"about {left_s / 3_600:,.0f} h left"


def _bar(share: float | None) -> str:
    """Return a bar of the work that is done, in ASCII, which every terminal shows."""
    if share is None or not 0.0 <= share <= 1.0:
        return ""
    done = int(share * _BAR_WIDTH)
    return f"[{'#' * done}{'.' * (_BAR_WIDTH - done)}] "

"""A replay: recorded answers in, their new results into the results file and out as telemetry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from agenteval_otel.engine.response import outgoing_words
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult, RunError
from agenteval_otel.models.value import copy_with
from agenteval_otel.offline.config import EvaluationRunConfig
from agenteval_otel.offline.replay.recorded import (
    AnswerFilter,
    RecordedAnswer,
    RecordedSource,
    completed,
)
from agenteval_otel.offline.replay.results_file import REPLAY, ResultsFile
from agenteval_otel.offline.replay.side_by_side import SideBySide
from agenteval_otel.offline.reports.totals import Totals
from agenteval_otel.offline.run import OfflineRun, Progress
from agenteval_otel.runtime.masking import message_of
from agenteval_otel.telemetry.emitter import Emitter, score_attributes
from agenteval_otel.telemetry.spans import span_context_of

_CHUNK: Final = 256
_CHUNK_CHARS: Final = 8_000_000
_FLUSH_S: Final = 30.0
_FLUSH_AWAY_S: Final = 1.0  # once the receiver was away
_KEPT: Final = frozenset(
    {
        "criterion_name",
        "score",
        "evaluator_type",
        "normalized",
        "label",
        "passed",
        "threshold",
        "error",
        "error_type",
        "skip_reason",
        "evaluator_id",
        "evaluator_version",
        "evaluator_kind",
    }
)
"""Fields of recorded results that stand beside the new ones."""


class Replay:
    """Scores the answers of a source, on the running event loop.

    The source has a thread of its own. Answers whose results are in the file are not scored again.
    Up to `concurrency` answers are scored at once. What was under way when the process was ended is
    scored anew.

    Args:
        source: Where the answers are recorded.
        selection: Those that are wanted.
        config_of: The evaluators of an agent. None for one whose answers are left out.
        results: Where results are kept.
        emitter: Where they are emitted. None: nowhere.
        limit: How many answers are scored at most, those of earlier processes among them.

    Attributes:
        totals: Of the new results, those of earlier processes too.
        compared: Recorded and new results.
        scored, earlier: Answers of this process, and of those before it.
        failing: Answers of the dataset.
        unselected: Answers that the selection leaves out.
        undelivered: Results whose delivery was not confirmed: starting again sends them.
    """

    def __init__(
        self,
        source: RecordedSource,
        selection: AnswerFilter,
        config_of: Callable[[str], EvaluationRunConfig | None],
        results: ResultsFile,
        *,
        emitter: Emitter | None = None,
        concurrency: int = 8,
        limit: int | None = None,
        progress: bool = False,
    ) -> None:
        self._source = source
        self._selection = selection
        self._config_of = config_of
        self._results = results
        self._emitter = emitter
        self._concurrency = concurrency
        self._limit = limit
        self._emits_content = emitter is not None and emitter.content != "no_content"
        self._runs: dict[int, OfflineRun] = {}
        self._progress = Progress(
            None,
            shown=progress,
            what="answers scored",
            share=source.share,
            more=source.progress,
        )
        self.totals = Totals()
        self.compared = SideBySide()
        self.scored = 0
        self.earlier = 0
        self.failing = 0
        self.unselected = 0
        self.undelivered = 0
        self._unsent = 0  # emitted, and not yet known to be delivered
        self._flush_s = _FLUSH_S

    async def run(self) -> None:
        """Score all answers, or go on where an earlier process ended.

        Raises what the source raises. Results up to then are in the file.
        """
        loop = asyncio.get_running_loop()
        answers = self._source.answers()
        with ThreadPoolExecutor(1, "agenteval-replay") as reader:
            try:
                await self._take_up()
                waiting = loop.run_in_executor(reader, self._chunk, answers)
                while chunk := await waiting:
                    waiting = loop.run_in_executor(reader, self._chunk, answers)
                    await self._score(chunk)
                    await self._deliver()
            finally:
                self._progress.close()
                for run in self._runs.values():
                    run.close()
        self.undelivered = self._unsent

    async def _take_up(self) -> None:
        """Count what an earlier process has scored, and emit what it had not delivered."""
        for at, result in self._results.earlier():
            self.earlier += 1
            recorded = {
                entry["criterion_name"]: EvaluationResult.model_validate(entry)
                for entry in result.metadata[REPLAY]["recorded"]
            }
            self._count(result, recorded)
            if at >= self._results.delivered:
                self._emit(result)
                if self._unsent % _CHUNK == 0:
                    await self._deliver(note=False)
        await self._deliver()

    def _chunk(self, answers: Iterator[RecordedAnswer]) -> list[RecordedAnswer]:
        """Return the next answers that are to be scored.

        Empty at the end. Runs on the source's thread.
        """
        chunk: list[RecordedAnswer] = []
        # those of answers under way are added here: the next chunk is read meanwhile
        keys = self._results.keys
        chars = 0
        most = _CHUNK if self._limit is None else min(_CHUNK, self._limit - len(keys))
        while len(chunk) < most and chars < _CHUNK_CHARS:
            answer = next(answers, None)
            if answer is None:
                break
            config = self._config_of(answer.input.agent or "")
            if answer.key in keys:
                continue
            if config is None:
                self.unselected += 1
                continue
            criteria = {criterion.name: criterion for criterion in config.criteria}
            answer = completed(answer, criteria)
            if not self._selection.takes(answer):
                self.unselected += 1
                continue
            keys.add(answer.key)
            chunk.append(answer)
            chars += len(answer.input.response_text) + len(answer.input.prompt or "")
        return chunk

    async def _score(self, chunk: list[RecordedAnswer]) -> None:
        waiting = iter(chunk)

        async def score() -> None:
            for answer in waiting:
                self._add(answer, await self._evaluated(answer))
                await asyncio.sleep(0)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._concurrency, len(chunk))):
                    group.create_task(score())
        except BaseExceptionGroup as failures:
            # the first one ended the others, such as a full disk
            raise failures.exceptions[0] from None

    async def _evaluated(self, answer: RecordedAnswer) -> AggregatedEvaluationResult:
        run = self._run_of(answer.input.agent)
        try:
            aggregated = await run.evaluate(answer.input)
        except Exception as error:  # this answer's own
            failed = RunError(evaluator_type="EvaluationInput", message=message_of(error))
            aggregated = AggregatedEvaluationResult(
                run_errors=(failed,), input_snapshot=answer.input
            )
        if not self._keeps_input(aggregated):
            aggregated = copy_with(aggregated, {"input_snapshot": None})
        redacted = run.redaction.result(aggregated)
        recorded = [
            result.model_dump(mode="json", include=set(_KEPT), exclude_defaults=True)
            for result in answer.scores.values()
        ]
        config_snapshot = None
        if aggregated.run_errors:
            config_snapshot = aggregated.evaluation_config_snapshot
        results = [outgoing_words(result, run.redaction) for result in redacted.results]
        of_replay = {"key": answer.key, "recorded": recorded}
        changes = {
            "span": answer.span,
            "call_id": answer.call_id,
            "response_ended_ns": answer.ended_ns,
            "replayed": True,
            "evaluation_config_snapshot": config_snapshot,
            "results": tuple(results),
            "metadata": {**redacted.metadata, REPLAY: of_replay},
        }
        return copy_with(redacted, changes)

    def _keeps_input(self, result: AggregatedEvaluationResult) -> bool:
        """Tell whether the input is emitted or written to the dataset.

        If it is not, it is not redacted: redacting takes longer than some evaluators.
        """
        return self._emits_content or (self._results.has_dataset and is_failing(result))

    def _run_of(self, agent: str | None) -> OfflineRun:
        config = self._config_of(agent or "")
        assert config is not None, "its answers are not taken"
        run = self._runs.get(id(config))
        if run is None:
            run = OfflineRun(config)
            self._runs[id(config)] = run
        return run

    def _add(self, answer: RecordedAnswer, result: AggregatedEvaluationResult) -> None:
        failing = result.input_snapshot if is_failing(result) else None
        self._results.add(answer.key, result, failing)
        self.scored += 1
        self._count(result, answer.scores)
        self._progress.advance(self.totals.broken)
        self._emit(result)

    def _count(
        self, result: AggregatedEvaluationResult, recorded: dict[str, EvaluationResult]
    ) -> None:
        self.failing += is_failing(result)
        span = result.span
        self.totals.add(result, place=f"trace {span.trace_id}" if span else "")
        self.compared.add(recorded, result)

    def _emit(self, result: AggregatedEvaluationResult) -> None:
        if self._emitter is None:
            return
        scores = score_attributes(result.results)
        self._emitter.emit(result, evaluated=span_context_of(result.span), scores=scores)
        self._unsent += 1

    async def _deliver(self, *, note: bool = True) -> None:
        """Wait until the receiver has what was emitted.

        What it does not have is emitted again by the next process.
        """
        if self._emitter is None or not self._unsent:
            return
        providers = self._emitter.providers
        is_complete = await asyncio.to_thread(providers.flush, self._flush_s)
        self._flush_s = _FLUSH_S if is_complete else _FLUSH_AWAY_S
        if is_complete and not providers.lost:
            self._unsent = 0
            if note:
                self._results.note_delivered(self._results.size)


def is_failing(result: AggregatedEvaluationResult) -> bool:
    """Tell whether a criterion of the answer did not pass. Criteria that are tried do not count."""
    return any(item.passed is False and not item.shadow for item in result.results)

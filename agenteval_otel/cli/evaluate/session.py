"""A session: settings and dataset are checked, the inputs evaluated as they are read, the reports written."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout

from agenteval_otel.cli.evaluate.configuration import configuration_of, criteria_of
from agenteval_otel.cli.evaluate.dataset import Dataset, Row
from agenteval_otel.cli.evaluate.outputs import Outputs
from agenteval_otel.cli.evaluate.reports import Summary
from agenteval_otel.cli.evaluate.tallies import Tallies
from agenteval_otel.cli.evaluate.targets import FailUnder, check_names, missed
from agenteval_otel.cli.evaluate.words import counted, plural
from agenteval_otel.engine import EvaluationRunConfig, run_evaluations
from agenteval_otel.engine.progress import Silence, progress_for
from agenteval_otel.errors import ConfigurationError, EvaluationError
from agenteval_otel.masking import printable
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationInput
from agenteval_otel.models.judge_calls import observed_by

__all__ = ["run_session"]


def run_session(arguments: argparse.Namespace) -> int:
    """Evaluate a dataset and report; 0, or 1 when a target was missed. Blocks.

    Raises:
        ConfigurationError: The options, the settings or the dataset are wrong, or no result is a score.
        StorageError: A report cannot be written.
    """
    limits = [FailUnder.parse(text) for text in arguments.fail_under]
    outputs = Outputs(arguments)
    config, idle = configuration_of(arguments)
    criteria = criteria_of(config)
    check_names(limits, [criterion.name for criterion in criteria])
    with Dataset(arguments.datasets, form=arguments.format, limit=arguments.limit, check=config.check_input) as dataset:
        contents = dataset.check()
        if contents.inputs == 0:
            raise ConfigurationError(f"no inputs in {', '.join(dataset.names)}: there is nothing to evaluate")
        _note(config, contents.kept_in_metadata)
        tallies = Tallies(criteria)
        began = time.monotonic()
        with outputs:
            with progress_for(contents.inputs, quiet=arguments.quiet) as progress:
                flow = _Flow(dataset, tallies, outputs, progress)
                # For evaluators that print: reports go to the standard output from before.
                with redirect_stdout(sys.stderr), observed_by(tallies.judged):
                    asyncio.run(_evaluate(flow, config, arguments.concurrency))
            found = missed(tallies, limits)
            outputs.finish(Summary(tallies, dataset.names, limits, found, time.monotonic() - began))
    if idle:
        _say(f"scored by no evaluator of the configuration: {', '.join(idle)}")
    return _told(tallies, [str(one) for one in found])


async def _evaluate(flow: _Flow, config: EvaluationRunConfig, concurrency: int) -> None:
    try:
        await run_evaluations(flow.inputs(), config, concurrency=concurrency, on_result=flow.take, keep_results=False)
    finally:
        if hasattr(config.storage_provider, "close"):
            await config.storage_provider.close()


class _Flow:
    """From the dataset into the runner, and from there, back in order, into sums and files.

    What waits for an input before it is held: the runner keeps that bounded.
    """

    def __init__(self, dataset: Dataset, tallies: Tallies, outputs: Outputs, progress: Silence) -> None:
        self._dataset, self._tallies, self._outputs, self._progress = dataset, tallies, outputs, progress
        self._rows: dict[int, Row] = {}
        self._ready: dict[int, AggregatedEvaluationResult] = {}
        self._next = 0

    def inputs(self) -> Iterator[EvaluationInput]:
        """The inputs, one by one as the runner has room for them."""
        for position, row in enumerate(self._dataset):
            self._rows[position] = row
            yield row.evaluation_input

    def take(self, position: int, aggregated: AggregatedEvaluationResult) -> None:
        """The results of one input are there; inputs end in any order."""
        self._ready[position] = aggregated
        while self._next in self._ready:
            row, ready = self._rows.pop(self._next), self._ready.pop(self._next)
            self._next += 1
            self._tallies.add(row, ready)
            self._outputs.add(row, ready)
        self._progress.advance(self._tallies.broken)


def _note(config: EvaluationRunConfig, kept: Sequence[str]) -> None:
    """What is other than somebody might think, on standard error."""
    if config.selection.left_out:
        _say(f"left out: {', '.join(map(str, config.selection.left_out))}")
    if kept:
        _say(f"no fields of an input, kept in its metadata: {', '.join(kept)}")


def _told(tallies: Tallies, found: Sequence[str]) -> int:
    """The exit code; says on standard error why it is not 0.

    Raises:
        EvaluationError: No result is a score, and there was no target that would have said so.
    """
    if tallies.judged:
        _say(str(tallies.judged))
    for label, count in tallies.run_errors.items():
        _say(f"{label} broke for {plural(count, 'input')}")
    for one in found:
        _say(f"missed: {one}")
    if found:
        return 1
    if tallies.scored == 0:
        parts = [f"{tally.name}: {counted(tally)}" for tally in tallies.criteria]
        raise EvaluationError(f"nothing was scored ({'; '.join(parts)})")
    return 0


def _say(text: str) -> None:
    if sys.stdout is not None:
        sys.stdout.flush()  # where both go to one place, the table stands first
    print(printable(text), file=sys.stderr)

"""The evaluation of one task, which is run, and whose results are emitted and stored.

An evaluation that is under way can be handed to another thread.
"""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter_ns, time_ns
from typing import Any, Final, Literal

from opentelemetry import context as otel_context
from opentelemetry.trace import Span

from agenteval_otel.components.blocking import UserPart
from agenteval_otel.engine.capability import Evaluated
from agenteval_otel.engine.parts import EngineParts
from agenteval_otel.engine.response import EvaluatedResponse
from agenteval_otel.engine.run import Run, RunOutcome
from agenteval_otel.engine.task import NOT_DRAWN, Task, UnderWay
from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.evaluators.ground_truth.base import with_ground_truth
from agenteval_otel.models import EvaluationInput, EvaluationResult
from agenteval_otel.models.scoring.probability import with_least_probability
from agenteval_otel.models.scoring.scales import off_scale_in
from agenteval_otel.runtime.log import log
from agenteval_otel.semconv import EVALUATED, PIPELINE_FAILED
from agenteval_otel.storage.base import FanOutStorage
from agenteval_otel.telemetry.emitter import Emission, Emitter, score_attributes
from agenteval_otel.telemetry.spans import context_of_evaluation, open_agent_span

_MAX_LOOKUPS = 2
_TELEMETRY = UserPart("telemetry")  # the host's processors run there: named, and never quarantined
Stage = Literal["evaluating", "emitting", "sent", "emitted", "saving", "over"]
"""How far an evaluation is. ``sent``: the results of a list were emitted together, the rest of
`Evaluation.finish` is to come. ``emitted``: it is to be saved.
"""
_REPLIES: Final = frozenset({"malformed_answer", "refusal"})


class Evaluation(UnderWay):
    """Evaluates one task, from its input to what is emitted and stored. Background thread.

    A thread that is held up is replaced, and may come back at any moment. So a thread that emits or
    saves takes the right to do so first, and only one can have it. Before another thread takes an
    evaluation over, and before a task is settled as anything but evaluated, that right is
    withdrawn: so the outcome of a task matches what was emitted of it.

    Args:
        engine: The `Engine` that made it.
    """

    def __init__(self, engine: EngineParts, task: Task, evaluation_input: EvaluationInput) -> None:
        self.task = task
        self._engine = engine
        self._settings = task.settings
        self.input = evaluation_input
        self.run: Run | None = None
        self._run_span: Span | None = None
        self._outcome: RunOutcome | None = None
        self._later: asyncio.Future[str] | None = None
        self._started_ns = 0  # Unix time
        self._tick = 0  # of `perf_counter_ns` at the same moment: durations are counted from it
        self._stage: Stage = "evaluating"
        # One token. Popping it is atomic: of two threads that try, only one succeeds.
        self._right = [None]
        self.superseded = False
        self._lookups = 0
        self._response: EvaluatedResponse | None = None
        self._emission: Emission | None = None
        self._sampling = NOT_DRAWN

    def take_results(self) -> None:
        """Take results that are there already. There is nothing to evaluate."""
        self._started_ns = time_ns()
        self._tick = perf_counter_ns()
        self._outcome = RunOutcome(list(self.task.select.results), [], ())

    def is_begun(self) -> bool:
        return self.run is not None or self._outcome is not None

    def needs_ground_truth(self) -> bool:
        return (
            self._settings.ground_truth is not None
            and not self.task.select.is_part  # else the first evaluation has looked it up
            and not self.is_begun()
            and self._lookups < _MAX_LOOKUPS
        )

    async def start_with_ground_truth(self) -> str:
        """Evaluate to the end, with the reference answer where the store has one."""
        store = self._settings.ground_truth
        assert store is not None
        self._lookups += 1
        self.input = await with_ground_truth(self.input, store, self._engine.ground_truth_failed)
        later = self.start()
        if later is not None:
            return await later
        if not self._engine.emitters_have_room():
            return await self.finish_later()
        outcome = self.finish()
        if isinstance(outcome, str):
            return outcome
        return await outcome

    def start(self) -> Awaitable[str] | None:
        """Start the evaluators.

        Return None if all of them are done or another thread took over, else an awaitable
        of the task's outcome.
        """
        engine = self._engine
        task = self.task
        if self._outcome is not None:  # results were given, or found by the thread before this one
            return None
        if self.superseded:
            return None
        if self.run is None:
            # The wall clock may step, so it is read once; later times add what the monotonic clock
            # has counted.
            self._started_ns = time_ns()
            self._tick = perf_counter_ns()
            self.run = self._new_run()
        engine.present = self.task
        self._start(self.run)
        engine.present = None
        if self._outcome is not None:
            return None
        # The span does not wait for threads, processes or judges: it ends with the answer.
        engine.end_span(task)
        self._later = asyncio.get_running_loop().create_future()
        return self._later

    def _new_run(self) -> Run:
        engine = self._engine
        task = self.task
        settings = self._settings
        chosen = task.select
        # Load is shed of evaluators that run at once. The others wait for the off-peak window.
        is_shed = engine.shedding.skip_models and chosen.schedule == "immediate"
        skip_models = is_shed and settings.calls_model
        sampling = task.sampling or engine.sampled.of(task, engine.shedding.keep)
        self._sampling = sampling
        is_scheduled = bool(settings.runner.schedules) and not chosen.is_part
        schedule = chosen.schedule if is_scheduled else None
        return Run(
            settings.runner,
            self.input,
            self._take_outcome,
            randomness=task.randomness,
            probability=sampling.probability,
            upstream=sampling.upstream,
            skip_models=skip_models,
            schedule=schedule,
            only=chosen.labels,
        )

    def _start(self, run: Run) -> None:
        emitter = self._settings.emitter
        if emitter is not None:
            try:
                # before any evaluator, which may hang for good: the metrics have to say so
                emitter.prepare()
            except Exception:  # it is tried again with the emission, and counted there
                pass
        with self.task.origin.starting():
            if emitter is not None and run.takes_time and self.task.origin.opens_span:
                self._start_within_span(run, emitter)
            else:
                run.start()

    def _start_within_span(self, run: Run, emitter: Emitter) -> None:
        """Start evaluators that take a while: spans of what they call are below the run span."""
        settings = self._settings
        if self._run_span is None:
            self.ensure_agent_span()
            links = list(self.task.links)
            began = self._started_ns
            self._run_span = emitter.open_run_span(
                self.task.agent, self.task.target, began, links, self._engine.sampled.key
            )
        if settings.calls_model:
            emitter.watch_judges(self.task.target)
        key = self._engine.sampled.key
        context = context_of_evaluation(self._run_span, self.task.target, key)
        token = None if context is None else otel_context.attach(context)
        try:
            run.start()
        finally:
            if token is not None:
                otel_context.detach(token)

    def claim(self) -> bool:
        """Take the right to emit or save.

        Return False if another thread has it or has withdrawn it.
        """
        try:
            self._right.pop()
        except IndexError:
            return False
        return True

    def taken_over(
        self, blamed: Evaluator | None, error: EvaluationError, *, may_begin_again: bool
    ) -> Evaluation | Literal["failed", "stays"]:
        """Return the same evaluation for another thread. Finished results stay, `blamed` has failed.

        Return "stays" while its own thread emits, or if the task is settled. Return "failed" if
        nothing was emitted and `may_begin_again` is false. A look-up of the ground truth is
        repeated once. A save that has begun counts as failed.
        """
        is_withdrawn = self.claim()
        # If another thread has the right, the results are being emitted, or the task is settled.
        if not is_withdrawn and self._stage not in ("saving", "over"):
            return "stays"
        self.superseded = True
        if is_withdrawn and self._stage == "evaluating" and not may_begin_again:
            return "failed"
        other = copy.copy(self)
        other.run = None
        other._later = None
        other.superseded = False
        other._right = [None]
        if self._lookups >= _MAX_LOOKUPS and not self.is_begun():
            self._engine.ground_truth_failed(error)
        if other._stage == "saving":
            other._end_unsaved(error)
        if self.run is not None and self._outcome is None:
            other.run = self.run.taken_over(blamed, error, other._take_outcome)
        return other

    def settle(self, outcome: str) -> str:
        """Let nothing more be emitted, and return the outcome that matches what was emitted.

        Any thread. A result that another thread is emitting at this moment is not known to arrive:
        the task keeps the given outcome.
        """
        if self._stage == "over":
            return outcome
        self.claim()
        if self._stage in ("evaluating", "emitting"):
            return outcome
        if self._stage == "sent" and self._outcome is not None:
            self._count_results(self._outcome)
        self._end_unsaved(EvaluationError("its thread ended before", error_type="cancelled"))
        return EVALUATED

    def _end_unsaved(self, error: EvaluationError) -> None:
        self._stage = "over"
        if self._settings.storage is not None:
            self._settings.storage.interrupted(error)

    def _take_outcome(self, outcome: RunOutcome) -> None:
        """Take what the run gave, and finish if the evaluators ended after `start`."""
        completed = self.task.origin.completed(outcome)
        emitted = outcome if completed is None else completed
        results = with_least_probability(
            emitted.results, self._sampling.least, self._settings.baseline_rate
        )
        self._outcome = emitted._replace(results=results)
        if completed is None:  # there is nothing to emit
            self._stage = "over"
            if self._later is not None:
                self._later.set_result(EVALUATED)
        elif self._later is not None:
            if self._engine.emitters_have_room():
                self.finish()
            else:
                self._engine.wait_for_room(self.finish)

    @property
    def items(self) -> int:
        """Return about how many spans and events `finish` emits: two, and one for each result."""
        results = 0 if self._outcome is None else len(self._outcome.results)
        return 2 + results

    def finish_later(self) -> Awaitable[str]:
        """Finish once the host's processors have room. Return an awaitable of the task's outcome."""
        self._later = asyncio.get_running_loop().create_future()
        self._engine.wait_for_room(self.finish)
        return self._later

    def prepare_response(self) -> None:
        """Redact what `finish` will emit."""
        self._prepare(self._respond)

    def prepare_emission(self) -> None:
        """Build what `finish` will emit, if only our own providers receive it.

        Then it can be sent with others.
        """
        emitter = self._settings.emitter
        if emitter is not None and self.task.span is None and emitter.providers.are_ours():
            self._prepare(self._make_emission)

    def _prepare(self, step: Callable[[RunOutcome], object]) -> None:
        """Run a step of `finish` in advance. If it raises here, `finish` runs it again."""
        if self._stage == "evaluating" and self._outcome is not None and not self.superseded:
            self._engine.finishing = self.task
            try:
                step(self._outcome)
            except Exception:  # it raises in `finish` again, and is counted there
                pass
            finally:
                self._engine.finishing = None

    def take_emission(self) -> Emission | None:
        """Return what `prepare_emission` made, or None if `finish` emits.

        The caller emits it at once and then calls `note_sent`.
        """
        if self._emission is None or self._stage != "evaluating" or not self.claim():
            return None
        self._stage = "emitting"
        return self._emission

    def note_sent(self) -> None:
        """Note that the emission was sent: `finish` does the rest, on this or another thread."""
        self._stage = "sent"
        self._right.append(None)

    def finish(self) -> str | Awaitable[str]:
        """Emit, count and store.

        Return the task's outcome if it is known at once, else an awaitable of it.
        """
        if self._stage == "over":
            return EVALUATED
        if self.superseded or self._outcome is None:  # another thread goes on
            return PIPELINE_FAILED
        later = self._later
        storage = self._settings.storage
        response = self._emit_once(self._outcome)
        if isinstance(response, str):
            return response
        if storage is None:
            self._stage = "over"
            if later is not None and not later.done():
                later.set_result(EVALUATED)
            return EVALUATED
        saving = self._save(storage, response)
        if later is None:
            return saving

        def note_saved(_: asyncio.Future[str]) -> None:
            if not later.done():
                later.set_result(EVALUATED)

        task = asyncio.get_running_loop().create_task(saving)
        task.add_done_callback(note_saved)
        return later

    def _emit_once(self, outcome: RunOutcome) -> EvaluatedResponse | str:
        """Emit the response if that is not done yet, and return it.

        Return the task's outcome, a text, if another thread goes on or something failed.
        """
        engine = self._engine
        later = self._later
        engine.finishing = self.task
        try:
            # All that redactors may hold up comes before the right to emit is taken.
            response = self._respond(outcome)
            if self._emission is None and self._stage == "evaluating":
                self._make_emission_or_count(outcome)
            if self._stage == "emitted":
                return response
            if not self.claim():  # another thread goes on, or the task is settled
                return PIPELINE_FAILED
            self._emit(outcome, response)
            return response
        except Exception as error:
            engine.broken("pipeline", error)
            engine.end_span(self.task)
            if later is not None and not later.done():
                later.set_result(PIPELINE_FAILED)
            return PIPELINE_FAILED
        finally:
            engine.finishing = None

    async def _save(self, storage: FanOutStorage, response: EvaluatedResponse) -> str:
        if not self.claim():  # another thread saves it
            return EVALUATED
        self._stage = "saving"
        try:
            # What providers raise is counted there.
            await storage.save_result(response.aggregated())
        except Exception as error:
            storage.interrupted(error)
        self._stage = "over"
        return EVALUATED

    def _respond(self, outcome: RunOutcome) -> EvaluatedResponse:
        """Return the response that is emitted.

        It is built once, of the results as capabilities change them, and redacted.
        """
        if self._response is not None:
            return self._response
        engine = self._engine
        task = self.task
        settings = self._settings
        self.ensure_agent_span()
        results = engine.capabilities.on_results(settings, outcome.results)
        if results is not outcome.results:
            outcome = outcome._replace(results=results)
            self._outcome = outcome
        elapsed_ns = perf_counter_ns() - self._tick
        response = EvaluatedResponse(
            self.input,
            outcome,
            settings,
            engine.redaction,
            engine.broken,
            evaluated=task.target,
            call_id=task.call_id,
            started_ns=self._started_ns,
            ended_ns=self._started_ns + elapsed_ns,
            response_ended_ns=task.answered_ns or task.ended_ns or None,
            due_ns=task.ended_ns or None,
            late=task.late,
            sampled=self._sampling,
            conversation=task.conversation,
        )
        self._response = response
        for result in response.results:
            if result.error_type is not None:
                self._log_failure(result)
        return response

    def _log_failure(self, result: EvaluationResult) -> None:
        """Log why an evaluator gave no score.

        If a judge's reply cannot be read, its beginning is logged at debug level, and only if
        content is captured. What other evaluators raise may quote the answer: it is in no line.
        """
        part = result.criterion_name
        error_type = result.error_type
        error = result.error or ""
        problem = off_scale_in(error) if error_type == "invalid_score" else None
        if problem is None:
            log.warning("evaluation_failed", part=part, error_type=error_type)
        else:
            log.warning("evaluation_failed", part=part, error_type=error_type, problem=problem)
        is_of_judge = result.calls_model and error_type in _REPLIES
        if is_of_judge and self._settings.content and log.shows_debug:
            shown = self._engine.redaction.text(error)
            log.debug("evaluation_error", part=part, error_type=error_type, error=shown)

    def _emit(self, outcome: RunOutcome, response: EvaluatedResponse) -> None:
        """Emit the results and pass them to all that watches them.

        The caller has claimed the right to do so. It is given back here, for the save. Raises
        nothing: what was emitted is evaluated, whatever breaks behind it.
        """
        engine = self._engine
        task = self.task
        is_sent = self._stage == "sent"
        self._stage = "emitting"
        for part, error in outcome.broken:
            engine.broken(part, error)
        if not is_sent:
            _TELEMETRY.begin()
            try:
                self._emit_response()
            finally:
                _TELEMETRY.end()
        # Results are those of the responses that are counted as evaluated, and of no others.
        is_counted = not task.has_ended and not task.select.results
        if is_counted:
            self._count_results(outcome)
        evaluated = Evaluated(task, self.input, outcome, response, self._sampling, is_counted)
        engine.capabilities.on_response(evaluated)
        self._stage = "emitted"
        self._right.append(None)

    def _count_results(self, outcome: RunOutcome) -> None:
        results = self._engine.accounting.results
        for result in outcome.results:
            results[result.status] += 1

    def _make_emission(self, outcome: RunOutcome) -> None:
        """Build what is emitted. Blocks while redactors run."""
        emitter = self._settings.emitter
        response = self._respond(outcome)
        if emitter is None or (self._settings.runner.schedules and not response.results):
            return  # without results all evaluators of its kind wait
        self._emission = emitter.emission(
            response,
            self.task.target,
            score_attributes(response.results),
            self._run_span,
            self._engine.redaction.text,
        )

    def _make_emission_or_count(self, outcome: RunOutcome) -> None:
        try:
            self._make_emission(outcome)
        except Exception as error:  # the results are stored and watched
            self._engine.broken("telemetry", error)

    def _emit_response(self) -> None:
        engine = self._engine
        emitter = self._settings.emitter
        emission = self._emission
        is_on_agent_span = engine.end_span(self.task, self._of_agent_span())
        if emitter is None or emission is None:
            return
        try:
            noted = emission._replace(on_agent_span=is_on_agent_span)
            emitter.send([noted], spans=emitter.providers.has_room_for_spans())
        except Exception as error:
            # A provider of the host's raises: the results are stored and watched.
            engine.broken("telemetry", error)

    def _of_agent_span(self) -> Mapping[str, Any] | None:
        """Return the attributes that the task's own agent span takes of the results.

        Return None if that span is closed, or if the results need a run span, as those of a
        handler that raised.
        """
        task = self.task
        emitter = self._settings.emitter
        if (
            task.span is None
            or task.error_type is not None
            or self._emission is None
            or emitter is None
        ):
            return None
        try:
            return emitter.of_agent_span(self._emission)
        except Exception as error:
            self._engine.broken("telemetry", error)
            return None

    def ensure_agent_span(self) -> None:
        """Start the agent span afterwards, if no tracer was there when the call began.

        Late results and whole conversations get no agent span.
        """
        task = self.task
        settings = self._settings
        if (
            not task.is_fresh
            or task.subject != "answer"
            or task.target is not None
            or settings.agent_span == "never"
            or settings.emitter is None
        ):
            return
        try:
            tracer = settings.emitter.tracer()
            if tracer is not None:
                task.span = open_agent_span(tracer, task.agent, started_ns=task.started_ns)
                task.target = task.span.get_span_context()
                task.pid = os.getpid()
                task.span_attributes = settings.evaluated_attributes
        except Exception as error:
            self._engine.broken("telemetry", error)

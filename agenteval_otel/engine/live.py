"""The engine, on the background thread: captured calls in; inputs, results, telemetry and stored results out."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter_ns, time_ns
from typing import Any, Literal

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span

from agenteval_otel.capture.annotations import hashed
from agenteval_otel.capture.build import build_input
from agenteval_otel.capture.calls import CURRENT, EVALUATING, CapturedCall
from agenteval_otel.components.blocking import UserPart, part_of
from agenteval_otel.engine.handler import HandlerSettings
from agenteval_otel.engine.response import EvaluatedResponse, outgoing_words
from agenteval_otel.engine.run import Run, RunOutcome
from agenteval_otel.errors import CaptureError, ConfigurationError, EvaluationError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.ground_truth.base import with_ground_truth
from agenteval_otel.models import EvaluationInput
from agenteval_otel.models.value import copy_with
from agenteval_otel.objectives import Objectives
from agenteval_otel.redaction.outgoing import Redaction
from agenteval_otel.runtime.log import log
from agenteval_otel.sampling import SamplingContext
from agenteval_otel.sampling.trace import CallsPerTrace, SamplingSettings, Upstream, upstream_of
from agenteval_otel.scoring.probability import probability_of
from agenteval_otel.semconv import CAPTURE_FAILED, EVALUATED, OUTCOMES, PIPELINE_FAILED, SCOPE_RECEIVED
from agenteval_otel.telemetry import Accounting
from agenteval_otel.telemetry.emitter import Emitter, score_attributes
from agenteval_otel.telemetry.spans import end_agent_span, open_agent_span

_LOOK_AGAIN_S = 0.002
_LOOK_EVERY_ITEMS = 16
"""So many spans or events of a list are emitted between two looks at the host's queues, which may be small."""
_MAX_LOOKUPS = 2
_TELEMETRY = UserPart("telemetry")  # the host's processors run there: named, and never quarantined


Done = Callable[[Any, "str | Awaitable[str]"], None]
"""Takes a call with its outcome, or with what gives it later."""


class SamplingRecord:
    """How the answers of one pipeline were sampled: with what probability, among which answers."""

    def __init__(self, settings: SamplingSettings) -> None:
        self.settings = settings
        self.calls = CallsPerTrace()

    def of(self, call: CapturedCall) -> tuple[float | None, Upstream, dict[str, Any]]:
        """The probability among the responses of this process, what came before it, and the facts of the result."""
        decision, by_trace = call.decision, self.settings.unit == "trace"
        probability = probability_of(decision) if decision else None
        # A decision with randomness of its own (a conversation's) is independent of what the trace's decided.
        nests = by_trace and (decision is None or decision.randomness is None)
        upstream = upstream_of(call.span_context, self.settings, call.upstream, by_trace=nests)
        received = probability is not None and upstream.probability is None
        return probability, upstream, {
            "sampling_probability": upstream.applied(probability),
            "sampling_reason": decision.reason if decision else None,
            "sampling_scope": SCOPE_RECEIVED if received else None,
            "sampling_clustered": nests and self._is_clustered(call),
        }  # fmt: skip

    def _is_clustered(self, call: CapturedCall) -> bool:
        if call.span_context is not None and self.calls.add(call.agent, call.span_context.trace_id):
            log.warning(
                "handler_repeats_in_trace", part=call.agent,
                why="all calls of a trace are sampled together, so intervals are too narrow: set sampling.unit: call",
            )  # fmt: skip
        return call.agent in self.calls.repeating


class Engine:
    """Evaluates captured calls, inside of the background thread's event loop; `broken` counts and logs what breaks."""

    def __init__(
        self,
        *,
        accounting: Accounting,
        redaction: Redaction,
        objectives: Objectives,
        shedding: Any,
        sampled: SamplingRecord,
        broken: Callable[[str, BaseException], None],
        user_id: Callable[[str], str] = hashed,
    ) -> None:
        self.user_id = user_id
        self.accounting, self.redaction, self.objectives = accounting, redaction, objectives
        self.shedding, self.sampled, self.broken = shedding, sampled, broken
        self.emitters: set[Emitter] = set()
        self._waiting: deque[_Evaluation] = deque()
        self._present: _Evaluation | None = None
        self._finishing: _Evaluation | None = None
        self._reading: CapturedCall | None = None

    def __repr__(self) -> str:
        return f"<Engine waiting_for_room={len(self._waiting)}>"

    def process(self, calls: Sequence[CapturedCall], done: Done, pause: Callable[[], None]) -> None:
        """Evaluate a list of calls: build every input, then run the evaluators, then emit: a quarter faster than all
        steps for each. `done` takes each call once. `pause` is called between two steps, and may raise to end the work.
        """
        CURRENT.set(EVALUATING)
        begun: list[_Evaluation] = []
        for call in calls:
            outcome = self._prepared(call)
            if isinstance(outcome, _Evaluation):
                begun.append(outcome)
            else:
                done(call, outcome)
            pause()
        over: list[_Evaluation] = []
        for evaluation in begun:
            try:
                later: Awaitable[str] | str | None = evaluation.start()
            except Exception as error:
                self.broken("pipeline", error)
                self.end_span(evaluation.call)
                later = PIPELINE_FAILED
            if later is None:
                over.append(evaluation)
            else:
                done(evaluation.call, later)
            pause()
        room, items = True, 0
        for evaluation in over:
            if room and items >= _LOOK_EVERY_ITEMS:
                room, items = self._emitters_have_room(), 0
            items += evaluation.items
            done(evaluation.call, evaluation.finish() if room else evaluation.finish_later())
            pause()

    def _prepared(self, call: CapturedCall) -> _Evaluation | str | Awaitable[str]:
        """The evaluation of a call; its outcome where it goes no further."""
        settings: HandlerSettings = call.settings
        evaluation: _Evaluation | None = call.evaluation
        self._present, part = None, "capture"
        try:
            if evaluation is None:  # else another thread had begun it, and was held up
                evaluation = call.evaluation = _Evaluation(self, call, settings, self._input_of(call, settings))
            part = "pipeline"
            if call.decision is not None and not call.decision.settled and not evaluation.is_begun():
                outcome = self._decide(evaluation.input, call, settings)
                if outcome is not None:
                    self.end_span(call)
                    return outcome
            return evaluation.start_with_ground_truth() if evaluation.needs_ground_truth() else evaluation
        except Exception as error:
            self.broken(part, error)
            self.end_span(call)
            return CAPTURE_FAILED if part == "capture" else PIPELINE_FAILED

    def has_room(self) -> bool:
        """Whether the host's span and log processors take the next answer; emits what waited for that first."""
        while self._waiting:
            if not self._emitters_have_room():
                return False
            self._waiting.popleft().finish()
        return self._emitters_have_room()

    def culprit(self) -> Evaluator | None:
        """The evaluator that runs inline at this moment; from another thread, which cannot know for sure."""
        run = None if self._present is None else self._present._run
        return None if run is None else run.present()

    def take_over(self, call: CapturedCall, blamed: Evaluator | None, held_s: float) -> bool:
        """Have the next thread go on with a call of a thread that is held up; False where it cannot."""
        evaluation: _Evaluation | None = call.evaluation
        if call is self._reading or (blamed is None and evaluation is not None and evaluation is self._present):
            return False  # in `capture=`, in a sampler or in a redactor: what holds the thread would hold the next one
        if evaluation is None:
            return True  # not begun
        error = EvaluationError(f"it held the background thread for {held_s:.1f} s", error_type="blocked")
        with contextlib.suppress(ValueError):  # it may wait for room in the host's processors
            self._waiting.remove(evaluation)
        call.evaluation = evaluation.taken_over(blamed, error)
        return call.evaluation is not None

    def end_span(self, call: CapturedCall, scores: Any = None) -> None:
        """End the call's own span, if it still is this process's to end; raises nothing."""
        span, call.span = call.span, None
        if span is None or call.pid != os.getpid():
            return
        try:
            emitter = call.settings.emitter
            if emitter is not None and span.is_recording() and emitter.providers.is_gone("TRACES"):
                return  # counted as lost: its processors would drop it, each with a line of the SDK's
            attributes = {**call.span_attributes, **scores} if scores else call.span_attributes
            end_agent_span(span, ended_ns=call.ended_ns, error_type=call.error_type, attributes=attributes)
        except Exception as error:
            self.broken("agent_span", error)

    def _emitters_have_room(self) -> bool:
        return all([emitter.providers.has_room() for emitter in self.emitters])

    def _wait_for_room(self, evaluation: _Evaluation) -> None:
        self._waiting.append(evaluation)
        if len(self._waiting) == 1:
            self._look_again()

    def _look_again(self) -> None:
        if not self.has_room() and self._waiting:
            asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, self._look_again)

    def _input_of(self, call: CapturedCall, settings: HandlerSettings) -> EvaluationInput:
        self._reading = call
        try:
            evaluation_input = call.input or build_input(
                call,
                on_bad_fact=self._bad_fact,
                capture=settings.capture,
                function=settings.function,
                user_id=self.user_id,
            )
        finally:
            self._reading = None
        if call.left_out:
            self.broken("capture", CaptureError(f"{call.left_out} parts cannot be read: capture= reads them"))
        call.release()
        return copy_with(evaluation_input, {"criteria": settings.criteria}) if settings.criteria else evaluation_input

    def _decide(self, evaluation_input: EvaluationInput, call: CapturedCall, settings: HandlerSettings) -> str | None:
        self._reading = call
        try:
            context = SamplingContext(call.agent, call.randomness, call.answer_facts, evaluation_input, call.memo)
            with part_of("sampler", settings.sampler):
                decision = settings.sampler.decide(context)
            if decision.sampled and decision.applies:
                decision = self.shedding.thin(decision, call.randomness)
            call.decision = decision
            call.randomness = call.randomness if decision.randomness is None else decision.randomness
            if decision.sampled and decision.applies:
                return None
            return OUTCOMES[OUTCOMES.index(decision.outcome)]  # an unknown outcome could not be counted
        except Exception as error:
            self.broken("sampler", error)
            return PIPELINE_FAILED
        finally:
            self._reading = None

    def _bad_fact(self, name: str, why: str = "") -> None:
        # A name may come from data: only identifiers are logged.
        shown = self.redaction.text(name) if type(name) is str and len(name) <= 48 and name.isidentifier() else "other"
        self.accounting.fail(f"annotate:{shown}" if len(self.accounting.failures) < 64 else "annotate")
        log.warning("fact_left_out", part=shown, **({"why": why} if why else {}))

    def _ground_truth_failed(self, error: BaseException) -> None:
        self.accounting.fail("ground_truth")
        # An error about a file names its line and no content; other errors may quote the conversation.
        problem = {"problem": str(error)} if isinstance(error, ConfigurationError) else {}
        log.warning("part_failed", part="ground_truth", error_type=type(error).__name__, **problem)


class _Evaluation:
    def __init__(
        self, engine: Engine, call: CapturedCall, settings: HandlerSettings, evaluation_input: EvaluationInput
    ) -> None:
        self.call = call
        self._engine, self._settings, self.input = engine, settings, evaluation_input
        self._run: Run | None = None
        self._run_span: Span | None = None
        self._outcome: RunOutcome | None = None
        self._later: asyncio.Future[str] | None = None
        self._started_ns = self._tick = 0
        self._stage: Literal["evaluating", "emitting", "emitted", "saving", "over"] = "evaluating"
        self._superseded = False
        self._lookups = 0
        self._response: EvaluatedResponse | None = None
        self._sampled: dict[str, Any] = {}
        self._least: float | None = None

    def is_begun(self) -> bool:
        return self._run is not None or self._outcome is not None

    def needs_ground_truth(self) -> bool:
        return self._settings.ground_truth is not None and not self.is_begun() and self._lookups < _MAX_LOOKUPS

    async def start_with_ground_truth(self) -> str:
        """Evaluate to the end, with the reference answer where the store has one."""
        store = self._settings.ground_truth
        assert store is not None
        self._lookups += 1
        self.input = await with_ground_truth(self.input, store, self._engine._ground_truth_failed)
        later = self.start()
        if later is not None:
            return await later
        outcome = self.finish() if self._engine._emitters_have_room() else self.finish_later()
        return outcome if isinstance(outcome, str) else await outcome

    def start(self) -> Awaitable[str] | None:
        """Start the evaluators; None where all of them are done, else what gives the call's outcome."""
        engine, call, settings = self._engine, self.call, self._settings
        if self._outcome is not None or self._superseded:  # known before another thread took over, or taken over
            return None
        if self._run is None:
            # One look at the wall clock, which may step: every later time is that plus what the other clock counted.
            self._started_ns, self._tick = time_ns(), perf_counter_ns()
            probability, upstream, self._sampled = engine.sampled.of(call)
            least = self._settings.least_probability
            self._least = None if least is None else upstream.applied(least * (engine.shedding.keep or 1.0))
            self._run = Run(
                settings.runner, self.input, self._over, call.randomness, probability, upstream,
                engine.shedding.skip_models and settings.calls_model,
            )  # fmt: skip
        engine._present = self
        self._start(self._run)
        engine._present = None
        if self._outcome is not None:
            return None
        # It waits for no thread, no process and no judge: the span has ended when the answer was there.
        ready = (
            [outgoing_words(result, engine.redaction) for result in self._run.ready()] if call.span is not None else []
        )
        engine.end_span(call, score_attributes(ready))
        self._later = asyncio.get_running_loop().create_future()
        return self._later

    def _start(self, run: Run) -> None:
        settings, emitter = self._settings, self._settings.emitter
        if emitter is not None:
            with contextlib.suppress(Exception):  # it is tried again with the emission, and counted there
                emitter.prepare()  # before any evaluator, which may hang for good: the metrics have to say so
        if emitter is None or not (settings.calls_model or settings.runner.leaves_thread):
            run.start()
            return
        if self._run_span is None:
            self._ensure_agent_span()
            self._run_span = emitter.open_run_span(self.call.agent, self.call.span_context, self._started_ns)
        if settings.calls_model:
            emitter.watch_judges(self.call.span_context)
        token = otel_context.attach(trace.set_span_in_context(self._run_span)) if self._run_span is not None else None
        try:
            run.start()
        finally:
            if token is not None:
                otel_context.detach(token)

    def taken_over(self, blamed: Evaluator | None, error: EvaluationError) -> _Evaluation | None:
        """The same evaluation for another thread; None if parts of it may have been emitted. Finished results stay,
        `blamed` has failed. A look-up of the ground truth is repeated once; a save that has not ended counts as failed.
        """
        is_finishing = self._engine._finishing is self
        if self._stage == "emitting" or (is_finishing and self._stage == "evaluating"):
            return None
        self._superseded = True
        other = copy.copy(self)
        other._run, other._later, other._superseded = None, None, False
        if self._settings.ground_truth is not None and not self.is_begun() and not other.needs_ground_truth():
            self._engine._ground_truth_failed(error)
        if self._stage == "saving" or (is_finishing and self._stage == "emitted"):
            other._stage = "over"
            if self._settings.storage is not None:
                self._settings.storage.interrupted(error)
        if self._run is not None and self._outcome is None:
            other._run = self._run.taken_over(blamed, error, other._over)
        return other

    def _over(self, outcome: RunOutcome) -> None:
        self._outcome = outcome
        if self._later is not None:
            if self._engine._emitters_have_room():
                self.finish()
            else:
                self._engine._wait_for_room(self)

    @property
    def items(self) -> int:
        return 2 + (0 if self._outcome is None else len(self._outcome.results))

    def finish_later(self) -> Awaitable[str]:
        self._later = asyncio.get_running_loop().create_future()
        self._engine._wait_for_room(self)
        return self._later

    def finish(self) -> str | Awaitable[str]:
        """Emit, count and store; the call's outcome where that is known at once."""
        if self._stage == "over":
            return EVALUATED
        if self._superseded or self._outcome is None:  # this thread was held up, and another one goes on
            return PIPELINE_FAILED
        later, settings, engine = self._later, self._settings, self._engine
        engine._finishing = self
        try:
            response = self._response = self._response or self._emit(self._outcome)
            if response is None:
                return PIPELINE_FAILED
            if settings.storage is None:
                if later is not None and not later.done():
                    later.set_result(EVALUATED)
                return EVALUATED
            saving = settings.storage.save_result(response.aggregated())
        except Exception as error:
            engine.broken("pipeline", error)
            engine.end_span(self.call)
            if later is not None and not later.done():
                later.set_result(PIPELINE_FAILED)
            return PIPELINE_FAILED
        finally:
            engine._finishing = None
        if later is None:
            return self._saved(saving)
        task = asyncio.get_running_loop().create_task(self._saved(saving))
        task.add_done_callback(lambda _: None if later.done() else later.set_result(EVALUATED))
        return later

    async def _saved(self, saving: Awaitable[Any]) -> str:
        self._stage = "saving"
        await saving  # what providers raise is counted there
        self._stage = "over"
        return EVALUATED

    def _emit(self, outcome: RunOutcome) -> EvaluatedResponse | None:
        engine, call, settings = self._engine, self.call, self._settings
        for part, error in outcome.broken:
            engine.broken(part, error)
        self._ensure_agent_span()
        response = EvaluatedResponse(
            self.input, outcome, settings, engine.redaction, engine.broken, evaluated=call.span_context,
            started_ns=self._started_ns, ended_ns=self._started_ns + perf_counter_ns() - self._tick,
            response_ended_ns=call.ended_ns, sampled=self._sampled,
        )  # fmt: skip
        if self._superseded:  # this thread was held up in a redactor, and another one goes on
            return None
        for result in response.results if outcome.errors else ():
            if result.error_type is not None:
                log.warning("evaluation_failed", part=result.criterion_name, error_type=result.error_type)
        self._stage = "emitting"
        _TELEMETRY.begin()
        try:
            self._emit_response(response)
        finally:
            _TELEMETRY.end()
        self._stage = "emitted"
        # Results are those of the responses that are counted as evaluated, and of no others.
        if not call.settled:
            if settings.objectives:
                engine.objectives.observe(
                    response, settings.objectives, settings.emitter, baseline_rate=settings.baseline_rate,
                    least_probability=self._least,
                )  # fmt: skip
            results = engine.accounting.results
            for result in outcome.results:
                results[result.status] += 1
        return response

    def _emit_response(self, response: EvaluatedResponse) -> None:
        engine, call, settings = self._engine, self.call, self._settings
        if call.span is None and settings.emitter is None:
            return
        scores = score_attributes(response.results)
        engine.end_span(call, scores)
        if settings.emitter is not None:
            try:
                settings.emitter.emit(
                    response, evaluated=call.span_context, scores=scores, run_span=self._run_span,
                    redact=engine.redaction.text, spans=settings.emitter.providers.has_room_for_spans(),
                )  # fmt: skip
            except Exception as error:  # a provider of the host's raises: the results are stored and watched
                engine.broken("telemetry", error)

    def _ensure_agent_span(self) -> None:
        """Start the agent span afterwards, where no tracer was there when the call began."""
        call, settings = self.call, self._settings
        if call.span_context is not None or settings.agent_span == "never" or settings.emitter is None:
            return
        try:
            tracer = settings.emitter.tracer()
            if tracer is not None:
                call.span = open_agent_span(tracer, call.agent, started_ns=call.started_ns)
                call.span_context, call.pid = call.span.get_span_context(), os.getpid()
                call.span_attributes = settings.evaluated_attributes
        except Exception as error:
            self._engine.broken("telemetry", error)

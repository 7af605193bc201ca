"""The engine, on the background thread: captured calls in; inputs, results, telemetry and stored
results out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from agenteval_otel.capture.annotations import hashed
from agenteval_otel.capture.build import build_input
from agenteval_otel.capture.calls import CURRENT, EVALUATING, CapturedCall, new_call_id
from agenteval_otel.capture.reasons import CaptureError
from agenteval_otel.capture.redaction.outgoing import Redaction
from agenteval_otel.components.blocking import part_of
from agenteval_otel.engine.capability import Capabilities
from agenteval_otel.engine.conversations import Conversations
from agenteval_otel.engine.evaluation import Evaluation
from agenteval_otel.engine.handler import HandlerSettings
from agenteval_otel.engine.response import SamplingRecord
from agenteval_otel.errors import ConfigurationError, EvaluationError, GroundTruthError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.models import EvaluationInput
from agenteval_otel.models.value import copy_with
from agenteval_otel.runtime.log import log
from agenteval_otel.sampling import SamplingContext
from agenteval_otel.semconv import CAPTURE_FAILED, EVALUATED, OUTCOMES, PIPELINE_FAILED
from agenteval_otel.telemetry import Accounting
from agenteval_otel.telemetry.emitter import Emission, Emitter
from agenteval_otel.telemetry.spans import end_agent_span

_LOOK_AGAIN_S = 0.002
_LOOK_EVERY_ITEMS = 16
"""So many spans or events of a list are emitted between two looks at the host's queues, which may
be small.
"""

Done = Callable[[Any, "str | Awaitable[str]"], None]
"""Takes a call with its outcome, or with what gives it later."""
Taken = Literal["next", "stays", "failed"]
"""Who goes on with a call of a thread that is held up: the next thread, its own once it comes back,
or none: it has failed.
"""


class Engine:
    """Evaluates captured calls, inside of the background thread's event loop; `broken` counts and
    logs what breaks.
    """

    def __init__(
        self,
        *,
        accounting: Accounting,
        redaction: Redaction,
        shedding: Any,
        sampled: SamplingRecord,
        broken: Callable[[str, BaseException], None],
        conversations: Conversations,
        capabilities: Capabilities,
        user_id: Callable[[str], str] = hashed,
    ) -> None:
        self.user_id = user_id
        self.conversations = conversations
        self.capabilities = capabilities
        self.accounting = accounting
        self.redaction = redaction
        self.shedding = shedding
        self.sampled = sampled
        self.broken = broken
        self.emitters: set[Emitter] = set()
        self._waiting: deque[Evaluation] = deque()
        self.present: Evaluation | None = None
        self.finishing: Evaluation | None = None
        self._reading: CapturedCall | None = None

    def __repr__(self) -> str:
        return f"<Engine waiting_for_room={len(self._waiting)}>"

    def process(self, calls: Sequence[CapturedCall], done: Done, pause: Callable[[], None]) -> None:
        """Evaluate a list of calls: build every input, then run the evaluators, redact, then emit.
        This takes a third less time than all steps for each. `done` takes each call once. `pause`
        is called between two steps, and may raise to end the work.
        """
        CURRENT.set(EVALUATING)
        begun: list[Evaluation] = []
        for call in calls:
            if call.call_id is None and not call.recorded:
                call.call_id = new_call_id()
            outcome = self._prepared(call)
            if isinstance(outcome, Evaluation):
                begun.append(outcome)
            else:
                done(call, outcome)
            pause()
        self._evaluate(begun, done, pause)

    def _evaluate(self, begun: list[Evaluation], done: Done, pause: Callable[[], None]) -> None:
        over: list[Evaluation] = []
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
        for evaluation in over:
            evaluation.prepare_response()
            pause()
        self._send_together(over)
        room = True
        items = 0
        for evaluation in over:
            if room and items >= _LOOK_EVERY_ITEMS:
                room = self.emitters_have_room()
                items = 0
            items += evaluation.items
            done(evaluation.call, evaluation.finish() if room else evaluation.finish_later())
            pause()
        self.conversations.submit_closed()

    def _send_together(self, over: Sequence[Evaluation]) -> None:
        """Emit responses signal by signal, where nothing can block: takes a third less time than
        one by one.
        """
        for evaluation in over:
            evaluation.prepare_emission()
        together: dict[Emitter, list[Emission]] = {}
        taken: list[Evaluation] = []
        for evaluation in over:
            if (emission := evaluation.take_emission()) is not None:
                together.setdefault(evaluation.call.settings.emitter, []).append(emission)
                taken.append(evaluation)
        for emitter, emissions in together.items():
            try:
                emitter.send(emissions)
            except Exception as error:
                self.broken("telemetry", error)
        for evaluation in taken:
            evaluation.note_sent()

    def _prepared(self, call: CapturedCall) -> Evaluation | str | Awaitable[str]:
        """Return the evaluation of a call. If the call goes no further, return its outcome or an
        awaitable of it.
        """
        settings: HandlerSettings = call.settings
        evaluation: Evaluation | None = call.evaluation
        self.present = None
        part = "capture"
        if call.recorded or call.late is not None:
            if evaluation is None:
                evaluation = call.evaluation = Evaluation(
                    self, call, settings, call.input or EvaluationInput()
                )
                if call.recorded:
                    evaluation.take_recorded(call.recorded)
            return evaluation
        try:
            if evaluation is None:  # else another thread had begun it, and was held up
                evaluation = call.evaluation = Evaluation(
                    self, call, settings, self._input_of(call, settings)
                )
            part = "pipeline"
            if (
                call.decision is not None
                and not call.decision.settled
                and not evaluation.is_begun()
            ):
                outcome = self._decide(evaluation.input, call, settings)
                if outcome is not None:
                    self.end_span(call)
                    return outcome
            runner = settings.runner
            if runner.of_conversations and call.turns is None and call.waited is None:
                evaluation.join()
                if not runner.of_answers:
                    self.end_span(call)
                    return EVALUATED
            return (
                evaluation.start_with_ground_truth()
                if evaluation.needs_ground_truth()
                else evaluation
            )
        except Exception as error:
            self.broken(part, error)
            self.end_span(call)
            return CAPTURE_FAILED if part == "capture" else PIPELINE_FAILED

    def has_room(self) -> bool:
        """Tell whether the host's span and log processors take the next answer. What waited for
        that is emitted first.
        """
        while self._waiting:
            if not self.emitters_have_room():
                return False
            self._waiting.popleft().finish()
        return self.emitters_have_room()

    def culprit(self) -> Evaluator | None:
        """Return the evaluator that runs inline at this moment. Another thread asks, which cannot
        know for sure.
        """
        run = None if self.present is None else self.present.run
        return None if run is None else run.present()

    def take_over(self, call: CapturedCall, blamed: Evaluator | None, held_s: float) -> Taken:
        """Say who goes on with a call of a thread that is held up."""
        evaluation: Evaluation | None = call.evaluation
        if evaluation is None:
            # In `capture=` it would block the next thread too. Otherwise it has not begun.
            return "failed" if call is self._reading else "next"
        error = EvaluationError(
            f"it held the background thread for {held_s:.1f} s", error_type="blocked"
        )
        # In a sampler, a redactor, or what could not be named: the same.
        is_held_here = (
            call is self._reading
            or evaluation is self.finishing
            or (blamed is None and evaluation is self.present)
        )
        with contextlib.suppress(ValueError):  # it may wait for room in the host's processors
            self._waiting.remove(evaluation)
        taken = evaluation.taken_over(blamed, error, may_begin_again=not is_held_here)
        if isinstance(taken, str):
            return taken
        call.evaluation = taken
        return "next"

    def end_span(self, call: CapturedCall, scores: Any = None) -> None:
        """End the call's own span, if it still is this process's to end. Raises nothing."""
        span = call.take_span()
        if span is None or call.pid != os.getpid():
            return
        try:
            emitter = call.settings.emitter
            if emitter is not None and span.is_recording() and emitter.providers.is_gone("TRACES"):
                # counted as lost: its processors would drop it, each with a line of the SDK's
                return
            attributes = {**call.span_attributes, **scores} if scores else call.span_attributes
            end_agent_span(
                span, ended_ns=call.ended_ns, error_type=call.error_type, attributes=attributes
            )
        except Exception as error:
            self.broken("agent_span", error)

    def emitters_have_room(self) -> bool:
        return all([emitter.providers.has_room() for emitter in self.emitters])

    def wait_for_room(self, evaluation: Evaluation) -> None:
        self._waiting.append(evaluation)
        if len(self._waiting) == 1:
            self._look_again()

    def _look_again(self) -> None:
        if not self.has_room() and self._waiting:
            asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, self._look_again)

    def _input_of(self, call: CapturedCall, settings: HandlerSettings) -> EvaluationInput:
        self._reading = call
        try:
            evaluation_input = call.input if call.turns is None else call.turns.input()
            evaluation_input = evaluation_input or build_input(
                call,
                on_bad_fact=self._bad_fact,
                capture=settings.capture,
                function=settings.function,
                user_id=self.user_id,
            )
        except CaptureError as error:
            call.capture_reason = error.reason
            raise
        finally:
            self._reading = None
        if call.left_out:
            self.broken(
                "capture",
                CaptureError(f"{call.left_out} parts cannot be read: capture= reads them"),
            )
        call.response_form = evaluation_input.response_form
        call.release()
        return (
            copy_with(evaluation_input, {"criteria": settings.criteria})
            if settings.criteria
            else evaluation_input
        )

    def _decide(
        self, evaluation_input: EvaluationInput, call: CapturedCall, settings: HandlerSettings
    ) -> str | None:
        self._reading = call
        try:
            context = SamplingContext(
                call.agent,
                call.randomness,
                call.answer_facts,
                evaluation_input,
                call.memo,
                key=self.sampled.key,
            )
            with part_of("sampler", settings.sampler):
                decision = settings.sampler.decide(context)
            if decision.sampled and decision.applies:
                decision = self.shedding.thin(decision, call.randomness)
            call.decision = decision
            call.randomness = (
                call.randomness if decision.randomness is None else decision.randomness
            )
            if decision.sampled and decision.applies:
                return None
            # an unknown outcome could not be counted
            return OUTCOMES[OUTCOMES.index(decision.outcome)]
        except Exception as error:
            self.broken("sampler", error)
            return PIPELINE_FAILED
        finally:
            self._reading = None

    def _bad_fact(self, name: str, why: str = "") -> None:
        # A name may come from data: only identifiers are logged.
        shown = (
            self.redaction.text(name)
            if type(name) is str and len(name) <= 48 and name.isidentifier()
            else "other"
        )
        self.accounting.fail(
            f"annotate:{shown}" if len(self.accounting.failures) < 64 else "annotate"
        )
        log.warning("fact_left_out", part=shown, **({"why": why} if why else {}))

    def ground_truth_failed(self, error: BaseException) -> None:
        part = (
            f"ground_truth:{error.reason}"
            if isinstance(error, GroundTruthError)
            else "ground_truth"
        )
        self.accounting.fail(part)
        # An error about a file names its line and no content; other errors may quote the
        # conversation.
        problem = (
            {"problem": str(error)}
            if isinstance(error, ConfigurationError | GroundTruthError)
            else {}
        )
        log.warning("part_failed", part=part, error_type=type(error).__name__, **problem)

"""The engine, on the background thread.

Tasks come in. Inputs, results, telemetry and stored results go out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from agenteval_otel.capture.annotations import hashed
from agenteval_otel.capture.build import build_input
from agenteval_otel.capture.calls import CURRENT, EVALUATING, new_call_id
from agenteval_otel.capture.reasons import CaptureError
from agenteval_otel.components.blocking import part_of
from agenteval_otel.engine.evaluation import Evaluation
from agenteval_otel.engine.parts import EngineParts
from agenteval_otel.engine.task import Origin, Queued, Task
from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.models import EvaluationInput
from agenteval_otel.models.value import copy_with
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.reentrancy import PROCESS
from agenteval_otel.sampling import SamplingContext
from agenteval_otel.semconv import (
    CAPTURE_FAILED,
    DROPPED_SHUTDOWN,
    EVALUATED,
    OUTCOMES,
    PIPELINE_FAILED,
)
from agenteval_otel.telemetry.emitter import Emission, Emitter

_LOOK_EVERY_ITEMS = 16
"""Spans and events that are emitted until the host's queues, which may be small, are looked at
again.
"""

Done = Callable[[Queued, "str | Awaitable[str]"], None]
"""Takes what was queued with its outcome, or with what gives it later."""
Taken = Literal["next", "stays", "failed"]
"""Who goes on with a task of a thread that is held up: the next thread, its own once it comes back,
or none: it has failed.
"""


class Engine(EngineParts):
    """Evaluates tasks, inside of the background thread's event loop.

    Args:
        answers: The origin of handlers' calls. It hears their end.
        user_id: Returns what is kept of an annotated user's id, by default a hash.
        parts: The arguments of `EngineParts`.
    """

    def __init__(
        self, *, answers: Origin, user_id: Callable[[str], str] = hashed, **parts: Any
    ) -> None:
        super().__init__(**parts)
        self._answers = answers
        self.user_id = user_id
        self._reading: Task | None = None
        """The task whose input is being read, or of which samplers and capabilities are asked."""
        reset_in_child(self._reset)

    def __repr__(self) -> str:
        return f"<Engine waiting_for_room={len(self._waiting)}>"

    def _reset(self) -> None:  # in a forked child: its parent goes on with what is under way
        self._reading = self.present = self.finishing = None
        self._waiting.clear()

    def task_of(self, queued: Queued) -> Task:
        """Return the task of what was queued."""
        return Task.of(queued, self._answers)

    def process(self, queue: Sequence[Queued], done: Done, pause: Callable[[], None]) -> None:
        """Evaluate a list from the queue. `done` takes each once.

        Build every input, then run the evaluators, redact, then emit. This takes a third less time
        than all steps for each. `pause` is called between two steps, and may raise to end the work.
        """
        CURRENT.set(EVALUATING)
        begun: list[Evaluation] = []
        for queued in queue:
            task = self.task_of(queued)
            if not task.select.results:
                _identify(task)
            outcome = self._prepared(task)
            if isinstance(outcome, Evaluation):
                begun.append(outcome)
            else:
                done(queued, outcome)
            pause()
        self._evaluate(begun, done, pause)
        self.capabilities.after_list()

    def settle(self, task: Task, outcome: str) -> str:
        """Let nothing more be emitted of a task, and return the outcome that matches what was."""
        if task.under_way is not None:
            outcome = task.under_way.settle(outcome)
        if outcome != DROPPED_SHUTDOWN:  # else it may still be under evaluation
            task.under_way = None
        return outcome

    def _evaluate(self, begun: list[Evaluation], done: Done, pause: Callable[[], None]) -> None:
        over: list[Evaluation] = []
        for evaluation in begun:
            try:
                later: Awaitable[str] | str | None = evaluation.start()
            except Exception as error:
                self.broken("pipeline", error)
                self.end_span(evaluation.task)
                later = PIPELINE_FAILED
            if later is None:
                over.append(evaluation)
            else:
                done(evaluation.task.in_queue, later)
            pause()
        for evaluation in over:
            evaluation.prepare_response()
            pause()
        if not PROCESS.rests:
            self._send_together(over)
        room = True
        items = 0
        for evaluation in over:
            if room and items >= _LOOK_EVERY_ITEMS:
                room = self.emitters_have_room()
                items = 0
            items += evaluation.items
            queued = evaluation.task.in_queue
            outcome = evaluation.finish() if room else evaluation.finish_later()
            done(queued, outcome)
            pause()

    def _send_together(self, over: Sequence[Evaluation]) -> None:
        """Emit responses signal by signal, where nothing can block.

        This takes a third less time than one by one.
        """
        for evaluation in over:
            evaluation.prepare_emission()
        together: dict[Emitter, list[Emission]] = {}
        taken: list[Evaluation] = []
        for evaluation in over:
            emitter = evaluation.task.settings.emitter
            emission = evaluation.take_emission()
            if emission is not None and emitter is not None:
                together.setdefault(emitter, []).append(emission)
                taken.append(evaluation)
        for emitter, emissions in together.items():
            try:
                emitter.send(emissions)
            except Exception as error:
                self.broken("telemetry", error)
        for evaluation in taken:
            evaluation.note_sent()

    def _prepared(self, task: Task) -> Evaluation | str | Awaitable[str]:
        """Return the evaluation of a task.

        If the task goes no further, return its outcome or an awaitable of it.
        """
        evaluation = _evaluation_of(task)  # not None if a thread had begun it and was held up
        self.present = None
        part = "capture"  # what an exception below is counted for
        try:
            if evaluation is None:
                evaluation_input = self._input_of(task)
                if task.has_ended:  # this thread was held up in `capture=`, and given up
                    return PIPELINE_FAILED
                evaluation = Evaluation(self, task, evaluation_input)
                task.under_way = evaluation
            part = "pipeline"
            if task.select.results:
                if not evaluation.is_begun():
                    evaluation.take_results()
                return evaluation
            decision = task.decision
            if decision is not None and not decision.settled and not evaluation.is_begun():
                outcome = self._decide(evaluation.input, task)
                if outcome is not None:
                    self.end_span(task)
                    return outcome
            if not self._stays(evaluation):
                return EVALUATED  # what took it over has given its outcome already, or will
            if evaluation.needs_ground_truth():
                return evaluation.start_with_ground_truth()
            return evaluation
        except Exception as error:
            self.broken(part, error)
            self.end_span(task)
            return CAPTURE_FAILED if part == "capture" else PIPELINE_FAILED

    def _stays(self, evaluation: Evaluation) -> bool:
        """Tell the capabilities of an answer, once. Return whether it is evaluated now and here."""
        task = evaluation.task
        if not task.is_fresh or task.subject != "answer":
            return True
        self._reading = task
        try:
            if task.stays is None:
                evaluation.ensure_agent_span()
                task.stays = self.capabilities.on_answer(task, evaluation.input)
            runner = task.settings.runner
            are_all_of_conversations = bool(runner.of_conversations) and not runner.of_answers
            goes_on = task.stays and not are_all_of_conversations
            if not goes_on:
                self.end_span(task)
            return goes_on
        finally:
            self._reading = None

    def culprit(self) -> Evaluator | None:
        """Return the evaluator that runs inline at this moment.

        Another thread asks, which cannot know for sure.
        """
        task = self.present
        if task is None:
            return None
        evaluation = _evaluation_of(task)
        if evaluation is None:
            return None
        run = evaluation.run
        if run is None:
            return None
        return run.present()

    def take_over(self, queued: Queued, blamed: Evaluator | None, held_s: float) -> Taken:
        """Say who goes on with a task of a thread that is held up.

        `blamed` is the evaluator that holds the thread, None if it is not known. `held_s` is for how
        long. The thread that watches the background thread calls this.
        """
        task = self.task_of(queued)
        evaluation = _evaluation_of(task)
        if evaluation is None:
            # In `capture=` it would block the next thread too. Otherwise it has not begun.
            return "failed" if task is self._reading else "next"
        error = EvaluationError(
            f"it held the background thread for {held_s:.1f} s", error_type="blocked"
        )
        # In a sampler, a redactor, or what could not be named, it would block the next thread too.
        is_held_here = (
            task is self._reading
            or task is self.finishing
            or (blamed is None and task is self.present)
        )
        # Its `finish` may wait for room in the host's processors. ValueError: it does not.
        with contextlib.suppress(ValueError):
            self._waiting.remove(evaluation.finish)
        taken = evaluation.taken_over(blamed, error, may_begin_again=not is_held_here)
        if isinstance(taken, str):
            return taken
        task.under_way = taken
        return "next"

    def _input_of(self, task: Task) -> EvaluationInput:
        self._reading = task
        try:
            evaluation_input = task.input or task.origin.input() or self._built_of(task)
        except CaptureError as error:
            task.capture_reason = error.reason
            raise
        finally:
            self._reading = None
        task.response_form = evaluation_input.response_form
        criteria = task.settings.criteria
        is_given = task.select.is_part or bool(task.select.results)
        if not criteria or is_given:
            return evaluation_input
        return copy_with(evaluation_input, {"criteria": criteria})

    def _built_of(self, task: Task) -> EvaluationInput:
        """Return the input that is built of a handler's arguments and answer. Release them then."""
        call = task.call
        assert call is not None
        evaluation_input = build_input(
            call,
            on_bad_fact=self._bad_fact,
            capture=task.settings.capture,
            function=task.settings.function,
            user_id=self.user_id,
        )
        if call.left_out:
            wrong = f"{call.left_out} parts cannot be read: capture= reads them"
            self.broken("capture", CaptureError(wrong))
        call.release()
        return evaluation_input

    def _decide(self, evaluation_input: EvaluationInput, task: Task) -> str | None:
        """Ask the sampler once more, with the input.

        Return None if the answer is sampled, else the outcome of its task.
        """
        settings = task.settings
        randomness = task.randomness or 0
        self._reading = task
        try:
            context = SamplingContext(
                task.agent,
                randomness,
                task.answer_facts,
                evaluation_input,
                task.memo,
                key=self.sampled.key,
            )
            with part_of("sampler", settings.sampler):
                decision = settings.sampler.decide(context)
            if decision.sampled and decision.applies:
                decision = self.shedding.thin(decision, randomness)
            task.decision = decision
            task.randomness = randomness if decision.randomness is None else decision.randomness
            if decision.sampled and decision.applies:
                return None
            # `index` raises for an outcome that accounting does not know and could not count.
            return OUTCOMES[OUTCOMES.index(decision.outcome)]
        except Exception as error:
            self.broken("sampler", error)
            return PIPELINE_FAILED
        finally:
            self._reading = None

    def _bad_fact(self, name: str, why: str = "") -> None:
        """Count and log a fact that was left out. 64 names of failures are counted apart at most."""
        # A name may come from data: only identifiers are logged.
        is_identifier = type(name) is str and len(name) <= 48 and name.isidentifier()
        shown = self.redaction.text(name) if is_identifier else "other"
        has_room = len(self.accounting.failures) < 64
        self.accounting.fail(f"annotate:{shown}" if has_room else "annotate")
        reason = {"why": why} if why else {}
        log.warning("fact_left_out", part=shown, **reason)


def _evaluation_of(task: Task) -> Evaluation | None:
    return task.under_way if isinstance(task.under_way, Evaluation) else None


def _identify(task: Task) -> None:
    """Give a task its id, the one of its call if the application has asked for it.

    It may have asked after the answer came. The call gets the task's id in turn.
    """
    call = task.call
    if task.call_id is None:
        known_id = None if call is None else call.call_id
        task.call_id = known_id or new_call_id()
    if call is not None and call.call_id is None:
        call.call_id = task.call_id

"""Pipeline: what the handlers of a process share.

These are the dispatcher, the accounting, the defaults and the telemetry.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, Protocol

from agenteval_otel.capture.annotations import hashed
from agenteval_otel.capture.reasons import REASONS, CaptureError
from agenteval_otel.capture.redaction import Redactor, default_redactors
from agenteval_otel.capture.redaction.outgoing import Redaction
from agenteval_otel.components.blocking import running_part
from agenteval_otel.components.delivery import DeliveryError
from agenteval_otel.engine.agent_settings import AgentSettings
from agenteval_otel.engine.capability import Capabilities, Host, MakeCapability
from agenteval_otel.engine.execution import Executor
from agenteval_otel.engine.handler import (
    HandlerSettings,
    SharedParts,
    check_escalation,
    check_schedules,
    judges_of,
    resolve,
)
from agenteval_otel.engine.handlers import Handlers
from agenteval_otel.engine.live import Engine, Taken
from agenteval_otel.engine.load_shedding import (
    LOOK_EVERY_S,
    CostMeter,
    LoadShedder,
    LoadSheddingSettings,
    Work,
)
from agenteval_otel.engine.pipeline.dispatcher import Dispatcher
from agenteval_otel.engine.pipeline.exit import (
    EXIT_TIMEOUT_S,
    LIVE,
    WATCHED,
    watch_answer,
    watch_exit,
)
from agenteval_otel.engine.pipeline.pool import PoolDispatcher
from agenteval_otel.engine.pipeline.unsampled import UnsampledCalls
from agenteval_otel.engine.sampled import SamplingRecord
from agenteval_otel.engine.signals import StateChange
from agenteval_otel.engine.task import AnswerSampling, Follower, Origin, Queued, Task
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.sampling import Escalation
from agenteval_otel.sampling.trace import SamplingSettings
from agenteval_otel.semconv import (
    CAPTURE_FAILED,
    DROPPED_QUEUE_FULL,
    DROPPED_SHUTDOWN,
    EVALUATED,
)
from agenteval_otel.storage.base import FanOutStorage
from agenteval_otel.storage.erasure import Erasure
from agenteval_otel.telemetry import Accounting
from agenteval_otel.telemetry.emitter import Emitter

OPEN_SPAN_BYTES: Final = 6_400
"""About what an open agent span of the SDK keeps alive (3 KB), and the run span and event that will
wait with it.
"""
_LOOK_AGAIN_S: Final = 0.005
_NOTHING_WRITTEN: Final = AgentSettings()


class CallSource(Protocol):
    """Makes tasks of what comes in after the answer has ended, as a span processor does."""

    def drain(self, timeout_s: float, *, last: bool = False) -> bool:
        """Submit what has come so far, with `last` also what is incomplete.

        Return False if the time ran out.
        """

    def state(self) -> dict[str, int]:
        """Return what waits, as `Dispatcher.state` does: ``size``, ``bytes`` and ``max_bytes``."""

    def erase(self, erasure: Erasure) -> int:
        """Delete what waits and matches, and return how many. Blocks. May raise `StorageError`."""


class Pipeline:
    """Handles calls that have ended, and other tasks. The caller's thread meets only `submit`.

    Args:
        handlers: What runs for which agent.
        agent_span_end: ``background`` (see `late_spans`), or ``caller`` when the handler returns.
        user_id: What is kept of an annotated user's id.
        capabilities: Make what stands around the route, in the order in which their hooks are
            called.

    Attributes:
        provisional: Not configured yet: handlers' arguments are checked against the pipeline that
            `configure` builds.
        late_spans: Agent spans may end on the background thread, with results, where the host's
            processors allow it.
    """

    # Of all handlers: a provider may hold what is not written yet when its handler is gone already.
    _providers: dict[int, Any]
    _unended: list[Task]
    _ending_thread: int | None = None
    _open = True
    _unsaved = 0
    unsampled_calls: UnsampledCalls | None = None

    def __init__(
        self,
        handlers: Handlers,
        *,
        dispatcher: Dispatcher | None = None,
        accounting: Accounting | None = None,
        enabled: bool = True,
        agent_span_end: Literal["background", "caller"] = "background",
        redactors: Sequence[Redactor] | None = None,
        load_shedding: LoadSheddingSettings | None = None,
        sampling: SamplingSettings | None = None,
        shutdown_timeout_s: float = EXIT_TIMEOUT_S,
        user_id: Callable[[str], str] = hashed,
        capabilities: Sequence[MakeCapability] = (),
    ) -> None:
        self.handlers = handlers
        self.provisional = False
        self.accounting = accounting or Accounting()
        self.accounting.names.agents.know(handlers.agents)
        if redactors is None:
            redactors = default_redactors()
        self.redaction = Redaction(redactors, self._redaction_failed)
        self.sampled = SamplingRecord(sampling or SamplingSettings(), self.accounting)
        self.dispatcher = dispatcher or PoolDispatcher()
        self.executor = Executor(live=True)
        self._load = _Load(self.dispatcher, self.accounting, self.executor, load_shedding)
        self.load_shedder = self._load.shedder
        self._unended = []
        self._by_name: dict[str, HandlerSettings] = {}
        host = Host(
            self.submit,
            self.broken,
            self.accounting,
            self.redaction,
            self.sampled.key,
            self._sampling_of,
            self.settings_of,
            self._announce,
        )
        self.capabilities = Capabilities((make(host) for make in capabilities), self.broken)
        self.answers = _Answers(self.accounting)
        self.engine = Engine(
            accounting=self.accounting,
            redaction=self.redaction,
            capabilities=self.capabilities,
            shedding=self.load_shedder,
            sampled=self.sampled,
            broken=self.broken,
            answers=self.answers,
            user_id=user_id,
        )
        self.enabled = enabled
        has_thread = isinstance(self.dispatcher, PoolDispatcher)
        self.late_spans = agent_span_end == "background" and has_thread
        self.shared = SharedParts(
            executor=self.executor,
            redaction=self.redaction,
            key=self.sampled.key,
            sampling=self.sampled.settings,
            emitter=handlers.emitter,
            on_storage_failure=self.storage_failed,
            agent_span=handlers.agent_span,
            telemetry_off=handlers.telemetry_off,
            calls_back=self.capabilities.use_results,
            forwards=self.capabilities.take_answers,
            ground_truth=handlers.ground_truth,
            aggregation=handlers.aggregation,
        )
        self._providers = {}
        self.shutdown_timeout_s = shutdown_timeout_s
        self.sources: weakref.WeakSet[CallSource] = weakref.WeakSet()
        for provider in (handlers.telemetry, *handlers.storage, *self.capabilities.exporters):
            self._know(provider)
        if handlers.emitter is not None:
            # `handler` says whether anything is missing without it
            handlers.emitter.providers.warns = False
        self.dispatcher.start(
            self.engine.process,
            self._settle,
            has_room=self.engine.has_room,
            on_work=self._load.note,
            on_stall=self,
        )
        LIVE[id(self)] = self

    def __repr__(self) -> str:
        return (
            f"<Pipeline {'on' if self.enabled else 'off'} {self.dispatcher!r} {self.accounting!r}>"
        )

    def handler(
        self,
        agent: str,
        written: AgentSettings = _NOTHING_WRITTEN,
        *,
        storage: Sequence[Any] | None = None,
        capture: Callable[..., Any] | None = None,
        function: Callable[..., Any] | None = None,
    ) -> HandlerSettings:
        """Return the settings of one handler: its own, then the agent's, then the pipeline's.

        Raises ConfigurationError.

        The agent and its criteria are the operator's own names from now on.
        """
        if self.capabilities.take_answers:
            _check_forwarded(written, storage)
        chosen = self.handlers.written_for(agent, written)
        if isinstance(written.escalation, Escalation) and not self.provisional:
            check_escalation(written.escalation, chosen.evaluators or ())
        providers = self.handlers.storage if storage is None else storage
        settings = resolve(
            agent, chosen, self.shared, storage=providers, capture=capture, function=function
        )
        check_schedules(settings.runner, self.capabilities.schedules)
        if settings.runner.of_conversations and "conversation" not in self.capabilities.subjects:
            raise ConfigurationError(
                "evaluators of conversations need a capability that puts turns together, "
                "as every configured pipeline has",
                path="capabilities",
            )
        for provider in providers:
            self._know(provider)
        emitter = settings.emitter
        if emitter is not None:
            called_back = settings.objectives and self.capabilities.use_results
            emitter.providers.warns |= (
                settings.storage is None and not called_back and not self.capabilities.take_answers
            )
            emitter.providers.on_host = watch_exit
            self.engine.emitters.add(emitter)
            judges = [judge.guarded() for _, judge in judges_of(settings.runner.evaluators)]
            emitter.observe(
                self.accounting,
                self._state,
                self.load_shedder.gauges,
                judges=judges,
                dimensions=self.handlers.metric_dimensions,
            )
        self.capabilities.bind(settings)
        names = self.accounting.names
        names.agents.know_code(agent)
        for criterion in settings.runner.criteria:
            names.criteria.know_code(criterion.name)
        return settings

    def settings_of(self, agent: str) -> HandlerSettings:
        """Return the settings of the handler whose settings apply to an agent from outside."""
        name = self.handlers.name_of(agent)
        if name not in self._by_name:
            self._by_name[name] = self.handler(name)
        return self._by_name[name]

    def state(self) -> dict[str, int]:
        """Return the dispatcher's gauges. Answers that a capability took are part of its ``size``."""
        state = dict(self.dispatcher.state())
        state["size"] += self.capabilities.waiting
        return state

    def has_room(self) -> bool:
        """Tell whether the queue is at most half full.

        Callers that can wait or retry hold back early.
        """
        state = self.dispatcher.state()
        return bool(state.get("bytes", 0) * 2 <= state.get("max_bytes", 1))

    def keep_unsampled(self, window_s: float) -> None:
        """Keep calls that were not sampled, in case that feedback asks for them.

        It is called before a handler is bound.
        """
        self.unsampled_calls = UnsampledCalls(window_s, self._settle)
        self.shared = replace(self.shared, keeps_unsampled=True)

    def erase(self, erasure: Erasure) -> dict[str, int]:
        """Delete what waits and matches, and return how much, by what it is.

        What is queued already is left to `deliver`. Blocks.
        """
        counts = self.capabilities.erase(erasure)
        if self.unsampled_calls is not None:
            counts["unsampled answers"] = self.unsampled_calls.erase(
                erasure, self.engine.user_id, self.broken
            )
        counts["spans, requests and feedback"] = sum(
            source.erase(erasure) for source in tuple(self.sources)
        )
        return counts

    @property
    def providers(self) -> tuple[Any, ...]:
        return tuple(self._providers.values())

    def submit(self, queued: Queued, size_bytes: int) -> bool:
        """Hand a call that has ended, or a task, to the dispatcher.

        Any thread. Never blocks. Return False if it was dropped.
        """
        if not WATCHED:
            watch_answer()
        return self.dispatcher.submit(queued, size_bytes)

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything taken before is evaluated, stored, exported and called back.

        Return whether it is within the time. Blocks.
        """
        deadline = time.monotonic() + timeout_s
        drained = self._drain(deadline)
        delivered = self.deliver(max(0.0, deadline - time.monotonic()))
        self.capabilities.flush_later(deadline)
        return delivered and drained

    def deliver(self, timeout_s: float) -> bool:
        """Wait as `flush` does, for what was submitted.

        What waits for the end of its trace goes on waiting.
        """
        deadline = time.monotonic() + timeout_s
        evaluated = self.dispatcher.flush(timeout_s)
        return self.export(max(0.0, deadline - time.monotonic())) and evaluated

    def export(self, timeout_s: float, *, with_metrics: bool = True) -> bool:
        """Wait as `deliver` does, for what was evaluated.

        Calls that wait for their evaluation go on waiting.
        """
        deadline = time.monotonic() + timeout_s
        followers = self.answers.followers.take()
        is_delivered = False
        try:
            exported = self._flush_emitters(deadline, with_metrics=with_metrics)
            called = self.capabilities.flush(deadline)
            # Behind the emitters: a receiver of scores may have to know their spans first.
            saved = self._all_storage().flush(max(0.0, deadline - time.monotonic()))
            # A save that failed since the flush before, whichever provider it was.
            unsaved = self._unsaved
            self._unsaved = 0
            is_delivered = exported and called and saved and not unsaved
        finally:
            if is_delivered:
                self._tell(followers)
            else:
                self.answers.followers.put_back(followers)
        return is_delivered

    def _tell(self, followers: Iterable[Follower]) -> None:
        for follower in followers:
            try:
                follower.delivered()
            except Exception as error:
                self.broken("follower", error)

    def retire(self) -> None:
        """Let another pipeline take over.

        What was taken is still delivered, then no thread is left. Returns at once.
        """
        self.capabilities.drain("reload")
        self.dispatcher.retire()
        self.capabilities.retire()
        if self.unsampled_calls is not None:
            self.unsampled_calls.expire(all_of_them=True)
        self.executor.close()

    def shutdown(self, timeout_s: float) -> bool:
        """Take nothing more, deliver what was taken, and count the rest as dropped.

        Return True if nothing was dropped and everything was exported and saved.
        """
        deadline = time.monotonic() + timeout_s
        drained = self._drain(time.monotonic() + timeout_s / 4, last=True)
        if self.unsampled_calls is not None:
            self.unsampled_calls.expire(all_of_them=True)
        # Half of the time for the evaluations, so that what they gave can still be exported.
        evaluated = self.dispatcher.flush(timeout_s / 2)
        if self.capabilities.drain("shutdown"):  # after the last answers have come to them
            evaluated = (
                self.dispatcher.flush(max(0.0, deadline - time.monotonic()) / 2) and evaluated
            )
        # Before the emitters, which may need all the time: a sidecar gets its share.
        self.capabilities.flush(_midway(deadline), share=0.5)
        exported = self._flush_emitters(deadline)
        # Not all that is left: the last metrics say what was dropped.
        self._ending_thread = threading.get_ident()
        delivered = self.dispatcher.shutdown(max(0.0, deadline - time.monotonic()) * 3 / 4)
        self._ending_thread = None
        # Before the last export, which says what they have lost.
        drained = self.capabilities.close(deadline) and drained
        self._end_spans(deadline)
        # A process that a signal ends runs no exit handler of the host's providers.
        if not (evaluated and delivered and drained):
            exported = self._flush_emitters(deadline) and exported
        self.executor.close()
        saved = self._all_storage().flush(max(0.0, deadline - time.monotonic()) / 2)
        if self._open:
            self._open = False
            self._all_storage().close_within(max(0.0, deadline - time.monotonic()))
        # Last: a place of messages that hangs takes no time from answers.
        self.capabilities.close_later(deadline)
        return drained and delivered and exported and saved

    def _drain(self, deadline: float, *, last: bool = False) -> bool:
        drained = True
        for source in tuple(self.sources):
            left_s = max(0.0, deadline - time.monotonic())
            if not source.drain(left_s, last=last):
                drained = False
        return drained

    def _state(self) -> dict[str, int]:
        """Return the queue's gauges, with what waits before it for the end of its trace."""
        state = self.state()
        for source in tuple(self.sources):
            for name, value in source.state().items():
                state[name] += value
        return state

    def _announce(self, change: StateChange) -> None:
        self.capabilities.on_change(change)

    def _sampling_of(self, task: Task) -> AnswerSampling:
        """Return how a task was sampled. It is worked out once: that counts the calls of its trace."""
        if task.sampling is None:
            task.sampling = self.sampled.of(task, self.load_shedder.keep)
        return task.sampling

    def storage_failed(self, name: str, error: BaseException) -> None:
        self._unsaved += 1
        self.accounting.fail(f"storage:{name}")
        error_type = type(error).__name__
        facts = {}
        # its words are ours; those of a database may quote what it was sent
        if isinstance(error, DeliveryError):
            error_type = error.error_type
            facts = {"problem": str(error)}
        log.warning("storage_failed", part=name, error_type=error_type, **facts)

    def broken(self, part: str, error: BaseException | None = None) -> None:
        # Our own words name types and never content; what others raise may quote the conversation.
        details: dict[str, str] = {}
        if isinstance(error, CaptureError):
            details["problem"] = str(error)
            if error.reason is not None:
                part = f"{part}:{error.reason}"
                details["fix"] = REASONS[error.reason].fix
        self.accounting.fail(part)
        log.warning("part_failed", part=part, error_type=type(error).__name__, **details)

    # --- the background thread is held up
    # ----------------------------------------------------------------------------

    def blame(self, task: Any, held_s: float, thread_id: int) -> Evaluator | None:
        evaluator = self.executor.started_async().get(task) or self.engine.culprit()
        self.accounting.fail("background_thread")
        part = running_part(thread_id) if evaluator is None else None
        if evaluator is not None:
            name = evaluator.label
        elif part is not None:
            name = part.name
        else:
            name = "unknown"
        log.warning("background_thread_replaced", part=name, held_s=round(held_s, 2))
        if evaluator is not None:
            self.executor.state(evaluator).blocked(held_s)
        elif part is not None:
            part.blocked(held_s)
        return evaluator

    def take_over(self, queued: Queued, blamed: Evaluator | None, held_s: float) -> Taken:
        return self.engine.take_over(queued, blamed, held_s)

    # --- settling
    # ----------------------------------------------------------------------------------------------------

    def _settle(self, queued: Queued, outcome: str) -> None:
        task = self.engine.task_of(queued)
        outcome = self.engine.settle(task, outcome)
        if task.span is not None:
            if self._ending_thread == threading.get_ident() and outcome == DROPPED_SHUTDOWN:
                self._unended.append(task)
            else:
                self.engine.end_span(task)
        if task.call is not None and task.call.span_bytes:
            MEMORY.open_spans.release(task.call.span_bytes)
            task.call.span_bytes = 0
        if task.take_end():
            task.finish(outcome)
        if outcome != DROPPED_SHUTDOWN:
            task.call = None  # no circle: what has ended is freed at once, without the collector

    def _end_spans(self, deadline: float) -> None:
        """End the spans of tasks that were dropped.

        It ends as many as the host's processor takes in time.
        """
        waiting = self._unended
        self._unended = []
        while waiting:
            emitter = waiting[-1].settings.emitter
            has_room = emitter is None or (
                emitter.providers.has_room() and emitter.providers.has_room_for_spans()
            )
            if has_room:
                self.engine.end_span(waiting.pop())
            elif time.monotonic() < deadline:
                threading.Event().wait(_LOOK_AGAIN_S)
            else:
                # The background thread may have ended some meanwhile.
                lost = sum(task.take_span() is not None for task in waiting)
                if emitter is not None:
                    emitter.providers.lose("traces", "shutdown", lost)
                return

    def _flush_emitters(self, deadline: float, *, with_metrics: bool = True) -> bool:
        emitters: list[Emitter] = [
            provider.emitter for provider in self.providers if hasattr(provider, "emitter")
        ]
        flushed = True
        for emitter in emitters:
            left_s = max(0.0, deadline - time.monotonic())
            if not emitter.providers.flush(left_s, with_metrics=with_metrics):
                flushed = False
        return flushed

    def _all_storage(self) -> FanOutStorage:
        return FanOutStorage(self.providers, self.storage_failed)

    def _know(self, provider: object) -> None:
        if provider is not None and id(provider) not in self._providers:
            self._providers[id(provider)] = provider
            FanOutStorage([provider], self.storage_failed).watch()

    def _redaction_failed(self, redactor: str, error: BaseException) -> None:
        self.broken(f"redaction:{redactor}", error)


def _midway(deadline: float) -> float:
    """Return the moment at half of the time until then, by the monotonic clock."""
    return (time.monotonic() + deadline) / 2


class Followers:
    """Keeps the followers of tasks that are settled and not delivered yet. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Follower] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, follower: Follower) -> None:
        """Keep it until the next export."""
        with self._lock:
            self._waiting.append(follower)

    def take(self) -> list[Follower]:
        """Return all of them, for the one export that begins now."""
        with self._lock:
            taken = self._waiting
            self._waiting = []
            return taken

    def put_back(self, followers: list[Follower]) -> None:
        """Keep these for the next export, as this one failed."""
        with self._lock:
            self._waiting = followers + self._waiting


class _Answers(Origin):
    """Counts the outcomes of answers, by agent and service, and keeps who waits for their delivery."""

    def __init__(self, accounting: Accounting) -> None:
        self._accounting = accounting
        self.followers = Followers()

    def settle(self, task: Task, outcome: str) -> None:
        """Count the outcome, with how the answer was judged or why it was not understood."""
        if task.follower is not None and outcome != DROPPED_SHUTDOWN:
            self.followers.add(task.follower)
        detail: str | None = None
        if outcome == EVALUATED:
            detail = task.response_form
        elif outcome == CAPTURE_FAILED:
            detail = task.capture_reason
        if detail is None:
            self._accounting.outcome_counts(task.agent, task.service)[outcome] += 1
        else:
            self._accounting.count_detail(task.agent, task.service, outcome, detail)


def _check_forwarded(written: AgentSettings, storage: Sequence[Any] | None) -> None:
    """Refuse what a handler's code says and the sidecar would never receive."""
    of_evaluation = {
        "evaluators": written.evaluators,
        "escalation": written.escalation,
        "storage": storage,
    }
    unknown = [name for name, value in of_evaluation.items() if value is not None]
    if unknown:
        wrong = (
            "answers are evaluated in the sidecar: set it in the settings of `agenteval-otel serve`, in `agents` where "
            'it is for this agent alone, or evaluate here with evaluate_in="process"'
        )
        raise ConfigurationError.of([(name, wrong) for name in unknown])


class _Load:
    """Feeds load shedding with what answers cost, and what is queued.

    While there is work, load shedding looks four times a second.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        accounting: Accounting,
        executor: Executor,
        settings: LoadSheddingSettings | None,
    ) -> None:
        self._dispatcher = dispatcher
        self._accounting = accounting
        self._executor = executor
        # Only so many answers are under evaluation.
        most = dispatcher.concurrency if isinstance(dispatcher, PoolDispatcher) else 1
        self._meter = CostMeter(
            {mode: min(load.at_once, most) for mode, load in executor.loads.items()}
        )
        self._submitted_s: dict[str, float] = dict.fromkeys(executor.loads, 0.0)
        self._looking: Any = None
        self.shedder = LoadShedder(settings, work=self.work)

    def work(self) -> Work:
        state = self._dispatcher.state()
        dropped = self._accounting.outcomes()[DROPPED_QUEUE_FULL]
        waiting_s = {mode: load.waiting_s for mode, load in self._executor.loads.items()}
        drain_s = self._meter.drain_s(state.get("waiting", 0), waiting_s)
        return Work(state["size"], drain_s, dropped)

    def note(self, calls: int, seconds: float) -> None:
        """Note how long the background thread took for some calls in a row.

        It is called on the thread's event loop.
        """
        before = self._submitted_s
        self._submitted_s = {mode: load.submitted_s for mode, load in self._executor.loads.items()}
        started_s = {
            mode: max(0.0, total_s - before[mode]) for mode, total_s in self._submitted_s.items()
        }
        self._meter.note(calls, seconds, started_s)
        loop = asyncio.get_running_loop()
        if self._looking is not loop:
            self._looking = loop
            self._look(loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._looking is not loop:
            return  # another thread's loop took over
        if self.shedder.look():
            # In a context of its own: the timer would keep that of a call alive.
            loop.call_later(LOOK_EVERY_S, self._look, loop, context=contextvars.Context())
        else:
            self._looking = None

"""Pipeline: the dispatcher, the accounting, the defaults and the telemetry that the handlers of a process share."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from agenteval_otel.capture.annotations import hashed
from agenteval_otel.capture.calls import CapturedCall
from agenteval_otel.components.blocking import running_part
from agenteval_otel.engine.handler import (
    AgentSpan,
    HandlerOptions,
    HandlerSettings,
    check_escalation,
    judges_of,
    merged,
    resolve,
)  # fmt: skip
from agenteval_otel.engine.live import Engine, SamplingRecord
from agenteval_otel.errors import CaptureError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.execution import Executor
from agenteval_otel.ground_truth import GroundTruthStore
from agenteval_otel.models import EvaluationCriteria
from agenteval_otel.objectives import Objectives, ObjectiveSettings
from agenteval_otel.pipeline.dispatcher import Dispatcher
from agenteval_otel.pipeline.exit import EXIT_TIMEOUT_S, LIVE, WATCHED, watch_exit
from agenteval_otel.pipeline.load_shedding import LOOK_EVERY_S, CostMeter, LoadShedder, LoadSheddingSettings, Work
from agenteval_otel.pipeline.pool import PoolDispatcher
from agenteval_otel.redaction import Redactor, default_redactors
from agenteval_otel.redaction.outgoing import Redaction
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.sampling import Escalation, Sampler
from agenteval_otel.sampling.trace import SamplingSettings
from agenteval_otel.scoring import Aggregation
from agenteval_otel.semconv import DROPPED_QUEUE_FULL, DROPPED_SHUTDOWN
from agenteval_otel.storage.base import FanOutStorage
from agenteval_otel.telemetry import Accounting
from agenteval_otel.telemetry.emitter import Emitter

OPEN_SPAN_BYTES: Final = 6_400
"""About what an open agent span of the SDK keeps alive (3 KB), and the run span and event that will wait with it."""
_LOOK_AGAIN_S: Final = 0.005


class Source(Protocol):
    """Makes calls of what comes in later than they end, as a span processor does."""

    def drain(self, timeout_s: float, *, last: bool = False) -> bool:
        """Submit what has come so far, `last` also what is incomplete; False where the time ran out."""


class Pipeline:
    """What happens to captured calls. The caller's thread meets only `submit`.

    Args:
        telemetry: Emits the results of handlers whose storage names no emitter: anything with an `emitter`.
        agent_span: Which calls outside of any trace get an ``invoke_agent`` span: ``sampled``, ``always`` or ``never``.
        agent_span_end: ``background`` (see `late_spans`), or ``caller`` when the handler returns.
        agents: What differs for single agents, by the agent's name.
        telemetry_off: No signal can leave: handlers whose results are neither stored nor watched count as disabled.
        metric_dimensions: Attributes of annotations that metrics have too, with the number of values of each.
        user_id: What is kept of an annotated user's id.

    Attributes:
        provisional: Not configured yet: handlers' arguments are checked against the pipeline that `configure` builds.
        late_spans: Agent spans may end on the background thread, with scores, where the host's processors allow it.
    """

    _ending_thread: int | None = None
    _unsaved = 0

    def __init__(
        self,
        *,
        sampler: Sampler,
        evaluators: Sequence[Evaluator],
        storage: Sequence[Any] = (),
        telemetry: Any = None,
        dispatcher: Dispatcher | None = None,
        accounting: Accounting | None = None,
        enabled: bool = True,
        agent_span: AgentSpan = "sampled",
        agent_span_end: str = "background",
        criteria: Sequence[EvaluationCriteria] = (),
        agents: Mapping[str, HandlerOptions] | None = None,
        redactors: Sequence[Redactor] | None = None,
        load_shedding: LoadSheddingSettings | None = None,
        aggregation: Aggregation | None = None,
        ground_truth: GroundTruthStore | None = None,
        escalation: Escalation | bool | None = None,
        objectives: ObjectiveSettings | None = None,
        sampling: SamplingSettings | None = None,
        telemetry_off: bool = False,
        shutdown_timeout_s: float = EXIT_TIMEOUT_S,
        metric_dimensions: Mapping[str, int] | None = None,
        user_id: Callable[[str], str] = hashed,
    ) -> None:
        log.load()
        self.defaults = HandlerOptions(evaluators, sampler, tuple(storage), tuple(criteria), None, escalation)
        self.agents, self.provisional = dict(agents or {}), False
        self.accounting = accounting or Accounting()
        self.redaction = Redaction(default_redactors() if redactors is None else redactors, self._redaction_failed)
        self.objectives = Objectives(objectives, self.broken)
        self.sampled = SamplingRecord(sampling or SamplingSettings())
        self.dispatcher, self.executor = dispatcher or PoolDispatcher(), Executor(live=True)
        self._load = _Load(self.dispatcher, self.accounting, self.executor, load_shedding)
        self.load_shedder = self._load.shedder
        self.engine = Engine(
            accounting=self.accounting, redaction=self.redaction, objectives=self.objectives,
            shedding=self.load_shedder, sampled=self.sampled, broken=self.broken, user_id=user_id,
        )  # fmt: skip
        self.enabled, self.agent_span, self.metric_dimensions = enabled, agent_span, metric_dimensions
        self.late_spans = agent_span_end == "background" and isinstance(self.dispatcher, PoolDispatcher)
        self._parts: dict[str, Any] = {
            "aggregation": aggregation, "ground_truth": ground_truth, "telemetry_off": telemetry_off,
            "calls_back": self.objectives.settings.calls_back,
        }  # fmt: skip
        # Of all handlers: a provider may hold what is not written yet when its handler is gone already.
        self._providers: dict[int, Any] = {}
        self.telemetry, self._open, self.shutdown_timeout_s = telemetry, True, shutdown_timeout_s
        self._unended: list[CapturedCall] = []
        self.sources: weakref.WeakSet[Source] = weakref.WeakSet()
        for provider in (telemetry, *storage):
            self._know(provider)
        if telemetry is not None:
            # Where results are stored, or a callback is set, there is no warning that they are not emitted.
            telemetry.emitter.providers.warns = False
        self.dispatcher.start(
            self.engine.process, self._settle, has_room=self.engine.has_room, on_work=self._load.note, on_stall=self,
        )  # fmt: skip
        LIVE[id(self)] = self

    def __repr__(self) -> str:
        return f"<Pipeline {'on' if self.enabled else 'off'} {self.dispatcher!r} {self.accounting!r}>"

    def handler(
        self,
        agent: str,
        options: HandlerOptions = HandlerOptions(),  # noqa: B008 - an immutable value
        *,
        capture: Callable[..., Any] | None = None,
        function: Callable[..., Any] | None = None,
    ) -> HandlerSettings:
        """The settings of one handler: its own, then the agent's, then the pipeline's; raises ConfigurationError."""
        chosen = merged(options, self.agents.get(agent, HandlerOptions()), self.defaults)
        if isinstance(options.escalation, Escalation) and not self.provisional:
            check_escalation(options.escalation, chosen.evaluators or ())
        settings = resolve(
            agent, chosen, executor=self.executor, redaction=self.redaction,
            telemetry=getattr(self.telemetry, "emitter", None), on_storage_failure=self.storage_failed,
            agent_span=self.agent_span, capture=capture, function=function, **self._parts,
        )  # fmt: skip
        for provider in chosen.storage or ():
            self._know(provider)
        emitter = settings.emitter
        if emitter is not None:
            called_back = settings.objectives and self.objectives.settings.calls_back
            emitter.providers.warns |= settings.storage is None and not called_back
            emitter.providers.on_host = watch_exit
            self.engine.emitters.add(emitter)
            judges = [judge.guarded() for _, judge in judges_of(settings.runner.evaluators)]
            emitter.observe(
                self.accounting, self.dispatcher.state, self.load_shedder.gauges,
                objectives=self.objectives.states, judges=judges, dimensions=self.metric_dimensions,
            )  # fmt: skip
        return settings

    @property
    def providers(self) -> tuple[Any, ...]:
        return tuple(self._providers.values())

    def submit(self, call: CapturedCall, size_bytes: int) -> bool:
        """Hand a finished call to the dispatcher, on the caller's thread; never blocks. False where it was dropped."""
        if not WATCHED:
            WATCHED.append(True)
            watch_exit()
        return self.dispatcher.submit(call, size_bytes)

    def flush(self, timeout_s: float) -> bool:
        """Whether everything taken before is evaluated, stored, exported and called back within the time; blocks."""
        deadline = time.monotonic() + timeout_s
        drained = self._drain(deadline)
        evaluated = self.dispatcher.flush(max(0.0, deadline - time.monotonic()))
        exported = self._flush_emitters(deadline)
        called = self.objectives.flush(max(0.0, deadline - time.monotonic()))
        # A save that failed since the flush before, whichever provider it was.
        unsaved, self._unsaved = self._unsaved, 0
        return drained and evaluated and exported and called and not unsaved

    def retire(self) -> None:
        """Another pipeline takes over: what was taken is still delivered, then no thread is left. Returns at once."""
        self.dispatcher.retire()
        self.executor.close()

    def shutdown(self, timeout_s: float) -> bool:
        """Take no more calls, deliver what was taken, count the rest as dropped; True when nothing was."""
        deadline = time.monotonic() + timeout_s
        drained = self._drain(time.monotonic() + timeout_s / 4, last=True)
        # Half of the time for the evaluations, so that what they gave can still be exported.
        evaluated = self.dispatcher.flush(timeout_s / 2)
        exported = self._flush_emitters(deadline)
        # Not all that is left: the last metrics say what was dropped.
        self._ending_thread = threading.get_ident()
        delivered = self.dispatcher.shutdown(max(0.0, deadline - time.monotonic()) * 3 / 4)
        self._ending_thread = None
        self._end_spans(deadline)
        if not (evaluated and delivered):  # a process that a signal ends runs no exit handler of the host's providers
            exported = self._flush_emitters(deadline) and exported
        self.executor.close()
        self.objectives.close(max(0.0, deadline - time.monotonic()) / 2)
        if self._open:
            self._open = False
            FanOutStorage(self.providers, self.storage_failed).close_within(max(0.0, deadline - time.monotonic()))
        return drained and delivered and exported

    def _drain(self, deadline: float, *, last: bool = False) -> bool:
        return all([source.drain(max(0.0, deadline - time.monotonic()), last=last) for source in tuple(self.sources)])

    def storage_failed(self, name: str, error: BaseException) -> None:
        self._unsaved += 1
        self.accounting.fail(f"storage:{name}")
        log.warning("storage_failed", part=name, error_type=type(error).__name__)

    def broken(self, part: str, error: BaseException | None = None) -> None:
        self.accounting.fail(part)
        # Our own words name types and never content; what others raise may quote the conversation.
        problem = {"problem": str(error)} if isinstance(error, CaptureError) else {}
        log.warning("part_failed", part=part, error_type=type(error).__name__, **problem)

    # --- the background thread is held up ----------------------------------------------------------------------------

    def blame(self, task: Any, held_s: float, thread_id: int) -> Evaluator | None:
        evaluator = self.executor.started_async().get(task) or self.engine.culprit()
        self.accounting.fail("background_thread")
        part = running_part(thread_id) if evaluator is None else None
        name = evaluator.label if evaluator is not None else part.name if part is not None else "unknown"
        log.warning("background_thread_replaced", part=name, held_s=round(held_s, 2))
        if evaluator is not None:
            self.executor.state(evaluator).blocked(held_s)
        elif part is not None:
            part.blocked(held_s)
        return evaluator

    def take_over(self, call: CapturedCall, blamed: Evaluator | None, held_s: float) -> bool:
        return self.engine.take_over(call, blamed, held_s)

    # --- settling ----------------------------------------------------------------------------------------------------

    def _settle(self, call: CapturedCall, outcome: str) -> None:
        if call.span is not None:
            if self._ending_thread == threading.get_ident() and outcome == DROPPED_SHUTDOWN:
                self._unended.append(call)
            else:
                self.engine.end_span(call)
        if call.span_bytes:
            MEMORY.open_spans.release(call.span_bytes)
            call.span_bytes = 0
        if outcome != DROPPED_SHUTDOWN:  # else it may still be under evaluation
            call.evaluation = None
        if not call.settled:
            call.settled = True
            self.accounting.outcome_counts(call.agent)[outcome] += 1

    def _end_spans(self, deadline: float) -> None:
        """End the spans of calls that were dropped, as far as the host's processor takes them in time."""
        waiting, self._unended = self._unended, []
        while waiting:
            emitter = waiting[-1].settings.emitter
            if emitter.providers.has_room() and emitter.providers.has_room_for_spans():
                self.engine.end_span(waiting.pop())
            elif time.monotonic() < deadline:
                threading.Event().wait(_LOOK_AGAIN_S)
            else:
                # The background thread may have ended some meanwhile.
                open_ones = [call for call in waiting if call.span is not None]
                for call in open_ones:
                    call.span = None
                emitter.providers.lose("traces", "shutdown", len(open_ones))
                return

    def _flush_emitters(self, deadline: float) -> bool:
        emitters: list[Emitter] = [provider.emitter for provider in self.providers if hasattr(provider, "emitter")]
        return all([emitter.providers.flush(max(0.0, deadline - time.monotonic())) for emitter in emitters])

    def _know(self, provider: Any) -> None:
        if provider is not None:
            self._providers[id(provider)] = provider

    def _redaction_failed(self, redactor: str, error: BaseException) -> None:
        self.broken(f"redaction:{redactor}", error)


class _Load:
    """Feeds load shedding: what answers cost, what is queued, and a look four times a second while there is work."""

    def __init__(
        self, dispatcher: Dispatcher, accounting: Accounting, executor: Executor, settings: LoadSheddingSettings | None
    ) -> None:
        self._dispatcher, self._accounting, self._executor = dispatcher, accounting, executor
        # Only so many answers are under evaluation.
        most = dispatcher.concurrency if isinstance(dispatcher, PoolDispatcher) else 1
        self._meter = CostMeter({mode: min(load.at_once, most) for mode, load in executor.loads.items()})
        self._submitted_s: dict[str, float] = dict.fromkeys(executor.loads, 0.0)
        self._looking: Any = None
        self.shedder = LoadShedder(settings, work=self.work)

    def work(self) -> Work:
        state, dropped = self._dispatcher.state(), self._accounting.outcomes()[DROPPED_QUEUE_FULL]
        waiting_s = {mode: load.waiting_s for mode, load in self._executor.loads.items()}
        return Work(state["size"], self._meter.drain_s(state.get("waiting", 0), waiting_s), dropped)

    def note(self, calls: int, seconds: float) -> None:
        """The background thread took so long for some calls in a row; on its event loop."""
        before = self._submitted_s
        self._submitted_s = {mode: load.submitted_s for mode, load in self._executor.loads.items()}
        started_s = {mode: max(0.0, total_s - before[mode]) for mode, total_s in self._submitted_s.items()}
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

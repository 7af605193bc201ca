"""Pipeline: sample -> dispatch -> build -> run -> store.

A pipeline is what the doors of one process share: the dispatcher, the accounting, the defaults and, through its
storage, the telemetry. Each monitored handler brings a `Plan`: its evaluators, sampler and storage. `process` runs on
the pool's thread; the caller's thread meets only `submit`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from sys import getsizeof
from typing import Any

from opentelemetry import trace

from agenteval_otel.capture import CURRENT, EVALUATING, CapturedCall, build_input, estimate_bytes
from agenteval_otel.capture.outgoing import Redaction
from agenteval_otel.capture.redaction import Redactor, default_redactors
from agenteval_otel.dispatch import Dispatcher, PoolDispatcher
from agenteval_otel.errors import CaptureError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.ground_truth import GroundTruthStore
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationCriteria, EvaluationInput
from agenteval_otel.objectives import Objectives, ObjectiveSettings
from agenteval_otel.pipeline.content import with_content, without_content
from agenteval_otel.pipeline.exit import LIVE, WATCHED, watch_exit
from agenteval_otel.pipeline.flush import FlushJob, flush_providers
from agenteval_otel.pipeline.plan import AgentDefaults, Plan, first_said
from agenteval_otel.pipeline.references import References
from agenteval_otel.restraint import Restraint, RestraintSettings
from agenteval_otel.runner import Lanes, aggregate
from agenteval_otel.runner.stages import check_escalation
from agenteval_otel.sampling import Escalation, Sampler
from agenteval_otel.sampling.base import probability_of
from agenteval_otel.scoring import Aggregation
from agenteval_otel.semconv import CAPTURE_FAILED, EVALUATED, PIPELINE_FAILED
from agenteval_otel.storage import FanOutStorage
from agenteval_otel.telemetry import Accounting
from agenteval_otel.telemetry.log import log
from agenteval_otel.telemetry.spans import reference_of

__all__ = ["Pipeline"]


_NO_ENTRY = AgentDefaults()


class Pipeline:
    """The route behind the doors.

    Args:
        dispatcher: Where evaluations run; a `PoolDispatcher` when left out.
        sampler, evaluators, storage, criteria: What a handler gets that brings none of its own.
        accounting: Where calls are counted; one of its own when left out.
        own_span: Which calls outside of any trace get an ``invoke_agent`` span: ``sampled``, ``always`` or ``never``.
        agents: What differs for single agents, by the agent's name.
        redactors: What is taken out of all that leaves the process; a `PatternRedactor` when left out.
        restraint: How much of the process the package may take; the defaults when left out.
        aggregation: How the overall score is made; the weighted mean when left out.
        ground_truth: Where inputs that bring no ground truth get theirs; nowhere when left out.
        escalation: Which answers the dear evaluators see; all that are sampled when left out.
        objectives: When an objective counts as breached, and who is told; the defaults when left out.
        enabled: The kill switch at start; `disable` and `enable` flip it while it runs.
        telemetry_off: No signal can leave: handlers whose results nobody keeps or is told count as disabled.

    Attributes:
        provisional: Nobody has configured it yet: what handlers bring is held against the one that will be.
    """

    def __init__(
        self,
        *,
        sampler: Sampler,
        evaluators: Sequence[Evaluator],
        storage: Sequence[Any],
        dispatcher: Dispatcher | None = None,
        accounting: Accounting | None = None,
        enabled: bool = True,
        own_span: str = "sampled",
        criteria: Sequence[EvaluationCriteria] = (),
        agents: Mapping[str, AgentDefaults] | None = None,
        redactors: Sequence[Redactor] | None = None,
        restraint: RestraintSettings | None = None,
        aggregation: Aggregation | None = None,
        ground_truth: GroundTruthStore | None = None,
        escalation: Escalation | bool | None = None,
        objectives: ObjectiveSettings | None = None,
        telemetry_off: bool = False,
    ) -> None:
        self.redaction = Redaction(default_redactors() if redactors is None else redactors, self._redaction_failed)
        self.criteria, self.agents, self.aggregation = tuple(criteria), dict(agents or {}), aggregation
        self.sampler, self.evaluators, self.storage = sampler, tuple(evaluators), tuple(storage)
        self.accounting = accounting or Accounting()
        self.references = References(ground_truth, self.accounting)
        self.objectives = Objectives(objectives, self.broken)
        self.dispatcher = dispatcher or PoolDispatcher()
        self.lanes = Lanes(live=True)
        self.restraint = Restraint.over(self.dispatcher, self.accounting, self.lanes, restraint)
        self.enabled, self.own_span, self.escalation, self.provisional = enabled, own_span, escalation, False
        self.telemetry_off = telemetry_off
        # Every provider that a handler of this pipeline saves to: it may hold what is not exported when the handler is
        # gone already.
        self._providers: dict[int, Any] = {id(provider): provider for provider in self.storage}
        self._storage_open = True
        self._unsaved = 0
        self.dispatcher.start(self._process, self._settle)
        self.dispatcher.when_replaced(self._thread_replaced)
        LIVE.add(self)

    def __repr__(self) -> str:
        return f"<Pipeline {'on' if self.enabled else 'off'} {self.dispatcher!r} {self.accounting!r}>"

    def plan(
        self,
        agent: str,
        *,
        evaluators: Sequence[Evaluator] | None = None,
        sampler: Sampler | None = None,
        storage: Sequence[Any] | None = None,
        capture: Callable[..., Any] | None = None,
        function: Callable[..., Any] | None = None,
        escalation: Escalation | bool | None = None,
    ) -> Plan:
        """The plan of one handler; what is left out comes from the agent's entry, then from the pipeline."""
        entry = self.agents.get(agent, _NO_ENTRY)
        defaults = self.evaluators if entry.evaluators is None else entry.evaluators
        chosen = defaults if evaluators is None else tuple(evaluators)
        if isinstance(escalation, Escalation) and not self.provisional:
            check_escalation(escalation, chosen)
        plan = Plan(
            agent=agent, evaluators=chosen, sampler=sampler or entry.sampler or self.sampler,
            storage=self.storage if storage is None else storage, pipeline=self,
            capture=capture, function=function, own_span=self.own_span, enabled=entry.enabled,
            criteria=self.criteria if entry.criteria is None else entry.criteria,
            escalation=first_said(escalation, entry.escalation, self.escalation),
        )  # fmt: skip
        self._providers |= {id(provider): provider for provider in plan.storage.providers}
        return plan

    @property
    def providers(self) -> tuple[Any, ...]:
        """Every storage provider that a handler of this pipeline saves to, or saved to."""
        return tuple(self._providers.values())

    def submit(self, call: CapturedCall) -> None:
        """Hand a finished call to the dispatcher, on the caller's thread; never blocks."""
        if not WATCHED:
            watch_exit()
        answer, prompt = call.answer if call.chunks is None else call.chunks, call.prompt
        # Text is weighed in place: on a cold caller each call of a function costs a microsecond or two.
        size = 512 + (getsizeof(answer) if type(answer) is str else estimate_bytes(answer))
        size += getsizeof(prompt) if type(prompt) is str else estimate_bytes(prompt)
        if call.conversation is not None:
            size += len(call.conversation)
        more = call.facts, call.arguments, call.others
        if any(more):
            size += sum(map(estimate_bytes, filter(None, more)))
        self.dispatcher.submit(call, size)

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything taken before is evaluated, saved, exported and told; True only if it is.

        A save that failed since the flush before makes it False, whichever provider it was.
        """
        deadline = time.monotonic() + timeout_s
        evaluated = self.dispatcher.flush(timeout_s)
        exported = flush_providers(self._providers.values(), self.dispatcher, deadline)
        told = self.objectives.flush(max(0.0, deadline - time.monotonic()))
        unsaved, self._unsaved = self._unsaved, 0
        return evaluated and exported and told and not unsaved

    def retire(self) -> None:
        """Another pipeline takes over: what was taken is still delivered, then no thread is left. Returns at once."""
        self.dispatcher.retire()
        self.lanes.close()

    def shutdown(self, timeout_s: float) -> bool:
        """Take no more calls, deliver what was taken, count the rest as dropped; True when nothing was."""
        deadline = time.monotonic() + timeout_s
        # Half of the time for the evaluations, so that what they gave can still be exported.
        self.dispatcher.flush(timeout_s / 2)
        exported = flush_providers(self._providers.values(), self.dispatcher, deadline)
        # Not all that is left: the last metrics say what was dropped.
        delivered = self.dispatcher.shutdown(max(0.0, deadline - time.monotonic()) * 3 / 4)
        self.lanes.close()
        self.objectives.close(max(0.0, deadline - time.monotonic()) / 2)
        self._close_storage(max(0.0, deadline - time.monotonic()))
        return delivered and exported

    def storage_failed(self, name: str, error: BaseException) -> None:
        """Count and log a storage provider's failure."""
        self._unsaved += 1
        self.accounting.fail(f"storage:{name}")
        log.warning("storage_failed", part=name, error_type=type(error).__name__)

    def broken(self, part: str, error: BaseException | None = None) -> None:
        """Count and log that a part broke where nobody may notice."""
        self.accounting.fail(part)
        # Our own words name types and never content; what others raise may quote the conversation.
        said = {"said": str(error)} if isinstance(error, CaptureError) else {}
        log.warning("part_failed", part=part, error_type=type(error).__name__, **said)

    def _thread_replaced(self, holder: Any) -> None:
        self.accounting.fail("background_thread")
        part = "unknown" if holder is None else holder.label
        log.warning("background_thread_replaced", part=part, remedy="an async evaluator must not block: await, or def")
        if holder is not None:
            self.lanes.held_thread(holder)

    def _close_storage(self, timeout_s: float) -> None:
        if self._storage_open:
            self._storage_open = False
            FanOutStorage(tuple(self._providers.values()), self.storage_failed).close_within(timeout_s)

    def _settle(self, call: Any, outcome: str) -> None:
        if isinstance(call, FlushJob) or call.settled:
            return
        call.settled = True
        self.accounting.cell(call.agent)[outcome] += 1

    async def _process(self, call: Any) -> str:
        CURRENT.set(EVALUATING)
        self.restraint.attend()
        if isinstance(call, FlushJob):
            call.emitter.providers.flush_here()
            return EVALUATED
        plan: Plan = call.plan
        try:
            evaluation_input = build_input(
                call, on_bad_fact=self._bad_fact, capture=plan.capture, function=plan.function
            )
        except Exception as error:
            self.broken("capture", error)
            return CAPTURE_FAILED
        call.let_go()
        if plan.criteria:
            evaluation_input = evaluation_input.model_copy(update={"criteria": plan.criteria})
        if call.decision is not None and not call.decision.settled:
            outcome = plan.decide_on(evaluation_input, call)
            if outcome is not None:
                return outcome
        try:
            await self._evaluate(call, plan, await self.references.given(evaluation_input))
        except Exception as error:
            self.broken("pipeline", error)
            return PIPELINE_FAILED
        return EVALUATED

    async def _evaluate(self, call: CapturedCall, plan: Plan, evaluation_input: EvaluationInput) -> None:
        room = plan.emitter is None or await plan.emitter.has_room()
        # One look at the wall clock, which may step: every later time is that plus what the other clock counted.
        started_ns, tick = time.time_ns(), time.perf_counter_ns()
        span = plan.open_run_span(call, started_ns, room)
        ended_ns: int | None = None
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False) if span else nullcontext():
                aggregated = await self._run(call, plan, evaluation_input, started_ns, tick)
                ended_ns = aggregated.ended_ns
                await plan.storage.save_result(aggregated)
        finally:
            if span is not None:
                span.end(end_time=ended_ns or started_ns + time.perf_counter_ns() - tick)
        # Last: results are those of the responses that are counted as evaluated, and of no others.
        if plan.objectives and not call.settled:
            self.objectives.attend(plan, aggregated)
        for result in () if call.settled else aggregated.results:
            self.accounting.results[result.status] += 1

    async def _run(
        self, call: CapturedCall, plan: Plan, evaluation_input: EvaluationInput, started_ns: int, tick: int
    ) -> AggregatedEvaluationResult:
        decision = call.decision
        probability = probability_of(decision) if decision else None
        plan.watch_judges(call.span_context)
        outcome = await plan.runner.run(
            evaluation_input, draw=call.draw, probability=probability, code_only=self.restraint.code_only
        )
        for part, error in outcome.broken:
            self.broken(part, error)
        aggregated = aggregate(
            evaluation_input, outcome, runner=plan.runner, started_ns=started_ns,
            ended_ns=started_ns + time.perf_counter_ns() - tick, storage="external", aggregation=self.aggregation,
            on_broken=self.broken,
        )  # fmt: skip
        facts: dict[str, Any] = {
            "span": reference_of(call.span_context),
            "response_ended_ns": call.ended_ns,
            "sampling_probability": probability,
            "sampling_reason": decision.reason if decision else None,
        }
        if plan.emitter is not None and plan.emitter.content_capture != "no_content":
            shown = outcome.outgoing or self.redaction.input(evaluation_input)
            aggregated = with_content(aggregated, {**facts, "input_snapshot": shown})
        else:
            aggregated = without_content(aggregated, facts)
        return self.redaction.result(aggregated, snapshot=False)

    def _redaction_failed(self, redactor: str, error: BaseException) -> None:
        self.broken(f"redaction:{redactor}", error)

    def _bad_fact(self, name: str) -> None:
        # A name may come from data: what is no name is not told.
        told = self.redaction.text(name) if type(name) is str and len(name) <= 48 and name.isidentifier() else "other"
        self.accounting.fail(f"annotate:{told}" if len(self.accounting.failures) < 64 else "annotate")
        log.warning("fact_left_out", part=told)

"""Pipeline: sample -> dispatch -> build -> run -> store.

A pipeline is what the doors of one process share: the dispatcher, the accounting, the defaults and, through its
storage, the telemetry. Each monitored handler brings a `Plan`: its evaluators, sampler and storage. `process` runs on
the pool's thread; the caller's thread meets only `submit`.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from opentelemetry import trace

from agenteval_otel.capture import CURRENT, EVALUATING, CapturedCall, build_input, estimate_bytes
from agenteval_otel.dispatch import Dispatcher, PoolDispatcher
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationInput
from agenteval_otel.runner import EvaluationRunner, Lanes, aggregate
from agenteval_otel.sampling import Sampler
from agenteval_otel.semconv import CAPTURE_FAILED, EVALUATED, PIPELINE_FAILED
from agenteval_otel.storage import FanOutStorage, OtlpStorageProvider
from agenteval_otel.telemetry import Accounting
from agenteval_otel.telemetry.log import get_logger
from agenteval_otel.telemetry.spans import (
    agent_attributes,
    end_agent_span,
    evaluated_attributes,
    open_agent_span,
    open_run_span,
    reference_of,
)

__all__ = ["EXIT_TIMEOUT_S", "Pipeline", "Plan", "default_pipeline", "set_default_pipeline", "use_assembler"]

EXIT_TIMEOUT_S = 2.0
_SLUG = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]{0,63}")
_log = get_logger()


class Plan:
    """What one monitored handler wants: evaluators, sampler, storage.

    Raises:
        ConfigurationError: No evaluator, or a criterion whose name cannot be part of an attribute name.
    """

    def __init__(
        self,
        *,
        agent: str,
        evaluators: Sequence[Evaluator],
        sampler: Sampler,
        storage: Sequence[Any],
        pipeline: Pipeline,
        capture: Callable[..., Any] | None = None,
        function: Callable[..., Any] | None = None,
        own_span: str = "sampled",
    ) -> None:
        if not evaluators:
            raise ConfigurationError("expected at least one evaluator", path="evaluators")
        self.agent, self.sampler, self.capture, self.function, self.own_span = (
            agent,
            sampler,
            capture,
            function,
            own_span,
        )
        self.runner = EvaluationRunner(evaluators, lanes=pipeline.lanes)
        self.storage = FanOutStorage(storage, pipeline.storage_failed)
        self.emitter = next((provider for provider in storage if isinstance(provider, OtlpStorageProvider)), None)
        if self.emitter is not None:
            self.emitter.observe(pipeline.accounting, pipeline.dispatcher.state)
        names = [criterion.name for criterion in self.runner.criteria]
        for name in names:
            if not _SLUG.fullmatch(name):
                raise ConfigurationError(
                    f"criterion name {name!r} must be a slug: a letter, then letters, digits, '_', '.', '-'; at most 64",
                    path="evaluators",
                )
        self.evaluated_attributes = evaluated_attributes(names)
        self.unsampled_attributes = agent_attributes(agent)
        self.agent_attributes = {**self.unsampled_attributes, **self.evaluated_attributes}

    def __repr__(self) -> str:
        return f"<Plan {self.agent} {self.runner!r}>"


class Pipeline:
    """The route behind the doors.

    Args:
        dispatcher: Where evaluations run; a `PoolDispatcher` when left out.
        sampler, evaluators, storage: What a handler gets that brings none of its own.
        enabled: The kill switch at start; `disable` and `enable` flip it while it runs.
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
    ) -> None:
        self.sampler, self.evaluators, self.storage = sampler, tuple(evaluators), tuple(storage)
        self.accounting = accounting or Accounting()
        self.dispatcher = dispatcher or PoolDispatcher()
        self.lanes = Lanes()
        self.enabled = enabled
        self.own_span = own_span
        self._emitters: weakref.WeakSet[Plan] = weakref.WeakSet()
        self.dispatcher.start(self._process, self._settle)
        _LIVE.add(self)

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
    ) -> Plan:
        """The plan of one handler; what is left out comes from the pipeline."""
        plan = Plan(
            agent=agent, evaluators=self.evaluators if evaluators is None else evaluators,
            sampler=sampler or self.sampler, storage=self.storage if storage is None else storage, pipeline=self,
            capture=capture, function=function, own_span=self.own_span,
        )  # fmt: skip
        self._emitters.add(plan)
        return plan

    def submit(self, call: CapturedCall) -> None:
        """Hand a finished call to the dispatcher, on the caller's thread; never blocks."""
        answer = call.chunks if call.chunks is not None else call.answer
        size = 512 + estimate_bytes(answer) + estimate_bytes(call.prompt)
        if call.facts is not None:
            size += estimate_bytes(call.facts)
        if call.arguments is not None:
            size += estimate_bytes(call.arguments)
        self.dispatcher.submit(call, size)

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything taken before is evaluated, saved and exported; True only if it is."""
        deadline = time.monotonic() + timeout_s
        evaluated = self.dispatcher.flush(timeout_s)
        exported = self._flush_providers(deadline)
        return evaluated and exported

    def shutdown(self, timeout_s: float) -> bool:
        """Take no more calls, deliver what was taken, count the rest as dropped; True when nothing was."""
        deadline = time.monotonic() + timeout_s
        # Half of the time for the evaluations, so that what they gave can still be exported.
        self.dispatcher.flush(timeout_s / 2)
        exported = self._flush_providers(deadline)
        delivered = self.dispatcher.shutdown(max(0.0, deadline - time.monotonic()))
        self.lanes.close()
        return delivered and exported

    def storage_failed(self, name: str, error: Exception) -> None:
        """Count and log a storage provider's failure."""
        self.accounting.fail(f"storage:{name}")
        _log.warning("storage_failed", part=name, error_type=type(error).__name__)

    def broken(self, part: str, error: BaseException | None = None) -> None:
        """Count and log that a part broke where nobody may notice."""
        self.accounting.fail(part)
        _log.warning("part_failed", part=part, error_type=type(error).__name__)

    def _flush_providers(self, deadline: float) -> bool:
        complete = True
        for emitter in {id(plan.emitter): plan.emitter for plan in list(self._emitters) if plan.emitter}.values():
            left_s = max(0.0, deadline - time.monotonic())
            try:
                complete = emitter.providers.flush(left_s) and complete
            except RuntimeError:
                # No thread can be started at exit: the pool's own thread does it, while we wait for it.
                self.dispatcher.submit(_FlushJob(emitter), 0)
                complete = self.dispatcher.flush(max(0.0, deadline - time.monotonic())) and complete
        return complete

    def _settle(self, call: Any, outcome: str) -> None:
        if isinstance(call, _FlushJob) or call.settled:
            return
        call.settled = True
        self.accounting.cell(call.agent)[outcome] += 1

    async def _process(self, call: Any) -> str:
        _watch_exit()
        CURRENT.set(EVALUATING)
        if isinstance(call, _FlushJob):
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
        try:
            await self._evaluate(call, plan, evaluation_input)
        except Exception as error:
            self.broken("pipeline", error)
            return PIPELINE_FAILED
        return EVALUATED

    async def _evaluate(self, call: CapturedCall, plan: Plan, evaluation_input: EvaluationInput) -> None:
        span = self._open_run_span(call, plan)
        with trace.use_span(span, record_exception=False, set_status_on_exception=False) if span else nullcontext():
            aggregated = await self._run(call, plan, evaluation_input)
            for result in aggregated.results:
                self.accounting.results[result.status] += 1
            await plan.storage.save_result(aggregated)
        if span is not None:
            span.end(end_time=aggregated.ended_ns)

    async def _run(
        self, call: CapturedCall, plan: Plan, evaluation_input: EvaluationInput
    ) -> AggregatedEvaluationResult:
        decision = call.decision
        probability = decision.probability if decision else None
        started_ns, tick = time.time_ns(), time.perf_counter_ns()
        outcome = await plan.runner.run(evaluation_input, draw=call.draw, probability=probability)
        aggregated = aggregate(
            evaluation_input, outcome, runner=plan.runner, started_ns=started_ns,
            ended_ns=started_ns + time.perf_counter_ns() - tick, storage="external",
        )  # fmt: skip
        facts: dict[str, Any] = {
            "span": reference_of(call.span_context),
            "response_ended_ns": call.ended_ns,
            "sampling_probability": probability,
            "sampling_reason": decision.reason if decision else None,
        }
        if plan.emitter is not None and plan.emitter.content_capture != "no_content":
            return aggregated.model_copy(update={**facts, "input_snapshot": evaluation_input})
        return _without_content(aggregated, facts)

    def _open_run_span(self, call: CapturedCall, plan: Plan) -> trace.Span | None:
        tracer = plan.emitter.tracer() if plan.emitter is not None else None
        if plan.emitter is None or tracer is None:
            return None
        if call.span_context is None and plan.own_span != "never":
            # No trace around the handler, and no tracer yet when it began: its span is written now, with true times.
            span = open_agent_span(tracer, call.agent, plan.agent_attributes, started_ns=call.started_ns)
            end_agent_span(span, ended_ns=call.ended_ns, error_type=call.error_type)
            call.span_context = span.get_span_context()
        return open_run_span(tracer, call.agent, call.span_context, plan.emitter.placement)

    def _bad_fact(self, name: str) -> None:
        self.accounting.fail(f"annotate:{name}"[:64] if len(self.accounting.failures) < 64 else "annotate")
        _log.warning("fact_left_out", part=name[:64])


class _FlushJob:
    """Sent through the dispatcher to have an emitter's providers flushed on the pool's thread."""

    def __init__(self, emitter: OtlpStorageProvider) -> None:
        self.emitter = emitter


def _without_content(aggregated: AggregatedEvaluationResult, facts: Mapping[str, Any]) -> AggregatedEvaluationResult:
    """Leave out what may quote the conversation: reasoning, metadata and the text of errors."""
    results = tuple(
        result.model_copy(update={"reasoning": None, "metadata": None, "error": result.error and result.error_type})
        for result in aggregated.results
    )
    errors = tuple(
        error.model_copy(update={"message": error.message.partition(":")[0]}) for error in aggregated.run_errors or ()
    )
    metadata = {**aggregated.metadata, "errors": [error.model_dump(by_alias=True) for error in errors]}
    return aggregated.model_copy(
        update={**facts, "results": results, "run_errors": errors or None, "metadata": metadata}
    )


_default: dict[str, Pipeline] = {}
_assembler: dict[str, Callable[[], Pipeline]] = {}


def use_assembler(assemble: Callable[[], Pipeline]) -> None:
    """Say how the process's pipeline is built when nobody configured one."""
    _assembler["assemble"] = assemble


def default_pipeline() -> Pipeline:
    """The process's pipeline: the configured one, else one by the assembler's defaults.

    Raises:
        ConfigurationError: Neither is there; import from ``agenteval_otel``, which brings the assembler along.
    """
    found = _default.get("pipeline")
    if found is not None:
        return found
    if "assemble" not in _assembler:
        raise ConfigurationError("no pipeline is configured: import monitor from agenteval_otel, or pass pipeline=")
    # setdefault is atomic: of two threads that build one, both use the first.
    return _default.setdefault("pipeline", _assembler["assemble"]())


def set_default_pipeline(pipeline: Pipeline | None) -> Pipeline | None:
    """Replace the process's pipeline (None: built anew when asked for); gives the one before."""
    before = _default.pop("pipeline", None)
    if pipeline is not None:
        _default["pipeline"] = pipeline
    return before


_LIVE: weakref.WeakSet[Pipeline] = weakref.WeakSet()
_watched: set[int] = set()


def _watch_exit() -> None:
    """Register for the process's exit, with its first evaluation: exit handlers run last in, first out, and ours has to
    run before those of the application's providers, which are set up by then."""
    if os.getpid() in _watched:
        return
    _watched.add(os.getpid())
    atexit.unregister(_at_exit)
    atexit.register(_at_exit)
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        # A child of multiprocessing ends without exit handlers, but runs its finalizers.
        sys.modules["multiprocessing.util"].Finalize(None, _at_exit, exitpriority=100)


def _at_exit() -> None:
    """Give what is pending its last moment: together at most `EXIT_TIMEOUT_S`, whatever hangs."""
    deadline = time.monotonic() + EXIT_TIMEOUT_S
    for pipeline in list(_LIVE):
        try:
            pipeline.shutdown(max(0.0, deadline - time.monotonic()))
        except Exception as error:
            pipeline.broken("exit", error)

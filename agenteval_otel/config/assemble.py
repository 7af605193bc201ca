"""Builds a pipeline from settings, and swaps the pipeline of the process."""

from __future__ import annotations

import os
import time
from typing import Any, Final

from agenteval_otel.config.current import SWITCH, current_pipeline, following, set_current_pipeline
from agenteval_otel.config.load import Loaded, located
from agenteval_otel.config.parts import load_sampler
from agenteval_otel.config.settings import AgentSettings, Settings
from agenteval_otel.engine.handler import HandlerOptions
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.objectives import ObjectiveSettings
from agenteval_otel.pipeline import Pipeline
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.runtime.worker import Worker
from agenteval_otel.sampling import RateLimitSampler
from agenteval_otel.storage import FanOutStorage
from agenteval_otel.telemetry import Accounting
from agenteval_otel.telemetry.target import telemetry_switched_off

__all__ = ["build", "build_loaded", "close_unused_storage", "drain", "swap"]

_DRAIN_S = 30.0
_LOOK_AGAIN_S = 0.002
_RETIRED: list[Pipeline] = []
_MAX_CLOSED = 16
_CLOSED: list[Any] = []
"""Closed, but a call that was under way when the settings changed (a stream) may have opened it again."""
_CLOSING: Final = Worker("agenteval-close", max_waiting=_MAX_CLOSED, idle_s=0.0)


def build(settings: Settings, *, accounting: Accounting | None = None) -> Pipeline:
    """The pipeline of the settings; starts no thread and opens no connection.

    Raises:
        ConfigurationError: No handler could use them.
    """
    chosen = load_sampler(settings.sample_rate, settings.sampler)
    pipeline = Pipeline(
        sampler=chosen if chosen is not None else RateLimitSampler(),
        evaluators=settings.evaluators, storage=settings.storage, telemetry=settings.telemetry,
        dispatcher=settings.dispatcher, agent_span_end=settings.agent_span_end,
        shutdown_timeout_s=settings.shutdown_timeout_s,
        enabled=settings.enabled and not SWITCH.off, own_span=settings.own_span, accounting=accounting,
        criteria=settings.criteria_of(), redactors=settings.redactors, load_shedding=settings.load_shedding,
        aggregation=settings.aggregation, ground_truth=settings.ground_truth, escalation=settings.escalation,
        sampling=settings.sampling,
        objectives=ObjectiveSettings(settings.breach, settings.on_breach, settings.on_recovery),
        telemetry_off=telemetry_switched_off(os.environ),
        agents={name: _defaults(settings, name, agent) for name, agent in settings.agents.items()},
    )  # fmt: skip
    # Fails here instead of at the first handler.
    problems: list[tuple[str | None, str]] = []
    for name in (None, *settings.agents):
        try:
            pipeline.handler(name or "settings")
        except ConfigurationError as failure:
            problems += failure.under(None if name is None else f"agents.{name}").problems
    if problems:
        raise ConfigurationError.of(problems)
    MEMORY.max_bytes, MEMORY.encoded_batches.max_bytes = settings.max_waiting_bytes, settings.export.max_bytes
    return pipeline


def build_loaded(loaded: Loaded) -> Pipeline:
    """`build` of settings that were read from a file and variables.

    Raises:
        SettingsError: As `build`, with the origin of each problem.
    """
    try:
        return build(loaded.settings)
    except ConfigurationError as error:
        raise located(error, loaded.tree, secrets=loaded.secrets) from None


def _defaults(settings: Settings, name: str, agent: AgentSettings) -> HandlerOptions:
    sampler = load_sampler(agent.sample_rate, agent.sampler)
    return HandlerOptions(agent.evaluators, sampler, None, settings.criteria_of(name), agent.enabled, agent.escalation)


def swap(pipeline: Pipeline) -> Pipeline | None:
    """Make it the process's pipeline and move every handler that follows, or none; returns the one before.

    Raises:
        Exception: A handler's own arguments do not fit; then nothing has changed.
    """
    before = set_current_pipeline(pipeline)
    failures = _bind_all(pipeline)
    if failures:
        set_current_pipeline(before)
        if before is not None:
            _bind_all(before)
        raise failures[0]
    if before is not None:
        pipeline.objectives.take_over(before.objectives)
        if before.dispatcher is pipeline.dispatcher:  # the same Settings again: it continues
            before.executor.close()
        else:
            before.retire()
        # Kept until they are empty: `flush` waits for them too.
        _RETIRED[:] = [*(pipeline for pipeline in _RETIRED if pipeline.dispatcher.state()["size"] > 0), before]
    return before


def drain(timeout_s: float) -> bool:
    """Wait until replaced pipelines have evaluated their calls; False when the time ran out."""
    deadline = time.monotonic() + timeout_s
    for pipeline in list(_RETIRED):
        # A call that was under way when its pipeline was replaced may have started a second worker there, and the
        # flush of one worker does not wait for the other.
        while pipeline.dispatcher.state()["size"] > 0:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            pipeline.dispatcher.flush(left_s)
            time.sleep(_LOOK_AGAIN_S)
    return True


def _bind_all(pipeline: Pipeline) -> list[Exception]:
    failures: list[Exception] = []
    for handler in following():
        try:
            handler.bind(pipeline)
        except Exception as error:
            failures.append(error)
    return failures


def close_unused_storage(before: Pipeline) -> None:
    """Close the replaced pipeline's storage that is not used any more, after its last results; on a worker thread."""
    running = current_pipeline()
    used = {id(provider) for provider in (() if running is None else running.providers)}
    unused = [provider for provider in before.providers if id(provider) not in used]
    if not unused:
        return
    reopened = [provider for provider in _CLOSED if id(provider) not in used and not _contains(unused, provider)]
    emitting = [provider for provider in unused if getattr(provider, "emitter", None) is not None]
    _CLOSED[:] = [*reopened, *emitting][-_MAX_CLOSED:]

    def close() -> None:
        before.flush(_DRAIN_S)
        FanOutStorage([*reopened, *unused], before.storage_failed).close_within(_DRAIN_S)

    _CLOSING.submit(close)  # refused where the process is ending, which closes everything


def _contains(providers: list[Any], provider: Any) -> bool:
    return any(provider is other for other in providers)

"""The current pipeline of the process, and its verbs.

The verbs are `configure`, `reload`, `disable`, `flush` and others.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from agenteval_otel.capture.annotations import hashed
from agenteval_otel.config.capabilities import capabilities_of
from agenteval_otel.config.load import Loaded, load_settings, located
from agenteval_otel.config.settings import Settings, enabled_by_variable
from agenteval_otel.engine.capabilities.judge_health import JudgeHealthSettings
from agenteval_otel.engine.handler import prepare_models
from agenteval_otel.engine.handlers import Handlers
from agenteval_otel.engine.objectives import BreachSettings
from agenteval_otel.engine.pipeline import Pipeline, handle_sigterm
from agenteval_otel.engine.pipeline.exit import living, wish_for_sigterm
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.runtime.reentrancy import PROCESS
from agenteval_otel.runtime.worker import Worker
from agenteval_otel.sampling import RateLimitSampler, Sampler
from agenteval_otel.storage.base import FanOutStorage
from agenteval_otel.telemetry import Accounting
from agenteval_otel.telemetry.forward import EventStream, SidecarAddress
from agenteval_otel.telemetry.target import telemetry_switched_off


class Following(Protocol):
    """Follows the default pipeline, as the recorder of feedback does."""

    def bind(self, pipeline: Pipeline) -> None: ...


class _Request(NamedTuple):  # of `configure`, for `reload`
    path: str | os.PathLike[str] | None = None
    profile: str | None = None
    fields: Mapping[str, Any] = {}


class _State:
    """Holds the last configuration, and the kill switch.

    The lock guards the configuration. Signal handlers set the kill switch without the lock.
    """

    def __init__(self) -> None:
        self.reset_lock()
        self.request: _Request | None = None
        self.settings: Settings | None = None
        self.is_off = False
        self.switched_off: weakref.WeakSet[Pipeline] = weakref.WeakSet()

    def reset_lock(self) -> None:
        # A forked child must not wait for a thread of its parent.
        self.lock = threading.RLock()
        self.is_busy = False
        self.reload_again = False


_STATE = _State()
reset_in_child(_STATE.reset_lock)
# The process's pipeline under one key: `setdefault` lets the first of several threads win.
_CURRENT: dict[str, Pipeline] = {}
_FOLLOWING: weakref.WeakSet[Following] = weakref.WeakSet()
_PREPARING: weakref.WeakSet[Following] = weakref.WeakSet()  # those that prepare their models
_AWAITING: list[Callable[[Settings], object]] = []  # called once, by the next `configure`
_DRAIN_S = 30.0
_LOOK_AGAIN_S = 0.002
_RETIRED: list[Pipeline] = []  # replaced, and not yet empty
_MAX_CLOSED: Final = 16
_CLOSED: list[Any] = []  # exporters that a replaced pipeline had, the latest last
_CLOSING: Final = Worker("agenteval-close", max_waiting=_MAX_CLOSED, idle_s=0.0)


def current_pipeline() -> Pipeline | None:
    """Return the process's pipeline, if there is one."""
    return _CURRENT.get("pipeline")


def current_settings() -> Settings:
    """Return the settings of the process.

    They are read now if nothing has read them. Raises `ConfigurationError`.
    """
    default_pipeline()
    return _STATE.settings or Settings()


def set_current_pipeline(pipeline: Pipeline | None) -> Pipeline | None:
    """Set the process's pipeline (None: built when it is needed). Return the one before."""
    if pipeline is None:
        return _CURRENT.pop("pipeline", None)
    before = _CURRENT.get("pipeline")
    _CURRENT["pipeline"] = pipeline  # never absent in between: another thread would build one
    return before


def follow(handler: Following, *, prepares: bool = False) -> None:
    """Bind the handler to every later pipeline of the process, for as long as it exists.

    `prepares` says that it prepares the models that its evaluators ask.
    """
    _FOLLOWING.add(handler)
    if prepares:
        _PREPARING.add(handler)


def when_configured(prepare: Callable[[Settings], object]) -> None:
    """Call this once, with the settings of the next `configure`."""
    _AWAITING.append(prepare)


def _prepare_awaiting(settings: Settings) -> None:
    while _AWAITING:
        prepare = _AWAITING.pop()
        try:
            prepare(settings)
        except Exception as error:  # `configure` has succeeded
            default_pipeline().broken("instrumentor", error)


def build(
    settings: Settings, *, accounting: Accounting | None = None, is_live: bool = False
) -> Pipeline:
    """Build the pipeline of the settings. It starts no thread and opens no connection.

    With `is_live` and evaluate_in: sidecar, the pipeline sends its answers to the sidecar and has
    no evaluators. Otherwise it has those of the settings. Raises `ConfigurationError` if no handler
    could use them.
    """
    sampler = settings.chosen_sampler
    if sampler is None:
        sampler = _default_sampler(settings)
    if is_live and settings.evaluate_in == "sidecar":
        events = _event_stream(settings)
        own = _without_evaluation(settings)
    else:
        events = None
        own = settings
    agents = {
        name: agent.model_copy(update={"criteria": own.criteria_of(name)})
        for name, agent in own.agents.items()
    }
    handlers = Handlers(
        sampler=sampler,
        evaluators=own.evaluators,
        criteria=own.criteria_of(),
        escalation=own.escalation,
        agents=agents,
        storage=own.storage,
        telemetry=settings.telemetry,
        telemetry_off=telemetry_switched_off(os.environ),
        agent_span=settings.agent_span,
        ground_truth=own.ground_truth,
        aggregation=settings.aggregation,
        metric_dimensions=settings.metric_dimensions,
    )
    if settings.user_id == "plain":
        user_id: Callable[[str], str] = str
    else:
        user_id = partial(hashed, salt=settings.user_id_salt)
    pipeline = Pipeline(
        handlers,
        dispatcher=settings.dispatcher,
        accounting=accounting,
        enabled=settings.enabled and not _STATE.is_off,
        agent_span_end=settings.agent_span_end,
        redactors=settings.redactors,
        load_shedding=settings.load_shedding,
        sampling=settings.sampling,
        shutdown_timeout_s=settings.shutdown_timeout_s,
        user_id=user_id,
        capabilities=capabilities_of(settings, own, events),
    )
    if settings.feedback_window_s:
        pipeline.keep_unsampled(settings.feedback_window_s)
    # Fails here instead of at the first handler.
    problems: list[tuple[str | None, str]] = []
    for name in (None, *settings.agents):
        try:
            pipeline.handler(name or "settings")
        except ConfigurationError as failure:
            problems += failure.with_prefix(None if name is None else f"agents.{name}").problems
    if problems:
        raise ConfigurationError.of(problems)
    names = pipeline.accounting.names
    names.limit(settings.names.max_names, settings.names.max_series)
    names.agents.know(settings.routes.values())
    names.criteria.know(_own_criteria(settings))
    MEMORY.max_bytes = settings.max_waiting_bytes
    MEMORY.encoded_batches.max_bytes = settings.export.max_bytes
    MEMORY.events.max_bytes = settings.export.max_bytes
    return pipeline


def _own_criteria(settings: Settings) -> set[str]:
    """Return the criteria that the settings name, also those that people or decorators score."""
    sets = [*settings.criteria.values()]
    names = {*settings.functions, *settings.judge_health.feedback}
    for agent in settings.agents.values():
        names.update(agent.functions)
        if agent.criteria is not None and not isinstance(agent.criteria, str):
            sets.append(agent.criteria)
    for criteria in sets:
        names.update(criterion.name for criterion in criteria)
    return names


def _event_stream(settings: Settings) -> EventStream:
    parts = urlsplit(settings.endpoint)
    is_http = parts.port in (settings.sidecar.http_port, 4318) or parts.path.strip("/") != ""
    address = SidecarAddress(
        settings.endpoint,
        is_http=is_http,
        is_local=settings.is_endpoint_local,
        token=settings.sidecar.token,
        ca=settings.endpoint_ca,
    )
    return EventStream(address, resource=settings.telemetry.emitter.providers.resource)


def _without_evaluation(settings: Settings) -> Settings:
    """Return the settings without the evaluation fields.

    Those set are logged: they may be meant for this process.
    """
    if left := settings.evaluation_fields():
        fix = (
            "a sidecar reads them from its own settings. To evaluate here set evaluate_in: process"
        )
        log.warning("left_to_sidecar", part="evaluate_in", fields=", ".join(left), fix=fix)
    agents = {
        name: agent.model_copy(update={"evaluators": None, "criteria": None, "escalation": None})
        for name, agent in settings.agents.items()
    }
    emitting = tuple(part for part in settings.storage if hasattr(type(part), "emitter"))
    return settings.model_copy(
        update={
            "evaluators": (),
            "criteria": {},
            "ground_truth": None,
            "escalation": None,
            "agents": agents,
            "storage": emitting,
            "breach": BreachSettings(),
            "judge_health": JudgeHealthSettings(enabled=False),
            "notify": (),
            "on_breach": None,
            "on_recovery": None,
        }
    )


def _default_sampler(settings: Settings) -> Sampler:
    """Return a rate limit, per conversation if any evaluator evaluates whole conversations."""
    every = [*settings.evaluators]
    for agent in settings.agents.values():
        every.extend(agent.evaluators or ())
    if any(evaluator.evaluates == "conversation" for evaluator in every):
        from agenteval_otel.sampling import ConversationSampler  # few hosts need it

        return ConversationSampler(sampler=RateLimitSampler())
    return RateLimitSampler()


def build_loaded(loaded: Loaded, *, is_live: bool = False) -> Pipeline:
    """Build the pipeline of settings that were read from a file and variables.

    Its errors have origins.
    """
    try:
        return build(loaded.settings, is_live=is_live)
    except ConfigurationError as error:
        raise located(error, loaded.tree, secrets=loaded.secrets) from None


def run_fields(settings: Settings, pipeline: Pipeline, agent: str | None = None) -> dict[str, Any]:
    """Return the fields of an `EvaluationRunConfig` for these settings.

    It evaluates as the pipeline of the settings does.
    """
    runner = pipeline.handler(agent or "").runner
    return {
        "evaluators": runner.evaluators,
        "criteria": runner.criteria,
        "redactors": settings.redactors,
        "aggregation": settings.aggregation,
        "ground_truth": settings.ground_truth,
    }


def _swap(pipeline: Pipeline) -> Pipeline | None:
    """Make it the process's pipeline, bind the handlers that follow it, and return the previous one.

    If a handler cannot be bound, all are bound to the previous one again, and the error is raised.
    """
    before = set_current_pipeline(pipeline)
    handlers = list(_FOLLOWING)
    try:
        for handler in handlers:
            handler.bind(pipeline)
    except Exception:
        set_current_pipeline(before)
        if before is not None:
            for handler in handlers:
                with suppress(Exception):
                    handler.bind(before)
        raise
    if before is not None:
        pipeline.capabilities.take_over(before.capabilities)
        if before.dispatcher is pipeline.dispatcher:  # the same Settings again: it continues
            before.executor.close()
        else:
            before.retire()
        # Kept until they are empty, and what they gave is exported: `flush` waits for them too.
        _RETIRED[:] = [*filter(_has_work, _RETIRED), before]
    return before


def _has_work(pipeline: Pipeline) -> bool:
    return pipeline.state()["size"] > 0 or len(pipeline.answers.followers) > 0


def _drain(timeout_s: float) -> bool:
    """Wait until replaced pipelines evaluated their calls. Return False if the time ran out."""
    deadline = time.monotonic() + timeout_s
    for pipeline in list(_RETIRED):
        # A call that was under way when its pipeline was replaced may have started a second worker
        # there, and the flush of one worker does not wait for the other.
        while pipeline.dispatcher.state()["size"] > 0:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            pipeline.dispatcher.flush(left_s)
            time.sleep(_LOOK_AGAIN_S)
        if pipeline.capabilities.waiting and not pipeline.capabilities.flush(deadline):
            return False
    return True


def _close_unused_storage(before: Pipeline, after: Pipeline) -> None:
    """Close the replaced pipeline's storage that is not used any more, after its last results.

    It is closed on a worker thread.
    """
    used = {id(provider) for provider in after.providers}
    unused = [provider for provider in before.providers if id(provider) not in used]
    # A stream that ended late may have reopened an exporter that an earlier change closed. Those are
    # closed once more.
    in_either = {id(provider) for provider in (*before.providers, *after.providers)}
    maybe_reopened = [provider for provider in _CLOSED if id(provider) not in in_either]
    emitting = [
        provider
        for provider in unused
        if getattr(provider, "emitter", None) is not None or isinstance(provider, EventStream)
    ]
    _CLOSED[:] = [*maybe_reopened, *emitting][-_MAX_CLOSED:]

    def close() -> None:
        before.flush(_DRAIN_S)
        FanOutStorage([*maybe_reopened, *unused], before.storage_failed).close_within(_DRAIN_S)

    if unused or maybe_reopened:
        _CLOSING.submit(close)  # refused where the process is ending, which closes everything


def configure(
    settings: Settings | str | os.PathLike[str] | Mapping[str, Any] | None = None,
    /,
    *,
    profile: str | None = None,
    **fields: Any,
) -> Settings:
    """Set up the process's pipeline. Handlers that are decorated already use it from now on.

    Running calls finish in the pipeline in which they began, and `accounting` keeps its outcomes.
    Call it at start. It blocks for reading files, and for importing the clients of judges. In a
    worker process it reads the settings and changes nothing.

    Args:
        settings: A file (YAML, TOML, JSON), `Settings`, or a mapping of their fields. By default
            the file that ``AGENTEVAL_SETTINGS`` names, if any.
        profile: A profile of the file. By default the one that ``AGENTEVAL_PROFILE`` names, if any.
        fields: Fields of `Settings`. They override variables ``AGENTEVAL_*``, which override the
            file.

    Raises:
        ConfigurationError: With every problem, its origin, and the known names. Then nothing has
            changed.
    """
    if isinstance(settings, Settings) and (fields or profile is not None):
        raise ConfigurationError("give Settings or keyword arguments, not both")
    named = sorted({"file", "path", "settings"} & fields.keys())
    if named:
        raise ConfigurationError(
            "unknown field. A settings file is the first argument: configure('agenteval.yaml')",
            path=named[0],
        )
    if isinstance(settings, Mapping):
        fields = {**_fields_of(settings), **fields}
        settings = None
    if settings is not None and not isinstance(settings, Settings | str | os.PathLike):
        raise ConfigurationError(
            f"expected the path of a file, Settings or a mapping, found {type(settings).__name__}"
        )
    request = settings if isinstance(settings, Settings) else _Request(settings, profile, fields)
    if PROCESS.is_ours:  # the application's module is imported again, only for its evaluators
        return _load(request).settings
    with _assembling() as is_free:
        if not is_free:
            raise ConfigurationError("configure is under way on this thread")
        loaded = _load(request)
        _apply(loaded)
        _STATE.request = request if isinstance(request, _Request) else None
        _STATE.settings = loaded.settings
        _prepare_awaiting(loaded.settings)
        return loaded.settings


def reload() -> bool:
    """Read the settings of `configure` again and use them from now on.

    Return True if they are in force.

    Wrong or missing settings change nothing: they are counted (``reload``) and logged, with every
    problem. Parts with equal settings are kept, with their connections and state. It is safe in a
    signal handler and from any thread, and never raises. It blocks for the file system, and while
    another thread reloads.
    """
    with _assembling() as is_free:
        # A signal handler has interrupted a reload on this thread. That reload then reads once more.
        if not is_free:
            _STATE.reload_again = True
            return False
        done = _reload_once()
        while _STATE.reload_again:
            _STATE.reload_again = False
            done = _reload_once()
        return done


def _reload_once() -> bool:
    request = _STATE.request
    before = _STATE.settings
    try:
        if request is None:
            raise ConfigurationError(
                "nothing to read again: no settings yet, or Settings made in code"
            )
        loaded = _load(request)
        settings = loaded.settings
        if before is not None:
            settings = _keeping(settings, before)
        running = current_pipeline()
        if running is not None and _only_the_switch_differs(settings, before):
            running.enabled = settings.enabled and not _STATE.is_off
        else:
            _apply(loaded._replace(settings=settings))
        _STATE.settings = settings
        return True
    except Exception as error:
        pipeline = current_pipeline()
        if pipeline is not None:
            pipeline.accounting.fail("reload")
        log.warning(
            "reload_failed", part="reload", kept="the settings from before", problems=str(error)
        )
        return False


def _only_the_switch_differs(settings: Settings, before: Settings | None) -> bool:
    """Tell whether the settings equal the old ones, `enabled` aside."""
    if before is None:
        return False
    return settings == before.model_copy(update={"enabled": settings.enabled})


def _load(request: Settings | _Request) -> Loaded:
    if isinstance(request, Settings):
        return Loaded(request)
    loaded = load_settings(request.path, profile=request.profile, fields=request.fields)
    for warning in loaded.warnings:
        log.warning("unknown_variable", part=warning.partition(" ")[0], problem=warning)
    return loaded


def _apply(loaded: Loaded) -> None:
    """Build, swap, and close what is not used any more."""
    before = current_pipeline()
    accounting = None if before is None else before.accounting
    try:
        pipeline = build(loaded.settings, accounting=accounting, is_live=True)
        replaced = _swap(pipeline)  # each handler prepares the models that it asks
        if _PREPARING:
            prepare_models("settings", loaded.settings.storage, "storage")
        else:
            prepare_models("settings", loaded.settings)
    except ConfigurationError as error:
        raise located(error, loaded.tree, secrets=loaded.secrets) from None
    handle_sigterm(loaded.settings.handle_sigterm, is_asked=_asks_for_sigterm(loaded.settings))
    pipeline.capabilities.start()
    if replaced is not None:
        _close_unused_storage(replaced, pipeline)


def _asks_for_sigterm(settings: Settings) -> bool:
    return settings.handle_sigterm and "handle_sigterm" in settings.model_fields_set


def _keeping(settings: Settings, before: Settings) -> Settings:
    """Return the new settings with the equal parts of the old ones.

    Those have connections, limits and budgets.
    """
    kept: dict[str, Any] = {}
    for name in ("sampler", "telemetry", "ground_truth"):
        old_part = getattr(before, name)
        if getattr(settings, name) == old_part:
            kept[name] = old_part
    for name in ("storage", "evaluators"):
        old_parts = getattr(before, name)
        kept[name] = tuple(_kept_or_new(part, old_parts) for part in getattr(settings, name))
    agents = dict(settings.agents)
    for name, agent in settings.agents.items():
        old_agent = before.agents.get(name)
        if old_agent is not None and old_agent == agent:
            agents[name] = old_agent
    kept["agents"] = agents
    return settings.model_copy(update=kept)


def _kept_or_new(part: object, old_parts: Iterable[object]) -> object:
    """Return the old part that equals the new one, or the new part if there is no such."""
    for old_part in old_parts:
        if type(old_part) is type(part) and old_part == part:
            return old_part
    return part


@contextmanager
def _assembling() -> Iterator[bool]:
    """Let one thread assemble at a time.

    Yield False if this thread is assembling already (a signal handler, a plugin).
    """
    with _STATE.lock:
        if _STATE.is_busy:
            yield False
            return
        _STATE.is_busy = True
        try:
            yield True
        finally:
            _STATE.is_busy = False


def disable() -> None:
    """Evaluate nothing from now on, in every pipeline of the process. Calls count as ``disabled``.

    Queued calls are still evaluated. It is in force until `enable`, also after `configure` and
    `reload`. It is safe in a signal handler.
    """
    _STATE.is_off = True
    for pipeline in living():
        if isinstance(pipeline, Pipeline) and pipeline.enabled:
            _STATE.switched_off.add(pipeline)
            pipeline.enabled = False


def enable() -> None:
    """Undo `disable`.

    It also overrides ``enabled: false`` of the settings until the next `configure` or `reload`.

    It does not override the variable ``AGENTEVAL_ENABLED=false``, the kill switch of the process's
    operator.
    """
    _STATE.is_off = False
    pipelines = [*_STATE.switched_off]  # they were on before
    running = current_pipeline()
    with suppress(ConfigurationError):
        if running is not None and enabled_by_variable():
            pipelines.append(running)
    for pipeline in pipelines:
        pipeline.enabled = True
    _STATE.switched_off.clear()


def _fields_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping's fields, the Partnership Agent's switch as ``enabled``."""
    fields = dict(settings)
    section = fields.pop("Evaluation", None)
    if isinstance(section, Mapping) and "Enabled" in section:
        fields.setdefault("enabled", section["Enabled"])
    elif section is not None:
        raise ConfigurationError("expected a mapping with 'Enabled'", path="Evaluation")
    return fields


def flush(timeout_s: float = 5.0) -> bool:
    """Wait until all queued calls are evaluated, saved and exported.

    Blocks for at most `timeout_s`.

    Return True only if they are. Call it before a serverless function returns.
    """
    _expect_seconds(timeout_s)
    deadline = time.monotonic() + timeout_s
    drained = _drain(timeout_s)
    return default_pipeline().flush(max(0.0, deadline - time.monotonic())) and drained


def _expect_seconds(timeout_s: object) -> None:
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
        raise ConfigurationError(
            f"expected a number of seconds, found {timeout_s!r}"[:200], path="timeout_s"
        )


def deliver(timeout_s: float) -> bool:
    """Wait as `flush` does, but not for answers whose trace is not complete yet."""
    deadline = time.monotonic() + timeout_s
    drained = _drain(timeout_s)
    return default_pipeline().deliver(max(0.0, deadline - time.monotonic())) and drained


def export_results(timeout_s: float) -> bool:
    """Wait until the results of what was evaluated are exported and stored.

    The results of replaced pipelines are exported too, metrics are not. Calls that wait for their
    evaluation go on waiting.
    """
    deadline = time.monotonic() + timeout_s
    pipelines = [*filter(_has_work, _RETIRED), default_pipeline()]
    is_complete = True
    for pipeline in pipelines:  # each of them, also after one that did not export everything
        left_s = max(0.0, deadline - time.monotonic())
        if not pipeline.export(left_s, with_metrics=False):
            is_complete = False
    return is_complete


def shutdown(timeout_s: float = 2.0) -> bool:
    """Accept no more calls, deliver the queued ones, and count the rest as dropped.

    Blocks for at most `timeout_s`.

    Return True if nothing was dropped and everything was exported and saved. It runs by itself at
    the process's exit, within two seconds.
    """
    _expect_seconds(timeout_s)
    deadline = time.monotonic() + timeout_s
    drained = _drain(timeout_s / 2)
    return default_pipeline().shutdown(max(0.0, deadline - time.monotonic())) and drained


def accounting() -> dict[str, int]:
    """Return the calls of monitored handlers by outcome, since the process started.

    At rest they add up to the calls.
    """
    return default_pipeline().accounting.outcomes()


def default_pipeline() -> Pipeline:
    """Return the process's pipeline.

    It is the configured one, else one from ``AGENTEVAL_SETTINGS`` and the other variables.

    Raises `ConfigurationError` if they are wrong.
    """
    pipeline = current_pipeline()
    if pipeline is not None:
        return pipeline
    request = _Request()
    loaded = _load(request)
    pipeline = build_loaded(loaded, is_live=True)
    pipeline.provisional = loaded.file is None
    _STATE.request = request
    _STATE.settings = loaded.settings
    # The application has not called `configure`. A mere decoration installs no signal handler: the
    # first answer may. Only an explicit `handle_sigterm: true` installs it now.
    wish_for_sigterm(loaded.settings.handle_sigterm)
    if _asks_for_sigterm(loaded.settings):
        handle_sigterm(True, is_asked=True)
    pipeline.capabilities.start()
    return _CURRENT.setdefault("pipeline", pipeline)  # the first of several threads wins

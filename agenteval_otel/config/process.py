"""`configure`, `reload`, and the other verbs of the process's pipeline. Wrong settings change nothing."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from agenteval_otel.config.assemble import build, build_loaded, close_unused_storage, drain, swap
from agenteval_otel.config.current import SWITCH, current_pipeline, set_current_pipeline
from agenteval_otel.config.load import Loaded, load_settings, located
from agenteval_otel.config.settings import Settings
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.pipeline import Pipeline, handle_sigterm
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.reentrancy import in_own_process

__all__ = ["accounting", "configure", "default_pipeline", "flush", "forget", "reload", "shutdown"]


class _Request(NamedTuple):
    """The arguments of `configure`, for `reload`."""

    path: str | os.PathLike[str] | None = None
    profile: str | None = None
    fields: Mapping[str, Any] = {}


class _State:
    """The last configuration; guarded by the lock."""

    def __init__(self) -> None:
        self.reset_lock()
        self.request: _Request | None = None
        self.settings: Settings | None = None

    def reset_lock(self) -> None:
        # A forked child must not wait for a thread of its parent.
        self.lock, self.is_busy, self.reload_again = threading.RLock(), False, False


_STATE = _State()
reset_in_child(_STATE.reset_lock)


def configure(
    settings: Settings | str | os.PathLike[str] | None = None, /, *, profile: str | None = None, **fields: Any
) -> Settings:
    """Set up the process's pipeline; handlers that are decorated already use it from now on.

    Running calls finish in the pipeline in which they began, and `accounting` keeps its outcomes. Call it at start; it
    blocks for reading files. In a worker process it reads the settings and changes nothing.

    Args:
        settings: A file (YAML, TOML, JSON), or `Settings`. By default the file that ``AGENTEVAL_SETTINGS`` names, if
            any.
        profile: A profile of the file; by default the one that ``AGENTEVAL_PROFILE`` names, if any.
        fields: Fields of `Settings`; they override variables ``AGENTEVAL_*``, which override the file.

    Raises:
        ConfigurationError: With every problem, its origin, and the known names; then nothing has changed.
    """
    if isinstance(settings, Settings) and (fields or profile is not None):
        raise ConfigurationError("give Settings or keyword arguments, not both")
    if settings is not None and not isinstance(settings, Settings | str | os.PathLike):
        raise ConfigurationError(f"expected the path of a file or Settings, found {type(settings).__name__}")
    request = settings if isinstance(settings, Settings) else _Request(settings, profile, fields)
    if in_own_process():  # the application's module is imported again, only for its evaluators
        return _settings_of(request)[0]
    with _assembling() as free:
        if not free:
            raise ConfigurationError("configure is under way on this thread")
        chosen, loaded = _settings_of(request)
        _close_after(_apply(chosen, loaded))
        _STATE.request, _STATE.settings = request if isinstance(request, _Request) else None, chosen
        return chosen


def _settings_of(request: Settings | _Request) -> tuple[Settings, Loaded | None]:
    if isinstance(request, Settings):
        return request, None
    loaded = _load(request)
    return loaded.settings, loaded


def reload() -> bool:
    """Read the settings of `configure` again and use them from now on; True when they are in force.

    Wrong or missing settings change nothing: they are counted (``reload``) and logged, with every problem. Parts with
    equal settings are kept, with their connections and state. Safe in a signal handler and from any thread; never
    raises. Blocks for the file system, and while another thread reloads.
    """
    with _assembling() as free:
        if not free:  # a signal handler in the middle of a reload, on this thread: that one reads once more
            _STATE.reload_again = True
            return False
        done = _reload_once()
        while _STATE.reload_again:
            _STATE.reload_again = False
            done = _reload_once()
        return done


def _reload_once() -> bool:
    request, before = _STATE.request, _STATE.settings
    try:
        if request is None:
            raise ConfigurationError("nothing to read again: no settings yet, or Settings made in code")
        loaded = _load(request)
        settings = loaded.settings if before is None else _keeping(loaded.settings, before)
        running = current_pipeline()
        if before is not None and running is not None and settings == before.model_copy(
            update={"enabled": settings.enabled}
        ):  # fmt: skip
            running.enabled = settings.enabled and not SWITCH.off
        else:
            _close_after(_apply(settings, loaded))
        _STATE.settings = settings
        return True
    except Exception as error:
        pipeline = current_pipeline()
        if pipeline is not None:
            pipeline.accounting.fail("reload")
        log.warning("reload_failed", part="reload", kept="the settings from before", problems=str(error))
        return False


def forget() -> None:
    """Forget the last configuration, so that `reload` has nothing to read: for tests."""
    _STATE.request = _STATE.settings = None


def _load(request: _Request) -> Loaded:
    loaded = load_settings(request.path, profile=request.profile, fields=request.fields)
    for warning in loaded.warnings:
        log.warning("unknown_variable", part=warning.partition(" ")[0], problem=warning)
    return loaded


def _apply(settings: Settings, loaded: Loaded | None) -> Pipeline | None:
    """Build, then swap; returns the pipeline from before."""
    before = current_pipeline()
    try:
        replaced = swap(build(settings, accounting=None if before is None else before.accounting))
        handle_sigterm(settings.handle_sigterm)
        return replaced
    except ConfigurationError as error:
        if loaded is None:
            raise
        raise located(error, loaded.tree, secrets=loaded.secrets) from None


def _close_after(replaced: Pipeline | None) -> None:
    # Only connections, files and their threads: storage that is still used opens again.
    if replaced is not None:
        close_unused_storage(replaced)


def _keeping(settings: Settings, before: Settings) -> Settings:
    """The new settings with the equal parts of the old ones, which have connections, limits and budgets."""
    kept: dict[str, Any] = {
        "sampler": before.sampler if settings.sampler == before.sampler else settings.sampler,
        "telemetry": before.telemetry if settings.telemetry == before.telemetry else settings.telemetry,
        "storage": tuple(_same(provider, before.storage) for provider in settings.storage),
        "evaluators": tuple(_same(evaluator, before.evaluators) for evaluator in settings.evaluators),
        "ground_truth": before.ground_truth if settings.ground_truth == before.ground_truth else settings.ground_truth,
        "agents": {
            name: before.agents[name] if before.agents.get(name) == agent else agent
            for name, agent in settings.agents.items()
        },
    }  # fmt: skip
    return settings.model_copy(update=kept)


def _same(part: Any, before: tuple[Any, ...]) -> Any:
    return next((old for old in before if type(old) is type(part) and old == part), part)


@contextmanager
def _assembling() -> Iterator[bool]:
    """One at a time; False if this thread is assembling already (a signal handler, a plugin)."""
    with _STATE.lock:
        if _STATE.is_busy:
            yield False
            return
        _STATE.is_busy = True
        try:
            yield True
        finally:
            _STATE.is_busy = False


def flush(timeout_s: float = 5.0) -> bool:
    """Wait until all queued calls are evaluated, saved and exported; blocks for at most `timeout_s`.

    True only if they are. Call it before a serverless function returns.
    """
    deadline = time.monotonic() + timeout_s
    # Calls from before the last `configure` or `reload` finish in the pipeline in which they began.
    drained = drain(timeout_s)
    return default_pipeline().flush(_left(deadline)) and drained


def shutdown(timeout_s: float = 2.0) -> bool:
    """Accept no more calls, deliver the queued ones, count the rest as dropped; blocks for at most `timeout_s`.

    True when nothing was dropped. Runs by itself at the process's exit, within two seconds.
    """
    deadline = time.monotonic() + timeout_s
    drained = drain(timeout_s / 2)
    return default_pipeline().shutdown(_left(deadline)) and drained


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def accounting() -> dict[str, int]:
    """Calls of monitored handlers by outcome, since the process started; at rest they add up to the calls."""
    return default_pipeline().accounting.outcomes()


def default_pipeline() -> Pipeline:
    """The process's pipeline: the configured one, else one from ``AGENTEVAL_SETTINGS`` and the other variables.

    Raises:
        ConfigurationError: The variables, or the file that they name, are wrong.
    """
    pipeline = current_pipeline()
    if pipeline is not None:
        return pipeline
    request = _Request()
    loaded = _load(request)
    pipeline = build_loaded(loaded)
    pipeline.provisional = loaded.file is None
    _STATE.request, _STATE.settings = request, loaded.settings
    if loaded.settings.handle_sigterm:
        handle_sigterm(True)
    first = set_current_pipeline(pipeline, replace=False)
    return first if first is not None else pipeline

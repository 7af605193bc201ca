"""What the process is configured with: `configure`, `reload`, and the verbs on the process's pipeline.

What is wrong leaves everything as it was. Nothing here runs while answers are evaluated.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from agenteval_otel.config.assemble import build, build_loaded, close_what_is_gone, drain, swap
from agenteval_otel.config.current import current_pipeline, set_current_pipeline
from agenteval_otel.config.load import Loaded, load_settings, located
from agenteval_otel.config.settings import Settings
from agenteval_otel.config.switch import SWITCH
from agenteval_otel.dispatch.own import in_own_process
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.pipeline import Pipeline, handle_sigterm
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.log import log

__all__ = ["accounting", "configure", "default_pipeline", "flush", "forget", "reload", "shutdown"]


class _Request(NamedTuple):
    """What `configure` was asked for, so that `reload` can ask again."""

    path: str | os.PathLike[str] | None = None
    profile: str | None = None
    fields: Mapping[str, Any] = {}


class _State:
    """What the process was configured with; guarded by the lock."""

    def __init__(self) -> None:
        self.begin_again()
        self.request: _Request | None = None
        self.settings: Settings | None = None

    def begin_again(self) -> None:
        # A forked child must not wait for a thread of its parent.
        self.lock, self.busy, self.again = threading.RLock(), False, False


_STATE = _State()
reset_in_child(_STATE.begin_again)


def configure(
    settings: Settings | str | os.PathLike[str] | None = None, /, *, profile: str | None = None, **fields: Any
) -> Settings:
    """Set up the process's pipeline; handlers that were decorated before use it from now on.

    Calls under way finish where they began, and the outcomes so far stay in `accounting`. Call it at start; it reads
    files, and blocks for as long. In a worker process it reads the settings and changes nothing.

    Args:
        settings: A file (YAML, TOML, JSON), or Settings, which are taken as they are. Left out: the file that
            ``AGENTEVAL_SETTINGS`` names, or none.
        profile: A profile of the file; else the one that ``AGENTEVAL_PROFILE`` names, else none.
        fields: Fields of `Settings`; they win over variables ``AGENTEVAL_*``, which win over the file.

    Raises:
        ConfigurationError: With everything that is wrong, where it was said, and what is known there; then nothing has
            changed.
    """
    given = settings if isinstance(settings, Settings) else None
    if given is not None and (fields or profile is not None):
        raise ConfigurationError("give Settings or keyword arguments, not both")
    if settings is not None and given is None and not isinstance(settings, str | os.PathLike):
        raise ConfigurationError(f"expected the path of a file or Settings, found {type(settings).__name__}")
    request = _Request(settings if isinstance(settings, str | os.PathLike) else None, profile, fields)
    if in_own_process():  # the application's module is imported once more for its evaluators only
        return given or _load(request).settings
    with _assembling() as free:
        if not free:
            raise ConfigurationError("configure is under way on this thread")
        if given is not None:
            _close_after(_apply(given, None))
            _STATE.request, _STATE.settings = None, given
            return given
        loaded = _load(request)
        _close_after(_apply(loaded.settings, loaded))
        _STATE.request, _STATE.settings = request, loaded.settings
        return loaded.settings


def reload() -> bool:
    """Read again what `configure` read, and use it from now on; True when it is in force.

    What is wrong, or gone, leaves the settings as they were: it is counted (``reload``) and logged, with everything
    that is wrong. Parts whose settings are the same are kept, with their connections and what they know. Safe in a
    signal handler and from any thread; never raises. Blocks for the file system, and while another thread reloads.
    """
    with _assembling() as free:
        if not free:  # a signal came in the middle of it, on this thread: it is read once more when that is done
            _STATE.again = True
            return False
        done = _reload_once()
        while _STATE.again:
            _STATE.again = False
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
    """Nothing is configured any more, as far as `reload` knows: for tests."""
    _STATE.request = _STATE.settings = None


def _load(request: _Request) -> Loaded:
    loaded = load_settings(request.path, profile=request.profile, fields=request.fields)
    for warning in loaded.warnings:
        log.warning("unknown_variable", part=warning.partition(" ")[0], problem=warning)
    return loaded


def _apply(settings: Settings, loaded: Loaded | None) -> Pipeline | None:
    """Build, then swap; gives the pipeline from before."""
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
    # Storage opens again where somebody still saves to it: what is closed are connections, files and their threads.
    if replaced is not None:
        close_what_is_gone(replaced)


def _keeping(settings: Settings, before: Settings) -> Settings:
    """The new settings with the parts of the old ones that say the same: they hold connections, limits, budgets."""
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


def _same(part: Any, known: tuple[Any, ...]) -> Any:
    return next((one for one in known if type(one) is type(part) and one == part), part)


@contextmanager
def _assembling() -> Iterator[bool]:
    """One at a time; False when this very thread is already at it (a signal handler, a plugin)."""
    with _STATE.lock:
        if _STATE.busy:
            yield False
            return
        _STATE.busy = True
        try:
            yield True
        finally:
            _STATE.busy = False


def flush(timeout_s: float = 5.0) -> bool:
    """Wait until everything that was taken before is evaluated, saved and exported; blocks for at most `timeout_s`.

    True only if it is. Call it before a serverless function returns.
    """
    deadline = time.monotonic() + timeout_s
    # What was taken before the last `configure` or `reload` finishes where it began.
    drained = drain(timeout_s)
    return default_pipeline().flush(_left(deadline)) and drained


def shutdown(timeout_s: float = 2.0) -> bool:
    """Take no more calls, deliver what was taken, count the rest as dropped; blocks for at most `timeout_s`.

    True when nothing was dropped. Happens by itself at the process's exit, within two seconds.
    """
    deadline = time.monotonic() + timeout_s
    drained = drain(timeout_s / 2)
    return default_pipeline().shutdown(_left(deadline)) and drained


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def accounting() -> dict[str, int]:
    """Calls of monitored handlers by outcome, since the process began; at rest they add up to the calls."""
    return default_pipeline().accounting.outcomes()


def default_pipeline() -> Pipeline:
    """The process's pipeline: the configured one, else one by ``AGENTEVAL_SETTINGS`` and the other variables.

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

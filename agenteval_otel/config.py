"""Settings, and the only place that assembles: from settings to the process's pipeline."""

from __future__ import annotations

import os
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from agenteval_otel.components import Explained, resolve
from agenteval_otel.dispatch import Dispatcher, PoolDispatcher
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator, ResponseHealth
from agenteval_otel.instrumentation.decorator import load_evaluators, load_sampler, load_storage
from agenteval_otel.instrumentation.door import rebind_all
from agenteval_otel.pipeline import Pipeline, default_pipeline, set_default_pipeline, use_assembler
from agenteval_otel.sampling import RateLimitSampler
from agenteval_otel.storage import OtlpStorageProvider

__all__ = ["Settings", "accounting", "build", "configure", "flush", "shutdown"]

_FALSE = frozenset({"0", "false", "no", "off"})


def _enabled_by_environment() -> bool:
    return os.environ.get("AGENTEVAL_ENABLED", "").strip().lower() not in _FALSE


class Settings(BaseModel, metaclass=Explained):
    """What handlers get that bring nothing of their own, and how the process evaluates.

    Attributes:
        enabled: The kill switch; ``AGENTEVAL_ENABLED=false`` sets it too.
        evaluators: Instances, functions, type names or ``{type: ...}`` mappings.
        sample_rate: Share of the calls that are evaluated, 0 to 1, without a limit per second.
        sampler: A sampler instead of a rate. Neither: everything, limited to ten evaluated responses a second.
        storage: Storage providers; `OtlpStorageProvider` alone when left out.
        dispatcher: Where evaluations run.
        own_span: Which calls outside of any trace get an ``invoke_agent`` span: ``sampled``, ``always`` or ``never``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    enabled: bool = Field(default_factory=_enabled_by_environment)
    evaluators: tuple[Evaluator, ...] = Field(default_factory=lambda: (ResponseHealth(),))
    sample_rate: float | None = Field(default=None, ge=0, le=1)
    sampler: Any = None
    storage: tuple[Any, ...] = Field(default_factory=lambda: (OtlpStorageProvider(),))
    dispatcher: Dispatcher = Field(default_factory=PoolDispatcher)
    own_span: Literal["always", "sampled", "never"] = "sampled"

    @field_validator("evaluators", mode="before")
    @classmethod
    def _evaluators(cls, value: Any) -> Any:
        return load_evaluators(value)

    @field_validator("storage", mode="before")
    @classmethod
    def _storage(cls, value: Any) -> Any:
        return load_storage(value)

    @field_validator("sampler", mode="before")
    @classmethod
    def _sampler(cls, value: Any) -> Any:
        return load_sampler(None, value)

    @field_validator("dispatcher", mode="before")
    @classmethod
    def _dispatcher(cls, value: Any) -> Any:
        return resolve(Dispatcher, value, path="dispatcher")


def build(settings: Settings) -> Pipeline:
    """The pipeline of the settings; starts no thread and opens no connection."""
    chosen = load_sampler(settings.sample_rate, settings.sampler)
    pipeline = Pipeline(
        sampler=chosen if chosen is not None else RateLimitSampler(),
        evaluators=settings.evaluators, storage=settings.storage, dispatcher=settings.dispatcher,
        enabled=settings.enabled, own_span=settings.own_span,
    )  # fmt: skip
    pipeline.plan("settings")  # refuses here, and not at a handler, what no handler could use
    return pipeline


def configure(settings: Settings | None = None, /, **fields: Any) -> Settings:
    """Set up the process's pipeline; handlers that were decorated before use it from now on.

    Calls under way finish where they began, and the outcomes so far stay in `accounting`. Call it at start.

    Args:
        settings: Settings; or their fields as keyword arguments.

    Raises:
        ConfigurationError: With the path of the wrong field and what is known there; then nothing has changed.
    """
    if settings is not None and fields:
        raise ConfigurationError("give Settings or keyword arguments, not both")
    if settings is not None and not isinstance(settings, Settings):
        raise ConfigurationError(f"expected Settings, found {type(settings).__name__}")
    chosen = settings or Settings(**fields)
    pipeline = build(chosen)
    before = set_default_pipeline(None)
    if before is not None:
        pipeline.accounting = before.accounting
    set_default_pipeline(pipeline)
    rebind_all(pipeline)
    if before is not None:
        before.retire()
    return chosen


def flush(timeout_s: float = 5.0) -> bool:
    """Wait until everything that was taken before is evaluated, saved and exported; blocks for at most `timeout_s`.

    True only if it is. Call it before a serverless function returns.
    """
    return default_pipeline().flush(timeout_s)


def shutdown(timeout_s: float = 2.0) -> bool:
    """Take no more calls, deliver what was taken, count the rest as dropped; blocks for at most `timeout_s`.

    True when nothing was dropped. Happens by itself at the process's exit, within two seconds.
    """
    return default_pipeline().shutdown(timeout_s)


def accounting() -> dict[str, int]:
    """Calls of monitored handlers by outcome, since the process began; at rest they add up to the calls."""
    return default_pipeline().accounting.outcomes()


use_assembler(lambda: build(Settings()))

"""Decorating a handler: its arguments are checked and it is wrapped."""

from __future__ import annotations

import inspect
from typing import Any

from agenteval_otel.capture.text import clean
from agenteval_otel.compat import load_evaluators
from agenteval_otel.config.process import default_pipeline
from agenteval_otel.config.settings import load_sampler, load_storage
from agenteval_otel.engine.handler import HandlerOptions, HandlerSettings, check_escalation
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.instrumentation.handler import Handler
from agenteval_otel.instrumentation.wrappers import wrap
from agenteval_otel.pipeline import Pipeline
from agenteval_otel.sampling import Escalation
from agenteval_otel.sampling.escalation import load_escalation


def decorated(
    handler: Any, *, agent: Any = None, evaluators: Any = None, sample_rate: Any = None, sampler: Any = None,
    escalation: Any = None, capture: Any = None, storage: Any = None, pipeline: Pipeline | None = None,
) -> Any:  # fmt: skip
    """What `monitor` returns for these arguments: the wrapped handler, or a decorator where there is none yet."""
    if handler is not None and not callable(handler) and not isinstance(handler, classmethod | staticmethod):
        hint = f"; did you mean agent={handler!r}?" if isinstance(handler, str) else ""
        raise ConfigurationError(f"expected a callable, found {type(handler).__name__}{hint}", path="handler")
    chosen = None if evaluators is None else load_evaluators(evaluators)
    options = HandlerOptions(
        evaluators=chosen, sampler=load_sampler(sample_rate, sampler), escalation=load_escalation(escalation),
        storage=None if storage is None else load_storage(storage),
    )  # fmt: skip
    if isinstance(options.escalation, Escalation) and chosen is not None:
        check_escalation(options.escalation, chosen)
    if agent is not None and (not isinstance(agent, str) or not agent.strip()):
        raise ConfigurationError(f"expected a name, found {agent!r}", path="agent")
    if capture is not None and not callable(capture):
        raise ConfigurationError(f"expected a function, found {type(capture).__name__}", path="capture")

    def decorate(function: Any) -> Any:
        if isinstance(function, classmethod | staticmethod):
            return type(function)(decorate(function.__func__))
        if inspect.isclass(function):
            raise ConfigurationError(f"{function.__name__} is a class: decorate its method", path="handler")
        name = clean(agent or getattr(function, "__qualname__", None) or type(function).__qualname__, 256)

        def settings_for(used: Pipeline) -> HandlerSettings:
            return used.handler(name, options, capture=capture, function=function)

        handling = Handler(
            name, function, settings_for, pipeline or default_pipeline(), follows=pipeline is None,
            keep_arguments=capture is not None,
        )  # fmt: skip
        return wrap(function, handling)

    return decorate if handler is None else decorate(handler)

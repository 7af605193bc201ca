"""`@monitor`: one line on a handler."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, ParamSpec, TypeVar, overload

from agenteval_otel.capture import Facts
from agenteval_otel.capture.text import clean
from agenteval_otel.compat import load_evaluators
from agenteval_otel.config.parts import load_sampler, load_storage
from agenteval_otel.config.process import default_pipeline
from agenteval_otel.engine.handler import HandlerOptions, HandlerSettings, StorageLike, check_escalation
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.evaluators.func import EvaluatorLike
from agenteval_otel.instrumentation.handler import Handler
from agenteval_otel.instrumentation.wrappers import wrap
from agenteval_otel.pipeline import Pipeline
from agenteval_otel.sampling import Escalation, Sampler
from agenteval_otel.sampling.escalation import load_escalation

P = ParamSpec("P")
R = TypeVar("R")


@overload
def monitor(handler: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def monitor(
    *,
    agent: str | None = None,
    evaluators: Sequence[EvaluatorLike] | None = None,
    sample_rate: float | None = None,
    sampler: Sampler | str | Mapping[str, Any] | None = None,
    escalation: Escalation | Mapping[str, Any] | Literal[False] | None = None,
    capture: Callable[..., Facts | Mapping[str, Any]] | None = None,
    storage: StorageLike | Sequence[StorageLike] | None = None,
    pipeline: Pipeline | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def monitor(
    handler: Any = None,
    /,
    *,
    agent: str | None = None,
    evaluators: Sequence[EvaluatorLike] | None = None,
    sample_rate: float | None = None,
    sampler: Sampler | str | Mapping[str, Any] | None = None,
    escalation: Escalation | Mapping[str, Any] | Literal[False] | None = None,
    capture: Callable[..., Facts | Mapping[str, Any]] | None = None,
    storage: StorageLike | Sequence[StorageLike] | None = None,
    pipeline: Pipeline | None = None,
) -> Any:
    """Evaluate a sample of a handler's answers in the background.

    Works bare and with arguments, on functions, coroutine functions, generators, async generators, methods of all kinds
    and callable objects. Signature, return value, exceptions, cancellation and the generator protocol stay unchanged.
    The caller pays microseconds and never waits.

    Args:
        handler: The handler, where `monitor` is used bare.
        agent: Name of the agent in telemetry; the handler's qualified name when left out.
        evaluators: Instances, functions, type names or ``{type: ...}`` mappings.
        sample_rate: Share of the calls that are evaluated, 0 to 1. It (or `sampler`) removes the default limit of ten
            evaluated responses a second.
        sampler: A sampler instead of a rate.
        escalation: An `Escalation`, or a mapping: cheap evaluators first, and rules on their results decide which
            answers the evaluators that call a model see (docs/escalation.md). False switches a configured one off.
        capture: ``capture(arguments, answer)`` returns further facts (see `annotate`) as a mapping, on the
            background thread, with the arguments by name.
        storage: A storage provider or several; replaces the configured ones.
        pipeline: The pipeline to use instead of the configured one.

    Raises:
        ConfigurationError: At decoration, with the path of the wrong argument and the known choices.
    """
    if handler is not None and not callable(handler) and not isinstance(handler, classmethod | staticmethod):
        hint = f"; did you mean agent={handler!r}?" if isinstance(handler, str) else ""
        raise ConfigurationError(f"expected a callable, found {type(handler).__name__}{hint}", path="handler")
    chosen = None if evaluators is None else load_evaluators(evaluators)
    options = HandlerOptions(
        evaluators=chosen, sampler=load_sampler(sample_rate, sampler), escalation=_load_fitting(escalation, chosen),
        storage=None if storage is None else load_storage(storage),
    )  # fmt: skip
    _check_facts(agent, capture)

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


def _check_facts(agent: Any, capture: Any) -> None:
    if agent is not None and (not isinstance(agent, str) or not agent.strip()):
        raise ConfigurationError(f"expected a name, found {agent!r}", path="agent")
    if capture is not None and not callable(capture):
        raise ConfigurationError(f"expected a function, found {type(capture).__name__}", path="capture")


def _load_fitting(value: Any, evaluators: Sequence[Evaluator] | None) -> Escalation | bool | None:
    """The escalation, checked against the evaluators where they are given here."""
    escalation = load_escalation(value)
    if isinstance(escalation, Escalation) and evaluators is not None:
        check_escalation(escalation, evaluators)
    return escalation

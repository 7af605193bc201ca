"""`@monitor`: one line on a handler."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from agenteval_otel.capture.text import clean
from agenteval_otel.components import load_each, resolve
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator, as_evaluator
from agenteval_otel.instrumentation.door import Door
from agenteval_otel.instrumentation.wrappers import wrap
from agenteval_otel.pipeline import Pipeline, Plan
from agenteval_otel.runner.stages import check_escalation
from agenteval_otel.sampling import Escalation, RatioSampler, Sampler
from agenteval_otel.sampling.base import expect_before_results
from agenteval_otel.sampling.escalation import load_escalation
from agenteval_otel.storage import EvaluationStorageProvider

__all__ = ["load_evaluators", "load_sampler", "load_storage", "monitor"]

P = ParamSpec("P")
R = TypeVar("R")


@overload
def monitor(handler: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def monitor(
    *,
    agent: str | None = None,
    evaluators: Sequence[Any] | None = None,
    sample_rate: float | None = None,
    sampler: Any = None,
    escalation: Any = None,
    capture: Callable[..., Any] | None = None,
    storage: Any = None,
    pipeline: Pipeline | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def monitor(
    handler: Any = None,
    /,
    *,
    agent: str | None = None,
    evaluators: Sequence[Any] | None = None,
    sample_rate: float | None = None,
    sampler: Any = None,
    escalation: Any = None,
    capture: Callable[..., Any] | None = None,
    storage: Any = None,
    pipeline: Pipeline | None = None,
) -> Any:
    """Evaluate what a handler answers, in the background, by sample.

    Works bare and with arguments, on functions, coroutine functions, generators, async generators, methods of all kinds
    and callable objects. To its caller the handler stays what it was: signature, return value, exceptions, cancellation
    and the generator protocol are untouched. The caller pays microseconds and is never made to wait.

    Args:
        handler: The handler, where `monitor` is used bare.
        agent: Name of the agent in telemetry; the handler's qualified name when left out.
        evaluators: Instances, functions, type names or ``{type: ...}`` mappings.
        sample_rate: Share of the calls that are evaluated, 0 to 1. Giving it (or `sampler`) takes away the default's
            limit of ten evaluated responses a second.
        sampler: A sampler instead of a rate.
        escalation: An `Escalation`, or a mapping: cheap evaluators first, and rules on what they found decide which
            answers those that ask a model see (docs/escalation.md). False for none.
        capture: ``capture(arguments, answer)`` gives further facts (see `annotate`) as a mapping; it runs on the pool's
            thread, with the arguments by name.
        storage: A storage provider or several; replaces the configured ones.
        pipeline: The pipeline to use instead of the configured one.

    Raises:
        ConfigurationError: At decoration, with the path of the wrong argument and the known choices.
    """
    if handler is not None and not callable(handler) and not isinstance(handler, classmethod | staticmethod):
        hint = f"; did you mean agent={handler!r}?" if isinstance(handler, str) else ""
        raise ConfigurationError(f"expected a callable, found {type(handler).__name__}{hint}", path="handler")
    chosen_evaluators = None if evaluators is None else load_evaluators(evaluators)
    chosen_sampler = load_sampler(sample_rate, sampler)
    chosen_escalation = _load_fitting(escalation, chosen_evaluators)
    chosen_storage = None if storage is None else load_storage(storage)
    _check_facts(agent, capture)

    def decorate(function: Any) -> Any:
        if isinstance(function, classmethod | staticmethod):
            return type(function)(decorate(function.__func__))
        if inspect.isclass(function):
            raise ConfigurationError(f"{function.__name__} is a class: decorate its method", path="handler")
        name = clean(agent or getattr(function, "__qualname__", None) or type(function).__qualname__, 256)

        def make_plan(chosen: Pipeline) -> Plan:
            return chosen.plan(
                name, evaluators=chosen_evaluators, sampler=chosen_sampler, storage=chosen_storage, capture=capture,
                function=function, escalation=chosen_escalation,
            )  # fmt: skip

        return wrap(function, Door(name, function, make_plan, pipeline=pipeline, keep_arguments=capture is not None))

    return decorate if handler is None else decorate(handler)


def _check_facts(agent: Any, capture: Any) -> None:
    if agent is not None and (not isinstance(agent, str) or not agent.strip()):
        raise ConfigurationError(f"expected a name, found {agent!r}", path="agent")
    if capture is not None and not callable(capture):
        raise ConfigurationError(f"expected a function, found {type(capture).__name__}", path="capture")


def _load_fitting(value: Any, evaluators: Sequence[Evaluator] | None) -> Escalation | bool | None:
    """The escalation; evaluators that come from elsewhere are held against it when they are known."""
    escalation = load_escalation(value)
    if isinstance(escalation, Escalation) and evaluators is not None:
        check_escalation(escalation, evaluators)
    return escalation


def load_evaluators(values: Any) -> tuple[Evaluator, ...]:
    """Evaluators from instances, functions, names and mappings. Raises `ConfigurationError` with the entry's path."""
    if isinstance(values, str | Mapping) or not isinstance(values, Sequence):
        raise ConfigurationError(f"expected a list of evaluators, found {type(values).__name__}", path="evaluators")
    if not values:
        raise ConfigurationError("expected at least one evaluator", path="evaluators")
    return load_each(lambda value, path: as_evaluator(value, path=path), values, path="evaluators")


def load_sampler(sample_rate: Any, sampler: Any) -> Any | None:
    """The sampler of a rate, or a sampler from an instance or mapping; None when neither is given."""
    if sample_rate is not None and sampler is not None:
        raise ConfigurationError("give sample_rate or sampler, not both", path="sampler")
    if sample_rate is not None:
        if isinstance(sample_rate, bool) or not isinstance(sample_rate, int | float) or not 0 <= sample_rate <= 1:
            raise ConfigurationError(f"expected a number from 0 to 1, found {sample_rate!r}", path="sample_rate")
        return RatioSampler(ratio=sample_rate)
    if sampler is None or (callable(getattr(sampler, "decide", None)) and not isinstance(sampler, Sampler)):
        return sampler
    return expect_before_results(resolve(Sampler, sampler, path="sampler"), path="sampler")


def load_storage(values: Any) -> tuple[Any, ...]:
    """Storage providers from one or several instances or mappings."""
    several = values if isinstance(values, list | tuple) else [values]
    return load_each(_load_provider, several, path="storage")


def _load_provider(value: Any, path: str) -> Any:
    ready = callable(getattr(value, "save_result", None))
    nothing = EvaluationStorageProvider.save_result
    if isinstance(value, EvaluationStorageProvider) and type(value).save_result is nothing:
        raise ConfigurationError(f"{type(value).__name__} has no method save_result of its own", path=path)
    return value if ready else resolve(EvaluationStorageProvider, value, path=path)

"""The signature of `@monitor`.

The first decoration imports the engine, so that importing `monitor` is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

if TYPE_CHECKING:
    from agenteval_otel.capture import Facts
    from agenteval_otel.engine.handler import StorageLike
    from agenteval_otel.engine.pipeline import Pipeline
    from agenteval_otel.evaluators.func import EvaluatorLike
    from agenteval_otel.sampling import Escalation, Sampler

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
    handler: object = None,
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
    **unknown: Any,
) -> Any:
    """Evaluate a sample of a handler's answers in the background.

    Works bare and with arguments, on functions, coroutine functions, generators, async generators,
    methods of all kinds and callable objects. Signature, return value, exceptions, cancellation and
    the generator protocol stay unchanged. The caller pays microseconds and never waits.

    Args:
        handler: The handler, where `monitor` is used bare.
        agent: Name of the agent in telemetry. By default the handler's qualified name.
        evaluators: Instances, functions, type names or ``{type: ...}`` mappings.
        sample_rate: Share of the calls that are evaluated, 0 to 1. It (or `sampler`) removes the
            default limit of ten evaluated responses a second.
        sampler: A sampler instead of a rate.
        escalation: An `Escalation`, or a mapping: cheap evaluators first, and rules on their
            results decide which answers the evaluators that call a model see. False switches a
            configured one off.
        capture: ``capture(arguments, answer)`` returns further facts (see `annotate`) as a mapping,
            on the background thread, with the arguments by name.
        storage: A storage provider or several. They replace the configured ones.
        pipeline: The pipeline to use instead of the configured one.
        unknown: Other arguments are refused.

    Raises:
        ConfigurationError: At decoration, with the path of the wrong argument and the known
            choices.
    """
    from agenteval_otel.instrumentation.wrappers import decorated, refuse_unknown

    refuse_unknown(unknown)
    return decorated(
        handler,
        agent=agent,
        evaluators=evaluators,
        sample_rate=sample_rate,
        sampler=sampler,
        escalation=escalation,
        capture=capture,
        storage=storage,
        pipeline=pipeline,
    )

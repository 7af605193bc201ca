"""Plan: what one monitored handler wants."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.runner import EvaluationRunner
from agenteval_otel.sampling import Sampler
from agenteval_otel.storage import FanOutStorage, OtlpStorageProvider
from agenteval_otel.telemetry.spans import agent_attributes, evaluated_attributes

if TYPE_CHECKING:
    from agenteval_otel.pipeline.route import Pipeline

__all__ = ["Plan"]

_SLUG = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]{0,63}")


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
                    f"criterion name {name!r} must be a slug: a letter, then at most 63 letters, digits, '_', '.', '-'",
                    path="evaluators",
                )
        self.evaluated_attributes = evaluated_attributes(names)
        self.unsampled_attributes = agent_attributes(agent)
        self.agent_attributes = {**self.unsampled_attributes, **self.evaluated_attributes}

    def __repr__(self) -> str:
        return f"<Plan {self.agent} {self.runner!r}>"

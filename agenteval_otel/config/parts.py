"""Parts as decorators and settings name them: evaluators, samplers and storage providers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agenteval_otel.compat import load_evaluator
from agenteval_otel.components import load_each, resolve
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.sampling import RatioSampler, Sampler
from agenteval_otel.sampling.base import expect_before_results
from agenteval_otel.storage import EvaluationStorageProvider

__all__ = ["load_evaluators", "load_sampler", "load_storage"]


def load_evaluators(values: Any) -> tuple[Evaluator, ...]:
    """Evaluators from instances, functions, names and mappings. Raises `ConfigurationError` with the entry's path."""
    if isinstance(values, str | Mapping) or not isinstance(values, Sequence):
        raise ConfigurationError(f"expected a list of evaluators, found {type(values).__name__}", path="evaluators")
    if not values:
        raise ConfigurationError("expected at least one evaluator", path="evaluators")
    return load_each(lambda value, path: load_evaluator(value, path=path), values, path="evaluators")


def load_sampler(sample_rate: Any, sampler: Any) -> Any | None:
    """The sampler of a rate, or a sampler from an instance or mapping; None when neither is there."""
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

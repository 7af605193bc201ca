"""Func: a plain function as an evaluator, and how configuration and callers name evaluators."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self, TypeAlias

from pydantic import Field, field_validator, model_validator

from agenteval_otel.components.loading import resolve_or_wrap
from agenteval_otel.evaluators.base import (
    CriterionEvaluator,
    Evaluator,
    Execution,
    importable,
    imported,
    qualified_name,
)
from agenteval_otel.models import EvaluationInput, ScoreLike

EvaluatorLike: TypeAlias = (
    Evaluator | Callable[[EvaluationInput], ScoreLike | Awaitable[ScoreLike]] | str | Mapping[str, Any]
)
"""An instance, a function, the name of a type, or ``{"type": ...}`` with its settings."""


class Func(CriterionEvaluator, type="Func"):
    """Scores with a function, sync or async, that takes the evaluation input.

    The function returns a `Score`, or its value alone: a boolean, a number or a category on the criterion's scale. What
    it raises is this evaluator's failure; it abstains with `EvaluationSkipped`. An async one is taken to await a model.

    Attributes:
        function: Left out of dumps; its qualified name (not its body) is part of the fingerprint.
        name: What the function is called in reports; the criterion's name when left out, and the other way round.
    """

    name: str = Field(default="", validate_default=False)
    function: Callable[[EvaluationInput], Any] = Field(exclude=True)

    @classmethod
    def of(cls, function: Callable[[EvaluationInput], Any], **fields: Any) -> Self:
        """An evaluator whose criterion has the function's ``__name__``, unless `fields` say otherwise."""
        return cls.model_validate({"function": function, **fields})

    @model_validator(mode="before")
    @classmethod
    def _names_default_to_each_other(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        criterion = data.get("criterion_name", data.get("criterionName"))
        name = data.get("name") or criterion or qualified_name(data.get("function")).rpartition(".")[2]
        filled = {"name": name} if criterion is not None else {"name": name, "criterion_name": name}
        return {**data, **filled}

    @field_validator("function")
    @classmethod
    def _takes_the_input(cls, value: Callable[..., Any]) -> Callable[..., Any]:
        try:
            signature = inspect.signature(value)
        except (TypeError, ValueError):  # that of some built-in functions is unknown
            return value
        try:
            signature.bind(None)
        except TypeError:
            name = qualified_name(value).rpartition(".")[2]
            raise ValueError(
                f"expected a function of one argument: def {name}(evaluation_input: EvaluationInput), with its .prompt "
                f"and .response_text; this one takes {signature}"
            ) from None
        return value

    def preferred_execution(self) -> Execution | None:
        return "async" if is_async(self.function) else None

    def fingerprint_source(self) -> str:
        return f"{super().fingerprint_source()} {qualified_name(self.function)}"

    def to_child(self) -> dict[str, Any]:
        """As every evaluator's; LookupError for a lambda, a local or a partial function."""
        return {**super().to_child(), "function": importable(self.function)}

    @classmethod
    def from_child(cls, fields: Mapping[str, Any]) -> Self:
        return cls.model_validate({**fields, "function": imported(*fields["function"])})

    def score(self, evaluation_input: EvaluationInput) -> ScoreLike | Awaitable[ScoreLike]:
        """Call the function; whatever it raises is passed on."""
        score: ScoreLike | Awaitable[ScoreLike] = self.function(evaluation_input)
        return score


def is_async(function: Any) -> bool:
    """Whether the function, or the object's call, has to be awaited."""
    call = getattr(function, "__call__", None)  # noqa: B004 - the method is wanted, not whether there is one
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def as_evaluator(value: Any, *, path: str | None = None) -> Evaluator:
    """An evaluator from an instance, a mapping with its ``type``, a type's name, a class, or a function (a `Func`)."""
    return resolve_or_wrap(
        Evaluator, value, wrap=lambda value: Func.load({"function": value}, path=path) if callable(value) else None,
        expected="an evaluator, a function", path=path,
    )  # fmt: skip

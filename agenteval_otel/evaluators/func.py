"""Evaluators made from functions and objects of the program.

`as_evaluator` reads how configuration and callers name evaluators.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, Self, TypeAlias

from pydantic import Field, ValidationError, computed_field, field_validator, model_validator

from agenteval_otel.components import Component
from agenteval_otel.components.loading import resolve_or_wrap
from agenteval_otel.errors import ConfigurationError, EvaluationError
from agenteval_otel.evaluators.base import (
    CriterionEvaluator,
    Evaluator,
    Execution,
    importable,
    imported,
    qualified_name,
)
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult, ScoreLike
from agenteval_otel.models.value import copy_with


class Evaluates(Protocol):
    """Describes any object with these two members.

    `Evaluator` is the class for evaluators that settings choose.
    """

    @property
    def type(self) -> str: ...
    def evaluate(
        self, evaluation_input: EvaluationInput, criteria: Sequence[EvaluationCriteria], /
    ) -> Any:
        """Return results in a list, or an awaitable of it.

        A result is an `EvaluationResult`, or its fields as a mapping.
        """


EvaluatorLike: TypeAlias = (
    Evaluator
    | Evaluates
    | Callable[[EvaluationInput], ScoreLike | Awaitable[ScoreLike]]
    | str
    | Mapping[str, Any]
)
"""An instance, an object or a function of one's own, the name of a type, or ``{"type": ...}`` with
its settings.
"""


class Func(CriterionEvaluator, type="Func"):
    """Scores with a function, sync or async, that takes the evaluation input.

    The function returns a `Score`, or its value alone: a boolean, a number or a category on the
    criterion's scale. It raises `EvaluationSkipped` to skip. Any other exception is a failure. An
    async function is assumed to call a model.

    Attributes:
        function: Left out of dumps. Its qualified name (not its body) is part of the fingerprint.
        name: What the function is called in reports. When left out it is the criterion's name, and
            the other way round.
    """

    name: str = Field(default="", validate_default=False)
    function: Callable[[EvaluationInput], Any] = Field(exclude=True)

    @classmethod
    def of(cls, function: Callable[[EvaluationInput], Any], **fields: Any) -> Self:
        """Build an evaluator whose criterion has the function's ``__name__``.

        `fields` may say otherwise.
        """
        return cls.model_validate({"function": function, **fields})

    @model_validator(mode="before")
    @classmethod
    def _names_default_to_each_other(cls, data: object) -> Any:
        if not isinstance(data, Mapping):
            return data
        criterion = data.get("criterion_name", data.get("criterionName"))
        name = data.get("name") or criterion
        if not name:
            name = qualified_name(data.get("function")).rpartition(".")[2]
        if criterion is not None:
            return {**data, "name": name}
        return {**data, "name": name, "criterion_name": name}

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
                f"and .response_text. This one takes {signature}"
            ) from None
        return value

    def preferred_execution(self) -> Execution | None:
        return "async" if is_async(self.function) else None

    def fingerprint_source(self) -> str:
        return f"{super().fingerprint_source()} {qualified_name(self.function)}"

    def to_child(self) -> dict[str, Any]:
        """Return its configuration as every evaluator does.

        Raises:
            LookupError: The function is a lambda, a local or a partial function.
        """
        return {**super().to_child(), "function": importable(self.function)}

    @classmethod
    def from_child(cls, fields: Mapping[str, Any]) -> Self:
        return cls.model_validate({**fields, "function": imported(*fields["function"])})

    def score(self, evaluation_input: EvaluationInput) -> ScoreLike | Awaitable[ScoreLike]:
        """Call the function. Whatever it raises is passed on."""
        score: ScoreLike | Awaitable[ScoreLike] = self.function(evaluation_input)
        return score


class ObjectEvaluator(Evaluator):
    """Wraps an object that has only ``type`` and ``evaluate(input, criteria)``, sync or async.

    Its criteria are those of the object's ``criteria()``, if it has that method. Otherwise it gets
    all requested criteria. An async object is assumed to call a model. It runs in this process.
    """

    name: str
    evaluator: Any = Field(exclude=True)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def type(self) -> str:
        return self.name

    @classmethod
    def of(cls, evaluator: Any) -> Self:
        """Wrap the object, under its ``type`` as the name.

        Raises:
            ConfigurationError: Its `evaluate` cannot be called with the input and the criteria.
        """
        try:
            inspect.signature(evaluator.evaluate).bind(None, ())
        except TypeError:
            wrong = f"{qualified_name(evaluator)}.evaluate has to take two arguments, the input and the criteria"
            raise ConfigurationError(wrong) from None
        except ValueError:  # it is not written in Python
            pass
        return cls(name=evaluator.type, evaluator=evaluator)

    def preferred_execution(self) -> Execution | None:
        return "async" if inspect.iscoroutinefunction(self.evaluator.evaluate) else None

    def fingerprint_source(self) -> str:
        return f"{super().fingerprint_source()} {qualified_name(self.evaluator)}"

    def to_child(self) -> dict[str, Any]:
        raise LookupError("an object of the program's stays in its process")

    def criteria(self) -> tuple[EvaluationCriteria, ...]:
        declared = getattr(self.evaluator, "criteria", None)
        return tuple(declared()) if callable(declared) else ()

    async def evaluate(
        self, evaluation_input: EvaluationInput, criteria: Sequence[EvaluationCriteria]
    ) -> list[EvaluationResult]:
        results = self.evaluator.evaluate(evaluation_input, criteria)
        if inspect.isawaitable(results):
            results = await results
        if not isinstance(results, list | tuple):
            raise EvaluationError(
                "expected a list of EvaluationResult", error_type="invalid_result"
            )
        return [self._signed(result) for result in results]

    def _signed(self, result: object) -> Any:
        if isinstance(result, Mapping):
            try:
                result = EvaluationResult.model_validate({"evaluator_type": self.type, **result})
            except ValidationError as error:
                locations = [problem["loc"] for problem in error.errors()]
                fields = sorted({str(location[0]) for location in locations if location})
                raise EvaluationError(
                    f"a result with wrong fields: {', '.join(fields)}", error_type="invalid_result"
                ) from None
        if not isinstance(result, EvaluationResult):
            return result
        own = result.model_fields_set
        missing = {name: value for name, value in self.signature.items() if name not in own}
        return copy_with(result, missing)


def is_async(function: object) -> bool:
    """Tell whether the function, or the object's call, has to be awaited."""
    call = getattr(function, "__call__", None)  # noqa: B004 - the method is wanted, not whether there is one
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def as_evaluator(value: object, *, path: str | None = None) -> Evaluator:
    """Return an evaluator from what a caller or a configuration may write.

    That is an instance, a mapping with its ``type``, a type's name, a class, a function (it becomes
    a `Func`), or an object with ``type`` and ``evaluate(input, criteria)``.
    """

    def wrapped(value: object) -> Evaluator | None:
        if isinstance(value, Component) and value.contract == "check":
            name = type(value).__name__
            raise ConfigurationError(
                f"{name} is a rule: RuleBased(rules=[{name}(...)]) evaluates it", path=path
            )
        has_evaluate = callable(getattr(value, "evaluate", None))
        if has_evaluate and isinstance(getattr(value, "type", None), str):
            return ObjectEvaluator.of(value)
        return Func.load({"function": value}, path=path) if callable(value) else None

    try:
        return resolve_or_wrap(
            Evaluator,
            value,
            wrap=wrapped,
            expected="an evaluator, a function, an object with type and evaluate",
            path=path,
        )
    except ConfigurationError as error:
        raise error if error.path else error.with_prefix(path) from None

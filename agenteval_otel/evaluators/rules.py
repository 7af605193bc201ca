"""RulesEvaluator: what evaluators of several rules have in common, each rule deciding a criterion."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

from pydantic import Field, field_validator

from agenteval_otel.components import ListOf
from agenteval_otel.evaluators.base import Evaluator, Execution
from agenteval_otel.models import EvaluationCriteria

__all__ = ["RulesEvaluator"]


class RulesEvaluator(Evaluator):
    """An evaluator of rules that are fields of its configuration; several may decide one criterion.

    A subclass says what a rule is: it has a `criterion_name`, and `is_quick` tells whether no text can make it slow.

    Attributes:
        rules: At least one. Rules for criteria that are not asked for are passed over.
    """

    repeats: ClassVar[bool] = True

    rules: ListOf[Any] = Field(json_schema_extra={"minItems": 1})

    @field_validator("rules")
    @classmethod
    def _at_least_one(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        # Said here and not by the field's own limit, which would also complain when a rule is wrong.
        if not value:
            raise ValueError("expected at least one rule")
        return value

    def preferred_execution(self) -> Execution | None:
        """``process`` where a text can make one of the rules take too long, else ``inline``."""
        return self._preferred_execution

    @cached_property
    def _preferred_execution(self) -> Execution | None:
        return "inline" if all(rule.is_quick for rule in self.rules) else "process"

    @cached_property
    def _criteria(self) -> tuple[EvaluationCriteria, ...]:
        names = dict.fromkeys(rule.criterion_name for rule in self.rules)
        return tuple(EvaluationCriteria(name=name, scale="binary") for name in names)

    def criteria(self) -> tuple[EvaluationCriteria, ...]:
        """The criteria that the rules name, in rule order, on the scale ``binary``."""
        return self._criteria

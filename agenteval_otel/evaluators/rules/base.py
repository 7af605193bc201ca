"""What evaluators of several rules share, and the contract of the checks of `RuleBased`."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeAlias

from pydantic import Field, field_validator

from agenteval_otel.components import Component, ListOf
from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.base import Evaluator, Execution
from agenteval_otel.evaluators.fields import TextField
from agenteval_otel.models import EvaluationCriteria, EvaluationInput

__all__ = ["InvalidCheck", "RuleCheck", "RuleFailure", "RuleResult", "RulesEvaluator"]


class RulesEvaluator(Evaluator):
    """An evaluator of rules that are fields of its configuration; several may decide one criterion.

    A subclass defines what a rule is: it has a `criterion_name` and `is_fast`.

    Attributes:
        rules: At least one. Rules for criteria that are not scored are ignored.
    """

    repeats: ClassVar[bool] = True

    rules: ListOf[Any] = Field(json_schema_extra={"minItems": 1})

    @field_validator("rules")
    @classmethod
    def _at_least_one(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        # Not the field's own limit, which would also complain when a rule is invalid.
        if not value:
            raise ValueError("expected at least one rule")
        return value

    def preferred_execution(self) -> Execution | None:
        """``process`` where a text can make one of the rules slow, else ``inline``."""
        return self._preferred_execution

    @cached_property
    def _preferred_execution(self) -> Execution | None:
        return "inline" if all(rule.is_fast for rule in self.rules) else "process"

    @cached_property
    def _criteria(self) -> tuple[EvaluationCriteria, ...]:
        names = dict.fromkeys(rule.criterion_name for rule in self.rules)
        return tuple(EvaluationCriteria(name=name, scale="binary") for name in names)

    def criteria(self) -> tuple[EvaluationCriteria, ...]:
        """The criteria that the rules name, in rule order, on the scale ``binary``."""
        return self._criteria


class RuleFailure(NamedTuple):
    """Why a text fails a rule.

    Attributes:
        reason_code: A word of the check's closed list, safe to export.
        detail: What a reader may want to know besides (content).
    """

    reason_code: str
    detail: str = ""


RuleResult: TypeAlias = RuleFailure | None
"""None when the rule passes."""


class RuleCheck(Component, contract="check"):
    """One rule of `RuleBased`: the criterion that it decides, where the text comes from, and the check of it.

    Subclass it with ``type="..."`` in the class line and implement `check`; plugins use the entry-point group
    ``agenteval_otel.checks``.

    Attributes:
        criterion: The criterion that the rule decides.
        source_text_field: Where the text is: ``response``, ``prompt``, ``groundTruth`` or ``context.<path>``.
    """

    reason_codes: ClassVar[tuple[str, ...]] = ()

    criterion: str = Field(min_length=1, pattern=r"\S")
    source_text_field: TextField = "response"

    @property
    def criterion_name(self) -> str:
        """The criterion that the rule decides."""
        return self.criterion

    @property
    def is_fast(self) -> bool:
        """Whether no text can make the check slow. `RuleBased` runs ``inline`` where all are, else ``process``."""
        return False

    def check(self, text: str) -> RuleResult:
        """Check the text: None when it passes.

        Raises:
            Exception: The rule cannot be applied to this text: a failed result without a score.
        """
        raise EvaluationError(f"{self.type} does not implement check")

    def check_input(self, evaluation_input: EvaluationInput) -> RuleResult:
        """Check the text at `source_text_field`. Override it where values other than text can be checked.

        Raises:
            EvaluationError: (``missing_text``) There is no text.
        """
        text = evaluation_input.text_at(self.source_text_field)
        if text is None:
            raise EvaluationError(f"no text at {self.source_text_field}", error_type="missing_text")
        return self.check(text)


class InvalidCheck(RuleCheck):
    """A rule of AgentDock's that cannot run: a failed result in every evaluation, as there. Settings cannot choose it.

    Attributes:
        problem: What is wrong with it.
    """

    problem: str

    @property
    def is_fast(self) -> bool:
        return True

    def check_input(self, evaluation_input: EvaluationInput) -> RuleResult:
        """Raise the problem."""
        raise EvaluationError(self.problem, error_type="invalid_rule")

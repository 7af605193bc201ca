"""Evaluators of several rules: their base, the contract of checks, and `RuleBased`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from pydantic import Field, SerializeAsAny, field_validator

from agenteval_otel.components import Component, ListOf
from agenteval_otel.components.loading import load_each, resolve
from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators.base import Evaluator, Execution, failure_of, find_criterion, result_of, skipped_of
from agenteval_otel.evaluators.built_in import TextField, text_at
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult, Score, ScoreValue
from agenteval_otel.models.value import copy_with
from agenteval_otel.runtime.masking import message_of

_VALUES: dict[str, tuple[ScoreValue, ScoreValue]] = {"numeric": (0, 1), "likert5": (1, 5), "string": ("fail", "pass")}


class RulesEvaluator(Evaluator):
    """An evaluator of rules that are fields of its configuration; several may decide one criterion.

    A subclass defines what a rule is (it has a `criterion_name` and `is_fast`) and how a rule is scored.

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
        return "inline" if all(rule.is_fast for rule in self.rules) else "process"

    @cached_property
    def _criteria(self) -> tuple[EvaluationCriteria, ...]:
        names = dict.fromkeys(rule.criterion_name for rule in self.rules)
        return tuple(EvaluationCriteria(name=name, scale="binary") for name in names)

    def criteria(self) -> tuple[EvaluationCriteria, ...]:
        """The criteria that the rules name, in rule order, on the scale ``binary``."""
        return self._criteria

    async def evaluate(
        self, evaluation_input: EvaluationInput, criteria: Sequence[EvaluationCriteria]
    ) -> list[EvaluationResult]:
        """One result for each rule whose criterion is scored, in rule order."""
        due = [(rule, criterion) for rule in self.rules if (criterion := find_criterion(criteria, rule.criterion_name))]
        subject = self.subject(evaluation_input) if due else None
        return [self._result(rule, subject, criterion) for rule, criterion in due]

    def subject(self, evaluation_input: EvaluationInput) -> Any:
        """What the rules look at."""
        return evaluation_input

    def score_rule(self, rule: Any, subject: Any, criterion: EvaluationCriteria) -> Score:
        """The score of one rule; what it raises is a failed result of this rule alone."""
        raise NotImplementedError

    def filler(self, criterion: EvaluationCriteria) -> ScoreValue:
        """The score that AgentDock writes into a failed result."""
        raise NotImplementedError

    def _result(self, rule: Any, subject: Any, criterion: EvaluationCriteria) -> EvaluationResult:
        try:
            return result_of(self, criterion, self.score_rule(rule, subject, criterion))
        except EvaluationSkipped as skipped:
            return skipped_of(self, criterion.name, str(skipped))
        except EvaluationError as error:
            filler = self.filler(criterion)
            return failure_of(self, criterion.name, str(error), error_type=error.error_type, filler=filler)
        except Exception as error:  # of a user's function: a run error
            failed = failure_of(self, criterion.name, message_of(error), error_type=type(error).__name__)
            return copy_with(failed, {"raised": True})


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
        return self.check(text_at(evaluation_input, self.source_text_field))


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


class RuleBased(RulesEvaluator, type="RuleBased"):
    """Passes or fails criteria by fixed rules; several rules may decide one criterion, each with its own result.

    A passed rule scores true on ``binary``, ``pass/fail``, declared ranges and custom scales, 1 on ``numeric``, 5 on
    ``likert5`` and ``"pass"`` on the scale ``string``; a failed one false, 0, 1 and ``"fail"``. A rule that cannot be
    applied (no text, a pattern that takes too long) gives a failed result; the others go on.

    Attributes:
        rules: At least one: instances such as ``Length(criterion="short_enough", max=80)``, or mappings such as
            ``{criterion: short_enough, type: length, max: 80}``. Rules for criteria that are not scored are ignored.
    """

    rules: ListOf[SerializeAsAny[RuleCheck]] = Field(json_schema_extra={"minItems": 1})

    if TYPE_CHECKING:

        def __init__(
            self, *, rules: Sequence[RuleCheck | Mapping[str, Any]], execution: Execution | None = None,
            timeout_s: float | None = None, sample_rate: float | None = None, tags: Sequence[str] = (),
        ) -> None: ...  # fmt: skip

    @field_validator("rules", mode="before")
    @classmethod
    def _load_rules(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise ValueError("expected a list of rules")
        return load_each(_load_rule, value, path="rules")

    def score_rule(self, rule: RuleCheck, subject: EvaluationInput, criterion: EvaluationCriteria) -> Score:
        try:
            failure = rule.check_input(subject)
        except (EvaluationError, EvaluationSkipped):
            raise
        except Exception as error:  # of a user's check, or of a mapping in the input
            raise EvaluationError(message_of(error), error_type=type(error).__name__) from None
        outcome = "passed" if failure is None else f"failed ({failure.detail})" if failure.detail else "failed"
        return Score(
            value=_value_on(criterion, passed=failure is None),
            passed=failure is None,
            reason_code=None if failure is None else failure.reason_code,
            reasoning=f"rule {rule.type} on {rule.source_text_field}: {outcome}",
        )

    def filler(self, criterion: EvaluationCriteria) -> ScoreValue:
        return _value_on(criterion, passed=False)


def _load_rule(rule: Any, path: str) -> RuleCheck:
    if isinstance(rule, Mapping) and rule.get("type") == InvalidCheck.__name__:
        return InvalidCheck.load({name: value for name, value in rule.items() if name != "type"}, path=path)
    return resolve(RuleCheck, rule, path=path)


def _value_on(criterion: EvaluationCriteria, *, passed: bool) -> ScoreValue:
    if criterion.minimum is not None and criterion.maximum is not None:
        return passed
    return _VALUES.get(criterion.scale, (False, True))[passed]

"""Suite: evaluators in order with one verdict, for tests.

It calls `run_evaluation` for each, so both score alike.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from math import fsum
from typing import TYPE_CHECKING, Any, Self

from pydantic import AliasChoices, Field, SerializeAsAny, field_validator, model_validator

from agenteval_otel.capture.redaction import Redactor, default_redactors
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.evaluators.compat import load_evaluators
from agenteval_otel.evaluators.func import EvaluatorLike
from agenteval_otel.evaluators.shadow import declared_criteria
from agenteval_otel.models import EvaluationCriteria, EvaluationResult
from agenteval_otel.models.value import Value, copy_with
from agenteval_otel.offline.config import EvaluationRunConfig, InputLike, RunModel, as_input
from agenteval_otel.offline.run import run_evaluation
from agenteval_otel.runtime.loop import blocking
from agenteval_otel.runtime.text import brief

_LINE = 100
_SHORT = 180  # pytest cuts the middle out of a longer one
_REASONS = 120  # of _SHORT, for all reasons together
_LEAST = 20  # of _SHORT, for each reason


class SuiteScore(Value):
    """Holds the score of one evaluator of a suite. In JSON it is ``{pass, value, reason}``.

    Attributes:
        value: The score moved to [0, 1], higher is better. None where its scale has no such form.
        reasoning: Free text of the evaluator. It is content.
    """

    passed: bool = Field(
        validation_alias=AliasChoices("pass", "passed"), serialization_alias="pass"
    )
    value: float | None = None
    reasoning: str | None = Field(
        default=None,
        validation_alias=AliasChoices("reason", "reasoning"),
        serialization_alias="reason",
    )


class SuiteResult(Value):
    """Holds a suite's verdict. It is true if the suite passed.

    In JSON it is ``{pass, value, reason, scores, errors, ...}``. As text it has a line for each
    evaluator: whether it passed, its value, why.

    Attributes:
        passed: No evaluator failed, none broke, and not all of them skipped.
        value: Mean of the scores' values, each counting once. None without any. Errors and skips do
            not enter it.
        scores, errors, skipped: By name, in the order in which the evaluators ran. An error is what
            broke.
        not_run: The names of the evaluators after the error that stopped the suite.
        results: The evaluators' own results. They are not part of the JSON.
    """

    name: str = "suite"
    passed: bool = Field(
        validation_alias=AliasChoices("pass", "passed"), serialization_alias="pass"
    )
    value: float | None = None
    reasoning: str = Field(
        default="",
        validation_alias=AliasChoices("reason", "reasoning"),
        serialization_alias="reason",
    )
    scores: dict[str, SuiteScore] = {}
    errors: dict[str, str] = {}
    skipped: dict[str, str] = {}
    not_run: tuple[str, ...] = ()
    results: tuple[EvaluationResult, ...] = Field(default=(), exclude=True)

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        """Return one short line, failures first. pytest shows it for a bare ``assert``."""
        wrong = [(f"{name} broke", error) for name, error in self.errors.items()]
        for name, score in self.scores.items():
            if not score.passed:
                wrong.append((f"{name} {_number(score.value)}", score.reasoning or ""))
        room = _REASONS // max(1, len(wrong))
        texts: list[str] = []
        for what, why in wrong:
            has_room = bool(why) and room > _LEAST
            texts.append(f"{what} ({brief(why, room)})" if has_room else what)
        verdict = "passed" if self.passed else "failed"
        shown = brief(", ".join(texts), _SHORT) or self.reasoning
        return f"<SuiteResult {self.name!r} {verdict}: {shown}>"

    def __str__(self) -> str:
        rows: dict[str, tuple[str, str, str]] = {}
        for name, score in self.scores.items():
            if score.passed:
                rows[name] = ("pass", _number(score.value), "")
            else:
                rows[name] = ("FAIL", _number(score.value), score.reasoning or "")
        for name, error in self.errors.items():
            rows[name] = ("ERROR", "", error)
        for name, reason in self.skipped.items():
            rows[name] = ("skip", "", reason)
        for name in self.not_run:
            rows[name] = ("not run", "", "")
        for result in self.results:
            if result.shadow:
                tried = result.label or result.status
                rows[result.criterion_name] = ("shadow", _number(result.normalized), tried)
        names_of_results = [result.criterion_name for result in self.results]
        in_order = dict.fromkeys([*names_of_results, *rows])
        width = max(map(len, rows), default=0)
        lines = [f"{self.name} {'passed' if self.passed else 'failed'}: {self.reasoning}"]
        for name in in_order:
            status, value, why = rows[name]
            lines.append(f"  {status:<7} {name:<{width}}  {value:>5}  {brief(why, _LINE)}".rstrip())
        return "\n".join(lines)

    def check(self) -> Self:
        """Return this result if the suite passed.

        Otherwise raise AssertionError with a line for each evaluator.
        """
        __tracebackhide__ = True  # pytest then shows the line of the test
        if not self.passed:
            raise AssertionError(str(self))
        return self


def result_of_suite(
    name: str, results: Sequence[EvaluationResult], names: Sequence[str]
) -> SuiteResult:
    """Return the verdict on the results of a suite whose evaluators have these names.

    Several results under one name, as rules give them, are one score: it passes when all of them
    do, and has the mean of their values.
    """
    by_name: dict[str, list[EvaluationResult]] = {}
    for result in results:
        if result.shadow:
            continue  # it is tried, and decides nothing
        by_name.setdefault(result.criterion_name, []).append(result)
    scores: dict[str, SuiteScore] = {}
    errors: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for criterion_name, group in by_name.items():
        failed = [result.error or "" for result in group if result.status == "failed"]
        scored = [result for result in group if result.status == "scored"]
        if failed:
            errors[criterion_name] = ". ".join(failed)
        elif scored:
            scores[criterion_name] = _score_of(scored)
        else:
            skipped[criterion_name] = group[0].skip_reason or "skipped"
    not_run = tuple(criterion_name for criterion_name in names if criterion_name not in by_name)
    failures = [criterion_name for criterion_name, score in scores.items() if not score.passed]
    parts = [f"{len(scores) - len(failures)} of {len(scores) + len(errors)} passed"]
    if skipped and not scores and not errors:
        parts = ["nothing was scored"]
    lists = (("failed", failures), ("broke", errors), ("skipped", skipped), ("not run", not_run))
    for label, listed in lists:
        if listed:
            parts.append(f"{label.capitalize()}: {', '.join(listed)}")
    values = [score.value for score in scores.values() if score.value is not None]
    is_empty = not names and not results
    return SuiteResult(
        name=name,
        passed=not failures and not errors and (bool(scores) or is_empty),
        value=_mean(values),
        reasoning=". ".join(parts),
        scores=scores,
        errors=errors,
        skipped=skipped,
        not_run=not_run,
        results=tuple(results),
    )


def _score_of(results: Sequence[EvaluationResult]) -> SuiteScore:
    verdicts: list[bool] = []
    for result in results:
        has_best_score = result.normalized == 1.0
        verdicts.append(has_best_score if result.passed is None else result.passed)
    all_pass = all(verdicts)
    reasons: list[str] = []
    for result, passed in zip(results, verdicts, strict=True):
        reason = _reason_of(result)
        if reason and passed == all_pass:
            reasons.append(reason)
    values = [result.normalized for result in results if result.normalized is not None]
    return SuiteScore(
        passed=all_pass,
        value=_mean(values),
        reasoning=". ".join(reasons) or None,
    )


def _reason_of(result: EvaluationResult) -> str | None:
    if result.passed is None and result.normalized != 1.0:
        rule = "without a threshold only the best score passes"
    elif result.passed is False and result.threshold is not None:
        rule = f"threshold {result.threshold:g}"
    else:
        return result.reasoning or result.reason_code
    return f"{rule}, reason: {result.reasoning}" if result.reasoning else rule


def _mean(values: Sequence[float]) -> float | None:
    return min(1.0, fsum(values) / len(values)) if values else None


def _number(value: float | None) -> str:
    """Format with two digits, cut and not rounded.

    A score below the best is never shown as the best.
    """
    return "-" if value is None else f"{int(value * 100) / 100:.2f}"


class Suite(RunModel):
    """Runs evaluators one after the other, and passes or fails as a whole.

    It passes when none of them fails or breaks, and not all of them skip. If an evaluator breaks,
    the suite has failed and stops. If an evaluator fails, the suite goes on. An evaluator that has
    no verdict of its own and no threshold passes with the best score only.

    In a test: ``assert suite.run_sync(answer)``, or ``suite.run_sync(answer).check()`` for a line
    an evaluator.

    Attributes:
        evaluators: Instances, functions or ``{type: ...}`` mappings, in the order in which they
            run. No two of them may score one criterion: its name identifies scores and errors.
        name: What reports call the suite.
        continue_on_error: Continue when an evaluator breaks. The suite fails nevertheless.
        redactors: Applied to the inputs of evaluators that call a model. An empty list for none.

    Raises:
        ConfigurationError: Two evaluators for one criterion, or a wrong evaluator, with its path.
    """

    evaluators: tuple[SerializeAsAny[Evaluator], ...] = ()
    name: str = "suite"
    continue_on_error: bool = False
    redactors: tuple[SerializeAsAny[Redactor], ...] = Field(default_factory=default_redactors)

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            evaluators: Sequence[EvaluatorLike] = (),
            name: str = "suite",
            continue_on_error: bool = False,
            redactors: Sequence[Redactor | str | Mapping[str, Any]] = ...,
        ) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _load_parts(cls, data: object) -> Any:
        if not isinstance(data, Mapping):
            return data
        return {**data, "evaluators": load_evaluators(data.get("evaluators", ()), at_least=0)}

    @model_validator(mode="after")
    def _tests_something(self) -> Self:
        if not self.evaluators:
            warnings.warn(
                f"the suite {self.name!r} has no evaluators: it always passes", stacklevel=4
            )
        return self

    @field_validator("evaluators")
    @classmethod
    def _each_has_its_name(cls, value: tuple[Evaluator, ...]) -> tuple[Evaluator, ...]:
        taken: dict[str, str] = {}
        for index, evaluator in enumerate(value):
            names = [criterion.name for criterion in declared_criteria(evaluator)]
            for name in dict.fromkeys(names):
                if name in taken:
                    raise ConfigurationError(
                        f"{taken[name]} has the name {name!r} already: give one of them another criterion_name",
                        path=f"evaluators[{index}]",
                    )
                taken[name] = f"evaluators[{index}]"
        return value

    def __repr__(self) -> str:
        return f"<Suite {self.name!r}: {', '.join(self._names) or 'nothing'}>"

    @property
    def _names(self) -> tuple[str, ...]:
        names: list[str] = []
        for evaluator in self.evaluators:
            if not evaluator.shadow:
                names += [criterion.name for criterion in evaluator.criteria()]
        return tuple(names)

    async def run(self, evaluation_input: InputLike) -> SuiteResult:
        """Run the evaluators on the running event loop, one after the other.

        What an evaluator raises is not raised here.

        A criterion of the input that has an evaluator's name is used instead of the evaluator's
        own, other criteria of the input are ignored.

        Raises:
            ConfigurationError: The argument is neither an `EvaluationInput` nor a mapping of its
                fields.
        """
        evaluation_input = as_input(evaluation_input)
        results: list[EvaluationResult] = []
        # reversed, so that the first of two criteria with one name counts
        criteria_of_input = {
            criterion.name: criterion for criterion in reversed(evaluation_input.criteria)
        }
        for evaluator in self.evaluators:
            criteria: tuple[EvaluationCriteria, ...] = tuple(
                criteria_of_input.get(criterion.name, criterion)
                for criterion in evaluator.criteria()
            )
            if not criteria:
                criteria = evaluation_input.criteria
            config = EvaluationRunConfig(evaluators=(evaluator,), redactors=self.redactors)
            own_input = copy_with(evaluation_input, {"criteria": criteria})
            aggregated = await run_evaluation(own_input, config)
            results += aggregated.results
            has_broken = any(
                result.status == "failed" and not result.shadow for result in aggregated.results
            )
            if has_broken and not self.continue_on_error:
                break
        return result_of_suite(self.name, results, self._names)

    def run_sync(self, evaluation_input: InputLike) -> SuiteResult:
        """Run `run` for code without an event loop. Blocks.

        Inside of a running loop it runs on a thread of its own.
        """
        return blocking(lambda: self.run(evaluation_input))

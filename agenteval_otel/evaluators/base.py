"""The contract of evaluators.

An evaluator is a pure function of configuration and input, wherever its `execution` has it run.
"""

from __future__ import annotations

import importlib
import inspect
import math
import sys
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from operator import attrgetter
from types import CoroutineType
from typing import Any, ClassVar, Final, Literal, Self

from pydantic import Field, ValidationInfo, field_validator

from agenteval_otel.components import Component, ListOf
from agenteval_otel.errors import ConfigurationError, EvaluationError
from agenteval_otel.models import (
    EvaluationCriteria,
    EvaluationInput,
    EvaluationResult,
    Score,
    ScoreLike,
    ScoreValue,
)
from agenteval_otel.models.scoring import label_of, normalize, off_scale, passed_of
from agenteval_otel.models.scoring.scales import wrong_threshold
from agenteval_otel.models.value import construct, number_of, refuse_truth_value
from agenteval_otel.runtime.named_modules import naming
from agenteval_otel.semconv import SHADOW

Execution = Literal["inline", "thread", "process", "async"]
Evaluates = Literal["answer", "conversation"]
Schedule = Literal["immediate", "off_peak"]
SCHEDULE_SETTINGS: Final[Mapping[Schedule, str]] = {
    "off_peak": "off_peak: {from: '22:00', to: '06:00', timezone: UTC}"
}
"""What has to stand in the settings so that the evaluators of a schedule are run: an example each."""
EvaluatorKind = Literal["deterministic", "llm_judge", "embedding", "human", "application"]
MAIN = "__main__"
_ARGUMENTS = {"evaluate": ("evaluation_input", "criteria"), "score": ("evaluation_input",)}


class Evaluator(Component, contract="evaluator"):
    """Scores an input.

    Subclass it (or, for one criterion, `CriterionEvaluator`) with ``type="..."`` in the class line
    and implement `evaluate`, and `criteria` where it knows them.

    Attributes:
        execution: Where it runs: ``inline`` (microseconds, on the background thread), ``thread`` or
            ``process`` (it may take long or block), ``async`` (it awaits an answer). None leaves it
            to the class.
        timeout_s: Time limit of one evaluation in seconds. None takes 5 s, or 30 s if it is
            ``async``.
        sample_rate: Own sampling ratio, 0-1, on the response's random number: lower rates see
            subsets of higher ones.
        tags: Labels by which runs select evaluators.
        shadow: True runs it on trial: its results are emitted and stored under
            ``<criterion>.shadow``, next to those of the current evaluator, and do not count in
            overall scores, objectives, alerts or test verdicts.
        evaluates: ``answer``: each answer, or ``conversation``: each conversation, once it is over,
            as one input (`EvaluationInput.conversation`).
        schedule: ``immediate``, or ``off_peak``: live answers wait for the window of the setting
            `off_peak`, or for a batch of the judge's provider. Offline runs do not wait.
        evaluates_errors: Whether it can judge calls that raised instead of answering. Such calls
            are not evaluated by others.
        repeats: Whether several of its results may be for one criterion. For others that is a
            failure.
        child_environment: Names of the environment variables that a worker process has to have for
            it.
    """

    kind: ClassVar[EvaluatorKind] = "deterministic"
    evaluates_errors: ClassVar[bool] = False
    repeats: ClassVar[bool] = False
    child_environment: ClassVar[tuple[str, ...]] = ()
    # No score depends on these.
    fingerprint_exclude: ClassVar[frozenset[str]] = frozenset(
        {
            "execution",
            "tags",
            "shadow",
            "schedule",
            "sample_rate",
            "timeout_s",
        }
    )

    execution: Execution | None = None
    timeout_s: float | None = Field(default=None, gt=0)
    sample_rate: float | None = Field(default=None, ge=0, le=1)
    tags: ListOf[str] = ()
    shadow: bool = False
    evaluates: Evaluates = "answer"
    schedule: Schedule = "immediate"

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        for name, arguments in _ARGUMENTS.items():
            method = cls.__dict__.get(name)
            if not inspect.isfunction(method):
                continue
            try:
                inspect.signature(method).bind(None, *arguments)
            except TypeError:
                raise ConfigurationError(
                    f"{cls.__qualname__}.{name}: expected def {name}(self, {', '.join(arguments)}), "
                    f"this one takes {inspect.signature(method)}"
                ) from None

    def preferred_execution(self) -> Execution | None:
        """Return where the evaluator runs when the field `execution` is left out.

        None means that its time is unknown. It then begins in a thread, and runs inline once it has
        proved cheap.
        """
        return None

    @property
    def resolved_execution(self) -> Execution:
        return self.execution or self.preferred_execution() or "thread"

    @cached_property
    def calls_model(self) -> bool:
        """Tell whether it calls a model. Its inputs are then redacted, and its results marked."""
        return "async" in (self.execution, self.preferred_execution())

    @property
    def label(self) -> str:
        """Return its name in reports: the type, with the criterion for one-criterion evaluators."""
        return self.type

    @property
    def derived_from(self) -> str | None:
        """Return the words from which its criterion's name was made, or None if it was given."""
        return None

    @cached_property
    def signature(self) -> Mapping[str, Any]:
        """Return the fields that all of its results have in common."""
        return {
            "evaluator_type": self.type,
            "evaluator_id": self.label,
            "evaluator_version": self.fingerprint,
            "evaluator_kind": self.kind,
            "calls_model": self.calls_model,
        }

    def criteria(self) -> tuple[EvaluationCriteria, ...]:
        """Return the criteria that it scores when the input names none.

        If it declares no criteria, it gets all requested ones, and its results for any criterion
        are kept.
        """
        return ()

    async def evaluate(
        self, evaluation_input: EvaluationInput, criteria: Sequence[EvaluationCriteria]
    ) -> list[EvaluationResult]:
        """Score the input against those of `criteria` that are this evaluator's.

        Other criteria are left alone.

        Raises:
            EvaluationSkipped: The evaluator has nothing to say about this input.
            Exception: Anything else is a failure of this evaluator and is isolated by the runner.
        """
        raise EvaluationError(f"{self.type} does not implement evaluate")

    def to_child(self) -> dict[str, Any]:
        """Return its configuration as JSON, secrets included, for a worker process.

        `from_child` makes an equal evaluator from it there. If this method raises (a field has no
        JSON form, a part's class cannot be imported), the evaluator runs in a thread here.
        """
        dump = self.model_dump(mode="json", context={"secrets": True})
        del dump["type"]
        parts: list[Component] = []
        for name in type(self).model_fields:
            value = getattr(self, name)
            members = value if isinstance(value, tuple) else (value,)
            parts.extend(member for member in members if isinstance(member, Component))
        places = sorted({importable(type(part)) for part in parts})
        if any(module == MAIN for module, _ in places):
            raise LookupError("a part of it is defined in the program's own file")
        return {**dump, "parts": places} if places else dump

    @classmethod
    def from_child(cls, fields: Mapping[str, Any]) -> Self:
        """Build the evaluator that `to_child` wrote down."""
        for place in fields.get("parts", ()):
            imported(*place)
        settings = {name: value for name, value in fields.items() if name != "parts"}
        return cls.model_validate(settings)

    def prepare(self) -> None:
        """Load what is heavy, in the fork server, before any time limit.

        If this method raises, the evaluator runs here.
        """


class CriterionEvaluator(Evaluator):
    """Scores one criterion: implement `score`, sync or async.

    Attributes:
        criterion_name: The criterion that it scores.
        scale: The scale of the scores, unless the input has its own criterion of this name:
            ``numeric`` (0-1), ``likert5`` (1-5), ``binary``, ``pass/fail``, a range of whole
            numbers such as ``0-100``, or a custom word.
        threshold: Lowest raw score with the label ``pass``.
        weight: Share in the overall score, 1 when left out. 0 leaves the criterion out of it.
        objective: Share of results that should pass, 0-1. Alerts are based on it.
    """

    fingerprint_exclude: ClassVar[frozenset[str]] = Evaluator.fingerprint_exclude | {
        "weight",
        "objective",
    }

    criterion_name: str
    scale: str = "numeric"
    threshold: float | None = None
    weight: float | None = Field(default=None, ge=0)
    objective: float | None = Field(default=None, ge=0, le=1)

    _is_a_number = field_validator(
        "threshold", "weight", "objective", mode="before", check_fields=False
    )(refuse_truth_value)

    @field_validator("threshold", check_fields=False)
    @classmethod
    def _can_be_reached(cls, value: float | None, info: ValidationInfo) -> float | None:
        scale = info.data.get("scale")  # may come after `threshold` in a subclass
        criterion = EvaluationCriteria(name="any", scale=scale or "any", threshold=value)
        wrong = wrong_threshold(criterion)
        if wrong is not None:
            raise ValueError(wrong)
        return value

    @field_validator("criterion_name", check_fields=False)
    @classmethod
    def _criterion_has_a_name(cls, value: str) -> str:
        # Not a `Field` limit, which a subclass that sets a default would lose.
        if not value.strip():
            raise ValueError("must not be blank")
        if value.endswith(SHADOW):
            raise ValueError(
                f"must not end with {SHADOW!r}, as the results of evaluators with shadow: true do"
            )
        return value

    def score(self, evaluation_input: EvaluationInput) -> ScoreLike | Awaitable[ScoreLike]:
        """Return a `Score` on the criterion's scale, or its value alone.

        A number outside of the scale is a failure.
        """
        raise EvaluationError(f"{self.type} does not implement score")

    def _adjusted(self, score: Any, criterion: EvaluationCriteria) -> Any:
        """Fit the score to the criterion's scale and threshold. By default it is unchanged."""
        return score

    def _failure_result(
        self, error: EvaluationError, criterion: EvaluationCriteria
    ) -> EvaluationResult:
        """Return the result for an error that `score` raised.

        By default the error is raised, and is a run error.
        """
        raise error

    def preferred_execution(self) -> Execution | None:
        return "async" if inspect.iscoroutinefunction(self.score) else None

    @property
    def label(self) -> str:
        return f"{self.type}:{self.criterion_name}"

    @cached_property
    def _criteria(self) -> tuple[EvaluationCriteria, ...]:
        criterion = EvaluationCriteria(
            name=self.criterion_name,
            scale=self.scale,
            threshold=self.threshold,
            weight=self.weight,
            objective=self.objective,
        )
        return (criterion,)

    def criteria(self) -> tuple[EvaluationCriteria, ...]:
        return self._criteria

    async def evaluate(
        self, evaluation_input: EvaluationInput, criteria: Sequence[EvaluationCriteria]
    ) -> list[EvaluationResult]:
        criterion = find_criterion(criteria, self.criterion_name)
        if criterion is None:
            return []
        try:
            score: object = self.score(evaluation_input)
            if inspect.isawaitable(score):
                score = await score
            return [result_of(self, criterion, self._adjusted(score, criterion))]
        except EvaluationError as error:
            return [self._failure_result(error, criterion)]


def find_criterion(criteria: Sequence[EvaluationCriteria], name: str) -> EvaluationCriteria | None:
    """Return the first criterion of that name, or None if there is none."""
    for criterion in criteria:
        if criterion.name == name:
            return criterion
    return None


def result_at_once(
    evaluator: CriterionEvaluator, evaluation_input: EvaluationInput, criterion: EvaluationCriteria
) -> EvaluationResult | None:
    """Evaluate as `CriterionEvaluator.evaluate` does, without a coroutine.

    Return None if `score` returns a coroutine, which is closed.
    """
    try:
        score: object = evaluator.score(evaluation_input)
        if type(score) is CoroutineType:
            score.close()
            return None
        return result_of(evaluator, criterion, evaluator._adjusted(score, criterion))
    except EvaluationError as error:
        return evaluator._failure_result(error, criterion)


def result_of(
    evaluator: Evaluator, criterion: EvaluationCriteria, score: object
) -> EvaluationResult:
    """Build a scored result from a `Score` or its value.

    The result is normalized, labelled and signed by the evaluator.

    Raises:
        EvaluationError: (``invalid_score``) The score is neither, or its value is NaN, infinite or
            outside of the scale.
    """
    if isinstance(score, Score):
        value: ScoreValue | None = score.value
    else:
        value = score if isinstance(score, int | float | str) else number_of(score)
        if value is None:
            raise EvaluationError(
                f"expected a Score, a boolean, a number or text, found {type(score).__name__}",
                error_type="invalid_score",
            )
        score = _BARE
    if isinstance(value, float) and not math.isfinite(value):
        raise EvaluationError("the score is not a finite number", error_type="invalid_score")
    normalized = normalize(value, criterion)
    wrong = off_scale(value, criterion) if normalized is None else None
    if wrong:
        raise EvaluationError(wrong, error_type="invalid_score")
    passed = score.passed if score.passed is not None else passed_of(value, criterion)
    fields: dict[str, Any] = {
        "criterion_name": criterion.name,
        "score": value,
        "reasoning": score.reasoning,
        "metadata": score.metadata,
        "normalized": normalized,
        "label": score.label or label_of(value, passed),
        "passed": passed,
        "threshold": criterion.threshold,
        "objective": criterion.objective,
        "reason_code": score.reason_code,
        **evaluator.signature,
    }
    if type(value) in (bool, int, float, str):  # validated with the score already
        return construct(EvaluationResult, fields)
    return EvaluationResult(**fields)


_BARE = Score(value=False)
"""The other fields of a score that an evaluator returns as a value alone."""


def failure_of(
    evaluator: Evaluator,
    criterion_name: str,
    error: str,
    *,
    error_type: str,
    filler: ScoreValue | None = None,
) -> EvaluationResult:
    """Build a failed result: what broke, as free text and as a word for ``error.type``.

    `filler` is the score that the original framework writes into such a result. It enters no
    average.
    """
    return EvaluationResult(
        criterion_name=criterion_name,
        error=error,
        error_type=error_type,
        filler=filler,
        **evaluator.signature,
    )


def skipped_of(evaluator: Evaluator, criterion_name: str, reason: str) -> EvaluationResult:
    """Build a skipped result: no score, and the reason (``skipped`` if that is empty)."""
    return EvaluationResult(
        criterion_name=criterion_name, skip_reason=reason or "skipped", **evaluator.signature
    )


def importable(thing: object) -> tuple[str, str]:
    """Return the module and the qualified name of a class or a function.

    Raises:
        LookupError: The object has no such name, or something else is found by it.
    """
    module = getattr(thing, "__module__", None)
    path = getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(path, str):
        raise LookupError(f"an object of class {type(thing).__name__} has no name to import it by")
    with suppress(AttributeError):
        if attrgetter(path)(sys.modules.get(module)) is thing:
            return module, path
    raise LookupError(f"{path} is not what {module} has by this name")


def imported(module: str, path: str) -> Any:
    """Import the module and return its object of that qualified name.

    Whatever the import raises is raised.
    """
    with naming(module):
        return attrgetter(path)(importlib.import_module(module))


def qualified_name(function: Any) -> str:
    """Return the module and the qualified name of a function, joined by a dot.

    The names of a partial function are those of its function. The names of an object that can be
    called are those of its class.
    """
    function = getattr(function, "func", function)  # functools.partial
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"

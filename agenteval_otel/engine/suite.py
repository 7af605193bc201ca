"""Suite: evaluators in order with one verdict, for tests: it stops where one breaks, and goes on where one fails.

It stands beside `run_evaluation`, which it calls for each evaluator, so that both score alike: executions, time limits,
redaction of what models see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from agenteval_otel.compat import load_evaluator
from agenteval_otel.components import load_each
from agenteval_otel.engine.base import RunModel, expect_input
from agenteval_otel.engine.blocking import blocking
from agenteval_otel.engine.config import EvaluationRunConfig
from agenteval_otel.engine.offline import run_evaluation
from agenteval_otel.engine.suite_result import SuiteResult, result_of_suite
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.evaluators.func import EvaluatorLike
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult
from agenteval_otel.models.value import replaced
from agenteval_otel.redaction import Redactor, default_redactors

__all__ = ["Suite"]


class Suite(RunModel):
    """Evaluators that run one after the other, and pass or fail as a whole.

    A suite passes when none of its evaluators fails or breaks; an evaluator that skips has nothing to say. An empty
    suite passes; one whose evaluators all skip has tested nothing, and does not. Where an evaluator breaks, the suite
    has failed and stops; where one fails it goes on. An evaluator that has no verdict of its own and no threshold
    passes with the best score there is and fails below it.

    In a test: ``assert suite.run_sync(answer)``, or ``suite.run_sync(answer).check()`` for a line an evaluator.

    Attributes:
        evaluators: Instances, functions or ``{type: ...}`` mappings, in the order in which they run. No two of them may
            score one criterion: scores and errors are told apart by its name.
        name: What reports call the suite.
        continue_on_error: Go on where an evaluator breaks; the suite has failed all the same.
        redactors: What is taken out of the inputs of evaluators that call a model; an empty list for nothing.

    Raises:
        ConfigurationError: Two evaluators for one criterion, or what is wrong with an evaluator, with its path.
    """

    evaluators: tuple[SerializeAsAny[Evaluator], ...] = ()
    name: str = "suite"
    continue_on_error: bool = False
    redactors: tuple[SerializeAsAny[Redactor], ...] = Field(default_factory=default_redactors)

    if TYPE_CHECKING:

        def __init__(self, *, evaluators: Sequence[EvaluatorLike] = (), **fields: Any) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _load_parts(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        fields = dict(data)
        parts = fields.get("evaluators", ())
        if not isinstance(parts, Sequence) or isinstance(parts, str):
            raise ConfigurationError(f"expected a list, found {type(parts).__name__}", path="evaluators")
        fields["evaluators"] = load_each(lambda part, path: load_evaluator(part, path=path), parts, path="evaluators")
        return fields

    @field_validator("evaluators")
    @classmethod
    def _each_has_its_name(cls, value: tuple[Evaluator, ...]) -> tuple[Evaluator, ...]:
        taken: dict[str, str] = {}
        for index, evaluator in enumerate(value):
            for name in dict.fromkeys(criterion.name for criterion in evaluator.criteria()):
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
        return tuple(criterion.name for evaluator in self.evaluators for criterion in evaluator.criteria())

    async def run(self, evaluation_input: EvaluationInput) -> SuiteResult:
        """Run the evaluators on the running event loop, one after the other; raises nothing that one of them raised.

        A criterion of the input that has an evaluator's name is used instead of the evaluator's own; the others are not
        asked for.

        Raises:
            ConfigurationError: What is given is no input.
        """
        expect_input(evaluation_input)
        results: list[EvaluationResult] = []
        criteria_of_input = {criterion.name: criterion for criterion in reversed(evaluation_input.criteria)}
        for evaluator in self.evaluators:
            criteria: tuple[EvaluationCriteria, ...] = tuple(
                criteria_of_input.get(criterion.name, criterion) for criterion in evaluator.criteria()
            )
            config = EvaluationRunConfig(evaluators=(evaluator,), redactors=self.redactors)
            aggregated = await run_evaluation(replaced(evaluation_input, {"criteria": criteria}), config)
            results += aggregated.results
            if not self.continue_on_error and any(result.status == "failed" for result in aggregated.results):
                break
        return result_of_suite(self.name, results, self._names)

    def run_sync(self, evaluation_input: EvaluationInput) -> SuiteResult:
        """`run` for code without an event loop; blocks. Inside of a running loop it uses a thread of its own."""
        return blocking(lambda: self.run(evaluation_input))

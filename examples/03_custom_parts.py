"""An evaluator and a storage provider of your own, checked against their contracts."""

import re

from agenteval_otel import AggregatedEvaluationResult, EvaluationInput, Score, configure, flush, monitor
from agenteval_otel.errors import EvaluationSkipped
from agenteval_otel.evaluators import CriterionEvaluator
from agenteval_otel.storage import EvaluationStorageProvider
from agenteval_otel.testing import check_evaluator, check_storage


class Citations(CriterionEvaluator, type="Citations"):
    """Fraction of the demanded citations that the response holds, 1.0 at best."""

    criterion_name: str = "citations"
    at_least: int = 1

    def score(self, evaluation_input: EvaluationInput) -> Score:
        if not evaluation_input.response_text:
            raise EvaluationSkipped("no answer")
        found = len(re.findall(r"\[\d+\]", evaluation_input.response_text))
        return Score(value=min(1.0, found / self.at_least), reasoning=f"{found} citations")


class WorstFirst(EvaluationStorageProvider, type="worst_first"):
    """Prints answers that fall below a score."""

    below: float = 0.75

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        if aggregated.overall_score is not None and aggregated.overall_score < self.below:
            print(f"{aggregated.agent}: {aggregated.overall_score:.2f}")


check_evaluator(Citations())
check_storage(WorstFirst(below=0.0))

configure(sample_rate=1.0, evaluators=[Citations(at_least=2)], storage=[WorstFirst()])


@monitor(agent="research")
def research(question: str) -> str:
    return "It was measured once [1]."


research("How far is it?")
flush(5.0)

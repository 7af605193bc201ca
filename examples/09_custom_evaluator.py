"""Evaluators of your own: a class with settings, a function, and an async function that asks a
model.

uv run python examples/09_custom_evaluator.py
"""

import re

import openai

from agenteval_otel import (
    EvaluationInput,
    EvaluationRunConfig,
    Score,
    configure,
    flush,
    monitor,
    run_evaluation_sync,
)
from agenteval_otel.errors import EvaluationSkipped
from agenteval_otel.evaluators import CriterionEvaluator, Func
from agenteval_otel.storage import ConsoleStorageProvider
from agenteval_otel.testing import ModelReply, ModelServer, check_evaluator

# Stands in for the model that judges, so that this runs anywhere: leave it out, and build the
# client without arguments.
model_server = ModelServer(["4", "2", ModelReply(status=429, text="Too many requests.")])
judge = openai.AsyncOpenAI(base_url=f"{model_server.url}/v1", api_key="test", max_retries=0)


class Citations(CriterionEvaluator, type="Citations"):
    """Fraction of the demanded citations that the response holds, 1.0 at best."""

    criterion_name: str = "citations"
    at_least: int = 1

    def score(self, evaluation_input: EvaluationInput) -> Score:
        if not evaluation_input.response_text:
            raise EvaluationSkipped("no answer")  # nothing to say; that is not a zero
        found = len(re.findall(r"\[\d+\]", evaluation_input.response_text))
        return Score(value=min(1.0, found / self.at_least), reasoning=f"{found} citations")


def short(evaluation_input: EvaluationInput) -> bool:
    return len(evaluation_input.response_text) <= 60


async def helpful(evaluation_input: EvaluationInput) -> int:
    """Async functions may take up to thirty seconds. What they raise is a failure, and enters no
    average.
    """
    ask = f"From 1 to 5, how helpful is this answer? One digit.\n{evaluation_input.prompt}\n---\n"
    messages = [{"role": "user", "content": ask + evaluation_input.response_text}]
    completion = await judge.chat.completions.create(model="gpt-4.1-mini", messages=messages)
    return int(completion.choices[0].message.content or "")


# empty, huge and odd answers: scores stay finite and in range, and repeat
check_evaluator(Citations())

evaluators = [
    Citations(at_least=2, weight=2),
    short,
    # A function with settings. With sample_rate=0.1 the model is asked about one in ten of all
    # answers.
    Func(function=helpful, criterion_name="helpful", scale="likert5", threshold=3),
]
configure(sample_rate=1.0, evaluators=evaluators, storage=[ConsoleStorageProvider()])


@monitor(agent="research")
def research(question: str) -> str:
    return {"far": "It was measured twice [1][2].", "deep": "Very [1]."}.get(question, "")


for question in ("far", "deep", "unknown"):
    research(question)
    flush(5.0)  # only to keep the lines in order

# The same evaluators without @monitor: in a test, or over yesterday's answers.
offline = run_evaluation_sync(
    EvaluationInput(response="See [3]."), EvaluationRunConfig(evaluators=evaluators[:2])
)
print(f"offline: {offline.overall_score:.2f}")

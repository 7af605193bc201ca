"""Reference answers from a file: found for each question by its wording, and compared with the
answer.

uv run python examples/14_ground_truth.py
"""

from pathlib import Path

from agenteval_otel import (
    EvaluationInput,
    EvaluationRunConfig,
    configure,
    flush,
    monitor,
    run_evaluation_sync,
)
from agenteval_otel.evaluators import NLPAccuracy
from agenteval_otel.ground_truth import FileGroundTruthStore
from agenteval_otel.storage import ConsoleStorageProvider

# Columns UserPrompt, ExpectedOutput, Category, Module. A changed file is read again while this
# runs.
reference_answers = FileGroundTruthStore(path=Path(__file__).with_name("partnership_faq.csv"))
print(
    f"{len(reference_answers.rows())} questions, {len(reference_answers.rows('FAQAgent'))} of them for FAQAgent"
)

# Compares wording: enough to notice that an answer has drifted from the text it should follow, not
# to judge a paraphrase. With embedder=<a model's> it compares meaning.
accuracy = NLPAccuracy(criterion_name="accuracy", threshold=0.5)

configure(
    sample_rate=1.0,
    evaluators=[accuracy],
    ground_truth=reference_answers,
    storage=[ConsoleStorageProvider()],
)

ANSWERS = {
    "how do I register a DEAL?": "In the portal under Deals, New. A registered deal is yours for ninety days.",
    "Hello, when is the commission paid?": "As soon as we get around to it.",
    "Do you like cheese?": "Yes, very much.",
}


# The agent's name is the module whose rows are looked at; a handler may name another one:
# annotate(metadata={"module": "FAQAgent"}).
@monitor(agent="FAQAgent")
def answer(question: str) -> str:
    return ANSWERS[question]


for question in ANSWERS:
    answer(question)
    flush(10.0)  # only to keep the lines in order

# The same store offline, in a test or over yesterday's answers.
found = run_evaluation_sync(
    EvaluationInput(
        prompt="Find the places in: the office moved from Bergen to Aarhus",
        response="Bergen, Aarhus",
        agent="EntityResolutionAgent",
    ),
    EvaluationRunConfig(evaluators=[accuracy], ground_truth=reference_answers),
)
print(
    f"offline: {found.overall_score:.2f}, ground truth: {found.input_snapshot.metadata['ground_truth']['match']}"
)

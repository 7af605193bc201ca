"""Models as judges: two rubrics of the catalogue and one of your own, with a budget, a breaker and
a cache.

uv run python examples/15_judge.py          (with ANTHROPIC_API_KEY it asks the API, without one a
script answers)
"""

import os
from typing import Any

from agenteval_otel import EvaluationInput, Suite, annotate, configure, flush, monitor
from agenteval_otel.evaluators import Coherence, Groundedness, LLMJudge
from agenteval_otel.judges import (
    AnthropicJudge,
    BreakerSettings,
    CacheSettings,
    Judge,
    JudgeRequest,
    SpendLimits,
)
from agenteval_otel.testing import ScriptedJudge

guards: dict[str, Any] = {
    # Dollars a million tokens: look them up, prices change. A call has to fit into the limits
    # before it is made.
    "spend": SpendLimits(
        prices={"*": {"input": 1.0, "output": 5.0}}, usd_per_day=0.50, tokens_per_minute=100_000
    ),
    # an endpoint that fails again and again is left alone for a while
    "breaker": BreakerSettings(),
    "cache": CacheSettings(),  # path="verdicts.db" keeps them for the next run
}


def scripted(request: JudgeRequest) -> dict[str, Any]:
    """What a model might answer; the question holds the input as JSON data."""
    invented = "moon" in request.prompt
    # lists the answer's claims; code computes the score from them
    if request.purpose == "grounded":
        claim = {
            "quote": "to the moon" if invented else "within two days",
            "evidence": "",
            "holds": not invented,
        }
        return {
            "claims": [claim],
            "reason": "no moon in the FAQ" if invented else "the FAQ says so",
        }
    return {
        "evidence": [],
        "reason": "as it reads",
        "score": not invented if request.purpose == "next_step" else 5,
    }


# JUDGE_MODEL and JUDGE_URL name another model, another place
if os.environ.get("ANTHROPIC_API_KEY"):
    model, url = os.environ.get("JUDGE_MODEL", "claude-haiku-4-5"), os.environ.get("JUDGE_URL")
    judge: Judge = AnthropicJudge(model=model, **guards, **({"base_url": url} if url else {}))
    print(f"judged by {model}, for up to 0.50 dollars a day")
else:
    judge = ScriptedJudge(answer=scripted, input_tokens=400, output_tokens=60, **guards)
    print("judged by a script: there is no ANTHROPIC_API_KEY")

evaluators = [
    Coherence(judge=judge, criterion_name="coherent"),
    # skipped where an answer comes without a context
    Groundedness(judge=judge, criterion_name="grounded"),
    LLMJudge(
        judge=judge, criterion_name="next_step", description="The answer says what comes next."
    ),
]


class Report:
    async def save_result(self, aggregated: Any) -> None:
        for result in aggregated.results:
            outcome = result.label or f"{result.status}: {result.skip_reason or result.error_type}"
            print(f"  {result.criterion_name:<10}{outcome}")


configure(sample_rate=1.0, evaluators=evaluators, storage=[Report()])
QUESTIONS = {
    "When is my order due?": "It leaves our warehouse within two days; write to us if it does not.",
    "Do you ship further?": "We ship to the moon every Monday.",
}


@monitor(agent="shop")
def shop(question: str, *, context: bool = True) -> str:
    if context:
        annotate(context=["Orders leave our warehouse within two days."])
    return QUESTIONS.get(question, "Thought process:")


# the last one costs nothing any more
for question in (*QUESTIONS, "Are returns free?", "When is my order due?"):
    print(f"\n{question}\n{shop(question, context=question in QUESTIONS)}")
    flush(60.0)

# A judge's reasons are content, which does not leave the process by itself. A caller of the
# evaluation gets them.
unchecked = EvaluationInput(
    response="We ship to the moon every Monday.", context={"faq": "Two days."}
)
(result,) = Suite(evaluators=evaluators[1:2]).run_sync(unchecked).results
print(f"\noffline: {result.criterion_name} {result.score}, {result.reasoning}")

if (cache := judge.guarded().cache) and (budget := judge.guarded().budget):
    print(f"{cache.hits} from the cache, {0.50 - budget.remaining_usd()['day']:.4f} dollars spent")

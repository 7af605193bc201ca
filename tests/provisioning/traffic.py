"""An application that fills every panel, run as a program of its own:
`python -m tests.provisioning.traffic SECONDS`.

Agents with awkward names, a judge with a budget and a breaker, an evaluator that breaks. Where
everything goes is what the `OTEL_*` variables say; its version comes with the resource.
"""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any

from agenteval_otel import EvaluationInput, Score, annotate, configure, flush, monitor, shutdown
from agenteval_otel.evaluators import Func, LLMJudge, ResponseHealth
from agenteval_otel.judges import BreakerSettings, SpendLimits
from agenteval_otel.testing import ScriptedJudge

from .plans import AWKWARD

__all__ = ["JUDGED", "settings"]

EVERY_S = 0.03
"""So often that each agent has enough answers for an interval."""
JUDGED = "Helpful.v2"


def spoken(evaluation_input: EvaluationInput) -> Score:
    """How much is said; a number without a verdict."""
    return Score(value=min(1.0, len(evaluation_input.response_text) / 40))


def short(evaluation_input: EvaluationInput) -> bool:
    """Whether the answer is short."""
    return len(evaluation_input.response_text) < 20


def broken(evaluation_input: EvaluationInput) -> bool:
    """Fails, and never scores."""
    raise ConnectionError("not there")


def settings() -> dict[str, Any]:
    """What is scored; the judge is asked nobody's price but has one."""
    spend = SpendLimits(
        prices={"*": {"input": 1.0, "output": 5.0}}, usd_per_day=100, usd_per_minute=100
    )
    numbers = itertools.count()

    def reply(_: object) -> dict[str, Any]:
        number = next(numbers)
        if number % 9 == 8:
            return {"error": "server_error"}
        if number % 9 == 7:
            return {"error": "refusal"}
        return {"evidence": [], "reason": "as it reads", "score": number % 3 > 0}

    judge = ScriptedJudge(
        answer=reply,
        input_tokens=400,
        output_tokens=60,
        spend=spend,
        breaker=BreakerSettings(),
    )
    return {
        "sample_rate": 1.0,
        "metric_dimensions": ["tenant"],
        "load_shedding": {"enabled": False},
        "judge_health": {"repeat_share": 1.0},
        "evaluators": [
            ResponseHealth(objective=0.9),
            Func.of(spoken, scale="numeric"),
            Func.of(broken),
            Func.of(short, scale="binary", objective=0.5),
            LLMJudge(judge=judge, criterion_name=JUDGED, description="It helps.", objective=0.9),
        ],
    }


def main(seconds: float) -> None:
    """Answers for so long, every agent in turn, and leaves nothing behind; fails unless everything
    was sent.
    """
    configure(**settings())
    handlers = [monitor(agent=name)(_answer) for name in AWKWARD]
    until = time.monotonic() + seconds
    for number in itertools.count():
        handlers[number % len(handlers)](number)
        if time.monotonic() >= until:
            break
        time.sleep(EVERY_S)
    everything = flush(30.0)
    shutdown(5.0)
    if not everything:
        raise SystemExit("not everything was exported")


def _answer(number: int) -> str:
    annotate(
        model=("model-1", 'model "2"')[number % 2],
        tags={"tenant": ("acme", 'the "other"')[number % 2]},
    )
    return "word " * (number % 11)


if __name__ == "__main__":
    main(float(sys.argv[1]))

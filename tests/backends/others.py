"""What neither demo brings, for the backend tests: `python -m tests.backends.others SECONDS`.

An agent `support` whose evaluators all break, under the names of the demo's criteria, and an agent that no settings
name, with what every handler gets. Where everything goes is what the `OTEL_*` variables say.
"""

from __future__ import annotations

import sys
import time

from agenteval_otel import EvaluationInput, annotate, configure, flush, monitor, shutdown
from agenteval_otel.evaluators import Func, ResponseHealth

CRITERIA = ("response_health", "short_enough", "courtesy", "names_the_topic", "next_step", "tools_worked")
EVERY_S = 0.25
ANSWERS = ("We open at nine.", "", "I'm sorry, but I can't help with that request.")


def broken(evaluation_input: EvaluationInput) -> bool:
    """An evaluator that is broken: its failures are counted and never become scores."""
    raise ConnectionError("the list of products is not there")


@monitor(agent="support", evaluators=[Func.of(broken, criterion_name=name) for name in CRITERIA])
def unjudged(question: str) -> str:
    return f"About {question}: we open at nine."


@monitor(agent="concierge")
def concierge(number: int) -> str:
    annotate(model="scripted-1")
    return ANSWERS[number % len(ANSWERS)]


def main(seconds: float) -> None:
    """Answers for so long and leaves nothing behind; fails unless everything was sent."""
    configure(sample_rate=1.0, load_shedding={"enabled": False}, evaluators=[ResponseHealth()])
    for number in range(round(seconds / EVERY_S)):
        concierge(number)
        if number % 4 == 0:
            unjudged("opening hours")
        time.sleep(EVERY_S)
    everything = flush(20.0)
    shutdown(5.0)
    if not everything:
        raise SystemExit("not everything was exported")


if __name__ == "__main__":
    main(float(sys.argv[1]))

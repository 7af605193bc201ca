"""Told when a criterion falls below its objective, and when it holds it again: no backend, no
server.

uv run python examples/16_thresholds.py
"""

from agenteval_otel import configure, flush, monitor
from agenteval_otel.engine.objectives import BreachSettings, ObjectiveCrossing


def page(crossing: ObjectiveCrossing) -> None:
    """Wake somebody; runs on a thread of its own, so it may take its time. `model_dump_json` gives
    the same as JSON.
    """
    print(f"PAGE  {crossing.criterion} of {crossing.agent}: below {crossing.objective:.0%}")
    interval = f"{crossing.low:.0%} to {crossing.high:.0%}"
    print(f"      {crossing.rate:.0%} of the last {crossing.count} pass, interval {interval}")


async def all_clear(crossing: ObjectiveCrossing) -> None:
    print(f"CLEAR {crossing.criterion} of {crossing.agent}: {crossing.rate:.0%} pass")


configure(
    sample_rate=1.0,
    storage=[],
    criteria={"default": [{"name": "response_health", "objective": 0.9}]},
    # Fewer verdicts than in production, so that a short run shows both: the default alarms falsely
    # at most once in 10,000 verdicts on average, and takes 300 to count an agent as recovered that
    # only just holds its objective.
    breach=BreachSettings(false_alarm_every=1_000, recover_after=50),
    on_breach=page,  # in a settings file: on_breach: my_company.alerts:page
    on_recovery=all_clear,
)


@monitor(agent="shop")
def shop(question: str, *, broken: bool) -> str:
    return "" if broken and len(question) % 2 else "It leaves our warehouse within two days."


def traffic(title: str, answers: int, *, broken: bool) -> None:
    print(title)
    for number in range(answers):
        shop("?" * number, broken=broken)
    flush(30.0)  # waits for the evaluations and for the callbacks


traffic("all is well", 200, broken=False)
traffic("every second answer is empty", 40, broken=True)
traffic("mended", 200, broken=False)

"""``agenteval-otel demo``: a scripted support agent, monitored; the scores of each criterion and the accounting."""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import random
import sys
import time
from collections.abc import AsyncGenerator

from agenteval_otel import EvaluationInput, Score, accounting, annotate, configure, flush, monitor
from agenteval_otel.evaluators import Func, KeywordCoverage, ResponseHealth, RuleBased
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage import OtlpStorageProvider

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "A scripted support agent answers 200 questions through @monitor: plain and streamed answers, some of them empty, "
    "refused, broken off or failed. The scores come from real evaluators on the background pool; nothing leaves this "
    "process unless OTEL_EXPORTER_OTLP_ENDPOINT says where to."
)
_CALLS = 200
_TOPICS = ("refund", "invoice", "delivery", "password", "warranty")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    parser.add_argument("--calls", type=_positive, default=_CALLS, help="how many questions (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="of the script (default: %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Run the demo; 0 when every call is accounted for."""
    tally = _Tally()
    emits = any(os.environ.get(name) for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))
    configure(
        sample_rate=1.0,
        evaluators=[
            ResponseHealth(),
            RuleBased(rules=[{"criterion_name": "short_enough", "config": {"type": "length", "max": 280}}]),
            KeywordCoverage(criterion_name="next_step", expected_keywords=["reply", "ticket"], threshold=0.5),
            Func.of(names_the_topic),
        ],
        storage=[tally, *([OtlpStorageProvider()] if emits else [])],
    )
    before = sum(accounting().values())
    print(f"A scripted agent answers {arguments.calls} questions through @monitor ...\n")
    started = time.perf_counter()
    asyncio.run(_traffic(arguments.calls, random.Random(arguments.seed)))
    answered_s = time.perf_counter() - started
    complete = flush(30.0)
    _report(tally, arguments.calls, answered_s, emits)
    if not complete:
        print("\nNot everything was exported in time: is the OTLP endpoint up?", file=sys.stderr)
    return 0 if sum(accounting().values()) - before == arguments.calls else 1


def names_the_topic(evaluation_input: EvaluationInput) -> Score:
    """Whether the answer names what was asked about."""
    topic = (evaluation_input.prompt or "").rpartition(" ")[2].rstrip("?")
    found = topic in evaluation_input.response_text
    return Score(value=found, reason_code=None if found else "topic_missing")


@monitor(agent="support")
async def support(question: str, mood: str) -> str:
    """The scripted agent's plain answers."""
    annotate(model="scripted-1", conversation_id=f"demo-{len(question)}")
    if mood == "failed":
        raise TimeoutError("the order system did not answer")
    return _ANSWERS[mood].format(topic=question.rpartition(" ")[2].rstrip("?"))


@monitor(agent="support-stream")
async def support_stream(question: str, mood: str) -> AsyncGenerator[str, None]:
    """The same, word by word."""
    annotate(model="scripted-1")
    for word in _ANSWERS[mood].format(topic=question.rpartition(" ")[2].rstrip("?")).split(" "):
        yield word + " "


_ANSWERS = {
    "good": "I looked at your {topic} and opened a ticket; reply to this message if anything is missing.",
    "vague": "Thank you for your question. We will look at it as soon as we can.",
    "long": "About your {topic}: "
    + "as our terms explain in detail, there are several cases to tell apart; " * 6
    + "reply.",
    "empty": "",
    "refused": "I'm sorry, but I can't help with that request.",
}
_MOODS = ("good", "vague", "long", "empty", "refused", "failed")
_SHARES = (72, 10, 6, 3, 5, 4)


async def _traffic(calls: int, script: random.Random) -> None:
    for number in range(calls):
        question = f"Can you help me with my {script.choice(_TOPICS)}?"
        mood = script.choices(_MOODS, _SHARES)[0]
        if number % 4 == 3 and mood != "failed":
            await _read(question, mood, leave_after=3 if number % 20 == 19 else None)
            continue
        try:
            await support(question, mood)
        except TimeoutError:
            continue  # the agent's own failure reaches its caller unchanged, and is evaluated as one


async def _read(question: str, mood: str, leave_after: int | None) -> None:
    stream = support_stream(question, mood)
    words = 0
    async for _ in stream:
        words += 1
        if words == leave_after:
            break
    await stream.aclose()


class _Tally:
    """A storage provider of the demo's own: sums by criterion."""

    def __init__(self) -> None:
        self.criteria: dict[str, dict[str, list[float]]] = {}
        self.failures: dict[str, int] = {}

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        for result in aggregated.results:
            entry = self.criteria.setdefault(result.criterion_name, {"scores": [], "passes": []})
            if result.status == "failed":
                self.failures[result.criterion_name] = self.failures.get(result.criterion_name, 0) + 1
            if result.normalized is not None:
                entry["scores"].append(result.normalized)
            if result.passed is not None:
                entry["passes"].append(1.0 if result.passed else 0.0)


def _report(tally: _Tally, calls: int, answered_s: float, emits: bool) -> None:
    print(f"{'criterion':<18}{'scored':>8}{'failed':>8}{'mean':>7}{'95 % interval':>17}{'pass rate':>12}")
    for name, entry in tally.criteria.items():
        scores, passes = entry["scores"], entry["passes"]
        low, high = _mean_interval(scores)
        rate = f"{sum(passes) / len(passes):.0%}" if passes else "-"
        mean = f"{sum(scores) / len(scores):.2f}" if scores else "-"
        failed = tally.failures.get(name, 0)
        print(f"{name:<18}{len(scores):>8}{failed:>8}{mean:>7}{f'{low:.2f} - {high:.2f}':>17}{rate:>12}")
    outcomes = {outcome: count for outcome, count in accounting().items() if count}
    shown = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    print(f"\nAccounting: {calls} calls = {shown}")
    print(f"The agent answered {calls} calls in {answered_s:.2f} s; the scores were made beside it.")
    if emits:
        print("The same scores went to your OTLP endpoint as spans, events and metrics.")
    else:
        print("Nothing was sent. Set OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4317 to see it in a Collector.")
    print('Next: put @monitor on your own handler (README, "One line on your handler").')


def _mean_interval(scores: list[float]) -> tuple[float, float]:
    """Normal-approximation interval of a mean of values in [0, 1], cut to that range."""
    if not scores:
        return 0.0, 0.0
    mean = sum(scores) / len(scores)
    variance = sum((score - mean) ** 2 for score in scores) / max(1, len(scores) - 1)
    half = 1.96 * math.sqrt(variance / len(scores))
    return max(0.0, mean - half), min(1.0, mean + half)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value

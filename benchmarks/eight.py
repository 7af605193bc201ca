"""Eight deterministic evaluators on answers of 1 KB: by themselves, and with all that they give encoded for OTLP."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from benchmarks import subjects, throughput
from benchmarks.calibrate import on_one_core, signals_only
from benchmarks.goals import at_least, holds
from benchmarks.harness import Bench, Figure, Numbers, Phase, Size, standalone
from benchmarks.machine import Machine
from benchmarks.providers import Nowhere

__all__ = ["BENCH"]

_now = time.perf_counter
_STRAIGHT = 1.25


def _by_themselves(size: Size) -> Numbers:
    """Responses a second through the eight, nothing around them; each response is another text."""
    from agenteval_otel.models import EvaluationInput
    from benchmarks.evaluators import eight

    on_one_core()
    evaluators = eight()

    async def run(calls: int) -> Numbers:
        began, cpu = _now(), time.process_time()
        for index in range(calls):
            given = EvaluationInput(prompt=subjects.QUESTION, response=f"{index} {subjects.ANSWER}"[:1024])
            for evaluator in evaluators:
                await evaluator.evaluate(given, evaluator.criteria())
        return {"per s": calls / (_now() - began), "per cpu s": calls / (time.process_time() - cpu)}

    asyncio.run(run(100))
    return asyncio.run(run(size.of(1_000, 5_000)))


def _ours(size: Size) -> Numbers:
    from benchmarks.evaluators import eight

    return throughput.ours(size, encode=True, evaluators=eight(), calls=(500, 2_000), events=8)


def _rival(size: Size) -> Numbers:
    from benchmarks.evaluators import eight

    # The rival's own results, by evaluator: only the deterministic work is ours.
    evaluators = [subjects.same_as(each) for each in eight()]
    return throughput.rival(size, encode=True, evaluators=evaluators, calls=(200, 1_000))


def _line(size: Size) -> Numbers:
    """Microseconds a response after 1,000, 10,000 and, in full, 100,000 responses in a row."""
    from benchmarks.evaluators import eight

    on_one_core()
    providers = Nowhere(encode=True)
    subject = subjects.Ours(
        evaluators=eight(), storage=[providers.storage()], own_span="never", **subjects.UNRESTRAINED
    )
    handler = subject.wrap(subjects.answer)
    total = size.of(2_000, 10_000, 100_000)
    for _ in range(200):
        handler(subjects.QUESTION)
    subject.drain()
    took: Numbers = {}
    done, began = 0, _now()
    for upto in (1_000, total):
        while done < upto:
            while not done % 50 and subject.waiting() > 500:
                time.sleep(0.002)
            handler(subjects.QUESTION)
            done += 1
        subject.drain()
        took["first" if upto == 1_000 else "all"] = (_now() - began) / upto * 1e6
    return took | {"total": float(total), "evaluated": (subject.evaluated() - 200) / total}


_PHASES = (
    Phase("alone", "ours", _by_themselves),
    Phase("encoded", "ours", _ours),
    Phase("encoded", "raw", partial(signals_only, events=8, records=10)),
    Phase("encoded", "rival", _rival),
    Phase("line", "ours", _line),
)


def _figures(found: dict[str, Numbers], machine: Machine) -> list[Figure]:
    alone, encoded, line = found["alone:ours"], found["encoded:ours"], found["line:ours"]
    rates = {"ours": encoded["per s"], "raw": found["encoded:raw"]["per s"], "rival": found["encoded:rival"]["per s"]}
    shares = {"ours": encoded["evaluated"], "rival": found["encoded:rival"]["evaluated"]}
    return [
        Figure("8 evaluators, 1 KB, evaluators only, one core", "1/s", {"ours": alone["per s"]},
               at_least(alone["per s"], 3_000, times=machine.tight)),
        Figure("the same, by CPU time", "1/s", {"ours": alone["per cpu s"]}),
        Figure("8 evaluators, 1 KB, OTLP encoding, one core", "1/s", rates,
               at_least(encoded["per s"], 800, times=machine.emission)),
        Figure("the same, by CPU time", "1/s", {"ours": encoded["per cpu s"],
               "raw": found["encoded:raw"]["per cpu s"], "rival": found["encoded:rival"]["per cpu s"]}),
        Figure("the same: evaluated, of the calls", "share", shares,
               holds("1", encoded["evaluated"] >= 1 and encoded["events"] >= 1)),
        Figure("the same: a response, over the first 1,000", "us", {"ours": line["first"]}),
        Figure(f"the same: a response, over {line['total']:,.0f} in a row", "us", {"ours": line["all"]},
               holds(f"<= {_STRAIGHT} x first", line["all"] <= _STRAIGHT * line["first"] and line["evaluated"] >= 1)),
    ]  # fmt: skip


BENCH = Bench(
    "eight", "Eight deterministic evaluators", _PHASES, _figures, rounds=1,
    notes=(
        "Eight evaluators: `ResponseHealth`, `RuleBased` (length, includes, two regular expressions), "
        "`KeywordCoverage` three times: eight results a response, each an event; one run span; metrics. The rival "
        "runs the same eight and emits no metrics. Raw: the SDK alone with the same number of signals.",
    ),
)  # fmt: skip

if __name__ == "__main__":
    standalone(BENCH)

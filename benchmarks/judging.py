"""Judgements a second: LLMJudge under @monitor against the bare SDK, both asking a provider that
takes 200 ms.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from benchmarks import subjects
from benchmarks.goals import at_least, holds
from benchmarks.harness import Bench, Figure, Numbers, Phase, Size, standalone
from benchmarks.provider import provider
from benchmarks.providers import Nowhere

__all__ = ["BENCH"]

_DELAY_S = 0.2
_AT_ONCE = 64
_WAVES = (4, 20)  # of 64 judgements
_KEY = "sk-of-the-benchmark"


def _judged(address: str) -> Any:
    from agenteval_otel.evaluators import LLMJudge

    judge = {"type": "anthropic", "model": "judge-1", "base_url": address, "api_key": _KEY}
    return LLMJudge.load(
        {"criterion_name": "right", "scale": "likert5", "description": "Right?", "judge": judge}
    )


def _ours(size: Size) -> Numbers:
    """The whole route: handler, pool, question, SDK, answer, telemetry; as a process has it by
    default.
    """
    with provider(_DELAY_S) as address:
        providers = Nowhere(encode=False)
        subject = subjects.Ours(
            evaluators=[_judged(address)],
            storage=[providers.storage()],
            agent_span="never",
            shedding=False,
        )
        handler, total = subject.wrap(subjects.answer), size.of(*_WAVES) * _AT_ONCE
        for _ in range(_AT_ONCE):
            handler(subjects.QUESTION)
        subject.drain()
        began, cpu = time.perf_counter(), time.process_time()
        for index in range(total):
            handler(f"{subjects.QUESTION} {index}")
        subject.drain()
        took, used = time.perf_counter() - began, time.process_time() - cpu
        done = subject.evaluated() - _AT_ONCE
        return {"per s": done / took, "cpu ms": used / done * 1e3, "done": done / total}


def _raw(size: Size) -> Numbers:
    """The SDK by itself, 64 at a time, with the same question and the same form of the answer."""
    import anthropic

    from agenteval_otel.evaluators.judges.answers import constrained_form
    from agenteval_otel.models import EvaluationInput

    total = size.of(*_WAVES) * _AT_ONCE
    with provider(_DELAY_S) as address:
        given = EvaluationInput(prompt=subjects.QUESTION, response=subjects.ANSWER)
        request, _ = _judged(address).question_for(given)
        form = {"type": "json_schema", "schema": constrained_form(request.answer_form)}

        async def run() -> Numbers:
            client = anthropic.AsyncAnthropic(api_key=_KEY, base_url=address, max_retries=0)

            async def worker(numbers: Any) -> None:
                for _ in numbers:
                    message = await client.messages.create(
                        model="judge-1",
                        max_tokens=request.max_tokens,
                        system=request.system,
                        messages=[{"role": "user", "content": request.prompt}],
                        output_config={"format": form},
                    )
                    assert json.loads(message.content[0].text)["score"] == 4

            await asyncio.gather(*(worker(range(1)) for _ in range(_AT_ONCE)))
            numbers = iter(range(total))
            began, cpu = time.perf_counter(), time.process_time()
            await asyncio.gather(*(worker(numbers) for _ in range(_AT_ONCE)))
            took, used = time.perf_counter() - began, time.process_time() - cpu
            await client.close()
            return {"per s": total / took, "cpu ms": used / total * 1e3}

        return asyncio.run(run())


def _first_answer(judged: bool) -> Callable[[Size], Numbers]:
    """How late a loop that ticks each millisecond is around its first answers; `judged` or checked
    by rules.
    """

    def run(size: Size) -> Numbers:
        from agenteval_otel.evaluators import ResponseHealth

        with provider(0.01) as address:
            began = time.perf_counter()
            subject = subjects.Ours(evaluators=[_judged(address) if judged else ResponseHealth()])
            handler, late = subject.wrap(subjects.answer_async), []
            started_s = time.perf_counter() - began

            async def serve() -> None:
                for tick in range(size.of(300, 3_000)):
                    due = time.perf_counter() + 0.001
                    await asyncio.sleep(0.001)
                    late.append((time.perf_counter() - due) * 1e3)
                    if tick in (100, 150, 200):
                        await handler(subjects.QUESTION)

            asyncio.run(serve())
            subject.drain()
            assert subject.evaluated() == 3
            return {
                "late ms": max(late),
                "ticks": sum(value > 5.0 for value in late),
                "start s": started_s,
            }

    return run


def _figures(found: dict[str, Numbers]) -> list[Figure]:
    ours, raw = found["judging:ours"], found["judging:raw"]
    judged, checked = found["first answer:ours"], found["first answer:raw"]
    return [
        Figure(
            "judgements under @monitor, 200 ms each",
            "/s",
            {"ours": ours["per s"], "raw": raw["per s"]},
            at_least(ours["per s"], 200.0, and_also=ours["done"] == 1.0),
        ),
        Figure(
            "CPU of a judgement, the SDK's with it",
            "ms",
            {"ours": ours["cpu ms"], "raw": raw["cpu ms"]},
            holds("<= 2 x the SDK by itself", ours["cpu ms"] <= 2 * raw["cpu ms"]),
        ),
        Figure(
            "loop around the first judged answer: longest delay",
            "ms",
            {"ours": judged["late ms"], "raw": checked["late ms"]},
        ),
        Figure(
            "loop around the first judged answer: ticks over 5 ms late",
            "of 3,000",
            {"ours": judged["ticks"], "raw": checked["ticks"]},
        ),
        Figure(
            "start-up with the judge's client",
            "s",
            {"ours": judged["start s"], "raw": checked["start s"]},
        ),
    ]


BENCH = Bench(
    "judging",
    "Judgements by a model",
    (
        Phase("judging", "ours", _ours),
        Phase("judging", "raw", _raw),
        Phase("first answer", "ours", _first_answer(True)),
        Phase("first answer", "raw", _first_answer(False)),
    ),
    _figures,
    rounds=3,
    notes=(
        "A provider on loopback, in a process of its own, answers after 200 ms; 64 are in flight. `raw` is the bare "
        "`anthropic` SDK, which parses answers into its own models where ours reads them itself.",
        "Around the first judged answer `raw` is ours with ResponseHealth in the judge's place.",
    ),
)

if __name__ == "__main__":
    standalone(BENCH)

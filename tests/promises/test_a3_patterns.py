"""A3: no regular expression freezes the host, whatever text a model was made to write."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from agenteval_otel.runtime.patterns import compile_pattern
from tests.promises.figures import Recorder
from tests.promises.programs import run_program

STALL_MS, WITHIN_MS = 10.0, 200.0
# On a busy machine a process of the lowest priority waits for the others. A pattern that nobody
# stops takes hours.
LIMIT_MS = 10 * WITHIN_MS
ROUNDS = 3
BURNT_MS = 100.0
SIZES = [30, 1_000, 30_000, 1_000_000]
LINEAR = {"(a+)+$": "a!", "(x+x+)+y": "x", "^(([a-z])+.)+$": "a\n", r"(?:a|aa)+\b!": "a"}
OTHERS = {"(?=a)(a+)+$": "a!", r"^(a+)+\1b": "a", r"(?<![0-9])(x+x+)+y": "x"}

PROGRAM = """
    import asyncio, json, os, sys, threading, time
    patterns, sizes = json.loads(sys.argv[1]), json.loads(sys.argv[2])
    from agenteval_otel import flush, monitor, configure
    from agenteval_otel.storage import EvaluationStorageProvider
    from tests.promises.importable import Burning, PlacedRules

    kept = []

    class Kept(EvaluationStorageProvider, type="KeptHere"):
        async def save_result(self, aggregated):
            kept.append(aggregated)

    configure(storage=[Kept()], sample_rate=1.0, load_shedding={"enabled": False})
    watched, ends = True, threading.Event()
    worst = {"thread": 0.0, "loop": 0.0}

    def note(who, began):
        worst[who] = max(worst[who], (time.perf_counter() - began - 0.001) * 1000)

    def watch():
        while not ends.is_set():
            began = time.perf_counter()
            time.sleep(0.001)
            note("thread", began)

    async def watch_loop():
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            note("loop", began)

    def handler_of(pattern):
        rule = {"criterion": "found", "type": "regex", "pattern": pattern}

        @monitor(agent=pattern, evaluators=[PlacedRules.load({"rules": [rule]})])
        async def answer(text):
            return text

        return answer

    @monitor(agent="burning", evaluators=[Burning()])
    async def burn(text):
        return text

    def text_of(ending, size):
        return ending[0] * size + ending[1:]

    def forget():
        before = dict(worst)
        worst.update(thread=0.0, loop=0.0)
        return before

    async def results_of(calls):
        # Waits without holding anything: for each call there is one result.
        wanted = len(kept) + 1
        await calls
        last = time.monotonic() + 60
        while len(kept) < wanted and time.monotonic() < last:
            await asyncio.sleep(0.002)
        return kept[-1].results[0] if len(kept) == wanted else None

    async def main():
        watcher = asyncio.create_task(watch_loop())
        handlers = {pattern: handler_of(pattern) for pattern in patterns}
        for pattern, handler in handlers.items():
            await results_of(handler("warm"))
        texts = {(pattern, size): text_of(ending, size) for pattern, ending in patterns.items() for size in sizes}
        await results_of(burn("warm"))

        async def burns_for_ms():
            burning = await results_of(burn("for comparison"))
            return (burning.ended_ns - burning.started_ns) / 1e6

        calls = []
        for (pattern, size), text in texts.items():
            burnt_ms = await burns_for_ms()
            forget()
            began = time.perf_counter()
            result = await results_of(handlers[pattern](text))
            stall_ms, took_s = forget(), time.perf_counter() - began
            burnt_ms = max(burnt_ms, await burns_for_ms())
            forget()
            await asyncio.sleep(max(took_s, 0.05))
            calls.append({
                "pattern": pattern, "size": size, "stall_ms": stall_ms, "idle_ms": forget(), "burnt_ms": burnt_ms,
                "status": getattr(result, "status", "lost"), "error": getattr(result, "error_type", None),
                "took_ms": (result.ended_ns - result.started_ns) / 1e6 if result else None,
                "away": bool(result and result.evaluator_id != str(os.getpid())),
            })
        watcher.cancel()
        print("report", json.dumps(calls))

    threading.Thread(target=watch, daemon=True).start()
    asyncio.run(main())
    ends.set()
"""


def test_no_pattern_freezes_the_host(promise: Recorder) -> None:
    """Threads and loop go on, each pattern is scored or stopped soon, and those that go back run in
    another process.

    What a pattern does it does in every round; what else the machine does hits now this call and
    now that. So of each call the round counts that was disturbed least, and no round is left out.
    """
    assert all(compile_pattern(pattern).is_linear for pattern in LINEAR)
    assert not any(compile_pattern(pattern).is_linear for pattern in OTHERS)
    arguments = (json.dumps(LINEAR | OTHERS), json.dumps(SIZES))
    rounds = [run_program(PROGRAM, *arguments, timeout_s=280.0).report() for _ in range(ROUNDS)]
    for call in itertools.chain.from_iterable(rounds):
        assert (call["status"], call["error"]) in (("scored", None), ("failed", "timeout")), call
        assert call["status"] == "scored" or call["pattern"] in OTHERS, call
        assert call["away"] is (call["pattern"] in OTHERS), call
    same_calls = list(zip(*rounds, strict=True))
    stall = max(min(max(call["stall_ms"].values()) for call in same) for same in same_calls)
    idle = median(max(max(call["idle_ms"].values()) for call in item) for item in rounds)
    slowest = max(min(map(_took_ms, same)) for same in same_calls)
    promise(
        "A3",
        figure=f"longest stall {stall:.1f} ms, idle {idle:.1f} ms; slowest evaluation {slowest:.0f} ms",
    )
    assert stall <= idle + STALL_MS
    assert slowest <= LIMIT_MS


def _took_ms(call: dict[str, Any]) -> float:
    """How long it took. A busy machine leaves little to the lowest priority: then plain work takes
    longer as well.
    """
    return float(call["took_ms"]) / max(1.0, call["burnt_ms"] / BURNT_MS)


def test_a_linear_pattern_ends_soon_on_the_worst_text(promise: Recorder) -> None:
    """The slowest patterns that may run on the loop end soon on text that gives them ever new
    combinations to keep.
    """
    drawn = random.Random(7)
    text = "".join(drawn.choice("ab") for _ in range(256 * 1024))
    slowest_ms = 0.0
    for pattern in ("a[a-z]{48}c", "a.{27}c", r"a\S{21}#", "a[a-z0-9._%+-]{21}#"):
        compiled = compile_pattern(pattern)
        assert compiled.is_linear
        slowest_ms = max(slowest_ms, min(_cpu_ms_of(compiled.occurs_in, text) for _ in range(5)))
    promise("A3", figure=f"slowest linear pattern on the worst 256 KiB: {slowest_ms:.0f} ms CPU")
    assert slowest_ms <= LIMIT_MS


def _cpu_ms_of(search: Callable[[str], bool], text: str) -> float:
    began = time.thread_time()
    search(text)
    return (time.thread_time() - began) * 1000

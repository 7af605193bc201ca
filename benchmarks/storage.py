"""Storage: processor time for a response that is saved, and twenty long ones that are saved at the
same time.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.goals import holds
from benchmarks.harness import Bench, Figure, Numbers, Phase, Size, standalone

__all__ = ["BENCH"]

_AT_ONCE = 64
_LONG, _LONG_CHARS = 20, 600_000
_KINDS: dict[str, dict[str, Any]] = {
    "JSON line": {"type": "json_file", "path": "x.jsonl"},
    "JSON line, rotating": {
        "type": "json_file",
        "path": "y.jsonl",
        "max_bytes": 1_000_000,
        "keep": 3,
    },
    "SQLite": {"type": "sql", "path": "x.db"},
}


def _result(text: str | None = None) -> Any:
    from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult

    return AggregatedEvaluationResult(
        agent="support",
        overall_score=0.5,
        results=tuple(
            EvaluationResult(
                criterion_name=f"criterion {number}",
                evaluator_type="T",
                score=0.5,
                normalized=0.5,
                label="pass",
                passed=True,
                reasoning=text,
            )
            for number in range(1 if text else 5)
        ),
    )


async def _save(storage: Any, result: Any, count: int) -> None:
    for _ in range(0, count, _AT_ONCE):
        await asyncio.gather(*(storage.save_result(result) for _ in range(min(count, _AT_ONCE))))


async def _taken_us(storage: Any, count: int) -> float:
    """Microseconds of all threads' processor time for a response."""
    result, began = _result(), time.process_time()
    await _save(storage, result, count)
    return (time.process_time() - began) / count * 1e6


def _saving(size: Size) -> Numbers:
    from agenteval_otel.components.loading import resolve
    from agenteval_otel.storage import EvaluationStorageProvider

    found: Numbers = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, options in _KINDS.items():
            storage: Any = resolve(
                EvaluationStorageProvider, {**options, "path": str(Path(folder, options["path"]))}
            )

            async def work(storage: Any = storage) -> float:
                await _save(storage, _result(), 1)  # opens it, and loads what it needs
                taken = min(
                    [
                        await _taken_us(storage, size.of(_AT_ONCE, 32 * _AT_ONCE))
                        for _ in range(size.of(1, 5))
                    ]
                )
                await storage.close()
                return taken

            found[kind] = asyncio.run(work())
        found["whole"], found["long_ms"] = _long(Path(folder, "long.jsonl"))
    return found


def _long(path: Path) -> tuple[float, float]:
    """How many of the long lines are whole, and how many milliseconds all took together."""
    from agenteval_otel.storage import JsonFileStorageProvider

    storage = JsonFileStorageProvider(path=path)
    results = [_result(chr(ord("a") + number) * _LONG_CHARS) for number in range(_LONG)]

    async def work() -> float:
        began = time.perf_counter()
        await asyncio.gather(*map(storage.save_result, results))
        taken = time.perf_counter() - began
        await storage.close()
        return taken

    taken = asyncio.run(work())
    texts = {
        json.loads(line)["results"][0]["reasoning"]
        for line in path.read_text(encoding="utf-8").splitlines()
    }
    return float(len(texts & {result.results[0].reasoning for result in results})), taken * 1e3


def _figures(found: dict[str, Numbers]) -> list[Figure]:
    numbers = dict(found["save:ours"])
    whole, long_ms = numbers.pop("whole"), numbers.pop("long_ms")
    words = f"{_LONG} whole lines"
    return [
        *(
            Figure(f"saving a response, {kind}", "us CPU", {"ours": taken})
            for kind, taken in numbers.items()
        ),
        Figure(
            f"{_LONG} results of 600 KB at once, whole lines",
            "",
            {"ours": whole},
            holds(words, whole == _LONG),
        ),
        Figure(f"{_LONG} results of 600 KB at once", "ms", {"ours": long_ms}),
    ]


BENCH = Bench(
    "storage",
    "Storage: what saving a response takes",
    (Phase("save", "ours", _saving),),
    _figures,
    rounds=3,
    notes=(
        "Five results a response, 64 at once; processor time of all threads, the pydantic dump included.",
    ),
)

if __name__ == "__main__":
    standalone(BENCH)

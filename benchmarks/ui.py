"""The pages of `agenteval-otel ui` over 1,000,000 stored results, and what the indices that they
use cost to store.
"""

from __future__ import annotations

import asyncio
import gzip
import multiprocessing
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.goals import at_most
from benchmarks.harness import Bench, Figure, Numbers, Phase, Size, standalone

__all__ = ["BENCH"]

_CRITERIA = 5
_AT_ONCE = 64
_TEXTS = ("return", "return thirty", "order 777", "nowhere")
_FILTERS: dict[str, dict[str, str]] = {
    "agent": {"agent": "agent 1"},
    "criterion and verdict": {"criterion": "criterion 1", "outcome": "fail"},
    "reason": {"reason": "incomplete"},
    "model": {"model": "large"},
    "prompt version": {"prompt_version": "2"},
    "tag": {"tag": "plan=paid"},
    "user": {"user": f"{77:064x}"},
    "conversation": {"conversation": "conversation 7"},
    "time range": {"window": "7d"},
    "score": {"low": "0.2", "high": "0.8"},
    "lowest first": {"order": "lowest"},
}
_NEW = (
    "agenteval_evaluations_conversation",
    "agenteval_evaluations_response",
    "agenteval_evaluations_user",
)


def _answer(number: int, count: int, chance: random.Random, began_ns: int) -> Any:
    from agenteval_otel.models import (
        AggregatedEvaluationResult,
        EvaluationInput,
        EvaluationResult,
        SpanReference,
    )

    ended_ns = began_ns + number * (30 * 86_400 * 10**9 // count)
    values = [chance.random() for _ in range(_CRITERIA)]
    return AggregatedEvaluationResult(
        agent=f"agent {number % 3}",
        model=("large", "small")[number % 2],
        prompt_version=str(1 + 2 * number // count),
        conversation_id=f"conversation {number // 4}",
        user_id=f"{number // 20:064x}",
        tags={"tenant": f"tenant {number % 50}", "plan": ("free", "paid")[number % 2]},
        ended_ns=ended_ns,
        sampling_probability=0.25,
        overall_score=0.5,
        span=SpanReference(trace_id=f"{number + 1:032x}", span_id=f"{number + 1:016x}"),
        input_snapshot=EvaluationInput(
            prompt=f"How do I return order {number}?", response="Within thirty days. " * 10
        ),
        results=tuple(
            EvaluationResult(
                criterion_name=f"criterion {place}",
                evaluator_type="Judge",
                score=value,
                normalized=value,
                passed=value > 0.1,
                reason_code=None if value > 0.1 else "incomplete",
                probability=0.25,
                reasoning="The answer names the period.",
            )
            for place, value in enumerate(values)
        ),
    )


def _store(path: Path, results: int) -> None:
    """A database as the provider writes it, with ids as old as its results."""
    from agenteval_otel.components.database.target import Target
    from agenteval_otel.storage.sql_database import Database
    from agenteval_otel.storage.sql_rows import rows_of

    chance, count = random.Random(3), results // _CRITERIA
    database, began_ns, rows = Database(Target(path, "")), time.time_ns() - 30 * 86_400 * 10**9, []
    for number in range(count):
        item = rows_of(_answer(number, count, chance, began_ns))
        key = f"{began_ns // 10**6 + number:012x}{number:020x}"
        item.evaluation["id"] = key
        for row in item.results:
            row["evaluation_id"] = key
        rows.append(item)
        if len(rows) == 2_000 or number == count - 1:
            assert not any(database.write(rows, may_wait=True)), "stored"
            rows = []
    database.close()


def _pages(size: Size) -> Numbers:
    import resource

    from agenteval_otel.components.database.target import Target
    from agenteval_otel.storage.read import database_of
    from agenteval_otel.ui.app import Pages, UiSettings
    from agenteval_otel.ui.columns import ResultColumns
    from agenteval_otel.ui.report import HERE

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "results.db")
        writer = multiprocessing.get_context("spawn").Process(
            target=_store, args=(path, size.of(5_000, 1_000_000))
        )
        writer.start()  # a process of its own, whose memory is not that of the pages
        writer.join()
        bytes_before = path.stat().st_size
        numbers: Numbers = {"index": _index(path)}
        numbers["index bytes"] = 100 * (path.stat().st_size / bytes_before - 1)
        place = database_of(Target(path, ""))
        columns = ResultColumns(place)
        numbers["read"] = _seconds(lambda: columns.refresh())
        pages = Pages(UiSettings(place, place.name), columns)
        key = columns.id_of(columns.count // 2)
        asks: dict[str, Any] = {
            "overview": lambda: pages.overview({}),
            "criterion": lambda: pages.criterion({"name": "criterion 1"}),
            "answers": lambda: pages.answers({"criterion": "criterion 1", "outcome": "fail"}),
            "answers, the lowest, page 500": lambda: pages.answers(
                {"agent": "agent 1", "order": "lowest", "page": "500"}
            ),
            "answers with two words": lambda: pages.answers({"text": "return thirty"}),
            "answer": lambda: pages.answer(key),
            "conversation": lambda: pages.conversation({"id": "conversation 7"}),
            "label": lambda: pages.label({"criterion": ["criterion 1"]}, "ann"),
            "compare": lambda: pages.compare({"by": "model"}),
        }
        largest = 0
        for name, ask in asks.items():
            times = []
            for _ in range(3):
                columns.version += 1  # as after a new result: nothing that was kept is used
                times.append(_seconds(ask))
            numbers[name] = sorted(times)[1] * 1e3
            largest = max(largest, len(gzip.compress(ask().encode())))
        searches = sorted(_searches(pages).values())
        numbers["search p50"] = searches[len(searches) // 2]
        numbers["search p95"] = searches[int(0.95 * len(searches))]
        numbers["search max"] = searches[-1]
        loaded = [*(HERE / "static").iterdir()]
        numbers["page"] = (
            largest + sum(len(gzip.compress(file.read_bytes())) for file in loaded)
        ) / 1e3
        numbers["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        numbers["look"] = _seconds(lambda: columns.refresh(at_once=True)) * 1e3
    return numbers


def _index(path: Path) -> float:
    """Processor time of the index of words, which the pages make once."""
    from agenteval_otel.components.database.target import Target
    from agenteval_otel.storage.sql_database import add_answer_texts

    target, began = Target(path, ""), time.process_time()
    while add_answer_texts(target, now_ms=time.time_ns() // 10**6 + 120_000):
        pass
    return time.process_time() - began


def _searches(pages: Any) -> dict[str, float]:
    """Processor time of the list by words and one filter each, in ms, pages 1 and 500."""
    times = {}
    for name, query in _FILTERS.items():
        for text in _TEXTS:
            for page in ("1", "500"):
                began = time.process_time()
                pages.answers({**query, "text": text, "page": page})
                times[f"{name}, {text!r}, page {page}"] = 1e3 * (time.process_time() - began)
    return times


def _seconds(work: Any) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _saving(size: Size) -> Numbers:
    """Processor time of a saved answer with and without the indices and words, in turns."""
    import sqlite3

    from agenteval_otel.storage import SqlStorageProvider

    taken: dict[str, list[float]] = {"with": [], "without": []}
    count, chance = size.of(_AT_ONCE, 40 * _AT_ONCE), random.Random(5)
    answers = [_answer(number, count, chance, time.time_ns()) for number in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(size.of(2, 8)):
            kind = ("with", "without")[turn % 2]
            path = Path(folder, f"{turn}.db")
            _store(path, _CRITERIA)
            if kind == "with":
                _index(path)
            else:
                connection = sqlite3.connect(path)
                for name in _NEW:
                    connection.execute(f"DROP INDEX {name}")
                connection.close()
            storage = SqlStorageProvider(path=path)

            async def work(storage: Any = storage) -> float:
                await storage.save_result(answers[0])
                began = time.process_time()
                for start in range(0, count, _AT_ONCE):
                    await asyncio.gather(
                        *map(storage.save_result, answers[start : start + _AT_ONCE])
                    )
                taken_s = time.process_time() - began
                await storage.close()
                return taken_s / count * 1e6

            taken[kind].append(asyncio.run(work()))
    return {kind: min(times) for kind, times in taken.items()}


def _figures(found: dict[str, Numbers]) -> list[Figure]:
    pages, saving = found["pages:ours"], found["save:ours"]
    more = 100 * (saving["with"] / saving["without"] - 1)
    goals = {
        "overview": 500,
        "criterion": 800,
        "answers": 300,
        "answers, the lowest, page 500": 300,
        "answers with two words": 300,
        "answer": 100,
        "conversation": 100,
        "label": 800,
        "compare": 800,
    }
    return [
        *(
            Figure(f"page: {name}", "ms", {"ours": pages[name]}, at_most(pages[name], goals[name]))
            for name in goals
        ),
        Figure(
            "words and one filter, page 1 and 500, p95",
            "ms CPU",
            {"ours": pages["search p95"]},
            at_most(pages["search p95"], 300),
        ),
        Figure("the same, median", "ms CPU", {"ours": pages["search p50"]}),
        Figure("the same, slowest", "ms CPU", {"ours": pages["search max"]}),
        Figure("making the index of words, once", "s CPU", {"ours": pages["index"]}),
        Figure("the index of words, of the database", "%", {"ours": pages["index bytes"]}),
        Figure(
            "a look for new results", "ms", {"ours": pages["look"]}, at_most(pages["look"], 1_000)
        ),
        Figure("reading all at the start", "s", {"ours": pages["read"]}),
        Figure(
            "memory of the process at most",
            "MB",
            {"ours": pages["memory"]},
            at_most(pages["memory"], 200),
        ),
        Figure(
            "largest page with all it loads, compressed",
            "KB",
            {"ours": pages["page"]},
            at_most(pages["page"], 300),
        ),
        Figure(
            "saving an answer, with all indices of the pages", "us CPU", {"ours": saving["with"]}
        ),
        Figure("more than without them", "%", {"ours": more}, at_most(more, 20)),
    ]


BENCH = Bench(
    "ui",
    "Pages over 1,000,000 stored results",
    (Phase("pages", "ours", _pages), Phase("save", "ours", _saving)),
    _figures,
    notes=(
        "200,000 answers of 30 days with five results each and their content, in SQLite. Each page is made as after "
        "a new result; the page is the HTML, without the network.",
    ),
)

if __name__ == "__main__":
    standalone(BENCH)

"""Histories: what an answer costs whose call brings 20, 200 or 1,000 messages, by CPU of the process,
input to emission.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks import subjects
from benchmarks.goals import holds
from benchmarks.harness import Bench, Figure, Numbers, Phase, Size, standalone
from benchmarks.tables import render

__all__ = ["BENCH"]

_LENGTHS = (20, 200, 1_000)
_ANSWERS = 50  # at a time
_WORDS = "as many words as a person writes"
Messages = list[dict[str, Any]]


def is_polite(evaluation_input: Any) -> bool:
    return "Paris" in evaluation_input.response


def is_short(evaluation_input: Any) -> bool:
    return len(evaluation_input.message_history) < 50


def _plain(length: int) -> Messages:
    roles = ("assistant", "user")
    return [
        {"role": roles[(length - number) % 2], "content": f"{number}: {_WORDS}"}
        for number in range(1, length + 1)
    ]


def _with_tools(length: int) -> Messages:
    messages: Messages = []
    for number in range(length // 4):
        function = {"name": "look_up", "arguments": '{"name": "Paris"}'}
        calls = [{"id": f"call-{number}", "type": "function", "function": function}]
        messages += [
            {"role": "user", "content": f"{number}: {_WORDS}"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": f"call-{number}", "content": _WORDS},
            {"role": "assistant", "content": _WORDS},
        ]
    return [*messages[1:], {"role": "user", "content": "And then?"}]


def _answer(messages: Messages) -> str:
    return subjects.ANSWER


def _state(messages: Messages) -> dict[str, Any]:
    return {"messages": [*messages, {"role": "assistant", "content": subjects.ANSWER}]}


def _by_length(
    make: Callable[[int], Messages], handler: Any, evaluator: Any, size: Size
) -> Numbers:
    """CPU microseconds of one answer, the least of several times, by the length of its history."""
    tracer = subjects.use_tracing()
    subject = subjects.Ours(shedding=False, evaluators=[evaluator])
    monitored = subject.wrap(handler)
    taken: Numbers = {}
    for length in _LENGTHS:
        messages = make(length)
        lowest = float("inf")
        for _ in range(size.of(3, 12)):  # the first one is slow
            began = time.process_time()
            for _ in range(_ANSWERS):
                with tracer.start_as_current_span("request"):
                    monitored(list(messages))
            subject.drain()
            lowest = min(lowest, (time.process_time() - began) / _ANSWERS * 1e6)
        taken[f"{length:,}"] = lowest
    return taken


def _conversations(size: Size) -> Numbers:
    """CPU microseconds of one turn of a conversation whose turns bring all messages before."""
    tracer = subjects.use_tracing()
    subject = subjects.Ours(
        shedding=False,
        evaluators=[{"type": "Repetition"}],
        conversations={"max_turns": 1_000},
    )

    def chat(messages: Messages, conversation_id: str) -> str:
        return f"{len(messages)}: {subjects.ANSWER[:60]}"

    monitored = subject.wrap(chat)
    taken: Numbers = {}
    for length in _LENGTHS:
        times = size.of(1, 2) * max(1, 200 // length)
        began = time.process_time()
        for conversation in range(times):
            history: Messages = []
            for number in range(length // 2):
                history.append({"role": "user", "content": f"{number}: {_WORDS}"})
                with tracer.start_as_current_span("request"):
                    answer = monitored(list(history), f"{length}-{conversation}")
                history.append({"role": "assistant", "content": answer})
                subject.drain()
        taken[f"{length:,}"] = (time.process_time() - began) / times / (length // 2) * 1e6
    return taken


_ROWS: dict[str, tuple[str, Callable[[Size], Numbers]]] = {
    "plain": ("of text, no evaluator looks", partial(_by_length, _plain, _answer, is_polite)),
    "read": ("of text, an evaluator looks", partial(_by_length, _plain, _answer, is_short)),
    "tools": (
        "with tool calls, no evaluator looks",
        partial(_by_length, _with_tools, _answer, is_polite),
    ),
    "state": (
        "of text, in the arguments and in the answer",
        partial(_by_length, _plain, _state, is_polite),
    ),
    "turns": ("of text, each of its turns evaluated", _conversations),
}


def _figures(found: dict[str, Numbers]) -> list[Figure]:
    short, long = found["plain:ours"]["20"], found["plain:ours"]["200"]
    return [
        Figure(
            "an answer with 200 messages, as times one with 20; no evaluator looks",
            "x",
            {"ours": long / short},
            holds("<= 2", long <= 2 * short),
        )
    ]


def table(found: dict[str, Numbers]) -> str:
    """CPU microseconds of an answer by the length of its history."""
    header = ["messages", *(f"{length:,}" for length in _LENGTHS)]
    rows = []
    for name, (words, _) in _ROWS.items():
        numbers = found[f"{name}:ours"]
        rows.append([words, *(f"{numbers[f'{length:,}']:,.0f}" for length in _LENGTHS)])
    return render(header, rows)


BENCH = Bench(
    "history",
    "Histories",
    tuple(Phase(name, "ours", run) for name, (_, run) in _ROWS.items()),
    _figures,
    table=table,
    notes=(
        "Histories: CPU microseconds of one answer with one evaluator, caller and background "
        "together, input to emission.",
    ),
)

if __name__ == "__main__":
    standalone(BENCH)

"""What `annotate` says of the agent itself: turns and memory."""

from __future__ import annotations

from agenteval_otel import annotate
from agenteval_otel.models import MemoryStats
from tests.instrumentation.support import Seen


def test_turns_and_memory_are_facts() -> None:
    """An agent that tells its turns and its memory has them in the input; what does not fit is left out."""
    seen = Seen()

    @seen.monitor
    def handler(question: str) -> str:
        annotate(turns=3, memory_stats={"keys": 2, "totalEntries": 5, "oldest": "2026-01-01T00:00:00Z"})
        return "answer"

    @seen.monitor
    def careless(question: str) -> str:
        annotate(turns="many", memory_stats=[1])
        return "answer"

    handler("q")
    careless("q")
    first, second = seen.inputs
    assert first.turns == 3
    assert first.memory_stats == MemoryStats(keys=2, total_entries=5, oldest="2026-01-01T00:00:00Z")
    assert (second.turns, second.memory_stats, second.response) == (None, None, "answer")

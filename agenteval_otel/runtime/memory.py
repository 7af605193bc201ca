"""One bound over everything that waits in this process, with a ceiling for each part."""

from __future__ import annotations

from agenteval_otel.runtime.fork import reset_in_child

_MIB = 1024 * 1024


class MemoryPart:
    """The memory of one part; its ceiling `max_bytes` is not a reservation, and may be changed at
    any time.
    """

    def __init__(self, budget: MemoryBudget, max_bytes: int) -> None:
        self._budget, self.max_bytes = budget, max_bytes
        self.used_bytes = 0

    def reserve(self, size_bytes: int) -> bool:
        """Reserve bytes; False, and nothing reserved, where the ceiling or the budget has no room.

        No lock: ``self.used_bytes += n`` cannot lose an update, as threads switch at calls and
        jumps only.
        """
        budget = self._budget
        self.used_bytes += size_bytes
        budget.used_bytes += size_bytes
        # Added first, then checked: concurrent threads may all be refused, but never exceed the
        # limit together.
        if self.used_bytes <= self.max_bytes and budget.used_bytes <= budget.max_bytes:
            return True
        self.release(size_bytes)
        return False

    def release(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
        self._budget.used_bytes -= size_bytes


class MemoryBudget:
    def __init__(self, max_bytes: int = 64 * _MIB) -> None:
        self.max_bytes, self.used_bytes = max_bytes, 0
        self.captured_calls = MemoryPart(self, 32 * _MIB)  # until their inputs are built
        self.unsampled_calls = MemoryPart(self, 16 * _MIB)  # that feedback may ask for
        # evaluated ones whose ground truth is to come, compressed
        self.pending_answers = MemoryPart(self, 16 * _MIB)
        self.open_spans = MemoryPart(self, 32 * _MIB)
        # of other libraries, until their answer is read
        self.read_spans = MemoryPart(self, 32 * _MIB)
        self.conversations = MemoryPart(self, 32 * _MIB)  # open ones, compressed
        self.results = MemoryPart(self, 32 * _MIB)
        self.encoded_batches = MemoryPart(self, 32 * _MIB)
        self.events = MemoryPart(self, 32 * _MIB)  # for the sidecar, until it has them

    def reset(self) -> None:
        # In a forked child: what its parent keeps is the parent's.
        for part in (
            self,
            self.captured_calls,
            self.unsampled_calls,
            self.pending_answers,
            self.open_spans,
            self.read_spans,
            self.conversations,
            self.results,
            self.encoded_batches,
            self.events,
        ):
            part.used_bytes = 0


MEMORY = MemoryBudget()
"""This process's."""
reset_in_child(MEMORY.reset)

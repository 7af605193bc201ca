"""The key of sampling.

From what others can choose (ids, texts) it makes numbers that they cannot foresee.

A client that knows the randomness of an id can choose ids that are always evaluated, or never. So
it is a keyed hash. Processes with the same `sampling.key` decide alike, and know each other's
marks.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

LOW_64: Final = (1 << 64) - 1
_HIGH: Final = 1 << 127


class SamplingKey:
    """Makes numbers and marks of ids. Never changes, and never shows its secret.

    `of_trace` runs on the caller's thread for every call: two rounds of multiplication, a third of
    BLAKE2b's time. Each round's product is kept whole, so that high bits of an id reach all bits of
    the number. It keeps clients from choosing, and is no cryptographic hash: clients never see
    the numbers.

    Args:
        secret: Any bytes: those of `sampling.key`, or random ones.
        is_set: It comes from the settings, so other processes may have it too.

    Attributes:
        mask: The first of the three numbers of `of_trace`, for a caller that has it inlined.
        first: The second, which is odd.
        second: The third, which is odd.
    """

    __slots__ = ("_secret", "first", "is_set", "mask", "second")

    def __init__(self, secret: bytes, *, is_set: bool = False) -> None:
        self.is_set: Final = is_set
        self._secret: Final = blake2b(secret, person=b"agenteval key").digest()
        numbers = blake2b(b"trace", digest_size=48, key=self._secret).digest()
        self.mask: Final = int.from_bytes(numbers[:16], "big")
        self.first: Final = int.from_bytes(numbers[16:32], "big") | _HIGH | 1
        self.second: Final = int.from_bytes(numbers[32:], "big") | _HIGH | 1

    def __repr__(self) -> str:
        return f"<SamplingKey {'of the settings' if self.is_set else 'of this process'}>"

    def of_trace(self, trace_id: int) -> int:
        """Return a number in [0, 2^64) for a trace id."""
        product = (trace_id ^ self.mask) * self.first
        folded = product ^ (product >> 96)
        return ((folded * self.second) >> 64) & LOW_64

    def of_text(self, identity: bytes, person: bytes = b"") -> int:
        """Return a number in [0, 2^64) for other ids and texts, by BLAKE2b with the key.

        `person` serves for several numbers of one identity.
        """
        digest = blake2b(identity, digest_size=8, key=self._secret, person=person).digest()
        return int.from_bytes(digest, "big")

    def mark(self, trace_id: int) -> str:
        """Return the mark of a trace's evaluation, which only a process with this key can make."""
        identity = (trace_id & ((1 << 128) - 1)).to_bytes(16, "big")
        return blake2b(identity, digest_size=16, key=self._secret, person=b"mark").hexdigest()

    def is_mark(self, value: str, trace_id: int) -> bool:
        """Tell whether a value is the mark of this trace."""
        return value.isascii() and compare_digest(value, self.mark(trace_id))


FIXED_KEY: Final = SamplingKey(b"")
"""Of offline runs, which must be reproducible and choose nothing of live traffic."""
PROCESS_KEY: Final = SamplingKey(os.urandom(32))
"""Where no key is set: random, of this process and its forked children."""

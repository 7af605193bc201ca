"""Spans that were seen lately, by eight bytes each: bounded in time and in memory."""

from __future__ import annotations

import os
from collections import deque
from typing import Final

ANY_SPAN: Final = 0
"""In place of a span's id: some spans of the trace are remembered."""
WHOLE_TRACE: Final = 1 << 64
"""In place of a span's id, which is always smaller: every span of the trace counts as seen."""
PART_LOST: Final = WHOLE_TRACE | 1
"""In place of a span's id: a part of the trace was lost, so that none of it is evaluated."""

# The newest and two full ones: a span is known for the window and up to half of it longer.
_GENERATIONS: Final = 3
_FINGERPRINT_BYTES: Final = 8
# Measured: a bytearray allocates an eighth more than it holds, and has a header and a place in the
# dictionary of its generation.
_SPAN_BYTES: Final = 9
_BUCKET_BYTES: Final = 180
# Fewer take more memory, more take longer: a search through these takes a microsecond.
_SPANS_PER_BUCKET: Final = 64
_FIRST_BUCKETS: Final = 256


class RecentSpans:
    """Remembers spans for `window_s` seconds, or for as long as `max_bytes` suffice.

    Not thread-safe.

    Of a span eight bytes are kept: the upper 64 of the 256 bits of its ids' product with a random
    odd number of this process (multiply-shift hashing). Two different spans have the same eight
    bytes with a probability of at most 2 ** -63, also where a client has chosen their ids, as it
    does not know that number. Among the three million spans of 32 MB, a new span is taken for a
    known one once in 3 * 10 ** 12 times.

    Attributes:
        size_bytes: The memory that is in use.
        forgotten: Spans that were forgotten before their time, for lack of memory.
    """

    def __init__(self, window_s: float, max_bytes: int) -> None:
        self._window_s = window_s
        self._step_s = window_s / (_GENERATIONS - 1)
        self._max_bytes = max_bytes // _GENERATIONS
        self._factor = int.from_bytes(os.urandom(32)) | 1
        self._now_s = 0.0
        self._generations = deque([_Generation(0.0, _FIRST_BUCKETS)])
        self.forgotten = 0

    def __repr__(self) -> str:
        return f"<RecentSpans {sum(each.spans for each in self._generations)}>"

    @property
    def size_bytes(self) -> int:
        return sum(generation.size_bytes() for generation in self._generations)

    def advance(self, now_s: float) -> None:
        """Forget what is older than the window. `now_s` never goes back."""
        self._now_s = now_s
        while now_s - self._generations[-1].began_s >= self._step_s > 0:
            if now_s - self._generations[-1].began_s >= self._window_s + self._step_s:
                self._generations.clear()  # nothing was noted for so long
                self._generations.append(_Generation(now_s, _FIRST_BUCKETS))
                return
            self._begin(self._generations[-1].began_s + self._step_s)

    def note(self, trace_id: int, span_id: int) -> None:
        """Remember a span for the window from now on."""
        if not self._window_s:
            return
        newest = self._generations[-1]
        if newest.size_bytes() >= self._max_bytes:
            self._begin(self._now_s)
            newest = self._generations[-1]
        fingerprint = self._fingerprint(trace_id, span_id)
        place = fingerprint & newest.mask
        bucket = newest.buckets.get(place)
        if bucket is None:
            bucket = newest.buckets[place] = bytearray()
        written = fingerprint.to_bytes(_FINGERPRINT_BYTES)
        if written not in bucket:
            bucket += written
            newest.spans += 1

    def knows(self, trace_id: int, span_id: int) -> bool:
        """Tell whether a span was noted within the window."""
        fingerprint = self._fingerprint(trace_id, span_id)
        wanted = fingerprint.to_bytes(_FINGERPRINT_BYTES)
        for generation in self._generations:
            bucket = generation.buckets.get(fingerprint & generation.mask)
            if bucket is not None and wanted in bucket:
                return True
        return False

    def _fingerprint(self, trace_id: int, span_id: int) -> int:
        product = (trace_id << 65 | span_id) * self._factor
        return (product >> 192) & 0xFFFF_FFFF_FFFF_FFFF

    def _begin(self, now_s: float) -> None:
        """Begin a generation, for as many spans as came in the one before.

        Forget the oldest if there are enough.
        """
        buckets = max(_FIRST_BUCKETS, self._generations[-1].spans // _SPANS_PER_BUCKET)
        self._generations.append(_Generation(now_s, 1 << (buckets - 1).bit_length()))
        if len(self._generations) > _GENERATIONS:
            oldest = self._generations.popleft()
            if self._now_s - self._generations[0].began_s < self._window_s:
                self.forgotten += oldest.spans


class _Generation:
    """Holds the spans of some time, by the lowest bits of their fingerprint.

    A set of Python would take seven times the memory.
    """

    __slots__ = ("began_s", "buckets", "mask", "spans")

    def __init__(self, began_s: float, buckets: int) -> None:
        self.began_s = began_s
        self.mask = buckets - 1
        self.buckets: dict[int, bytearray] = {}
        self.spans = 0

    def size_bytes(self) -> int:
        return _SPAN_BYTES * self.spans + _BUCKET_BYTES * len(self.buckets)

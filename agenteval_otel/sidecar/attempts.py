"""Notes of what a process has begun, so that the next one knows what earlier ones died of."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Final

_BEGUN: Final = 1
_ENDED: Final = 2
_COUNTED: Final = 3
_ENTRY: Final = struct.Struct(">BI24s")
_CHECKSUM: Final = struct.Struct(">I")
_ENTRY_BYTES: Final = _ENTRY.size + _CHECKSUM.size
_MAX_BYTES: Final = 1024 * 1024

Item = bytes
"""What was begun: 24 bytes, which the caller makes."""


class RequestAttempts:
    """How often each item was under way when a process died. Not thread-safe.

    The file has entries of equal size, which are read at multiples of that size: no content of an
    entry is ever searched for another one. It is written without waiting for the disk, so it
    survives the death of the process and not that of the machine, which says nothing about an item.

    Args:
        path: The file, made anew with every start.

    Attributes:
        died: The process before died while something was under way.

    Raises:
        OSError: Where the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._counts, before = _counts_in(path)
        self.died = bool(before)
        self._under_way: set[Item] = set()
        self._descriptor = -1
        self._size_bytes = 0
        self._rewrite()

    def __repr__(self) -> str:
        return f"<Attempts {self._path} under_way={len(self._under_way)}>"

    def count(self, item: Item) -> int:
        """Return how many earlier processes died while the item was under way."""
        return self._counts.get(item, 0)

    def begin(self, items: Collection[Item]) -> None:
        """Note that items are under way from now on. Raises `OSError`."""
        fresh = [item for item in items if item not in self._under_way]
        self._under_way.update(fresh)
        self._append(_BEGUN, fresh)

    def end(self, items: Collection[Item]) -> None:
        """Note that items are over, and forget how often they were tried. Raises `OSError`."""
        known = [item for item in items if item in self._under_way or item in self._counts]
        for item in known:
            self._under_way.discard(item)
            self._counts.pop(item, None)
        self._append(_ENDED, known)
        is_empty = not self._under_way and not self._counts
        if is_empty and self._size_bytes and self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            self._size_bytes = 0
        elif self._size_bytes > _MAX_BYTES + 4 * _ENTRY_BYTES * len(self._under_way):
            self._rewrite()

    def close(self) -> None:
        """Give back what is under way: this process has not died of it. Raises `OSError`."""
        if self._descriptor < 0:
            return
        self._under_way.clear()
        try:
            self._rewrite()
        finally:
            os.close(self._descriptor)
            self._descriptor = -1

    def _append(self, kind: int, items: Collection[Item]) -> None:
        if not items or self._descriptor < 0:
            return
        data = b"".join(_packed(kind, 0, item) for item in items)
        written = os.write(self._descriptor, data)
        if written < len(data):
            os.ftruncate(self._descriptor, self._size_bytes)
            raise OSError(28, "short write")
        self._size_bytes += written

    def _rewrite(self) -> None:
        """Replace the file by one with the counts and what is under way."""
        counted = b"".join(_packed(_COUNTED, count, item) for item, count in self._counts.items())
        begun = b"".join(_packed(_BEGUN, 0, item) for item in self._under_way)
        draft = self._path.with_suffix(".draft")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        descriptor = os.open(draft, flags, 0o600)
        try:
            data = counted + begun
            if os.write(descriptor, data) < len(data):
                raise OSError(28, "short write")
            os.replace(draft, self._path)
        except OSError:
            os.close(descriptor)
            raise
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = descriptor
        self._size_bytes = len(data)


def _counts_in(path: Path) -> tuple[dict[Item, int], set[Item]]:
    """Return the counts of a file and what was under way at its end, which counts once more."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}, set()
    counts: dict[Item, int] = {}
    under_way: set[Item] = set()
    for at in range(0, len(data) - _ENTRY_BYTES + 1, _ENTRY_BYTES):
        entry = data[at : at + _ENTRY.size]
        (checksum,) = _CHECKSUM.unpack_from(data, at + _ENTRY.size)
        if zlib.crc32(entry) != checksum:
            continue
        kind, count, item = _ENTRY.unpack(entry)
        if kind == _BEGUN:
            under_way.add(item)
        elif kind == _ENDED:
            under_way.discard(item)
            counts.pop(item, None)
        elif kind == _COUNTED:
            counts[item] = count
    for item in under_way:
        counts[item] = counts.get(item, 0) + 1
    return counts, under_way


def _packed(kind: int, count: int, item: Item) -> bytes:
    entry = _ENTRY.pack(kind, min(count, 0xFFFFFFFF), item)
    return entry + _CHECKSUM.pack(zlib.crc32(entry))

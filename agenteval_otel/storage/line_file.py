"""LineFile: whole lines appended to a file, on a thread of its own, so that a slow disk holds up nobody's event loop.

What waits is written together. A line is waited for no longer than `WAIT_S`; a disk that takes longer fails the lines
at once until it is back, so they do not pile up. The thread is a daemon, starts with the first line and ends when it
has been idle. Nothing is synced: what was written outlives the process, not the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import queue
import stat
import threading
import time
from pathlib import Path

from agenteval_otel.errors import StorageError

__all__ = ["WAIT_S", "LineFile"]

WAIT_S = 0.75
_MAX_WAITING_BYTES = 32 * 1024 * 1024
_BATCH_BYTES = 1024 * 1024
_IDLE_S = 0.5


class LineFile:
    """Appends lines to one file for one process. After a fork the child needs one of its own.

    Args:
        path: The file; parent folders are made when it is opened. Where it was removed or moved away meanwhile, the
            next line opens it anew.
    """

    def __init__(self, path: Path) -> None:
        self._file = _Appended(path)
        self._waiting: queue.SimpleQueue[_Line] = queue.SimpleQueue()
        self._waiting_bytes = 0
        self._busy_since: float | None = None
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<LineFile {self._file.path} waiting={self._waiting_bytes} bytes>"

    async def append(self, text: bytes) -> None:
        """Append a line, line end included, and wait until it is in the file; never blocks the event loop.

        Raises:
            StorageError: It was not written in time or not whole, or more waits than may.
            OSError: The file cannot be opened or written.
        """
        line = _Line(text)
        with self._guard:
            self._refuse_or_count(len(text))
            self._waiting.put(line)
            served = self._thread is not None or self._start()
        if not served:  # no thread is to be had, as at the interpreter's exit: then it is written here
            self._write(self._batch(self._waiting.get()))
        if not await line.done():
            raise StorageError(f"{self._file.path}: not written within {WAIT_S:g} s")

    async def close(self) -> None:
        """Close the file after the lines that wait; a write that hangs closes it when it comes back."""
        with self._guard:
            self._closed, served = True, self._thread is not None
            last = _Line(b"")
            if served:
                self._waiting.put(last)
        if served:
            await last.done()
        else:
            self._file.close()

    def _refuse_or_count(self, size: int) -> None:
        if self._closed:
            raise StorageError(f"{self._file.path}: closed")
        since = self._busy_since
        if since is not None and time.monotonic() - since > WAIT_S:
            raise StorageError(f"{self._file.path}: a write has hung for more than {WAIT_S:g} s")
        if self._waiting_bytes and self._waiting_bytes + size > _MAX_WAITING_BYTES:
            raise StorageError(f"{self._file.path}: the disk does not keep up")
        self._waiting_bytes += size

    def _start(self) -> bool:
        work = contextvars.Context().run
        thread = threading.Thread(target=work, args=(self._work,), name="agenteval-file", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._thread = thread
        return True

    def _work(self) -> None:
        while True:
            try:
                first = self._waiting.get(timeout=_IDLE_S)
            except queue.Empty:
                with self._guard:
                    if not self._waiting.empty():
                        continue  # one came in the moment between
                    self._thread = None
                return
            lines = self._batch(first)
            self._write([line for line in lines if line.text])
            if not lines[-1].text:
                self._file.close()
                lines[-1].answer(None)
                return

    def _batch(self, first: _Line) -> list[_Line]:
        """The line and what waits behind it, up to a batch's size or to the end."""
        lines, size = [first], len(first.text)
        while lines[-1].text and size < _BATCH_BYTES:
            try:
                lines.append(self._waiting.get_nowait())
            except queue.Empty:
                break
            size += len(lines[-1].text)
        return lines

    def _write(self, lines: list[_Line]) -> None:
        wanted = [line for line in lines if not line.future.cancelled()]
        self._busy_since = time.monotonic()
        written, error = self._file.write([line.text for line in wanted])
        self._busy_since = None
        with self._guard:
            self._waiting_bytes -= sum(len(line.text) for line in lines)
        for line in wanted:
            written -= len(line.text)
            line.answer(None if written >= 0 else error)


class _Line:
    """A line, and the future of whoever waits for it; without text it is the end."""

    def __init__(self, text: bytes) -> None:
        self.text, self._loop = text, asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self._loop.create_future()

    async def done(self) -> bool:
        """Wait for it; False when it took too long, and then it is left out if it still waits."""
        await asyncio.wait({self.future}, timeout=WAIT_S)
        if not self.future.done():
            self.future.cancel()
            return False
        self.future.result()
        return True

    def answer(self, error: Exception | None) -> None:
        with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._settle, error)

    def _settle(self, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            # One of its own for each that waits: who raises it adds to its traceback.
            self.future.set_exception(_again(error))


class _Appended:
    """The open file. Whatever fails closes it, and opening looks whether its last line is whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._identity: tuple[int, int] | None = None

    def write(self, lines: list[bytes]) -> tuple[int, Exception | None]:
        """Append the lines; gives how many bytes of them are in the file, and why not all. Raises nothing."""
        if not lines:
            return 0, None
        try:
            descriptor, torn = self._ready()
            text = b"".join([b"\n", *lines] if torn else lines)
            written = os.write(descriptor, text)
        except Exception as error:
            self.close()
            return 0, error
        if written < len(text):
            self.close()
            return written - torn, StorageError(f"{self.path}: only {written} of {len(text)} bytes written")
        return written - torn, None

    def close(self) -> None:
        """Close it; opened again by the next write."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None and _identity(descriptor) == self._identity:  # else the host closed it: not ours
            os.close(descriptor)

    def _ready(self) -> tuple[int, bool]:
        """The open file that stands at the path now, and whether what stands in it ends within a line."""
        if self._descriptor is not None:
            if self._identity == _identity(self._descriptor) == _identity(self.path):
                return self._descriptor, False
            self.close()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Not blocking, for the opening alone: a pipe that nobody reads is refused instead of waited for.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = self._descriptor = os.open(self.path, flags, 0o600)
        self._identity = _identity(descriptor)
        os.set_blocking(descriptor, True)
        return descriptor, self._is_torn(os.fstat(descriptor))

    def _is_torn(self, found: os.stat_result) -> bool:
        """Whether a line was cut off: by a full disk, or by the end of a process in the middle of its write."""
        if not stat.S_ISREG(found.st_mode) or not found.st_size:
            return False
        try:
            with self.path.open("rb") as file:
                file.seek(-1, os.SEEK_END)
                return file.read(1) != b"\n"
        except OSError:
            return True  # not ours to read: an empty line does no harm


def _identity(place: int | Path) -> tuple[int, int] | None:
    try:
        found = os.stat(place)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _again(error: Exception) -> Exception:
    if isinstance(error, OSError):
        return OSError(error.errno, error.strerror, error.filename)
    return StorageError(str(error))

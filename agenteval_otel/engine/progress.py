"""Progress of a batch, on standard error: a bar where that is a terminal, else a line now and then."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.console import Console

_LINE_EVERY_S = 10.0
_DRAWN_EVERY_S = 0.1


class Progress:
    """Counts inputs, and shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def advance(self, failed: int) -> None:
        """One more input is evaluated; so many had failures so far."""
        return


class Bar(Progress):
    """A bar with the count and the time that is left; gone when it is over. Without a `total` it shows the count
    alone.
    """

    def __init__(self, total: int | None, console: Console) -> None:
        from rich import progress as rich_progress
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

        columns = (TextColumn("evaluating"), BarColumn(bar_width=None), MofNCompleteColumn(),
                   TimeRemainingColumn(compact=True), TextColumn("{task.fields[failed]}", style="red"))  # fmt: skip
        # Drawn by hand: a thread of its own is one that a batch could leave behind.
        self._bar = rich_progress.Progress(*columns, console=console, transient=True, expand=True, auto_refresh=False)
        self._task = self._bar.add_task("evaluating", total=total, failed="")
        self._drawn_s = 0.0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.refresh()
        self._bar.stop()

    def advance(self, failed: int) -> None:
        self._bar.update(self._task, advance=1, failed=f"{failed:,} with failures" if failed else "")
        now_s = time.monotonic()
        if now_s - self._drawn_s >= _DRAWN_EVERY_S:
            self._drawn_s = now_s
            self._bar.refresh()


class Lines(Progress):
    """A line every ten seconds, for logs; none when it is over sooner."""

    def __init__(self, total: int | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._of = "" if total is None else f" of {total:,}"
        self._done, self._clock = 0, clock
        self._began = self._reported = clock()

    def advance(self, failed: int) -> None:
        self._done += 1
        now = self._clock()
        if now - self._reported < _LINE_EVERY_S:
            return
        self._reported = now
        line = f"{self._done:,}{self._of} inputs evaluated, {self._done / (now - self._began):,.1f} a second"
        with contextlib.suppress(OSError, ValueError):  # closed meanwhile: no reason to end a batch
            sys.stderr.write(line + (f", {failed:,} with failures\n" if failed else "\n"))
            sys.stderr.flush()


def progress_for(total: int | None, *, quiet: bool = False) -> Progress:
    if quiet or sys.stderr is None:
        return Progress()
    from rich.console import Console

    console = Console(stderr=True)
    return Bar(total, console) if console.is_terminal else Lines(total)

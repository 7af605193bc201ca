"""CPU time, memory, threads and child processes of this process, without asking any subject."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["beside_main_cpu_s", "children", "on_one_core", "resident_mb", "threads", "tree_cpu_s"]

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def on_one_core() -> None:
    """Pin this process, and what it starts, to one core, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def tree_cpu_s() -> float:
    """CPU time of this process and of its children, those that run and those that ended.

    Children are the processes of this process's session; the clock of those that run has 10 ms.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = sum(sum(fields[11:15]) for _, fields in _session())
    return time.process_time() + ended.ru_utime + ended.ru_stime + running * _TICK_S


def beside_main_cpu_s() -> float:
    """CPU time of everything but the calling thread, which is the caller's."""
    return tree_cpu_s() - time.thread_time()


def children() -> int:
    """Child processes that run."""
    return sum(1 for _ in _session())


def threads() -> int:
    """Threads of this process."""
    return len(os.listdir("/proc/self/task"))


def resident_mb() -> float:
    """Resident memory of this process and its children in MiB."""
    pages = _pages("self") + sum(_pages(pid) for pid, _ in _session())
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def _pages(pid: str) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0


def _session() -> Iterator[tuple[str, list[int]]]:
    """Process id, and the numbers of /proc/<pid>/stat after the state, of this session's other
    processes.
    """
    own, session = os.getpid(), os.getsid(0)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue  # ended meanwhile
        # The first of them, the parent's id, is field 4 of the manual page: state comes before it.
        fields = [int(field) for field in text.rpartition(")")[2].split()[1:]]
        if fields[2] == session and int(pid) != own:
            yield pid, [0, *fields]

"""The package's one fork hook: what is registered is reset in each child, in order, and is not kept
alive by that.
"""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from pathlib import Path

import agenteval_otel
from agenteval_otel.runtime.fork import reset_in_child
from tests.promises.programs import run_program

PROGRAM = """
    import logging, os, random
    from agenteval_otel.runtime.fork import after_fork_in_parent, before_fork, reset_in_child
    from agenteval_otel.runtime.fork import RANDOM

    class Lines(logging.Handler):
        def emit(self, record):
            write("line", record.getMessage())
    logging.getLogger("agenteval_otel").addHandler(Lines())

    def write(*words):
        os.write(1, (" ".join(words) + "\\n").encode())  # in one piece: a parent and its child write at once

    class Part:
        def __init__(self, name):
            self.name = name
            before_fork(self.before)
            after_fork_in_parent(self.parent)
            reset_in_child(self.child)
        def before(self):
            write("before", self.name)
        def parent(self):
            write("parent", self.name)
        def child(self):
            write("child", self.name)
            if self.name == "b":
                raise OSError("text of the host's")

    parts = [Part("a"), Part("b"), Part("c"), Part("gone")]
    del parts[-1]
    reads, writes = os.pipe()
    state = random.getstate()
    for _ in range(2):
        pid = os.fork()
        if not pid:
            os.write(writes, b"%d " % RANDOM.getrandbits(64))
            os._exit(0)
        os.waitpid(pid, 0)
    drawn = os.read(reads, 100).split()
    print("numbers", len(set(drawn)), len(drawn), RANDOM.getrandbits(64) not in drawn, random.getstate() == state)
"""


def test_parts_are_reset_in_order_and_each_on_its_own() -> None:
    """Hooks run in the order of registration (before a fork: backwards); one that raises is logged
    by type alone.

    Two children and their parent draw different numbers, and the host's generator stays where it
    was.
    """
    finished = run_program(PROGRAM)
    assert finished.code == 0, finished.stderr
    assert finished.lines("before") == ["c", "b", "a"] * 2
    assert finished.lines("parent") == ["a", "b", "c"] * 2
    assert finished.lines("child") == ["a", "b", "c"] * 2
    assert (
        finished.lines("line")
        == [
            "a part could not be reset in a forked child "
            "[event='fork_hook_failed' part='Part.child' error_type='OSError']"
        ]
        * 2
    )
    assert finished.lines("numbers") == ["2 2 True True"]


class Part:
    def reset(self) -> None:
        pass


def test_registering_keeps_nothing_alive() -> None:
    """A part that is gone takes no memory, not even for its hook: a thousand leave less than 100 kB."""
    part = Part()
    reset_in_child(part.reset)
    reference = weakref.ref(part)
    del part
    gc.collect()
    assert reference() is None
    tracemalloc.start()
    try:
        for _ in range(1_000):
            reset_in_child(Part().reset)
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()


def test_nobody_else_hooks_into_forks() -> None:
    package = Path(agenteval_otel.__file__).parent
    files = [file for file in package.rglob("*.py") if "register_at_fork(" in file.read_text()]
    assert files == [package / "runtime/fork.py"]

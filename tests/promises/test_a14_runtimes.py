"""A14: in odd runtimes the call stays right; evaluation works or is off, and every call is counted
either way.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import textwrap
from typing import NamedTuple

import pytest

from tests.promises.figures import Recorder
from tests.promises.programs import Finished, run_program

CALLS = 20
SMOKE = """
    import asyncio, json, logging, os, sys, time
    logging.basicConfig(format="ours %(name)s %(message)s")
    from agenteval_otel import accounting, configure, flush, monitor, shutdown
    from agenteval_otel.evaluators import KeywordCoverage, ResponseHealth
    {after_import}

    saved, hopeless = [], False
    class Keeping:
        type = "keeping"
        async def save_result(self, aggregated):
            saved.append([result.status for result in aggregated.results])

    async def judge(value):
        await asyncio.sleep(0.01)
        return True

    def last(value):
        return value.response.endswith("answer")

    # One evaluator of every execution: inline, a thread, a worker process, an awaiting one.
    words = [f"word{{number}}" for number in range(200)] + ["answer"]
    keywords = KeywordCoverage(criterion_name="words", expected_keywords=words, execution="process")
    configure(evaluators=[ResponseHealth(), last, keywords, judge], sample_rate=1.0,
              storage=[Keeping()])

    @monitor
    def answer(number):
        return "an answer"

    @monitor
    async def answer_async(number):
        return "an answer"

    @monitor
    def stream(number):
        yield "an "
        yield "answer"

    {before_calls}
    def calls(count):
        right = 0
        for number in range(count):
            right += answer(number) == "an answer"
        right += "".join(stream(0)) == "an answer"
        {also}
        return right

    right = {run}
    flush(60.0 if not hopeless else 3.0) or shutdown(2.0)
    counted = accounting()
    print("report", json.dumps({{"right": right, "saved": saved, "counted": counted}}), flush=True)
"""


class Odd(NamedTuple):
    """What is done to the runtime, and where in the program."""

    first: str = ""
    after_import: str = ""
    before_calls: str = ""
    also: str = 'right += asyncio.run(answer_async(0)) == "an answer"'
    run: str = f"calls({CALLS - 2})"
    needs: str | None = None


_GREEN = "right += 1 == answer(0).count('answer')"  # asyncio has no place beside another loop
NO_THREADS = """
    import _thread, threading
    def refuse(*arguments, **named):
        raise RuntimeError("can't start new thread")
    _thread.start_new_thread = threading._start_new_thread = refuse
    if hasattr(_thread, "start_joinable_thread"):
        _thread.start_joinable_thread = threading._start_joinable_thread = refuse
"""
NO_PROCESSES = """
    import ctypes, os, resource, struct
    if os.geteuid() == 0:
        # The limit does not hold for root: another user, who may still read the packages (DAC_OVERRIDE).
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.prctl(8, 1, 0, 0, 0) == 0
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        header, wanted = struct.pack("II", 0x20080522, 0), struct.pack("IIIIII", 6, 6, 0, 0, 0, 0)
        assert libc.capset(header, wanted) == 0
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
"""
GEVENT = "from gevent import monkey; monkey.patch_all(); import gevent"
EVENTLET = "import eventlet; eventlet.monkey_patch()"
_GEVENT_CALLS = f"sum(item.value for item in gevent.joinall([gevent.spawn(calls, {CALLS // 2 - 2}) for _ in range(2)]))"
_EVENTLET_CALLS = (
    f"sum(item.wait() for item in [eventlet.spawn(calls, {CALLS // 2 - 2}) for _ in range(2)])"
)
_GEVENT = Odd(also=_GREEN, run=_GEVENT_CALLS, needs="gevent")
_EVENTLET = Odd(also=_GREEN, run=_EVENTLET_CALLS, needs="eventlet")
RUNTIMES = {
    "gevent before": _GEVENT._replace(first=GEVENT),
    "gevent after": _GEVENT._replace(after_import=GEVENT),
    "eventlet before": _EVENTLET._replace(first=EVENTLET),
    "eventlet after": _EVENTLET._replace(after_import=EVENTLET),
    "no threads": Odd(NO_THREADS),
    "no threads after the import": Odd(before_calls=NO_THREADS),
    "no threads and no processes": Odd(NO_PROCESSES),
    "no executable": Odd("import sys; sys.executable = None"),
    "another executable": Odd("import sys; sys.executable = '/bin/false'"),
    "an executable that is none": Odd("import sys; sys.executable = '/nonexistent/python'"),
    "no file descriptors": Odd(
        before_calls="""
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 1, 4096))
    hopeless = True
    """,
        also=_GREEN,
    ),
    "a folder that is gone": Odd("""
    import os, sys, tempfile
    sys.path.insert(0, os.getcwd())
    folder = tempfile.mkdtemp(); os.chdir(folder); os.rmdir(folder)
    """),
    "sockets with a default timeout": Odd("import socket; socket.setdefaulttimeout(0.05)"),
    "no environment": Odd("import os; os.environ.clear()"),
}


def program_of(odd: Odd) -> str:
    parts = {name: textwrap.dedent(part or "").strip() for name, part in odd._asdict().items()}
    return parts["first"] + textwrap.dedent(SMOKE).format(**parts)


def assert_whole(finished: Finished, promise: Recorder) -> None:
    """The calls were right, each is counted once, and what was evaluated was evaluated by every
    evaluator.
    """
    assert finished.code == 0, finished.stderr[-3000:]
    report = json.loads(finished.lines("report")[0])
    counted, saved = report["counted"], report["saved"]
    assert report["right"] == CALLS, finished.stderr[-3000:]
    assert sum(counted.values()) == CALLS, report
    ours = re.findall(r"^ours agenteval_otel .*", finished.stderr, re.MULTILINE)
    evaluated = counted["evaluated"]
    promise(
        "A14",
        figure=f"{CALLS} of {CALLS} calls right and counted; {evaluated} evaluated; {len(ours)} warnings",
    )
    assert evaluated in (0, CALLS), "half of it is the worst of all"
    assert len(saved) == evaluated, report
    for statuses in saved:
        assert statuses == saved[0]
        assert statuses.count("scored") in (0, 4)
    assert len(ours) <= 1, ours
    assert "/agenteval_otel/" not in finished.stderr, finished.stderr[-3000:]


@pytest.mark.parametrize("kind", RUNTIMES)
def test_the_call_is_right_and_counted(kind: str, python: str, promise: Recorder) -> None:
    """The same calls in every runtime: right answers, an outcome each, at most one warning, all
    evaluated or none.
    """
    odd = RUNTIMES[kind]
    if odd.needs is not None and importlib.util.find_spec(odd.needs) is None:
        pytest.skip(f"needs {odd.needs}")
    assert_whole(run_program(program_of(odd), python=python, timeout_s=120), promise)


SUB_INTERPRETER = """
    import sys
    program, isolated = sys.stdin.read(), sys.argv[1] == "isolated"
    try:
        import _interpreters as interpreters
        made = interpreters.create("isolated" if isolated else "legacy")
        run = lambda: interpreters.exec(made, program)
    except ImportError:
        import _xxsubinterpreters as interpreters
        made = interpreters.create(isolated=isolated)
        run = lambda: interpreters.run_string(made, program)
    failure = run()
    interpreters.destroy(made)
    if failure is not None:
        print("refused", failure.type.__name__, str(failure.msg).replace(chr(10), " "), flush=True)
"""


@pytest.mark.parametrize("kind", ["legacy", "isolated"])
def test_a_sub_interpreter_evaluates_or_refuses_the_import(
    kind: str, python: str, promise: Recorder
) -> None:
    """One that shares the lock works; an isolated one may refuse the import of what we stand on,
    loudly.
    """
    program = program_of(Odd("import sys; sys.path.insert(0, '')"))
    result = run_program(SUB_INTERPRETER, kind, python=python, stdin=program, timeout_s=120)
    if result.lines("refused"):
        assert "ImportError" in result.lines("refused")[0]
        promise("A14", figure="isolated sub-interpreter: the import is refused before any call")
    else:
        assert_whole(result, promise)


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare"
)
def test_without_shared_memory(promise: Recorder) -> None:
    """Nothing of ours needs `/dev/shm` to be there and writable."""
    hide = 'umount -l /dev/shm; mount -t tmpfs -o ro tmpfs /dev/shm && exec "$@"'
    assert_whole(
        run_program(
            program_of(Odd()), before=("unshare", "-m", "sh", "-c", hide, "sh"), timeout_s=120
        ),
        promise,
    )

"""C3: a worker process that is killed while it starts, as by a kernel out of memory, comes back."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.promises.figures import Recorder
from tests.promises.programs import run_program

KILLS = 4
PROGRAM = """
    import builtins, json, os, signal, sys, threading, time
    from pathlib import Path
    from agenteval_otel import accounting, configure, flush, monitor
    from agenteval_otel.evaluators import Func
    from tests.testing.computing import is_elsewhere

    builtins.is_host = True

    target, kills = Path(sys.argv[1]), int(sys.argv[2])

    def children():
        lists = Path("/proc/self/task").glob("*/children")
        return [int(pid) for path in lists for pid in path.read_text().split()]

    killed = []
    def kill():
        pause = threading.Event()
        while len(killed) < kills:
            for pid in children():
                if pid not in killed:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
            pause.wait(0.002)

    elsewhere = Func.of(is_elsewhere, execution="process")
    storage = [{"type": "json_file", "path": str(target)}]
    configure(evaluators=[elsewhere], storage=storage, sample_rate=1.0)

    @monitor
    def answer(text):
        return text

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    calls, until, scores = 0, time.monotonic() + 90, []
    while time.monotonic() < until and 1.0 not in scores:
        answer("fine")
        calls += 1
        flush(2)
        killer.join(0.1)  # a call now and then, as in a quiet application
        lines = target.read_text().splitlines() if target.exists() else []
        scores = [float(result["score"]) for line in lines for result in json.loads(line)["results"]]
    print("killed", len(killed))
    print("back", 1.0 in scores, "here", 0.0 in scores)
    print("evaluated", accounting()["evaluated"] == calls, flush(5))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_process_that_is_killed_while_it_starts_comes_back(tmp_path: Path, promise: Recorder) -> None:
    """Killed four times before it can say a word, it is started again; meanwhile every answer is evaluated."""
    finished = run_program(PROGRAM, str(tmp_path / "results.jsonl"), str(KILLS), timeout_s=140.0)
    assert finished.code == 0, finished.stderr
    assert finished.lines("killed") == [str(KILLS)]
    assert finished.lines("back") == ["True here True"]
    assert finished.lines("evaluated") == ["True True"]
    promise("C3", figure=f"worker process killed {KILLS} times while it starts: started again")

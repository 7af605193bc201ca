"""A12: threads, child processes, sockets and files stay as many as they were, however much comes
and goes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.promises.figures import Recorder, sized
from tests.promises.programs import run_program
from tests.promises.receiver import Receiver

MORE_THREADS = 2
"""What may run beside the one worker: the SDK's exporting threads are counted before."""
PROGRAM = """
    import gc, json, os, sys, threading, time
    kind, rounds, folder, target = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    from agenteval_otel import accounting, configure, flush, monitor, reload
    from agenteval_otel.evaluators import Func, KeywordCoverage, ResponseHealth
    from tests.pipelines import pipeline_with
    from agenteval_otel.sampling import RatioSampler
    from agenteval_otel.storage import JsonFileStorageProvider, OtlpStorageProvider
    from tests.promises.programs import children

    def ends(value):
        return value.response.endswith("answer")

    # In the child process.
    words = KeywordCoverage(criterion_name="words", expected_keywords=[f"word{number}" for number in range(200)])

    def computing(number):
        return () if number % 10 else (words,)

    def storage(number):
        return [JsonFileStorageProvider(path=f"{folder}/{number % 7}.jsonl"),
                OtlpStorageProvider(endpoint=target, protocol="http/protobuf")]

    settings = f"{folder}/settings.yaml"
    def write_settings(number):
        with open(settings, "w") as file:
            file.write(
                f"sample_rate: 1.0\\nevaluators: [ResponseHealth]\\nagents: {{agent-{number}: {{sample_rate: 0.5}}}}\\n"
                f"storage:\\n- {{type: otlp, endpoint: '{target}', protocol: http/protobuf}}\\n"
                f"- {{type: json_file, path: {folder}/{number % 7}.jsonl}}\\n")

    def answer(question):
        return "an answer"

    def functions(number):
        for _ in range(10):
            monitor(agent=f"agent-{number % 20}", evaluators=[ResponseHealth(), ends])(answer)("question")

    def pipelines(number):
        evaluators = (ResponseHealth(), Func.of(ends), *computing(number))
        made = pipeline_with(sampler=RatioSampler(), evaluators=evaluators, storage=storage(number))
        assert monitor(pipeline=made)(answer)("question") == "an answer"
        assert made.shutdown(10.0)

    def configured(number):
        configure(evaluators=["ResponseHealth", ends, *computing(number)], storage=storage(number), sample_rate=1.0)
        handler("question")
        flush(10.0)

    def reloaded(number):
        write_settings(number)
        assert reload()
        handler("question")
        flush(10.0)

    def now():
        gc.collect()
        return [len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")), len(children())]

    def settled(goal, within_s=15.0):
        # What was replaced ends by itself, in the background: it is looked at until it has, or until it must have.
        never, deadline = threading.Event(), time.monotonic() + within_s
        while any(count > most for count, most in zip(now(), goal)) and time.monotonic() < deadline:
            never.wait(0.05)
        return now()

    if kind == "reloaded":
        write_settings(0)
        configure(settings)
    else:
        configure(evaluators=["ResponseHealth", ends, words], storage=storage(0), sample_rate=1.0)
    handler = monitor(answer)
    run = {"functions": functions, "pipelines": pipelines, "configured": configured,
           "reloaded": reloaded}[kind]
    for number in range(5):
        run(number)
    handler("question")
    flush(10.0)
    before, seen = settled([0, 0, 0], 3.0), []
    for tenth in range(10):
        for number in range(rounds // 10):
            run(number)
        flush(10.0)
        seen.append(settled(before, 15.0 if tenth == 9 else 0.5))
    print("report", json.dumps({"before": before, "seen": seen, "pending": not flush(10.0),
                                "names": sorted(thread.name for thread in threading.enumerate())}), flush=True)
    os._exit(0)
"""
ROUNDS = sized(100, 300)
"""Ten functions to a round: 1,000 of them."""


@pytest.mark.sized
@pytest.mark.parametrize("kind", ["functions", "pipelines", "configured", "reloaded"])
def test_as_many_as_before(
    kind: str, python: str, tmp_path: Path, receiver: Receiver, promise: Recorder
) -> None:
    """Functions, pipelines and settings come and go; threads, descriptors and child processes are
    as before.
    """
    report = run_program(
        PROGRAM, kind, str(ROUNDS), str(tmp_path), receiver.endpoint, python=python, timeout_s=280
    ).report()
    threads, files, processes = report["before"]
    last = report["seen"][-1]
    promise(
        "A12",
        figure=f"{ROUNDS} rounds: threads {threads} -> {last[0]}, descriptors {files} -> {last[1]}, "
        f"child processes {processes} -> {last[2]}",
    )
    assert last[0] <= threads + MORE_THREADS, report
    assert last[1] <= files, report
    assert last[2] <= processes, report
    assert max(threads for threads, _, _ in report["seen"]) <= threads + 8 * MORE_THREADS, report
    assert not report["pending"]

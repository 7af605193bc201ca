"""`serve --ui`: the pages of a sidecar that runs, with its own health."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from agenteval_otel.cli import main
from tests.backends.process import bare_environment
from tests.promises.programs import PROJECT
from tests.promises.served import SETTINGS, Served, new_trace_id, trace_request

STORED = """
evaluators: [{type: ResponseHealth, objective: 0.9}]
sample_rate: 1.0
storage: sqlite
sidecar: {quiet_s: 0.1}
"""


@pytest.mark.slow
def test_the_pages_of_a_sidecar_show_answers_and_its_health(tmp_path: Path) -> None:
    """An answer that came as spans is on the overview; its call and the queue are on the health
    page.
    """
    trace_url = "http://localhost:16686/trace/{trace_id}"
    with Served(tmp_path, "--ui", "0", "--trace-url", trace_url, settings=STORED) as served:
        address = re.search(r"^pages +(\S+)$", served.printed, re.MULTILINE)
        assert address, served.told
        pages = build_opener(HTTPCookieProcessor())
        origin = address[1].partition("/?")[0]
        pages.open(address[1]).read()

        def shown(path: str) -> str:
            return pages.open(f"{origin}{path}").read().decode()

        assert "response_health" not in shown("/")
        trace_id = new_trace_id()
        assert served.post(trace_request(trace_id)).status == 200
        served.wait_for(lambda: "response_health" in shown("/"), "an answer")
        answer = re.search(r'href="(/answer/\w+)', shown("/answers"))
        assert answer is not None
        assert f'href="http://localhost:16686/trace/{trace_id:032x}"' in shown(answer[1])
        assert "objective 90.0 %" in shown("/"), "as the evaluator states it"
        health = shown("/health")
        assert "is not seen from here" not in health
        for title in ("Answers in", "Evaluated", "Lost", "Last score", "Export"):
            assert f"<h2>{title}</h2>" in health
        assert re.search(r"agenteval\.responses.*?<b>1</b> \w+, evaluated<", health, re.DOTALL)
        for metric in ("agenteval.queue.size", "agenteval.spans", "agenteval.last_success"):
            assert metric in health
        assert served.terminate() == 0
        assert "Traceback" not in served.told


@pytest.mark.slow
def test_an_offline_run_is_opened(tmp_path: Path) -> None:
    """After its table `evaluate --open` serves the results, until it is interrupted."""
    (tmp_path / "s.yaml").write_text(SETTINGS)
    (tmp_path / "d.jsonl").write_text('{"prompt": "Where?", "response": "In Lyon."}\n')
    command = ["evaluate", "d.jsonl", "--settings", "s.yaml", "--results", "r.jsonl", "--open"]
    environment = bare_environment(PYTHONPATH=str(PROJECT), BROWSER="true")
    with subprocess.Popen(
        [sys.executable, "-m", "agenteval_otel", *command],
        cwd=tmp_path,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout
        printed = ""
        while "open  " not in printed and (line := process.stdout.readline()):
            printed += line
        page = build_opener(HTTPCookieProcessor()).open(printed.split()[-1]).read().decode()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, "Traceback" in errors) == (0, False), errors
    assert "overall score" in printed
    assert "response_health" in page


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (["--trace-url", "http://localhost/{trace_id}"], "add --ui"),
        (["--ui", "0", "--trace-url", "http://localhost/{trace}"], "unknown placeholder"),
    ],
)
def test_a_trace_url_without_a_use_is_refused(
    arguments: list[str], wrong: str, tmp_path: Path
) -> None:
    (tmp_path / "s.yaml").write_text(STORED)
    finished = subprocess.run(
        [sys.executable, "-m", "agenteval_otel", "serve", "--settings", "s.yaml", *arguments],
        cwd=tmp_path,
        env=bare_environment(PYTHONPATH=str(PROJECT)),
        text=True,
        capture_output=True,
        check=False,
    )
    assert finished.returncode == 2
    assert "--trace-url" in finished.stderr
    assert wrong in finished.stderr


def test_results_that_are_opened_have_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d.jsonl").write_text('{"prompt": "Where?", "response": "In Lyon."}\n')
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", "d.jsonl", "--open"]) == 2

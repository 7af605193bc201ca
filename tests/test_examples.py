"""Examples are true: each runs by itself, on loopback only, and prints what its comments promise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agenteval_otel.testing import ModelServer

from .backends.faults import refused_port

FOLDER = Path(__file__).resolve().parents[1] / "examples"
EXAMPLES = sorted(FOLDER.glob("[0-9]*.py"))
README = (FOLDER / "README.md").read_text()

FOREIGN_WARNINGS = {
    # gunicorn leaves the listener that it was handed, and its copies of it, to the garbage
    # collector.
    "08_gunicorn_prefork": ",ignore:unclosed:ResourceWarning"
}


def run(name: str, folder: Path, **variables: str) -> str:
    """What an example prints, run in an empty folder without a proxy, a key or an OTLP endpoint,
    warnings as errors.
    """
    warnings = "error" + FOREIGN_WARNINGS.get(name, "")
    finished = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py")],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env={
            "PATH": "",
            "HOME": str(folder),
            "PYTHONWARNINGS": warnings,
            "PYTHONDONTWRITEBYTECODE": "1",
            **variables,
        },
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert "Traceback" not in finished.stderr
    logged = [
        line
        for line in finished.stderr.splitlines()
        if "event=" in line
        and _without_time(line) not in (*LINES.get(name, ()), *FAILURES.get(name, ()))
    ]
    assert logged == [], "our log has nothing else to complain about"
    return "\n".join(map(_without_time, (finished.stdout + finished.stderr).splitlines()))


def _without_time(line: str) -> str:
    return re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (?=WARNING )", "", line)


def assert_lines(output: str, *lines: str) -> None:
    """Each of the lines was printed, once; their order is left open, for some are printed by other
    threads.
    """
    assert [
        line for line in lines if [shown.rstrip() for shown in output.splitlines()].count(line) != 1
    ] == [], output


SHOWN: dict[str, tuple[str, ...]] = {
    name: tuple(block.splitlines())
    for name, block in re.findall(
        r"^\*\*\[(\w+)\.py\].*?```text\n(.*?)\n```", README, re.MULTILINE | re.DOTALL
    )
}
"""What the folder's README shows of the output of those with a framework."""
LINES: dict[str, tuple[str, ...]] = {
    "01_plain_function": (
        "answer  overall 1.00  response_health pass",
        "answer  overall 0.00  response_health fail (refusal)",
        "answer  overall 0.00  response_health fail (empty)",
        "{'evaluated': 3}",
    ),
    **SHOWN,
    "09_custom_evaluator": (
        "research  overall 0.94  citations 1.00  short pass  helpful pass",
        "research  overall 0.56  citations 0.50  short pass  helpful fail",
        "research  overall 1.00  citations skipped  short pass  helpful failed (RateLimitError)",
        "WARNING agenteval-otel: helpful could not score an answer: RateLimitError. See docs/reference/error-types.md "
        "[event='evaluation_failed' part='helpful' error_type='RateLimitError']",
        "offline: 0.67",
    ),
    "10_wrapped_evaluator": (
        "capital  overall 0.92  edit_distance pass  brevity pass",
        "capital  overall 1.00  edit_distance skipped  brevity pass",
        "order  overall 0.90  fields fail",
    ),
    "11_custom_storage": (
        "delivered: True",
        "[('response_health', 'fail', 10, 0.0), ('response_health', 'pass', 40, 1.0)]",
    ),
    "13_suite_in_pytest": (
        "1 input",
        "contains       0.50 (of 1)    0 % (of 1)       1     0     0",
    ),
    "14_ground_truth": (
        "18 questions, 12 of them for FAQAgent",
        "FAQAgent  overall 1.00  accuracy pass",
        "FAQAgent  overall 0.03  accuracy fail",
        "FAQAgent  overall -  accuracy skipped",
        "offline: 1.00, ground truth: exact",
    ),
    "15_judge": (
        "judged by a script: there is no ANTHROPIC_API_KEY",
        "  grounded  fail",
        "  next_step fail",
        "  coherent  skipped: degenerate answer",
        "offline: grounded 0.0, no moon in the FAQ",
        "3 from the cache, 0.0049 dollars spent",
    ),
    "20_evaluate_in_sidecar": (
        "acknowledged: True",
        "{'sent': 2}",
        "2 answers = 2 evaluated",
        "support  overall 1.00  response_health pass  next_step pass",
        "support  overall 0.00  response_health fail (refusal)  next_step fail (missing_keyword)",
    ),
}
"""What examples print once, by their name."""
FAILURES: dict[str, tuple[str, ...]] = {
    "15_judge": tuple(
        f"WARNING agenteval-otel: {part} could not score an answer: malformed_answer. "
        "See docs/reference/error-types.md "
        f"[event='evaluation_failed' part='{part}' error_type='malformed_answer']"
        for part in ("grounded", "next_step")
    ),
}
"""What the log may say of judges whose replies a test has made."""
PARTS: dict[str, tuple[str, ...]] = {
    "13_suite_in_pytest": (
        "3 failed, 2 passed",
        "E         contains   pass      fail 0.50  1 of 2 found, missing: 'by noon'",
        "E         FAIL    contains           0.50  1 of 2 found, missing: 'Tuesday'",
        "E         FAIL    cost_within        0.33  0.03 USD of 0.01 USD",
        "E         pass    completed_within   1.00",
        "<SuiteResult 'manners' failed: polite broke (ConnectionError: the judge is away)>",
    ),
}
"""What else stands in their output."""


@pytest.mark.parametrize("name", LINES)
def test_an_example_prints_what_its_comments_say(name: str, tmp_path: Path) -> None:
    """Results, texts, counts and verdicts are those that a reader of the example expects."""
    output = run(name, tmp_path)
    assert_lines(output, *LINES[name])
    assert [part for part in PARTS.get(name, ()) if part not in output] == [], output
    assert output.count("  coherent  pass") == (3 if name == "15_judge" else 0)


def test_a_background_worker(tmp_path: Path) -> None:
    """When the function has returned, and when the worker has stopped, every answer so far is
    evaluated and saved.
    """
    assert_lines(
        run("07_background_worker", tmp_path),
        "In short: The parcel is late.",
        "after the function returned: 1 evaluated",
        "after the worker stopped: 4 evaluated",
    )
    assert len((tmp_path / "evaluations.jsonl").read_text().splitlines()) == 4


def test_gunicorn_prefork(tmp_path: Path) -> None:
    """Both workers answered; the evaluations of the two, and the lines in the file, are as many as
    the answers.
    """
    output = run("08_gunicorn_prefork", tmp_path)
    answers = re.findall(r"^(\d+) answers from 2 workers$", output, re.MULTILINE)
    evaluated = [
        int(count) for count in re.findall(r"^worker \d+: (\d+) evaluated$", output, re.MULTILINE)
    ]
    assert len(evaluated) == 2
    assert min(evaluated) > 0
    assert [str(sum(evaluated))] == answers
    assert_lines(output, f"{answers[0]} results in evaluations.jsonl")


def test_evaluating_a_dataset(tmp_path: Path) -> None:
    """The targets that are met give 0, those that are missed 1, each named; the reports are where
    they should be.
    """
    output = run("12_evaluate_a_dataset", tmp_path)
    assert_lines(
        output,
        "exit code 0",
        "exit code 1, missed: response_health, short_enough",
        "Do you ship abroad? [('response_health', 'fail'), ('short_enough', 'pass'), ('polite', 'fail')]",
    )
    assert "missed: response_health: 4 of 6 passed" in output
    assert (tmp_path / "results.xml").read_text().count("<testcase ") == 18
    assert "short_enough" in (tmp_path / "table.txt").read_text()


def test_judges_with_a_key(tmp_path: Path) -> None:
    """With one the API is asked, here a provider on loopback, with this key; what it says is what
    is printed.
    """
    text = '{"evidence": [], "reason": "the model says so", "score": 4}'
    with ModelServer([text]) as server:
        output = run(
            "15_judge",
            tmp_path,
            ANTHROPIC_API_KEY="key",
            JUDGE_URL=server.url,
            JUDGE_MODEL="some-model",
        )
        assert {request["model"] for request in server.requests} == {"some-model"}
    assert_lines(output, "judged by some-model, for up to 0.50 dollars a day")
    assert output.count("  coherent  pass") == 3
    assert "  next_step failed: malformed_answer" in output, "a number is no truth value"


def test_following_an_exemplar_without_a_stack(tmp_path: Path) -> None:
    """Without the programs it says what to start; with them tests/backends/test_seen_and_woken.py
    runs it.
    """
    with refused_port() as port:
        output = run("17_follow_an_exemplar", tmp_path, PROMETHEUS_URL=f"http://127.0.0.1:{port}")
    assert output.startswith(
        "nobody answers ([Errno 111] Connection refused). Start Prometheus, Jaeger and Loki first:"
    )
    assert_lines(output, "  docker compose --file collector-config/compose.yaml up --detach")


def test_thresholds(tmp_path: Path) -> None:
    """The drop is told once with its numbers, after it began and before it is mended; then the
    recovery.
    """
    assert run("16_thresholds", tmp_path).splitlines() == [
        "all is well",
        "every second answer is empty",
        "PAGE  response_health of shop: below 90%",
        "      88% of the last 50 pass, interval 76% to 95%",
        "mended",
        "CLEAR response_health of shop: 90% pass",
    ]


def test_examples_are_listed_and_tested() -> None:
    """Each names its command, stands in the folder's README with it, and is run here."""
    for example in EXAMPLES:
        text, command = example.read_text(), f"uv run python examples/{example.name}"
        assert command in text
        assert f"[{example.name}]({example.name})" in README
        assert f"`{command}`" in README
    tested = set(re.findall(r"\"(\d\d_\w+)\"", Path(__file__).read_text())) | set(SHOWN)
    assert {example.stem for example in EXAMPLES} == tested

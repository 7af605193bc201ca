"""Storage providers for people: JSON lines and the console."""

from __future__ import annotations

import asyncio
import io
import json
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import EvaluationInput, run_evaluation_sync
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage import ConsoleStorageProvider, EvaluationStorageProvider, JsonFileStorageProvider
from agenteval_otel.testing import check_component, check_storage
from tests.storage.samples import aggregated, failed, scored
from tests.testing.doubles import Free, config_of


def save(storage: Any, *several: AggregatedEvaluationResult) -> None:
    async def work() -> None:
        for one in several:
            await storage.save_result(one)
        await storage.close()

    asyncio.run(work())


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_one_line_a_result(tmp_path: Path) -> None:
    """Each result is one JSON line in camelCase that reads back as the same result; parent folders are made."""
    path = tmp_path / "deep" / "er" / "results.jsonl"
    given = [aggregated(), aggregated(scored(metadata={"n": [1, {"a": None}]}), session_id="s")]
    save(JsonFileStorageProvider(path=path), *given)
    lines = lines_of(path)
    assert lines[0]["overallScore"] == 0.5
    assert lines[0]["results"][0]["criterionName"] == "tone"
    assert [AggregatedEvaluationResult.model_validate(line) for line in lines] == given


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    """The file is readable and writable by its owner only."""
    path = tmp_path / "results.jsonl"
    save(JsonFileStorageProvider(path=path), aggregated())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_it_appends(tmp_path: Path) -> None:
    """A second run goes on in the same file, and a closed provider opens it again."""
    path = tmp_path / "results.jsonl"
    storage = JsonFileStorageProvider(path=path)
    save(storage, aggregated())
    save(storage, aggregated())
    save(JsonFileStorageProvider(path=path), aggregated())
    assert len(lines_of(path)) == 3


def test_threads_do_not_mix_their_lines(tmp_path: Path) -> None:
    """Results saved from several threads at once stand each on its own whole line."""
    path = tmp_path / "results.jsonl"
    storage = JsonFileStorageProvider(path=path)
    barrier = threading.Barrier(6)

    def work(number: int) -> None:
        text = str(number) * 5_000
        barrier.wait(10)
        asyncio.run(many(text))

    async def many(text: str) -> None:
        for _ in range(20):
            await storage.save_result(aggregated(scored(reasoning=text)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    asyncio.run(storage.close())
    texts = [line["results"][0]["reasoning"] for line in lines_of(path)]
    assert sorted(texts) == sorted(str(number) * 5_000 for number in range(6) for _ in range(20))


def test_every_reader_sees_one_line(tmp_path: Path) -> None:
    """Line separators of any kind inside a text do not end the line; NaN and infinities become null."""
    path = tmp_path / "results.jsonl"
    text = "a\nb\r\nc\u2028d\u2029e\u0085f\x0bg\x0ch\x1ci\x1dj\x1ek"
    save(JsonFileStorageProvider(path=path), aggregated(scored(reasoning=text, metadata={"x": float("nan")})))
    raw = path.read_text(encoding="utf-8")
    assert len(raw.splitlines()) == raw.count("\n") == 1
    (line,) = lines_of(path)
    assert line["results"][0]["reasoning"] == text
    assert "NaN" not in raw


def test_lone_surrogates_are_written(tmp_path: Path) -> None:
    """Text that is no valid Unicode, which offline inputs may hold, does not lose the result."""
    path = tmp_path / "results.jsonl"
    made = EvaluationInput(response="a\ud800b", prompt="c\udfff")
    found = run_evaluation_sync(made, config_of(Free(), storage=JsonFileStorageProvider(path=path)))
    assert found.run_errors is None
    (line,) = lines_of(path)
    assert line["overallScore"] == 0.5
    assert line["inputSnapshot"]["response"].startswith("a")


def test_objects_without_json_are_written(tmp_path: Path) -> None:
    """A value that JSON has no form for, such as an object in the metadata, does not lose the result."""
    path = tmp_path / "results.jsonl"
    found = run_evaluation_sync(
        EvaluationInput(response="x"),
        config_of(Free(), metadata={"host": object()}, storage=JsonFileStorageProvider(path=path)),
    )
    assert found.run_errors is None
    assert lines_of(path)[0]["overallScore"] == 0.5


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """A folder in the way, or a path below a file, is an error of the save."""
    for path in (tmp_path, tmp_path / "file" / "below"):
        (tmp_path / "file").write_text("")
        with pytest.raises(OSError, match=r"file|directory|[Ii]s a"):
            save(JsonFileStorageProvider(path=path), aggregated())


def test_the_contract_of_storage_holds(tmp_path: Path) -> None:
    """Every provider takes all kinds of results, many at once, and can be closed twice."""
    for storage in (JsonFileStorageProvider(path=tmp_path / "r.jsonl"), ConsoleStorageProvider(stream=io.StringIO())):
        check_storage(storage)
        check_component(storage, EvaluationStorageProvider)
    assert len(lines_of(tmp_path / "r.jsonl")) == 20


def test_the_specifications_name_of_the_path() -> None:
    """The file may be called ``filePath``, as in the specification; without one nothing is made."""
    loaded = JsonFileStorageProvider.load({"filePath": "/tmp/x.jsonl"})
    assert loaded.path == Path("/tmp/x.jsonl")
    with pytest.raises(ConfigurationError, match="required field is missing"):
        JsonFileStorageProvider.load({})


def console(*several: AggregatedEvaluationResult) -> str:
    stream = io.StringIO()
    save(ConsoleStorageProvider(stream=stream), *several)
    return stream.getvalue()


def test_the_console_shows_a_line_a_result() -> None:
    """A line has agent, overall score and each criterion's outcome, failures and skips included."""
    shown = console(
        aggregated(
            scored(), scored("length", label="fail", reason_code="too_long"), scored("raw", label=None, score=0.123),
            failed("slow"), aggregated().results[2],
        )
    )  # fmt: skip
    assert shown == (
        "support  overall 0.50  tone pass  length fail (too_long)  raw 0.12  slow failed (timeout)  facts skipped\n"
    )
    assert console(aggregated(overall_score=None, agent=None)).startswith("evaluation  overall -  ")


def test_no_control_character_reaches_the_terminal() -> None:
    """Escape sequences, line breaks and marks that turn the direction are shown as question marks."""
    shown = console(aggregated(scored(label="\x1b[31mred\x07\r\n\u202etxt"), agent="a\x1b]0;title\x07"))
    assert shown.count("\n") == 1
    assert all(char.isprintable() for char in shown.rstrip("\n"))
    assert "?[31mred????txt" in shown


def test_the_console_writes_to_the_present_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a stream it is standard error that is written to: the host's output stays its own."""
    save(ConsoleStorageProvider(), aggregated())
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("support  overall 0.50")


def test_results_are_written_where_no_thread_is_to_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the process's exit, or at its limit of threads, the line is written by whoever saves it."""
    path = tmp_path / "results.jsonl"

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    save(JsonFileStorageProvider(path=path), aggregated(), aggregated())
    assert len(lines_of(path)) == 2


def test_a_line_that_was_cut_off_stays_alone(tmp_path: Path) -> None:
    """What a process that was killed in the middle of its write left behind is ended by the next result."""
    path = tmp_path / "results.jsonl"
    path.write_text('{"whole": 1}\n{"cut of')
    save(JsonFileStorageProvider(path=path), aggregated())
    first, torn, last = path.read_text().splitlines()
    assert (first, torn) == ('{"whole": 1}', '{"cut of')
    assert json.loads(last)["overallScore"] == 0.5

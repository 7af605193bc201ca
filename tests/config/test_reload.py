"""`reload`: takes over what is right, keeps what was before when it is not, and keeps what did not
change.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from operator import is_
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import Settings, accounting, configure, disable, enable, flush, monitor, reload
from agenteval_otel.config import current_pipeline, default_pipeline, process
from agenteval_otel.sampling import SamplingDecision
from agenteval_otel.storage import OtlpStorageProvider
from agenteval_otel.testing import RecordedTelemetry
from tests.config.support import configured, written_settings
from tests.testing.doubles import Keeping


def test_what_changed_is_in_force_at_once(tmp_path: Path) -> None:
    """Existing handlers follow the file; profile and keyword arguments of `configure` stay;
    outcomes continue.
    """
    kept = configured(tmp_path, "profiles: {a: {sample_rate: 0}}", profile="a")
    handler = monitor(agent="a")(str.upper)
    handler("x")
    keywords = "{type: KeywordCoverage, criterion_name: kw, expected_keywords: [x]}"
    written_settings(
        tmp_path,
        f"profiles: {{a: {{agents: {{a: {{sample_rate: 1.0, evaluators: [{keywords}]}}}}}}}}",
    )
    assert reload()
    handler("x")
    assert [result.criterion_name for result in kept.results] == ["kw"]
    actual = accounting()
    assert (actual["not_sampled"], actual["evaluated"], sum(actual.values())) == (1, 1, 2)


def test_enabled_false_switches_off_without_another_pipeline(tmp_path: Path) -> None:
    """`enabled: false` in a file switches off, `true` on again, without building a new pipeline."""
    configured(tmp_path, "sample_rate: 1.0")
    handler, before = monitor(str.upper), current_pipeline()
    for enabled in (False, True, False):
        written_settings(tmp_path, f"enabled: {str(enabled).lower()}\nsample_rate: 1.0")
        assert reload()
        handler("a")
        assert current_pipeline() is before
    assert (accounting()["disabled"], accounting()["evaluated"]) == (2, 1)


WRONG: dict[str, Any] = {
    "vanished": None,
    "empty": b"",
    "half-written": b"agents:\n  support: {sample_rate: 0.",
    "wrong": b"sampel_rate: 1\nsampler: {type: ratoi}",
    "no text": b"\xff\xfe\x00",
    "too large": b"#" * 300_000,
    "a bomb": b"a: &a [1, 1]\nb: [" + b"*a, " * 9000 + b"1]",
    "a folder": ...,
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_changes_nothing(
    case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The settings from before stay, the failure is counted, and logged once with its problems;
    outcomes go on.
    """
    kept = configured(tmp_path, "sample_rate: 1.0")
    handler, before = monitor(str.upper), default_pipeline()
    file, content = tmp_path / "settings.yaml", WRONG[case]
    file.unlink()
    if content is ...:
        file.mkdir()
    elif content is not None:
        file.write_bytes(content)
    for number in (1, 2, 3):
        assert not reload()
        handler("a")
        assert default_pipeline() is before
        assert len(kept.saved) == accounting()["evaluated"] == number
    assert before.accounting.failures["reload"] == 3
    (logged,) = [line for line in caplog.messages if "reload_failed" in line]
    assert "settings.yaml" in logged
    if case == "wrong":
        assert "did you mean 'sample_rate'?" in logged
        assert "did you mean 'ratio'?" in logged
    if content is ...:
        file.rmdir()
    written_settings(tmp_path, "sample_rate: 0.0")
    assert reload()
    handler("a")
    assert accounting()["not_sampled"] == 1


class Moody:
    """A sampler of somebody's own that cannot be asked for what it is when it is armed."""

    armed = False

    @property
    def by_randomness(self) -> None:
        if self.armed:
            raise OSError("not now")

    def decide(self, context: Any) -> SamplingDecision:
        return SamplingDecision(True, 1.0, "moody")


def test_a_handler_that_does_not_fit_keeps_all_where_they_were(tmp_path: Path) -> None:
    """When one handler cannot move, those that moved go back, and all work as before."""
    kept, moody = configured(tmp_path, "sample_rate: 1.0"), Moody()
    handlers = [
        monitor(agent=f"a{number}", sampler=moody if number == 2 else None)(str.upper)
        for number in range(5)
    ]
    before = current_pipeline()
    written_settings(tmp_path, "sample_rate: 0")
    for armed, evaluated in ((True, 5), (False, 6)):
        moody.armed = armed
        assert reload() is not armed
        assert (current_pipeline() is before) is armed
        for handler in handlers:
            handler("x")
        assert len(kept.saved) == evaluated


def test_equal_parts_are_kept(tmp_path: Path) -> None:
    """Storage, evaluators and a sampler whose settings did not change stay the same objects, with
    what they know.
    """
    text = (
        "storage: [{type: otlp}, {type: json_file, path: a.jsonl}]\n"
        "sampler: {type: rate_limit, max_per_s: 3}\n"
        "evaluators: [ResponseHealth, {type: KeywordCoverage, criterion_name: kw, expected_keywords: [a]}]\n"
    )
    configure(written_settings(tmp_path, text))
    first = default_pipeline().handlers
    written_settings(tmp_path, text.replace("keywords: [a]", "keywords: [b]"))
    assert reload()
    after = default_pipeline()
    second = after.handlers
    assert second is not first
    assert second.defaults.sampler is first.defaults.sampler
    assert list(map(is_, second.storage, first.storage)) == [True, True]
    kept = map(is_, second.defaults.evaluators, first.defaults.evaluators)
    assert list(kept) == [True, False]
    assert reload()
    assert default_pipeline() is after


def test_storage_that_is_gone_is_closed(tmp_path: Path) -> None:
    """A file that nobody writes to any more is closed, after what was taken is saved; no thread is
    left.
    """
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    storage = "sample_rate: 1.0\nstorage: {{type: json_file, path: {}}}"
    configure(written_settings(tmp_path, storage.format(first)))
    handler = monitor(str.upper)
    handler("a")
    (provider,) = default_pipeline().handlers.storage
    assert flush(10)
    assert "batcher" in vars(provider)
    written_settings(tmp_path, storage.format(second))
    assert reload()
    wait_for_closing()
    assert "batcher" not in vars(provider)
    handler("b")
    assert flush(10)
    for file in (first, second):
        assert len(file.read_text().splitlines()) == 1


def wait_for_closing() -> None:
    """Wait until the parts that were replaced are closed."""
    for thread in threading.enumerate():
        if thread.name == "agenteval-close":
            thread.join(10)


CLOSED: list[str] = []


class Closing(OtlpStorageProvider, type="ReloadTestClosing"):
    async def close(self) -> None:
        CLOSED.append(self.detail)


def test_a_closed_exporter_is_closed_again_with_the_next_change(
    telemetry: RecordedTelemetry,
) -> None:
    """A stream that ended in its old pipeline may have opened it."""
    for detail, closed in (
        ("auto", []),
        ("result", ["auto"]),
        ("none", ["auto", "auto", "result"]),
    ):
        configure(storage=[Closing(detail=detail, tracer_provider=telemetry.tracer_provider)])  # type: ignore[arg-type]
        monitor(str.upper)("a")
        wait_for_closing()
        assert sorted(CLOSED) == closed


def test_there_may_be_nothing_to_reload(caplog: pytest.LogCaptureFixture) -> None:
    """Settings from code, or no settings, cannot be reloaded; that is logged, and nothing breaks."""
    assert not reload()
    configure(Settings(storage=[Keeping()], dispatcher="inline"))
    assert not reload()
    assert "nothing to read again" in caplog.text


def within_a_reload(monkeypatch: pytest.MonkeyPatch, interrupt: Callable[[], object]) -> None:
    """Run this once in the middle of the next reload, after the file is read."""
    read = process.load_settings
    waiting = [interrupt]

    def interrupted(*arguments: Any, **fields: Any) -> Any:
        result = read(*arguments, **fields)
        if waiting:
            waiting.pop()()
        return result

    monkeypatch.setattr(process, "load_settings", interrupted)


def test_a_signal_in_the_middle_of_a_reload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler that reloads while this thread reloads does not wait for itself: the file is read
    once more.
    """
    configured(tmp_path, "sample_rate: 1.0")
    inner: list[bool] = []

    def interrupt() -> None:
        written_settings(tmp_path, "sample_rate: 0.25")
        signal.raise_signal(signal.SIGHUP)

    within_a_reload(monkeypatch, interrupt)
    before = signal.signal(signal.SIGHUP, lambda *_: inner.append(reload()))
    try:
        assert reload()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert inner == [False]
    assert default_pipeline().handlers.defaults.sampler.ratio == 0.25  # type: ignore[attr-defined]


def test_disable_holds_through_reload_and_configure(tmp_path: Path) -> None:
    """What an operator switched off stays off whatever is reloaded, and `enable` holds until the
    next reload.
    """
    configured(tmp_path, "sample_rate: 1.0")
    handler = monitor(str.upper)
    disable()
    written_settings(tmp_path, "sample_rate: 1.0\nagent_span: never")
    assert reload()
    handler("a")
    configured(tmp_path, "enabled: true\nsample_rate: 1.0")
    handler("a")
    assert (accounting()["disabled"], accounting()["evaluated"]) == (2, 0)
    written_settings(tmp_path, "enabled: false\nsample_rate: 1.0")
    enable()
    handler("a")
    assert accounting()["evaluated"] == 1
    assert reload()
    handler("a")
    assert (accounting()["disabled"], accounting()["evaluated"]) == (3, 1)


def test_reload_in_a_forked_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that was forked while the parent reloaded reloads by itself."""
    configured(tmp_path, "sample_rate: 1.0")
    children: list[int] = []

    def fork() -> None:
        child = os.fork()
        if child == 0:
            os._exit(0 if reload() else 1)
        children.append(child)

    within_a_reload(monkeypatch, fork)
    assert reload()
    (child,) = children
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

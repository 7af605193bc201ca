"""B12: redirects carry no keys, no text names a file, and only the owner can read what is written."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import monitor
from agenteval_otel.engine.pipeline import InlineDispatcher
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import LLMJudge, ResponseHealth
from agenteval_otel.judges import (
    AnthropicJudge,
    CacheSettings,
    OpenAICompatibleJudge,
    SpendLimits,
)
from agenteval_otel.storage import JsonFileStorageProvider, SqlStorageProvider
from agenteval_otel.testing import ModelReply, ModelServer, ScriptedJudge
from tests.embedders.asking import failure as embedder_failure
from tests.embedders.asking import hosted as hosted_embedder
from tests.judges.asking import GOOD, QUESTION, failure, hosted
from tests.promises.bench import pipeline_of
from tests.promises.figures import Recorder


@pytest.mark.parametrize(
    "ask",
    [
        lambda server: failure(hosted(AnthropicJudge, server, breaker=None)),
        lambda server: failure(hosted(OpenAICompatibleJudge, server, breaker=None)),
        lambda server: embedder_failure(hosted_embedder(server)),
    ],
    ids=["Anthropic", "OpenAI compatible", "embeddings"],
)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_carry_no_keys(
    ask: Callable[[ModelServer], Any], status: int, promise: Recorder
) -> None:
    """Neither to another server, to where clouds keep credentials, nor to a file: one request, to
    `base_url`.
    """
    places = (
        "/latest/meta-data",
        "file:///etc/passwd",
        "//169.254.169.254/",
        "http://169.254.169.254/",
        "",
    )
    with ModelServer([GOOD]) as other:
        replies = [
            ModelReply(status=status, headers={"Location": place})
            for place in (f"{other.url}/v1", f"{other.url}/v1/embeddings", *places)
        ]
        with ModelServer(replies) as server:
            for _ in replies:
                assert ask(server).error_type == "bad_request"
            assert len(server.requests) == len(replies)
            assert "sk-canary" in str(server.headers)
        assert other.connections == 0
    promise("B12", figure="redirects: 0 followed")


HOSTILE = (
    "../../escaped",
    "/tmp/escaped",
    "..\\..\\escaped",
    "a\0b",
    "/dev/full",
    "con",
    ".",
    "..",
    "~root/x",
    "$HOME/x",
    "%2e%2e%2fescaped",
    "x" * 5_000,
    "a\nb",
    "\ud800",
    "-rf",
    "file:///etc/passwd",
    "sub/folder/name",
)
"""Text that would be somewhere else if it named a file."""


def _assert_private(folder: Path) -> None:
    for path in (folder, *list(folder.rglob("*"))):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), f"{path}: {mode:o}"


def test_no_text_names_a_file(
    tmp_path: Path, promise: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Questions, answers, metadata and reasons of judges that look like paths: the files are those
    of the settings.
    """
    old = os.umask(0)
    try:
        root = tmp_path / "root"
        monkeypatch.chdir(tmp_path)
        message = iter(HOSTILE * 2)
        judge = ScriptedJudge(
            answer=lambda _: {"evidence": ["../../x"], "reason": next(message), "score": True},
            spend=SpendLimits(tokens_per_day=10**9, path=root / "judges" / "spend.db"),
            cache=CacheSettings(path=root / "judges" / "cache.db"),
        )
        lines = JsonFileStorageProvider(path=root / "lines" / "results.jsonl", max_bytes=20_000)
        rows = SqlStorageProvider(path=root / "rows" / "results.db")
        evaluators = (ResponseHealth(), LLMJudge(judge=judge, criterion_name="fine"))
        pipeline = pipeline_of(*evaluators, storage=(lines, rows), dispatcher=InlineDispatcher())
        for text in HOSTILE:
            monitor(pipeline=pipeline, agent="agent")(lambda text=text: f"An answer: {text}")()  # type: ignore[misc]
        assert pipeline.shutdown(10.0)
        judge.guarded().cache.store.close()
        written = list(root.rglob("*"))
        assert {path.parent.name for path in written if path.is_file()} == {
            "judges",
            "lines",
            "rows",
        }
        assert [
            path for path in list(tmp_path.rglob("*")) if root not in (path, *path.parents)
        ] == []
        _assert_private(root)
    finally:
        os.umask(old)
    names = {path.name.split(".")[0] for path in written if path.is_file()}
    assert names == {"spend", "cache", "results"}
    promise(
        "B12", figure=f"{len(HOSTILE)} hostile texts: 0 files outside, all 0600 in folders of 0700"
    )


@pytest.mark.parametrize("text", ["a\0b", "x" * 5_000 + ".jsonl"])
def test_a_path_that_is_none_costs_results_and_nothing_else(text: str, tmp_path: Path) -> None:
    """NUL and names that no system takes: refused at load or counted as not saved, never raised
    into the call.
    """
    with contextlib.suppress(ConfigurationError):
        storage = JsonFileStorageProvider(path=tmp_path / text)
        pipeline = pipeline_of(storage=(storage,), dispatcher=InlineDispatcher())
        assert monitor(pipeline=pipeline, agent="agent")(lambda: "An answer.")() == "An answer."
        pipeline.shutdown(5.0)
    assert list(tmp_path.rglob("*")) == []


def test_the_books_of_judges_at_odd_places(tmp_path: Path) -> None:
    """A folder is refused at load; a device, a pipe and a broken link cost the file's use, not the
    judgement.
    """
    with pytest.raises(ConfigurationError):
        ScriptedJudge.load({"spend": {"path": str(tmp_path)}})
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "deep" / "x.db")
    for index, place in enumerate(
        (
            Path("/dev/full"),
            Path("/dev/null"),
            tmp_path / "pipe",
            tmp_path / "link",
            Path("/proc/x"),
        )
    ):
        judge = ScriptedJudge(
            fallback={"reason": "r", "score": 3},
            spend=SpendLimits(
                tokens_per_day=10**6, path=place, patience_s=0.05, account=f"odd {index}"
            ),
            cache=CacheSettings(path=place),
        )
        assert asyncio.run(judge.guarded().judge(QUESTION)).answer["score"] == 3, place
        judge.guarded().cache.store.close()

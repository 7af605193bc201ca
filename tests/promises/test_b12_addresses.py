"""B12: addresses and paths lead nowhere that was not meant.

Addresses: nothing is connected to but public addresses, and what settings write as a number or as localhost; the way
there is a resolver of the test's own, and every connection is noted where the event loop makes it. Paths: no text of an
answer names a file, and what is written is its owner's alone.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import monitor
from agenteval_otel.embedders import OpenAICompatibleEmbedder
from agenteval_otel.errors import ConfigurationError, JudgeError
from agenteval_otel.evaluators import LLMJudge, ResponseHealth
from agenteval_otel.judges import AnthropicJudge, CacheSettings, Judge, OpenAICompatibleJudge, SpendLimits
from agenteval_otel.pipeline import Pipeline
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.storage import JsonFileStorageProvider, SqlStorageProvider
from agenteval_otel.testing import InlineDispatcher, ModelReply, ModelServer, ScriptedJudge
from tests.judges.asking import GOOD, QUESTION, ask, failure, hosted
from tests.promises.figures import Recorder

BOTH = pytest.mark.parametrize("kind", [AnthropicJudge, OpenAICompatibleJudge])

METADATA = (
    "169.254.169.254", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[64:ff9b::169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::a9fe:a9fe]", "[2002:a9fe:a9fe::1]", "[::169.254.169.254]",
    "[::ffff:0:169.254.169.254]", "[2001:0:4136:e378:8000:63bf:5601:5601]", "[fe80::1]", "[fe80::1%25eth0]",
    "[fd00:ec2::254]", "100.100.100.200", "192.0.0.192", "0.0.0.0", "[::]", "224.0.0.1", "[ff02::1]",
)  # fmt: skip
"""Addresses that no model answers at, in every notation that a number has."""

OLD_NUMBERS = (
    "2852039166", "0xa9fea9fe", "0xa9.0xfe.0xa9.0xfe", "0251.0376.0251.0376", "169.254.43518", "169.16689662",
    "0xa9.254.0251.254", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "127.0.1", "0", "00.0.0.0", "0x",
    "127.0.0.1.", "169.254.169.254.", "1.2.3.4.5", "999.1.1.1", "example.0x7f",
)  # fmt: skip
"""Numbers as old resolvers read them, which are names to others."""

INSIDE = (
    "127.0.0.1", "127.255.255.254", "10.0.0.5", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
    "198.18.0.1", "192.0.2.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "100.100.100.200", "::1",
    "::",
    "fe80::1", "fe80::1%eth0", "fd00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
    "64:ff9b::127.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b:1::10.0.0.1", "2002:7f00:1::", "2002:a9fe:a9fe::1",
    "::127.0.0.1", "::169.254.169.254", "::ffff:0:127.0.0.1", "2001:0:4136:e378:8000:63bf:80ff:fffe", "2001:db8::1",
    "100::1", "not an address", "",
)  # fmt: skip
"""What a name may lead to that is not public."""

NAMES = (
    "j\u00fcdge.example", "\u2460\u2461\u2466.\u24ea.\u24ea.\u2460", "judge\u3002example", "127\u30020\u30020\u30021",
    "judge%2eexample", "169.254.169.254%2f", "judge.example\\@169.254.169.254", "[127.0.0.1]", "[::1",
    "judge_\u0000.example",
    "ex\u00adample.com", "\uff11\uff12\uff17.0.0.1",
)  # fmt: skip
"""Hosts that two readers read in two ways."""


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Where connections were made to; none of them is."""
    found: list[Any] = []

    async def connect(self: Any, sock: Any, address: Any) -> None:
        found.append(address)
        raise OSError("the test lets nobody out")

    monkeypatch.setattr("asyncio.selector_events.BaseSelectorEventLoop.sock_connect", connect)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return found


def _resolves(monkeypatch: pytest.MonkeyPatch, answers: Callable[[str], list[str]]) -> None:
    async def resolved(self: Any, host: Any, port: Any, **_: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in answers(str(host))]

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", resolved)


def _judge(kind: type[Judge], host: str, **settings: Any) -> Judge:
    given = {"model": "m", "base_url": f"http://{host}/v1", "api_key": "key", "max_retries": 0, "breaker": None}
    return kind.load({**given, **settings})


@BOTH
@pytest.mark.parametrize("host", METADATA)
def test_a_number_that_no_model_answers_at_is_refused_at_load(kind: type[Judge], host: str) -> None:
    """In whatever notation, without leave: nothing is ever sent; with `allow_private` it is meant."""
    with pytest.raises(ConfigurationError, match="base_url"):
        _judge(kind, host)
    assert _judge(kind, host, allow_private=True)


@BOTH
@pytest.mark.parametrize("host", [*NAMES, *OLD_NUMBERS])
def test_a_host_of_two_readings_is_refused_at_load(kind: type[Judge], host: str) -> None:
    """Whatever one reader takes for a name and another for something else."""
    for allowed in (False, True):
        with pytest.raises(ConfigurationError, match="base_url"):
            _judge(kind, host, allow_private=allowed)


@pytest.mark.parametrize("host", [*METADATA, *NAMES, *OLD_NUMBERS])
def test_embedders_are_held_to_the_same(host: str) -> None:
    """An embedder that is asked over HTTP is given no other address than a judge."""
    with pytest.raises(ConfigurationError, match="base_url"):
        OpenAICompatibleEmbedder.load({"model": "m", "base_url": f"http://{host}/v1"})


@BOTH
def test_names_that_lead_inside(
    kind: type[Judge], connected: list[Any], monkeypatch: pytest.MonkeyPatch, promise: Recorder
) -> None:
    """Whatever a name leads to, alone or beside a public address: no connection is made."""
    asked = 0
    cases = [("judge.example", [address]) for address in INSIDE]
    cases += [("judge.example", ["93.184.216.34", address]) for address in INSIDE]
    cases += [("judge.example", []), ("JUDGE.example.", ["10.0.0.1"])]
    for host, addresses in cases:
        _resolves(monkeypatch, lambda _, found=addresses: found)  # type: ignore[misc]
        error = failure(_judge(kind, host))
        assert (error.error_type, error.retryable) == ("connection_error", False), (host, addresses)
        asked += 1
    assert connected == []
    refused = len(METADATA) + len(NAMES) + len(OLD_NUMBERS)
    promise("B12", figure=f"{refused} notations refused at load, {asked} names that lead inside: 0 connections")


@BOTH
def test_a_name_that_changes_its_mind(kind: type[Judge], connected: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What was checked is what is connected to: a second answer of the name's server is never asked for."""
    answers = iter([["93.184.216.34"], ["127.0.0.1"], ["127.0.0.1"], ["127.0.0.1"]])
    _resolves(monkeypatch, lambda host: [host] if host[0].isdigit() else next(answers))
    assert failure(_judge(kind, "judge.example")).error_type == "connection_error"
    assert {address[0] for address in connected} == {"93.184.216.34"}
    connected.clear()
    assert failure(_judge(kind, "judge.example")).error_type == "connection_error"
    assert connected == []


@BOTH
def test_what_settings_mean_is_asked(kind: type[Judge], connected: list[Any]) -> None:
    """Numbers of one's own machine and network, localhost, and anything with leave, are connected to."""
    for host in ("127.0.0.1:9", "localhost:9", "10.1.2.3:9", "[::1]:9", "[fd00::1]:9"):
        connected.clear()
        failure(_judge(kind, host))
        assert connected, host
    connected.clear()
    failure(_judge(kind, "169.254.169.254:9", allow_private=True))
    assert connected


@BOTH
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(kind: type[Judge], status: int, promise: Recorder) -> None:
    """Neither to loopback, to where clouds keep credentials, nor to a file: one request, to where it was meant."""
    places = ("/latest/meta-data", "file:///etc/passwd", "//169.254.169.254/", "http://169.254.169.254/", "")
    with ModelServer([GOOD]) as other:
        replies = [ModelReply(status=status, headers={"Location": place}) for place in (f"{other.url}/v1", *places)]
        with ModelServer(replies) as server:
            for _ in replies:
                assert failure(hosted(kind, server, breaker=None)).error_type == "bad_request"
            assert len(server.requests) == len(replies)
        assert other.connections == 0
    promise("B12", figure="redirects: 0 followed")


HOSTILE = (
    "../../escaped", "/tmp/escaped", "..\\..\\escaped", "a\0b", "/dev/full", "con", ".", "..", "~root/x", "$HOME/x",
    "%2e%2e%2fescaped", "x" * 5_000, "a\nb", "\ud800", "-rf", "file:///etc/passwd", "sub/folder/name",
)  # fmt: skip
"""Text that would be somewhere else if it named a file."""


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*")]


def _assert_private(folder: Path) -> None:
    for path in (folder, *_files(folder)):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), f"{path}: {mode:o}"


def test_no_text_names_a_file(tmp_path: Path, promise: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions, answers, metadata and reasons of judges that look like paths: the files are those of the settings."""
    old = os.umask(0)
    try:
        root = tmp_path / "root"
        monkeypatch.chdir(tmp_path)
        said = iter(HOSTILE * 2)
        judge = ScriptedJudge(
            answer=lambda _: {"evidence": ["../../x"], "reason": next(said), "score": True},
            spend=SpendLimits(tokens_per_day=10**9, path=root / "judges" / "spend.db"),
            cache=CacheSettings(path=root / "judges" / "cache.db"),
        )
        pipeline = Pipeline(
            sampler=RatioSampler(), evaluators=(ResponseHealth(), LLMJudge(judge=judge, criterion_name="fine")),
            storage=(
                JsonFileStorageProvider(path=root / "lines" / "results.jsonl", max_bytes=20_000),
                SqlStorageProvider(path=root / "rows" / "results.db"),
            ),
            dispatcher=InlineDispatcher(),
        )  # fmt: skip
        for text in HOSTILE:
            monitor(pipeline=pipeline, agent="agent")(lambda text=text: f"An answer: {text}")()  # type: ignore[misc]
        assert pipeline.shutdown(10.0)
        guarded = judge.guarded()
        if guarded.cache is not None:
            guarded.cache.close()
        written = _files(root)
        assert {path.parent.name for path in written if path.is_file()} == {"judges", "lines", "rows"}
        assert [path for path in _files(tmp_path) if root not in (path, *path.parents)] == []
        _assert_private(root)
    finally:
        os.umask(old)
    names = {path.name.split(".")[0] for path in written if path.is_file()}
    assert names == {"spend", "cache", "results"}
    promise("B12", figure=f"{len(HOSTILE)} hostile texts: 0 files outside, all 0600 in folders of 0700")


@pytest.mark.parametrize("text", ["a\0b", "x" * 5_000 + ".jsonl"])
def test_a_path_that_is_none_costs_results_and_nothing_else(text: str, tmp_path: Path) -> None:
    """NUL and names that no system takes: refused at load or counted as not saved, never raised into the call."""
    try:
        storage = JsonFileStorageProvider(path=tmp_path / text)
    except ConfigurationError:
        return
    pipeline = Pipeline(
        sampler=RatioSampler(), evaluators=(ResponseHealth(),), storage=(storage,), dispatcher=InlineDispatcher()
    )
    assert monitor(pipeline=pipeline, agent="agent")(lambda: "An answer.")() == "An answer."
    pipeline.shutdown(5.0)
    assert _files(tmp_path) == []


def test_the_books_of_judges_at_odd_places(tmp_path: Path) -> None:
    """A folder is refused at load; a device, a pipe and a broken link cost the file's use, not the judgement."""
    with pytest.raises(ConfigurationError):
        ScriptedJudge.load({"spend": {"path": str(tmp_path)}})
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "deep" / "x.db")
    for index, place in enumerate(
        (Path("/dev/full"), Path("/dev/null"), tmp_path / "pipe", tmp_path / "link", Path("/proc/x"))
    ):
        judge = ScriptedJudge(
            fallback={"reason": "r", "score": 3}, spend=SpendLimits(
                tokens_per_day=10**6, path=place, patience_s=0.05, share_without_file=1.0, account=f"odd {index}"
            ),
            cache=CacheSettings(path=place),
        )  # fmt: skip
        try:
            assert asyncio.run(judge.guarded().judge(QUESTION)).answer["score"] == 3, place
        except JudgeError as error:
            pytest.fail(f"{place}: {error}")
        cache = judge.guarded().cache
        assert cache is not None
        cache.close()


def test_ask_is_asked() -> None:
    """The judge of these tests answers where nothing is wrong."""
    with ModelServer([GOOD]) as server:
        assert ask(hosted(AnthropicJudge, server)).answer["score"] == 4

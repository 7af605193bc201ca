"""`replay --from jaeger` and `tempo`: interfaces without pages, read by windows of time; servers
that do badly.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from agenteval_otel.offline.replay import backends
from tests.cli.conftest import CommandLine

from . import recordings as rec
from .backends import Searched, answering
from .test_files import replay, results

WINDOW = ("--since", "2026-03-01", "--until", "2026-03-01T01:00")
LIMIT = 10


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten traces a search, and no wait between tries."""
    monkeypatch.setattr(backends, "LIMIT", LIMIT)
    monkeypatch.setattr(backends, "wait_before", lambda *_: 0.0)


def read(
    cli: CommandLine, searched: Searched, *options: str, kind: str = "jaeger", code: int = 0
) -> dict[str, Any]:
    """The report of a replay from a backend that has these traces."""
    with answering(getattr(searched, f"of_{kind}")) as (url, _):
        return replay(cli, "--from", kind, url, *WINDOW, *options, code=code)


def keys(cli: CommandLine) -> list[str]:
    return sorted(line["span"]["traceId"] for line in results(cli.folder))


def all_of(searched: Searched) -> list[str]:
    return [rec.ids(number)[0] for number in searched.starts]


@pytest.mark.parametrize("kind", ["jaeger", "tempo"])
def test_windows_are_halved_until_all_is_there(cli: CommandLine, kind: str) -> None:
    """Many traces in a burst and few around it: each once, each search within the limit, the token
    sent with it.
    """
    searched = Searched([*range(0, 3_600, 40), *(1_000 + number for number in range(60))])
    with answering(getattr(searched, f"of_{kind}")) as (url, headers):
        report = replay(cli, "--from", kind, url, *WINDOW, "--header", "X-Scope-OrgID=team")
    assert keys(cli) == all_of(searched)
    assert report["answers"] == len(searched.starts)
    assert len(searched.queries) < 60
    assert {line["x-scope-orgid"] for line in headers} == {"team"}
    assert report["left_out"] == (
        {"unselected": 0}
        if kind == "jaeger"
        else {
            "traces that Tempo returned in part": 1,
            "unselected": 0,
        }
    )
    if kind == "tempo":
        assert len(searched.fetched) == len(searched.starts)


def test_a_service_is_asked_for_by_its_name(cli: CommandLine) -> None:
    """In Tempo's language; quotes in a name do not end it."""
    searched = Searched([1.0])
    read(cli, searched, "--service", "shop", "--service", 'a"b', kind="tempo")
    assert (
        searched.queries[0]["q"]
        == r'{ resource.service.name = "a\"b" || resource.service.name = "shop" }'
    )


def test_a_jaeger_that_leaves_traces_out_of_narrow_windows_is_found_out(cli: CommandLine) -> None:
    """What it returned for the wider one is scored, and how many it left out is said."""
    searched = Searched([float(number) for number in range(0, 3_600, 60)])
    searched.drops = lambda number, width_s: number % 2 == 1 and width_s < 2_000
    report = read(cli, searched)
    assert report["left_out"]["traces that Jaeger left out of a part of the window"] == 5
    assert len(keys(cli)) == report["answers"] == 30 + 5


def test_more_traces_in_a_moment_than_are_returned_are_said(cli: CommandLine) -> None:
    """There is no narrower window than a microsecond: the first ten are scored, and the moment is
    counted.
    """
    searched = Searched([5.0] * 25)
    report = read(cli, searched)
    assert report["left_out"]["moments with more traces than it returns at once"] >= 1
    assert report["answers"] == LIMIT


def test_an_empty_window_is_said(cli: CommandLine) -> None:
    """Spans beyond the retention: nothing at all, or nothing before the oldest that is kept."""
    searched = Searched([])
    read(cli, searched, code=2)
    assert (
        "Jaeger has no traces from 2026-03-01 00:00:00Z to 2026-03-01 01:00:00Z: is that within"
        in cli.err
    )
    searched.starts = {0: 3_000.0}
    report = read(cli, searched, "--results", "other.jsonl")
    assert report["notes"] == [
        "Jaeger's oldest trace of 2026-03-01 00:00:00Z to 2026-03-01 01:00:00Z is from 2026-03-01 00:50:00Z: "
        "is its retention shorter?"
    ]


def test_a_failing_window_is_tried_and_named_and_read_by_the_next_start(cli: CommandLine) -> None:
    """Four tries; the others are read; exit code 1; the same command then reads what is missing,
    and nothing else.
    """
    searched = Searched([float(number) for number in range(0, 3_600, 100)])
    wrong: list[Any] = [(503, b""), (200, b"<html>"), (200, {"result": {"resourceSpans": 7}})]
    searched.fault = lambda number: wrong[number % 3] if 3 <= number <= 6 else None
    with answering(searched.of_jaeger) as (url, _):
        report = replay(cli, "--from", "jaeger", url, *WINDOW, code=1)
        assert report["left_out"]["windows that could not be read"] >= 1
        assert "Jaeger: the response is no " in cli.err
        assert 0 < report["answers"] < len(searched.starts)
        searched.fault = lambda number: None
        again = replay(cli, "--from", "jaeger", url, *WINDOW)
    assert (again["answers"], again["earlier"]) == (len(searched.starts), report["answers"])
    assert keys(cli) == all_of(searched)


def test_what_is_away_ends_the_replay(cli: CommandLine) -> None:
    """After some windows, with the way to go on; another program at the address is named as such."""
    searched = Searched([float(number) for number in range(0, 3_600, 30)])
    searched.fault = lambda number: (500, b"") if number > 6 else None
    with answering(searched.of_jaeger) as (url, _):
        replay(cli, "--from", "jaeger", url, *WINDOW, code=2)
        assert "status 500. Start the same command again to go on" in cli.err
        searched.fault = lambda number: None
        assert replay(cli, "--from", "jaeger", url, *WINDOW)["answers"] == len(searched.starts)
        assert keys(cli) == all_of(searched)
    with answering(lambda path, query: (404, b"none")) as (url, _):
        for kind, port in (("jaeger", "16686"), ("tempo", "3200")):
            replay(cli, "--from", kind, url, *WINDOW, "--results", f"{kind}.jsonl", code=2)
            assert f"query port ({port})" in cli.err


def test_a_response_beyond_the_limit_is_asked_for_in_parts(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shorter window has a smaller response."""
    searched = Searched([float(number) for number in range(0, 3_600, 450)])
    size = len(json.dumps({"result": rec.traces([searched.span(0)])}))
    monkeypatch.setattr(backends, "_REPLY_BYTES", 3 * size)
    report = read(cli, searched)
    assert (report["answers"], report["left_out"]) == (8, {"unselected": 0})


def test_backends_are_searched_by_time(cli: CommandLine) -> None:
    """Without --since there is no window; an address with a user in it would be shown."""
    replay(cli, "--from", "jaeger", "http://127.0.0.1:1", code=2)
    assert "--from jaeger: is searched by time: set --since" in cli.err
    replay(cli, "--from", "tempo", "http://user:secret@127.0.0.1:1", *WINDOW, code=2)
    assert "expected an address without user" in cli.err
    assert "secret" not in cli.err


def test_a_compressed_response_is_not_taken_for_a_long_one(cli: CommandLine) -> None:
    """A proxy's: the window is named, and not halved until nothing is left of it."""
    searched = Searched([1.0])
    with answering(
        searched.of_jaeger, lambda path: {} if "services" in path else {"content-encoding": "gzip"}
    ) as (
        url,
        _,
    ):
        replay(cli, "--from", "jaeger", url, *WINDOW, code=2)
    assert "Jaeger: the response is compressed" in cli.err
    assert len(searched.queries) == 1

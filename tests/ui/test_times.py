"""When an answer was given and when it was evaluated: what pages are by, and steps that are not over."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.line_files import LineFiles
from agenteval_otel.storage.places import Place
from agenteval_otel.ui.columns import By, ResultColumns
from agenteval_otel.ui.views import CriterionView, Window, overview
from tests.ui.conftest import Open
from tests.ui.stored import DAY_NS, answer, columns_of, score, store

HOUR_NS = 3_600 * 10**9
HOUR_S = 3_600
OLD_NS = 1_790_000_000 * 10**9


def overnight(now_ns: int = OLD_NS) -> list[AggregatedEvaluationResult]:
    """Answers of ten days, of which the newer half fails; all evaluated in the last hour, the newest
    answer first.
    """
    return [
        answer(
            score(passed=day < 5),
            number=10 * day + number,
            response_ended_ns=now_ns - (10 - day) * DAY_NS,
            ended_ns=now_ns - (day * 10 + number) * 10**9,
            late="off_peak",
        )
        for day in range(10)
        for number in range(10)
    ]


def in_file(path: Path, answers: list[AggregatedEvaluationResult]) -> Place:
    path.write_text("".join(f"{item.model_dump_json(by_alias=True)}\n" for item in answers))
    return LineFiles([path])


def view_of(columns: ResultColumns, by: By, length: str = "all") -> CriterionView:
    (view,) = overview(columns, Window(length, by), {})
    return view


@pytest.mark.parametrize("make", [store, in_file])
def test_late_results_are_shown_where_their_answers_are(tmp_path: Path, make: Any) -> None:
    """By the answer the trend has ten days, and the newer half is worse. By the evaluation it has
    minutes, and the halves are of the order of the judge's work.
    """
    columns = columns_of(make(tmp_path / "results", overnight()))
    by_answer, by_evaluation = (view_of(columns, by) for by in ("answered", "evaluated"))
    assert by_answer.change is not None
    assert by_evaluation.change is not None
    assert by_answer.change.outcome == "drop"
    assert by_evaluation.change.outcome == "gain", "the newest answers were judged first"
    assert by_answer.series.times[-1] - by_answer.series.times[0] >= 8 * 86_400
    assert by_evaluation.series.end - by_evaluation.series.times[0] <= HOUR_S
    assert view_of(columns, "answered", "24h").scored == 10
    assert view_of(columns, "evaluated", "24h").scored == 100


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        ([None, 5, -3, 2**40], [0, 5, 0, 2**32 - 1]),
        ([None, 10**400, -(10**400)], [0, 2**32 - 1, 0]),
    ],
    ids=["numbers", "beyond a float"],
)
def test_any_number_is_a_time(
    tmp_path: Path, seconds: Sequence[int | None], shown: Sequence[int]
) -> None:
    """A place may give any number; a page shows it at the nearest end of the calendar."""

    class Odd(LineFiles):
        def columns(self, *, after: str, skip: int = 0) -> Iterator[Sequence[Any]]:
            for part in super().columns(after=after, skip=skip):
                yield [
                    (row[0], second, *row[2:]) for row, second in zip(part, seconds, strict=True)
                ]

    in_file(tmp_path / "results", [answer(score(), number=n) for n in range(len(seconds))])
    assert columns_of(Odd([tmp_path / "results"]))["evaluated"].tolist() == shown


@pytest.mark.parametrize("make", [store, in_file])
def test_results_without_the_time_of_the_answer_have_that_of_the_evaluation(
    tmp_path: Path, make: Any
) -> None:
    """Such as those of older versions. An answer whose clock is ahead moves no window, either."""
    ended = [OLD_NS, OLD_NS + HOUR_NS, OLD_NS + 2 * HOUR_NS]
    answered = [None, 0, OLD_NS + 400 * DAY_NS]
    answers = [
        answer(score(), number=number, ended_ns=end, response_ended_ns=begin)
        for number, (end, begin) in enumerate(zip(ended, answered, strict=True))
    ]
    columns = columns_of(make(tmp_path / "results", answers))
    assert columns["answered"].tolist() == columns["evaluated"].tolist()
    assert sorted(columns["evaluated"].tolist()) == [value // 10**9 for value in ended]
    assert columns["answered"].itemsize + columns["evaluated"].itemsize == 8, "no more than before"


def lowest_of(page: str) -> str:
    """The first answer among the lowest scores of a criterion's page."""
    return page.partition("Lowest scores")[2].split('href="/answer/')[1].partition('"')[0]


def test_the_address_chooses_the_time(open_pages: Open) -> None:
    """The control stands beside the window and stays with every link. The newest of equal scores is
    by the chosen time. CSV has both times.
    """
    client = open_pages(overnight())
    for path in ("/?", "/criterion?name=helpfulness&"):
        page, other = client.get(path).text, client.get(f"{path}time=evaluated").text
        assert "by the time of the answer," in page
        assert "by the time of the evaluation:" in other
        assert "time=evaluated" in page, "the control"
        assert "window=24h&amp;time=evaluated" in other, "the window keeps the time"
    assert lowest_of(page) != lowest_of(other)
    assert "▼ worse" in client.get("/").text
    assert "▲ better" in client.get("/?time=evaluated").text
    assert "▲ better" in client.get("/export/overview.html?time=evaluated").text
    assert "▼ worse" in client.get("/?time=nonsense").text
    head, first, *_ = client.get("/export.csv?name=helpfulness").text.splitlines()
    assert head.split(",")[1:3] == ["answered_at", "evaluated_at"]
    assert first.split(",")[1] < first.split(",")[2]


def test_an_answer_shows_both_times_and_why_it_is_late(open_pages: Open) -> None:
    client = open_pages(overnight()[:1])
    key = client.pages.columns.id_of(0)  # type: ignore[attr-defined]
    page = client.get(f"/answer/{key}").text
    for words in ("answered 2026-", "evaluated 2026-", "off peak"):
        assert words in page, words


def test_a_step_that_is_not_over_is_marked(open_pages: Open) -> None:
    """In its chart, for those who hear the page, in the table and in a file that is taken away."""
    now = time.time_ns()
    answers = [
        answer(score(), number=number, ended_ns=now - number * HOUR_NS) for number in range(30)
    ]
    client = open_pages(answers)
    for path in ("/", "/criterion?name=helpfulness", "/export/overview.html"):
        page = client.get(path).text
        assert 'class="trend filling"' in page, path
        assert "the last step is still filling" in page, path
        assert "is still filling" in page.partition("dashed")[2], path
    assert "(still filling)" in client.get("/criterion?name=helpfulness").text


def test_a_step_that_is_over_is_not_marked(open_pages: Open) -> None:
    client = open_pages(overnight())
    for path in ("/", "/criterion?name=helpfulness"):
        page = client.get(path).text
        assert 'class="trend"' in page, path
        assert "filling" not in page, path


def test_a_criterion_without_a_score_in_the_newest_step_has_nothing_to_mark(tmp_path: Path) -> None:
    """Another one is scored now: its last value is of a step that is over."""
    now = time.time_ns()
    answers = [
        answer(score("tone"), number=1, ended_ns=now),
        *(answer(score(), number=n, ended_ns=now - n * HOUR_NS) for n in range(20, 30)),
    ]
    views = {
        view.name: view
        for view in overview(columns_of(store(tmp_path / "a.db", answers)), Window(), {})
    }
    assert views["tone"].series.is_filling
    assert not views["helpfulness"].series.is_filling

"""Labels of an older release beside new answers: what the pages say before any figure of them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.places import Place
from agenteval_otel.ui import shifts as module
from agenteval_otel.ui.labels import Labels
from agenteval_otel.ui.views import Window, overview, rows_in
from tests.ui.conftest import Open
from tests.ui.stored import DAY_NS, answer, columns_of, score, store

BEGAN_NS = 1_790_000_000 * 10**9
TITLE = "Labels of other answers"


def answers(
    *, old_rate: float, is_random: bool = False, labels: int = 200, version: str = "1"
) -> list[AggregatedEvaluationResult]:
    """1,000 answers, of which the first 200 are of an older release, and as many labels: of these, or
    of answers at random. People say what the judge says.
    """
    draw = random.Random(8)
    labelled = set(draw.sample(range(1_000), labels)) if is_random else set(range(labels))
    made = []
    for number in range(1_000):
        is_old = number < 200
        passed = draw.random() < (old_rate if is_old else 0.9)
        fields: dict[str, Any] = {
            "number": number,
            "input_snapshot": None,
            "response_ended_ns": BEGAN_NS + number * DAY_NS // 50,
            "ended_ns": BEGAN_NS + 30 * DAY_NS,
            "prompt_version": version if is_old else "2",
            "service_version": "1.9" if is_old else "1.10",
        }
        made.append(answer(score(passed=passed), **fields))
        if number in labelled:
            label = score(passed=passed).model_copy(update={"evaluator_kind": "human"})
            made.append(answer(label, **fields))
    return made


def notes_of(place: Place, length: str = "all") -> list[str]:
    window = Window(length)
    columns = columns_of(place)
    views = {view.is_human: view for view in overview(columns, window, {})}
    rows = rows_in(columns, window, {"criterion": "helpfulness"})
    shifts = Labels(place, columns).shifts("helpfulness", rows, views[False].passes)
    return [
        *(["rate"] if shifts.rate else []),
        *(["age"] if shifts.age else []),
        *(shift.name for shift in shifts.releases),
    ]


@pytest.mark.parametrize(("old_rate", "of_rate"), [(0.6, ["rate"]), (0.9, [])])
def test_an_older_release_is_found_by_the_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old_rate: float, of_rate: list[str]
) -> None:
    """As `calibrate` finds it, also where a part of the other answers is compared."""
    place = store(tmp_path / "a.db", answers(old_rate=old_rate))
    for others in (20_000, 100):
        monkeypatch.setattr(module, "_MOST_OTHERS", others)
        assert notes_of(place) == [*of_rate, "age", "prompt_version", "service_version"]


def test_labels_are_compared_with_the_answers_of_the_window(tmp_path: Path) -> None:
    """Labels at random of all time are of older answers than those of the last day."""
    place = store(tmp_path / "a.db", answers(old_rate=0.9, is_random=True))
    assert notes_of(place, "24h") == ["age", "prompt_version", "service_version"]


def test_every_page_with_labels_says_it_first(open_pages: Open) -> None:
    """Beside the judge's rate, before the first figure of labels, and in files that are taken away."""
    client = open_pages(answers(old_rate=0.6, version="<b>1</b>"))
    figures = {
        "/": 'badge">people<',
        "/criterion?name=helpfulness": "Cohen&#39;s kappa",
        "/label?criterion=helpfulness": "evaluators agree with",
        "/export/overview.html": 'badge">people<',
        "/export/criterion.html?name=helpfulness": "Cohen&#39;s kappa",
    }
    for path, figure in figures.items():
        page = client.get(path).text
        before, found, _ = page.replace("Cohen's kappa", "Cohen&#39;s kappa").partition(figure)
        assert found, path
        assert TITLE in before, path
        assert "of the answers shown here: more than chance" in before, path
        assert "The labels are of older answers: half of them before 2026-" in before, path
        assert (
            "of prompt version &lt;b&gt;1&lt;/b&gt;, which 0 % of the other answers have" in before
        )
        assert "<b>1</b>" not in page, path


def test_without_a_shift_no_page_warns(open_pages: Open) -> None:
    client = open_pages(answers(old_rate=0.9, is_random=True))
    for path in ("/", "/criterion?name=helpfulness", "/label?criterion=helpfulness"):
        assert TITLE not in client.get(path).text, path
    assert "people" in client.get("/").text, "there are labels"

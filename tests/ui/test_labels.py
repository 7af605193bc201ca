"""Labelling over a real SQLite: labels that are taken back, several criteria, people, queues, files."""

from __future__ import annotations

import json
import random
import re
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from starlette.testclient import TestClient

from agenteval_otel import cli, configure
from agenteval_otel.errors import StorageError
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
from agenteval_otel.storage.places import Place
from agenteval_otel.storage.read import place_of
from agenteval_otel.ui.label_files import exported_labels, import_labels
from agenteval_otel.ui.labels import LabelAgreement, Labels
from tests.ui.conftest import Open
from tests.ui.stored import DAY_NS, answer, columns_of, score, store, traffic, write_run

HOSTILE = '=cmd|"/C calc"!A0 <script>alert(1)</script>\u202e\x00'
LabelPages = Callable[..., "Person"]


class Person:
    """A browser on the label page."""

    def __init__(self, client: TestClient, path: str, name: str = "") -> None:
        self.client, self.path = client, path
        self.pages = client.pages  # type: ignore[attr-defined]
        if name:
            self.post(labeller=name)

    def post(self, **form: str) -> str:
        """Send a form, and return where it leads."""
        fields = {"csrf": self.pages.access.csrf, "next": self.path, **form}
        reply = self.client.post("/label", data=fields, follow_redirects=False)
        assert reply.status_code == 303, reply.text
        return str(reply.headers["location"])

    def page(self, path: str = "") -> str:
        return self.client.get(path or self.path).text

    def key(self, path: str = "") -> str:
        """Return the answer that is to be labelled."""
        return field(self.page(path), "key")

    def label(self, verdict: str, *, key: str = "", criterion: str = "helpfulness") -> str:
        """Give a verdict on an answer, by default the next one, and return which it was."""
        key = key or self.key()
        self.post(key=key, criterion=criterion, verdict=verdict)
        return key

    def undo(self, path: str = "") -> str:
        return self.post(undo=field(self.page(path), "undo"))


def field(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found is not None, f"no {name} in {page}"
    return found[1]


def verdicts(pages: Any, criterion: str = "helpfulness") -> dict[str, bool | None]:
    """The labels that count, by their answers."""
    pages.columns.refresh(at_once=True)
    return {
        label.evaluation_id: label.passed
        for label in pages.labels.all()
        if label.criterion == criterion
    }


@pytest.fixture
def label_pages(open_pages: Open, tmp_path: Path) -> LabelPages:
    """Open the label page for a person, over stored answers."""

    def open_(
        answers: list[AggregatedEvaluationResult] | None = None,
        path: str = "/label?criterion=helpfulness",
        name: str = "",
    ) -> Person:
        client = open_pages(traffic(30) if answers is None else answers)
        configure(
            storage=[{"type": "sql", "path": str(tmp_path / "results.db")}],
            telemetry={"signals": [], "content": "span_and_event"},
        )
        return Person(client, path, name)

    return open_


def calibrated(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    """The figures of `calibrate` for helpfulness."""
    monkeypatch.chdir(path.parent)
    capsys.readouterr()
    command = ["calibrate", path.name, "--criterion", "helpfulness", "--report", "json"]
    assert cli.main(command) == 0
    (measured,) = json.loads(capsys.readouterr().out)
    figures: dict[str, Any] = measured["record"]
    return figures


# --- undo
def test_an_undo_takes_back_the_last_label_everywhere(
    label_pages: LabelPages,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The verdict before counts again, for the page, the overview and `calibrate`. Nothing is deleted."""
    person = label_pages()
    first = person.label("pass")
    second = person.label("fail")
    third = person.label("pass")
    person.label("fail", key=third)
    assert verdicts(person.pages) == {first: True, second: False, third: False}
    assert person.undo() == person.path
    assert verdicts(person.pages) == {first: True, second: False, third: True}
    person.undo()
    assert verdicts(person.pages) == {first: True, second: False}
    assert person.pages.labels.agreement("helpfulness").labels == 2
    overview = person.client.get("/export.csv").text.splitlines()
    (of_people,) = [line for line in overview if line.startswith("helpfulness,human")]
    assert of_people.split(",")[2:6] == ["2", "0", "0", "0.5"]
    figures = calibrated(tmp_path / "results.db", monkeypatch, capsys)
    assert figures["rows"] == 2
    stored = place_of(str(tmp_path / "results.db")).find_answer(third)
    assert stored is not None
    said = [item.evaluation.results[0] for item in stored[1]]
    assert [result.skip_reason or result.label for result in said] == [
        "pass",
        "fail",
        "withdrawn",
        "withdrawn",
    ]


def test_an_undo_that_is_sent_twice_counts_once(label_pages: LabelPages) -> None:
    """Also one of a label that another person gave, or of none."""
    person = label_pages(name="Ann")
    first = person.label("pass")
    person.label("fail", key=first)
    label_id = field(person.page(), "undo")
    person.post(undo=label_id)
    person.post(undo=label_id)
    assert verdicts(person.pages) == {first: True}
    of_ann = field(person.page(), "undo")
    ben = Person(person.client, person.path, "Ben")
    assert 'name="undo"' not in ben.page()
    for wrong in (of_ann, "", HOSTILE, "0" * 32):
        ben.post(undo=wrong)
    assert verdicts(person.pages) == {first: True}


def test_with_all_labels_taken_back_nothing_is_measured(
    label_pages: LabelPages,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`calibrate` says that there are no labels, and an answer without a span is in the queue again."""
    person = label_pages([answer(score(), with_span=False)])
    key = person.label("fail")
    assert "No answer is left here" in person.page()
    person.undo()
    assert person.key() == key
    monkeypatch.chdir(tmp_path)
    assert cli.main(["calibrate", "results.db"]) == 2
    assert "no feedback of people named as a criterion" in capsys.readouterr().err


def test_previous_leads_through_the_own_labels(label_pages: LabelPages) -> None:
    """From the newest to the first, each with its label; there a verdict can be changed or undone."""
    person = label_pages()
    keys = [person.label(verdict) for verdict in ("pass", "fail", "pass")]
    page, seen = person.page(), []
    while found := re.search(r'data-key="b" href="([^"]+)"', page):
        page = person.page(found[1].replace("&amp;", "&"))
        seen.append(field(page, "key"))
        assert "Your label so far" in page
    assert seen == keys[::-1]
    at_second = f"{person.path}&at={keys[1]}"
    assert "Undo: fail" in person.page(at_second)
    person.undo(at_second)
    assert verdicts(person.pages) == {keys[0]: True, keys[2]: True}


# --- progress, several criteria, going on
def test_the_goal_is_shown_with_what_it_would_tell(label_pages: LabelPages) -> None:
    """The agreement's half width at the goal is that of Wilson's interval; wrong goals are 100."""
    person = label_pages()
    assert "0 of 100 answers labelled" in person.page()
    assert "known to about ±10 points" in person.page()
    person.label("pass")
    page = person.page(f"{person.path}&goal=400")
    assert "1 of 400 answers labelled" in page
    assert '<progress class="goal" max="400" value="1"' in page
    assert "The goal is reached." in person.page(f"{person.path}&goal=1")
    for goal in ("0", "-1", "1e9", "9" * 40, "x", "\u0663", ""):
        assert "1 of 100 answers" in person.page(f"{person.path}&goal={goal}"), goal


def test_several_criteria_are_labelled_at_once(label_pages: LabelPages) -> None:
    """One form records a verdict by each; what did not change is not recorded again."""
    person = label_pages(path="/label?criterion=helpfulness&criterion=tone&criterion=groundedness")
    page = person.page()
    key = field(page, "key")
    assert [field(page, f"criterion_{number}") for number in range(3)] == [
        "helpfulness",
        "tone",
        "groundedness",
    ]
    names = {"criterion_0": "helpfulness", "criterion_1": "tone", "criterion_2": "groundedness"}
    person.post(key=key, **names, verdict_0="pass", verdict_1="fail")
    assert person.key() == key, "a criterion is without a label"
    person.post(key=key, **names, verdict_0="pass", verdict_1="fail", verdict_2="pass")
    assert person.key() != key
    for name, passed in (("helpfulness", True), ("tone", False), ("groundedness", True)):
        assert verdicts(person.pages, name) == {key: passed}
    columns = columns_of(person.pages.settings.place)
    assert int(columns["is_human"].sum()) == 3
    person.post(key=key, **names, verdict_0="pass", verdict_1="fail", comment="unclear")
    columns.refresh(at_once=True)
    assert int(columns["is_human"].sum()) == 4, "a comment alone is with the first verdict"
    assert person.client.get("/export/labels.csv").text.count("unclear") == 1
    person.undo()
    person.undo()
    assert verdicts(person.pages, "groundedness") == {}
    page = person.page(f"{person.path}&at={key}")
    assert page.count(" checked> ") == 2 + 3, "two verdicts are kept, and three criteria chosen"


def test_only_criteria_that_scored_the_answer_are_put(label_pages: LabelPages) -> None:
    """An evaluator that skipped it says that the criterion does not apply."""
    skipped = EvaluationResult(criterion_name="tone", evaluator_type="Judge", skip_reason="no text")
    person = label_pages(
        [answer(score(), skipped, number=0), answer(score("tone"), number=1)],
        "/label?criterion=helpfulness&criterion=tone",
    )
    for _ in range(2):
        page = person.page()
        assert "verdict_0" not in page
        names = re.findall(r'type="hidden" name="criterion" value="(\w+)"', page)
        assert names == ["helpfulness" if "order 0?" in page else "tone"]
        person.label("pass", criterion=names[0])
    assert "No answer is left here" in person.page()


def test_the_queue_goes_on_where_it_stopped(label_pages: LabelPages) -> None:
    """After a restart, and for another browser. Skipped answers are behind in one browser alone."""
    person = label_pages()
    done = {person.label("pass") for _ in range(5)}
    skipped = person.key()
    after = f"{person.path}&after={skipped}"
    assert person.key(after) not in {*done, skipped}
    assert "Skipped ones again" in person.page(after)
    place = person.pages.settings.place
    again = Labels(place, columns_of(place))
    assert {label.evaluation_id for label in again.all()} == done
    assert Person(person.client, person.path).key() == skipped
    last = skipped
    for _ in range(24):
        last = person.key(f"{person.path}&after={last}")
    assert "No answer is left here" in person.page(f"{person.path}&after={last}")
    for wrong in ("x", "0" * 32, HOSTILE, "../.."):
        assert person.key(f"{person.path}&after={quote(wrong)}") == skipped


def test_a_skipped_answer_does_not_come_back_by_another_criterion(label_pages: LabelPages) -> None:
    """In the order of the lowest score its other criterion is far behind."""
    answers = [
        answer(score(value=number / 10, passed=None), score("tone", 1.0), number=number)
        for number in range(6)
    ]
    path = "/label?criterion=helpfulness&criterion=tone&order=lowest"
    person = label_pages(answers, path)
    seen = [person.key()]
    for _ in range(5):
        seen.append(person.key(f"{path}&after={seen[-1]}"))
    assert len(set(seen)) == 6
    assert "No answer is left here" in person.page(f"{path}&after={seen[-1]}")


# --- orders
def test_borderline_begins_next_to_the_threshold(label_pages: LabelPages) -> None:
    """Where a pass begins is seen in the scores: here at 0.8, so that 0.5 is clear."""
    values = (0.1, 0.5, 0.78, 0.82, 0.99)
    answers = [
        answer(score(value=value, passed=value >= 0.8), number=number)
        for number, value in enumerate(values)
    ]
    person = label_pages(answers, "/label?criterion=helpfulness&order=borderline")
    prompts = []
    for _ in values:
        prompts.append(re.findall(r"return order (\d)", person.page())[0])
        person.label("pass")
    assert set(prompts[:2]) == {"2", "3"}
    assert prompts[2] == "4"
    assert prompts[3:] == ["1", "0"]


def test_disagreement_of_evaluators_shadows_and_people(label_pages: LabelPages) -> None:
    """People beside each other first, then beside the evaluator, then evaluators; nothing else."""
    answers = [answer(score(), number=number) for number in range(4)]
    shadow = score(value=0.0, passed=False, shadow=True)
    answers.append(answer(score(), shadow, number=4))
    ann = label_pages(answers, name="Ann")
    keys = {
        evaluation.span.span_id[-1]: key
        for key, evaluation in ann.pages.settings.place.results()
        if evaluation.span is not None
    }
    keys = [keys[str(number + 1)] for number in range(4)]
    ann.label("fail", key=keys[1])
    ann.label("pass", key=keys[2])
    ann.label("pass", key=keys[3])
    ben = Person(ann.client, ann.path, "Ben")
    ben.label("fail", key=keys[2])
    cleo = Person(ann.client, "/label?criterion=helpfulness&order=disagreement", "Cleo")
    assert cleo.label("pass") == keys[2]
    assert cleo.label("pass") == keys[1]
    assert "order 4?" in cleo.page()
    cleo.label("pass")
    assert "No answer is left here" in cleo.page()
    ben = Person(ann.client, "/label?criterion=helpfulness&order=disagreement", "Ben")
    assert ben.key() == keys[1], "without what Ben has labelled"


def test_disagreement_of_a_replay_with_the_live_verdict(
    label_pages: LabelPages, tmp_path: Path
) -> None:
    """The answer with its content is asked about, once. A replay that agrees is none, nor is
    another answer of the conversation in the same second.
    """
    moment_ns = 1_700_000_000 * 10**9
    facts: dict[str, Any] = {"conversation_id": "c", "response_ended_ns": moment_ns}
    passes, fails = score(), score(value=0.0, passed=False)
    replayed: dict[str, Any] = {"replayed": True, "input_snapshot": None, **facts}
    live = [
        answer(passes, number=0, **facts),
        answer(fails, number=1, **facts),
        answer(passes, number=2, **facts, call_id="a" * 16),
        answer(passes, number=3),
    ]
    store(tmp_path / "results.db", live)
    replays = [
        answer(passes, number=0, **replayed),
        answer(passes, number=1, **replayed),
        answer(passes, number=1, **replayed),
        answer(fails, number=2, **replayed, call_id="b" * 16),  # shares the span alone
    ]
    person = label_pages(replays, "/label?criterion=helpfulness&order=disagreement")
    page = person.page()
    assert "order 1?" in page
    assert "1 answer left" in page
    assert "replays" in page
    person.label("pass")
    assert "No answer is left here" in person.page()


def test_disagreement_in_a_second_with_many_answers(
    label_pages: LabelPages, tmp_path: Path
) -> None:
    """A conversation may have any number of them: its newest verdicts are compared."""
    facts: dict[str, Any] = {"conversation_id": "c", "response_ended_ns": 1_700_000_000 * 10**9}
    live = [answer(score(), number=number, **facts) for number in range(150)]
    store(tmp_path / "results.db", live)
    fails = score(value=0.0, passed=False)
    replay = answer(fails, number=149, replayed=True, input_snapshot=None, **facts)
    page = label_pages([replay], "/label?criterion=helpfulness&order=disagreement").page()
    assert "order 149?" in page
    assert "1 answer left" in page


def test_a_second_opinion_is_of_what_others_have_labelled(label_pages: LabelPages) -> None:
    """The other orders are of what has no label at all."""
    ann = label_pages(name="Ann")
    done = {ann.label("pass") for _ in range(3)}
    ben = Person(ann.client, "/label?criterion=helpfulness&order=second+opinion", "Ben")
    assert {ben.label("pass") for _ in range(3)} == done
    assert "No answer is left here" in ben.page()
    assert ben.key(ann.path) not in done
    assert all(order in ben.page() for order in ("random", "borderline", "disagreement"))


# --- people
def test_who_labelled_and_how_people_agree(label_pages: LabelPages, tmp_path: Path) -> None:
    """Names are shown with their labels; two people have kappa, three alpha, and one nothing."""
    ann = label_pages(name=" Ann <b>&\u202e ")
    place = ann.pages.settings.place
    chance = random.Random(4)
    keys = [ann.label(chance.choice(("pass", "fail"))) for _ in range(20)]
    assert "How far people agree is known once two of them" in ann.page()
    assert "Ann &lt;b&gt;&amp;[U+202E]" in ann.page()
    of_ann = verdicts(ann.pages)
    ben = Person(ann.client, ann.path, "Ben")
    for number, key in enumerate(keys):
        same = of_ann[key] if number % 4 else not of_ann[key]
        ben.label("pass" if same else "fail", key=key)
    between = ann.pages.labels.between_people("helpfulness")
    assert (between.people, between.answers, between.name) == (2, 20, "Cohen's kappa")
    assert between.equal.mean == 0.75
    assert between.coefficient.low < between.coefficient.mean < between.coefficient.high
    assert "Cohen&#39;s kappa" in ann.page()
    assert re.search(r">Ben</th><td class=\"number\">20</td>", ann.page())
    cleo = Person(ann.client, ann.path, "Cleo")
    cleo.label("fail", key=keys[0])
    assert "3 people, 20 answers" in cleo.page()
    assert "Krippendorff&#39;s alpha" in cleo.page()
    stored = {item.person: item.name for item in Labels(place, columns_of(place)).all()}
    assert {"Ben", "Cleo"} < set(stored.values())
    assert "Ben" not in stored, "what identifies a person is a hash"


def test_a_name_is_changed_and_given_up(label_pages: LabelPages) -> None:
    """The browser keeps the last name; a long one is cut, and without one labels have none."""
    person = label_pages(name="Ann")
    assert 'value="Ann"' in person.page()
    named = {"csrf": person.pages.access.csrf, "labeller": f" \t{'x' * 200}"}
    reply = person.client.post("/label", data=named, follow_redirects=False)
    # Lax, so that the name comes along where a link of another site opens the page.
    assert "SameSite=lax" in reply.headers["set-cookie"]
    assert f'value="{"x" * 80}"' in person.page()
    person.label("pass")
    person.post(labeller=" ")
    assert 'name="labeller" maxlength="80" autocomplete="name" value=""' in person.page()
    person.label("fail")
    names = [label.name for label in person.pages.labels.all()]
    assert names == ["x" * 80, None]
    assert "without a name" in person.page()


def test_a_name_is_stored_as_typed_and_erased(label_pages: LabelPages, tmp_path: Path) -> None:
    """Erasing a person takes the name and the labels; those of others stay."""
    ann = label_pages(name="Ann Miller")
    keys = {ann.label("pass") for _ in range(2)}
    Person(ann.client, ann.path, "Ben").label("fail")
    assert b"Ann Miller" in _stored_bytes(tmp_path)
    settings = tmp_path / "agenteval.yaml"
    settings.write_text(f"storage: [{{type: sql, path: {tmp_path / 'results.db'}}}]\n")
    assert cli.main(["erase", "--user", "Ann Miller", "--settings", str(settings), "--yes"]) == 0
    assert b"Ann Miller" not in _stored_bytes(tmp_path)
    place = ann.pages.settings.place
    left = [label for label in Labels(place, columns_of(place)).all() if label.evaluation_id]
    assert [label.name for label in left] == ["Ben"]
    assert keys.isdisjoint({label.evaluation_id for label in left})


def _stored_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("results.db*")))


def test_without_content_capture_the_name_is_its_hash(
    label_pages: LabelPages, tmp_path: Path
) -> None:
    """People are still told apart."""
    person = label_pages(name="Ann Miller")
    configure(
        storage=[{"type": "sql", "path": str(tmp_path / "results.db")}],
        telemetry={"signals": [], "content": "no_content"},
    )
    person.label("pass")
    (labeller,) = person.pages.labels.people("helpfulness")
    assert re.fullmatch(r"[0-9a-f]{8}", labeller.name)
    assert b"Ann Miller" not in _stored_bytes(tmp_path)
    person.undo()
    assert verdicts(person.pages) == {}


# --- files
def filled(person: Person) -> None:
    """Labels of two people by two criteria, with comments that spreadsheets would run."""
    chance = random.Random(2)
    for _ in range(12):
        key = person.label(chance.choice(("pass", "fail")))
        person.post(key=key, criterion="tone", verdict="fail", comment=f"={HOSTILE}; -1")
    ben = Person(person.client, f"{person.path}&order=second+opinion", "Ben")
    for _ in range(6):
        ben.label(chance.choice(("pass", "fail")))
    ben.undo()


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_labels_go_out_and_in_again(label_pages: LabelPages, tmp_path: Path, kind: str) -> None:
    """In a copy without labels the agreement is the same afterwards, and a second time adds nothing."""
    answers = traffic(30)
    ann = label_pages(answers, name="Ann")
    copy = tmp_path / "copy.db"
    (tmp_path / "copy").mkdir()
    copy.write_bytes((tmp_path / "results.db").read_bytes())
    filled(ann)
    content = ann.client.get(f"/export/labels.{kind}").content
    assert b"<script>" in content
    if kind == "csv":
        cells = [cell for line in content.decode().splitlines() for cell in line.split(",")]
        assert not [cell for cell in cells if cell.lstrip('"').startswith(("=", "@", "+", "-"))]
    before = ann.pages.labels
    expected = [before.agreement(name) for name in ("helpfulness", "tone")]
    between = before.between_people("helpfulness")
    configure(
        storage=[{"type": "sql", "path": str(copy)}],
        telemetry={"signals": [], "content": "span_and_event"},
    )
    place = place_of(str(copy))
    columns = columns_of(place)
    after = Labels(place, columns)
    assert after.all() == []
    criteria = ["helpfulness", "tone"]
    imported = import_labels(content, after.all(), place, criteria)
    assert (imported.added, imported.wrong, imported.unknown) == (29, 0, 0)
    columns.refresh(at_once=True)
    measured = [figures(after.agreement(name)) for name in criteria]
    assert measured == [figures(agreement) for agreement in expected]
    assert after.between_people("helpfulness").coefficient[:3] == pytest.approx(
        between.coefficient[:3]
    )
    twice = import_labels(content, after.all(), place, criteria)
    assert (twice.added, twice.present) == (0, 29)
    rows = [
        sorted(
            json.dumps(kept_fields(row._asdict())) for row in exported_labels(labels.all(), stored)
        )
        for labels, stored in ((after, place), (before, ann.pages.settings.place))
    ]
    assert rows[0] == rows[1]


def figures(agreement: LabelAgreement) -> Any:
    """All figures of an agreement, to nine digits."""
    assert agreement.measured is not None
    counts = (agreement.labels, agreement.missed, agreement.strict)
    return counts, {
        name: [round(end, 9) for end in estimate.values()]
        for name, estimate in agreement.measured.figures().items()
    }


def kept_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """What has to be the same in a copy: not when it was recorded, and characters as CSV shows them."""
    kept = {name: value for name, value in row.items() if name not in ("labelled_at", "comment")}
    return {**kept, "commented": bool(row["comment"])}


def test_each_line_of_a_file_is_checked(label_pages: LabelPages) -> None:
    """Wrong lines are named with field and choices, counted, and cost themselves alone."""
    person = label_pages()
    key = person.key()
    good = {"evaluation_id": key, "criterion": "helpfulness", "verdict": "pass"}
    lines = [
        good,
        {**good, "verdict": "maybe"},
        {**good, "criterion": "helpfulnes"},
        {**good, "evaluation_id": "0" * 32},
        {**good, "evaluation_id": "abc"},
        {"criterion": "helpfulness", "verdict": "pass"},
        {**good, "verdict": ["pass"]},
        {**good, "comment": "x" * 5_000},
        {**good, "criterion": HOSTILE},
        [1],
        {**good, "verdict": False, "labeller": HOSTILE},
    ]
    text = "\n".join([*map(json.dumps, lines), "{", "[" * 100_000, ""])
    reply = person.client.post(
        "/label/import",
        data={"csrf": person.pages.access.csrf},
        files={"file": ("labels.jsonl", text.encode())},
    )
    page = reply.text
    assert "2 added, 0 there already, 1 of answers that are not stored here, 10 not" in page
    assert "line 2: verdict: expected pass or fail, found &#39;maybe&#39;" in page
    assert (
        "line 3: criterion: &#39;helpfulnes&#39; is not scored here (did you mean &#39;helpfulness&#39;?)"
        in page
    )
    assert "line 5: evaluation_id: expected 32 hexadecimal digits" in page
    assert "These are the first 5 of 10." in page
    assert "<script>alert" not in page
    assert len(verdicts(person.pages)) == 1
    assert "&lt;script&gt;" in person.page()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe\x00", "byte 0 is not UTF-8"),
        (b"", "expected a column &#39;criterion&#39;, found nothing"),
        (b"id,label\n1,2\n", "expected a column &#39;criterion&#39;"),
        (b"x" * (4 * 2**20 + 1), "expected at most 4,194,304 bytes"),
        (b"criterion,verdict\n" + b"a,b\n" * 10_001, "expected at most 10,000 lines"),
        (b"x" * (5 * 2**20), "The file is too long"),
    ],
)
def test_a_file_that_is_none_is_refused(
    label_pages: LabelPages, content: bytes, message: str
) -> None:
    person = label_pages()
    reply = person.client.post(
        "/label/import", data={"csrf": person.pages.access.csrf}, files={"file": ("f", content)}
    )
    assert reply.status_code in (400, 413) or "not understood" in reply.text
    assert message in reply.text
    assert verdicts(person.pages) == {}


def test_a_file_of_another_site_or_form_is_refused(label_pages: LabelPages) -> None:
    person = label_pages()
    files = {"file": ("labels.csv", b"criterion,verdict\n")}
    assert person.client.post("/label/import", files=files).status_code == 403
    csrf = {"csrf": person.pages.access.csrf}
    assert person.client.post("/label/import", data=csrf).status_code == 400
    evil = {"origin": "http://evil.example"}
    reply = person.client.post("/label/import", data=csrf, files=files, headers=evil)
    assert reply.status_code == 403


def test_a_spreadsheet_of_another_language_is_read(label_pages: LabelPages) -> None:
    """Semicolons, a mark at the beginning, other words, and what leads to an answer by its span."""
    person = label_pages()
    text = (
        f"\ufeffCriterion ;Verdict;trace_id;span_id;labeller\r\nhelpfulness;YES;{1:032x};{1:016x};Ann\r\n"
        f"helpfulness;0;{1:032x};{1:016x};Ben\r\n;;;;\r\nhelpfulness;fail;{1:032x};{1:016x};Ann\r\n"
    )
    place = person.pages.settings.place
    imported = import_labels(text.encode(), [], place, ["helpfulness"])
    assert (imported.added, imported.repeated) == (2, 1)
    assert imported.sentence == "2 added, 0 there already, 1 replaced by a later line"
    person.pages.columns.refresh(at_once=True)
    labels = person.pages.labels.all()
    assert [(label.name, label.passed) for label in labels] == [("Ben", False), ("Ann", False)]
    assert len({label.evaluation_id for label in labels}) == 1


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_labels_go_out_and_in_by_commands(
    label_pages: LabelPages, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """The exit code tells whether all lines were taken; a file of results takes none."""
    ann = label_pages(name="Ann")
    (tmp_path / "copy.db").write_bytes((tmp_path / "results.db").read_bytes())
    filled(ann)
    place, copy, file = tmp_path / "results.db", tmp_path / "copy.db", tmp_path / f"labels.{kind}"
    assert cli.main(["ui", str(place), "--export-labels", str(file)]) == 0
    assert "29 labels" in capsys.readouterr().out
    for added, present in ((29, 0), (0, 29)):
        assert cli.main(["ui", str(copy), "--import-labels", str(file)]) == 0
        assert f"{added} added, {present} there already" in capsys.readouterr().out
    file.write_text('{"criterion": "\\u001b[31m"}\n')
    assert cli.main(["ui", str(copy), "--import-labels", str(file)]) == 1
    shown = capsys.readouterr().out
    assert "1 not understood" in shown
    assert "\x1b" not in shown
    for wrong in (tmp_path / "none.csv", tmp_path):
        assert cli.main(["ui", str(copy), "--import-labels", str(wrong)]) == 2
    assert cli.main(["ui", str(copy), "--export-labels", str(tmp_path)]) == 2
    results = write_run(tmp_path / "run.jsonl", count=3)
    assert cli.main(["ui", str(results), "--import-labels", str(file)]) == 2
    assert "labels need a database" in capsys.readouterr().err
    assert cli.main(["ui", str(results), "--export-labels", str(file)]) == 0


# --- what erasure and failures leave
def test_what_does_not_count_never_counts_after_an_erasure(
    label_pages: LabelPages, tmp_path: Path
) -> None:
    """Labels that were taken back or replaced go whole: without ids nothing would replace them."""
    ann = label_pages(name="Ann Miller")
    ann.label("fail")
    ann.undo()
    changed = ann.label("fail")
    ann.label("pass", key=changed)
    ann.label("pass")
    place = ann.pages.settings.place
    assert rate_of_people(place) == (2, 1.0)
    settings = tmp_path / "agenteval.yaml"
    settings.write_text(f"storage: [{{type: sql, path: {tmp_path / 'results.db'}}}]\n")
    assert cli.main(["erase", "--user", "Ann Miller", "--settings", str(settings), "--yes"]) == 0
    assert rate_of_people(place) == (2, 1.0)
    assert Labels(place, columns_of(place)).people("helpfulness") == []


def rate_of_people(place: Place) -> tuple[int, float]:
    """How many labels count, and the share that is pass."""
    columns = columns_of(place)
    Labels(place, columns).all()
    counting = np.setdiff1d(np.flatnonzero(columns["is_human"]), columns.replaced_rows())
    figure = columns.figure(counting.astype(np.int32), rate=True)
    assert figure is not None
    return len(counting), figure.mean.mean


def test_an_open_page_forgets_an_erased_name(
    label_pages: LabelPages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a quarter of an hour, also where no result comes."""
    ann = label_pages(name="Ann Miller")
    ann.label("pass")
    assert "Ann Miller" in [labeller.name for labeller in ann.pages.labels.people("helpfulness")]
    settings = tmp_path / "agenteval.yaml"
    settings.write_text(f"storage: [{{type: sql, path: {tmp_path / 'results.db'}}}]\n")
    assert cli.main(["erase", "--user", "Ann Miller", "--settings", str(settings), "--yes"]) == 0
    later_s = time.monotonic() + 901
    monkeypatch.setattr(time, "monotonic", lambda: later_s)
    assert ann.pages.labels.people("helpfulness") == []
    assert [label.name for label in ann.pages.labels.all()] == [None]


def test_labels_come_back_after_a_failed_reading(label_pages: LabelPages, tmp_path: Path) -> None:
    """What could not be read is read by the next call."""
    person = label_pages()
    key = person.label("pass")
    place = person.pages.settings.place
    labels = Labels(place, columns_of(place))
    with closing(sqlite3.connect(tmp_path / "results.db")) as database:
        database.execute("ALTER TABLE agenteval_results RENAME TO away")
        with pytest.raises(StorageError):
            labels.all()
        database.execute("ALTER TABLE away RENAME TO agenteval_results")
    assert [label.evaluation_id for label in labels.all()] == [key]


# --- the end of the queue
@pytest.mark.parametrize("order", ["random", "newest", "lowest"])
def test_answers_without_content_do_not_end_the_queue(label_pages: LabelPages, order: str) -> None:
    failure = score(value=0.0, passed=False)
    answers = [answer(failure, number=number, input_snapshot=None) for number in range(100)]
    answers.insert(0, answer(score(), number=100, ended_ns=time.time_ns() - DAY_NS))
    person = label_pages(answers, path=f"/label?criterion=helpfulness&order={order}")
    assert "order 100?" in person.page()


def test_left_counts_the_answers_of_the_order(label_pages: LabelPages) -> None:
    """Two evaluators of an answer, or two criteria, make one answer of it."""
    answers = [
        answer(score(), score(evaluator_id="second"), score("tone"), number=number)
        for number in range(5)
    ]
    ann = label_pages(answers, name="Ann")
    second = "/label?criterion=helpfulness&order=second+opinion"
    assert "5 answers left" in ann.page()
    assert "5 answers left" in ann.page("/label?criterion=helpfulness&criterion=tone")
    ann.label("pass")
    ann.label("fail")
    assert "3 answers left" in ann.page()
    ben = Person(ann.client, second, "Ben")
    assert "2 answers left" in ben.page()
    ben.label("pass")
    assert "1 answer left" in ben.page()


def test_disagreement_looks_at_the_newest_of_the_window(label_pages: LabelPages) -> None:
    """Older answers that evaluators contradict each other on do not hide it."""
    shadow = score(value=0.0, passed=False, shadow=True)
    day_ago_ns = time.time_ns() - DAY_NS
    old = [
        answer(score(), shadow, input_snapshot=None, ended_ns=day_ago_ns, number=number)
        for number in range(4_200)
    ]
    new = answer(score(), shadow, number=4_200)
    path = "/label?criterion=helpfulness&order=disagreement"
    person = label_pages([*old, new], path=f"{path}&window=1h&time=evaluated")
    assert "order 4200?" in person.page()
    assert "order 4200?" not in person.page(f"{path}&until=2001-01-01")


# --- hostile files
def test_ids_that_no_database_stores_cost_their_line(label_pages: LabelPages) -> None:
    person = label_pages()
    good = {"evaluation_id": person.key(), "criterion": "helpfulness", "verdict": "pass"}
    lines = [
        {"response_id": "\ud800", "criterion": "helpfulness", "verdict": "pass"},
        {"response_id": "a\x00b", "criterion": "helpfulness", "verdict": "pass"},
        {**good, "person": "\ud800"},
        {**good, "person": "ann@mail.example"},
        {**good, "person": "0123456789abcdef" * 2},
    ]
    reply = person.client.post(
        "/label/import",
        data={"csrf": person.pages.access.csrf},
        files={"file": ("labels.jsonl", "\n".join(map(json.dumps, lines)).encode())},
    )
    assert "1 added, 0 there already, 4 not understood" in reply.text
    assert "line 1: response_id: has characters that no id has" in reply.text
    assert "line 4: person: expected the hash that an export has" in reply.text
    assert [label.person for label in person.pages.labels.all()] == ["0123456789abcdef" * 2]

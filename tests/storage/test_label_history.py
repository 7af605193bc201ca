"""Labels that were taken back: which of them count, the same from every place."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
from agenteval_otel.storage.label_history import LabelHistory, labels_in_force
from agenteval_otel.storage.line_files import LineFiles
from agenteval_otel.storage.places import Place
from agenteval_otel.storage.rows import Label
from tests.ui.stored import answer, score, store

STEPS = st.lists(st.tuples(st.sampled_from(("ann", "ben", None)), st.none() | st.booleans()))


@given(STEPS)
def test_an_undo_is_as_if_the_label_had_not_been_given(
    steps: list[tuple[str | None, bool | None]],
) -> None:
    """None takes back. What is left is what each person's own labels and undos leave."""
    history: LabelHistory[int] = LabelHistory()
    own: dict[str | None, list[int]] = {}
    for number, (person, verdict) in enumerate(steps):
        if verdict is None:
            history.withdraw(person)
            if own.get(person):
                own[person].pop()
        else:
            history.add(person, number)
            own.setdefault(person, []).append(number)
    last = sorted(numbers[-1] for numbers in own.values() if numbers)
    assert history.of_people() == last
    assert history.last == (max(last) if last else None)


def test_labels_of_unknown_answers_and_comments_are_told_apart() -> None:
    """Two labels of answers that are not stored have nothing in common, and a comment is no verdict."""
    labels = [
        Label(None, "tone", True, {}, "1"),
        Label(None, "tone", False, {}, "2"),
        Label("a", "tone", True, {}, "3"),
        Label("a", "tone", None, {}, "4"),
        Label("a", "clear", False, {}, "5"),
        Label("b", "tone", None, {}, "6", is_withdrawal=True),
    ]
    assert [label.label_id for label in labels_in_force(labels)] == ["1", "2", "3", "5"]


def test_every_place_tells_the_same(tmp_path: Path) -> None:
    """A database and a file of JSON lines: person, name and withdrawal of each label."""
    stored = [answer(score("tone"), number=1), said(True), said(False), said(None)]
    database = store(tmp_path / "a.db", stored)
    lines = tmp_path / "a.jsonl"
    lines.write_text("".join(f"{item.model_dump_json(by_alias=True)}\n" for item in stored))
    read = [told_by(database), told_by(LineFiles([lines]))]
    assert read[0] == read[1]
    assert sorted(read[0], key=str) == [
        (False, "hash", "Ann \u202e", False),
        (None, "hash", "Ann \u202e", True),
        (True, "hash", "Ann \u202e", False),
    ]


def said(passed: bool | None) -> AggregatedEvaluationResult:
    """A label, or what takes it back."""
    label = EvaluationResult(
        criterion_name="tone",
        evaluator_type="feedback",
        evaluator_kind="human",
        passed=passed,
        skip_reason="withdrawn" if passed is None else None,
        metadata={"labeller": "Ann \u202e"},
    )
    return answer(label, number=1, user_id="hash", input_snapshot=None)


def told_by(place: Place) -> set[tuple[bool | None, str | None, str | None, bool]]:
    labels = place.find_labels([key for key, _ in place.results()])
    assert all(label.others == {"tone": True} for label in labels)
    return {(label.passed, label.person, label.name, label.is_withdrawal) for label in labels}

"""What real client libraries gave, read: whole and streamed, by blocking and async clients."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from agenteval_otel.capture.build import build_input
from agenteval_otel.capture.calls import CapturedCall
from agenteval_otel.capture.detached import take
from tests.capture.applications import LIBRARIES
from tests.capture.recordings import FOLDER, Form, from_json, load, to_json

RECORDINGS = {path.stem: load(path) for path in sorted(FOLDER.glob("*.json"))}
FORMS = [(name, form) for name, recording in RECORDINGS.items() for form in recording.forms]


def facts_in(form: Form) -> list[Any]:
    """The facts of what the caller's thread kept of an answer or of a stream's chunks."""
    call = CapturedCall("recorded")
    if form.is_stream:
        call.chunks = form.value
    else:
        call.answer = form.value
    bad_facts: list[str] = []
    captured = build_input(call, on_bad_fact=lambda name, *_: bad_facts.append(name))
    assert bad_facts == []
    assert captured.response_form is None, "it was judged as its JSON"
    calls = captured.tool_calls
    usage = captured.usage
    return [
        captured.response,
        calls and [[call.name, call.arguments, call.result] for call in calls],
        usage and [usage.input_tokens, usage.output_tokens],
        captured.model,
        captured.finish_reason,
    ]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_the_facts_of_a_recording(name: str, form: str) -> None:
    """Text, calls, tokens, model and finish reason of a real library's answer are read."""
    recorded = RECORDINGS[name].forms[form]
    assert facts_in(recorded) == recorded.facts


def test_every_application_is_recorded_with_the_versions_of_its_libraries() -> None:
    """None of the recorder's applications lacks its recording."""
    assert set(RECORDINGS) == set(LIBRARIES)
    for name, recorded in RECORDINGS.items():
        assert set(recorded.libraries) == set(LIBRARIES[name])
        assert all(recorded.libraries.values())


def test_a_value_survives_its_recording() -> None:
    """What capture takes of a value is the same after it was written as JSON and read again."""
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    value = {"at": [moment, moment.date()], "pair": (Decimal("1.5"), b"\x00"), "id": UUID(int=7)}
    taken = take(SimpleNamespace(text="x", inner=SimpleNamespace(data=value))).value
    read = from_json(to_json(taken))
    assert (read.module, read.type_name, read.is_data) == ("types", "SimpleNamespace", True)
    assert read.fields["inner"].fields == {"data": value}

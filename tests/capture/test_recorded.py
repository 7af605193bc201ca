"""What real client libraries gave, read: whole and streamed, by blocking and async clients."""

from __future__ import annotations

from typing import Any

import pytest

from agenteval_otel.capture.build import build_input
from agenteval_otel.capture.calls import CapturedCall
from tests.capture.recordings import FOLDER, Form, load

RECORDINGS = {path.stem: load(path) for path in sorted(FOLDER.glob("*.json"))}
FORMS = [(name, form) for name, recording in RECORDINGS.items() for form in recording.forms]


def facts_in(form: Form) -> list[Any]:
    """The facts of what the caller's thread kept of an answer or of a stream's chunks."""
    call = CapturedCall(None, "recorded")
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

"""Whole values on their way out: every text is redacted, and nothing raw leaves when that fails."""

from __future__ import annotations

from typing import Any

from agenteval_otel.capture.redaction.outgoing import FAILED, Redaction
from agenteval_otel.models import (
    AggregatedEvaluationResult,
    EvaluationCriteria,
    EvaluationInput,
    EvaluationResult,
    RunError,
    Usage,
)
from agenteval_otel.models.inputs import RunStep
from agenteval_otel.redaction import PatternRedactor, Redactor

MAIL = "jane@mail.example"
REDACTION = Redaction((PatternRedactor(),))


def input_of(**fields: Any) -> EvaluationInput:
    return EvaluationInput(**{"response": "fine", **fields})


def test_every_text_of_an_input_is_redacted() -> None:
    """Wherever an address stands in an input, it is gone in what goes out; what the criteria say
    stays.
    """
    call = {"name": "send", "arguments": {"to": [MAIL]}, "result": f"sent to {MAIL}", "id": MAIL}
    whole = input_of(
        response=f"to {MAIL}",
        prompt=MAIL,
        context={"documents": [{"text": MAIL}], MAIL: 1},
        ground_truth={"a": MAIL},
        agent_config={"owner": MAIL},
        message_history=[{"role": "user", "content": MAIL, "toolCalls": [call], "x": MAIL}],
        session_id=MAIL,
        agent_id=MAIL,
        metadata={"a": (MAIL,)},
        agent=MAIL,
        tool_calls=[call],
        response_id=MAIL,
        conversation_id=MAIL,
        model=MAIL,
        finish_reason=MAIL,
        error_type=MAIL,
        steps=[RunStep(kind="retrieval", name=MAIL, query=MAIL, error_type=MAIL)],
        criteria=(EvaluationCriteria(name="tone", description="polite"),),
        timestamp=1_716_381_234_567,
    )
    assert MAIL in whole.response_text, "what was worked out from the original stays with it"
    out = REDACTION.input(whole)
    assert MAIL not in out.model_dump_json() + out.response_text
    assert out.model_dump_json().count("[EMAIL]") == whole.model_dump_json().count(MAIL)
    assert (out.criteria, out.timestamp) == (whole.criteria, whole.timestamp)
    assert Redaction(()).input(whole) is whole
    plain = input_of(prompt="hello", metadata={"a": [1, 2.5, None, True], "b": {"c": "d"}})
    assert REDACTION.input(plain) is plain, "nothing is copied for nothing"


def test_figures_of_a_step_are_no_secrets() -> None:
    """A number of tokens is one, however large it is."""
    usage = Usage(input_tokens=4_111_111_111_111_111, output_tokens=2_025_550_143)
    whole = input_of(steps=[RunStep(kind="model", name="m", began_s=0.5, usage=usage, cost=1e7)])
    assert REDACTION.input(whole) is whole


def test_a_telling_name_makes_its_value_a_secret() -> None:
    """What stands under ``password`` or ``phone`` is known by that name; numbers are read as text."""
    arguments = {
        "password": "plain words",
        "apiKey": "abc",
        "max_tokens": 1_000_000_000,
        "phone": "467 3395",
        "ssn": 219099999,
        "socialSecurityNumber": "078051120",
        "card": 4111111111111111,
        "phone_number": 4155550132,
        "note": "plain words",
        "token": ["one-two-3"],
    }
    out = REDACTION.input(input_of(metadata=arguments)).metadata
    assert out == {
        "password": "[SECRET]",
        "apiKey": "[SECRET]",
        "max_tokens": 1_000_000_000,
        "phone": "[PHONE]",
        "ssn": "[SSN]",
        "socialSecurityNumber": "[SSN]",
        "card": "[CARD]",
        "phone_number": "[PHONE]",
        "note": "plain words",
        "token": ["[SECRET]"],
    }


def test_every_text_of_a_result_is_redacted() -> None:
    """Reasoning, errors, labels, metadata and ids; names of criteria and evaluators stay."""
    scored = EvaluationResult(
        criterion_name="tone",
        evaluator_type="T",
        score=MAIL,
        label=MAIL,
        reasoning=f"wrote to {MAIL}",
        reason_code=MAIL,
        metadata={"quote": MAIL},
    )
    failed = EvaluationResult(
        criterion_name="b", evaluator_type="T", error=f"ValueError: {MAIL}", error_type=MAIL
    )
    skipped = EvaluationResult(
        criterion_name="c", evaluator_type="T", skip_reason=f"nothing about {MAIL}"
    )
    whole = AggregatedEvaluationResult(
        results=(scored, failed, skipped),
        agent_id=MAIL,
        session_id=MAIL,
        agent=MAIL,
        response_id=MAIL,
        model=MAIL,
        conversation_id=MAIL,
        metadata={"errors": [{"message": MAIL}], "durationMs": 3},
        input_snapshot=input_of(prompt=MAIL),
        run_errors=(RunError(message=MAIL, evaluator_type="T"),),
        evaluation_config_snapshot={"criteriaNames": ["tone"]},
    )
    out = REDACTION.result(whole)
    assert MAIL not in out.model_dump_json()
    assert [(r.criterion_name, r.evaluator_type) for r in out.results] == [
        ("tone", "T"),
        ("b", "T"),
        ("c", "T"),
    ]
    assert out.evaluation_config_snapshot == whole.evaluation_config_snapshot
    assert REDACTION.result(whole, whole=False).input_snapshot is whole.input_snapshot


def test_what_cannot_be_walked_does_not_leave() -> None:
    """A structure that holds itself, or breaks when it is looked at, is replaced whole; its kind of
    field stays.
    """
    reported: list[str] = []
    cycle: list[Any] = [f"long, with {MAIL}"]
    cycle.append(cycle)
    endless: dict[str, Any] = {"a": MAIL}
    endless["again"] = endless
    whole = EvaluationInput.model_construct(response=cycle, metadata=endless, prompt=None)
    out = Redaction((PatternRedactor(),), lambda part, error: reported.append(part)).input(whole)
    assert (out.response, out.metadata) == ([], {FAILED: True})
    assert reported == ["value", "value"]


def test_objects_go_out_as_plain_data() -> None:
    """What is no JSON leaves as its text, redacted."""

    class Note:
        def __str__(self) -> str:
            return f"note for {MAIL}"

    out = REDACTION.input(input_of(response=Note(), metadata={"b": b"x", "s": {MAIL}}))
    assert out.response == "note for [EMAIL]"
    assert out.metadata == {"b": "b'x'", "s": ["[EMAIL]"]}


def test_short_texts_are_remembered_and_failures_are_not() -> None:
    """The same id is redacted once; a redactor that broke is asked again. What is remembered is
    bounded.
    """
    requests: list[str] = []

    class Counting(Redactor):
        def redact(self, text: str) -> str:
            requests.append(text)
            if text == "bad" and requests.count("bad") == 1:
                raise ValueError("first time")
            return text

    redaction = Redaction((Counting(),))
    assert [
        redaction.text("id"),
        redaction.text("id"),
        redaction.text("bad"),
        redaction.text("bad"),
    ] == ["id", "id", FAILED, "bad"]
    assert requests == ["id", "bad", "bad"]
    for number in range(3_000):
        redaction.text(str(number))
    redaction.text("id")
    assert requests[-1] == "id", "it was forgotten for the later ones"

"""B13: what is judged cannot leave its place in the judge's prompt, whatever it says.

The built prompt is taken apart again: one block of JSON between two lines with a mark, everything
around it word for word what it is for a harmless case. Whether a model is talked round all the same
is not promised.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agenteval_otel import EvaluationInput
from agenteval_otel.evaluators import LLMJudge
from agenteval_otel.judges import JudgeRequest
from agenteval_otel.testing import ScriptedJudge
from tests.evaluators.catalogue import NAMES as CRITERIA
from tests.evaluators.catalogue import built
from tests.judges.payloads import CANARY, PAYLOADS
from tests.judges.test_prompt import MARK, hidden_in, taken_apart
from tests.judges.test_prompt import joined as paired
from tests.promises.figures import Recorder, sized

EACH = sized(7, 1)
"""For rubrics and templates every seventh payload, all of them in the long form."""

NAMES = (
    "{{response}}",
    '"score": 5',
    "}\n{",
    "DATA-" + "0" * 32,
    "evidence",
    "__proto__",
    "\u202escore",
    "criterion_1",
)
"""Names of criteria, which settings give, that look like something else."""

TEMPLATES = {
    "plain": "Does {{response}} answer {{input}}?",
    "every field": "{{input}} {{response}} {{reference}} {{history}} {{tool_calls}} {{tool_definitions}} {{context}}",
    "keys": "See {{context.k}} and {{context.missing}}; criterion {{criterion_name}}: {{criterion_description}}",
    "fences": '```json\n{"answer": "{{response}}"}\n```\n---\n{{input}} DATA-' + "0" * 32,
}


def _filled(payload: str) -> EvaluationInput:
    """A case that holds the payload in every field that there is."""
    return EvaluationInput.model_validate(
        {
            "response": f"An answer. {payload}",
            "prompt": payload,
            "ground_truth": payload,
            "context": {
                "k": payload,
                payload: payload,
                "documents": [payload],
                "tools": [{"name": payload}],
            },
            "message_history": [
                {"role": "user", "content": payload},
                {"role": "assistant", "content": payload},
            ],
            "tool_calls": [{"name": payload, "arguments": {payload: payload}, "result": payload}],
            "agent_config": {"tools": [{"name": payload, "description": payload}]},
        }
    )


HARMLESS = _filled("harmless")


def _around(request: JudgeRequest) -> tuple[str, ...]:
    """All of the request but the data: its system text, what stands before and behind, the form,
    the purpose.
    """
    before, _, after = taken_apart(request.prompt)
    return request.system, before, after, json.dumps(request.answer_form), request.purpose


def _assert_contained(judge: LLMJudge, payload: str, expected: tuple[str, ...]) -> None:
    request, _ = judge.question_for(_filled(payload))
    assert _around(request) == expected
    assert CANARY not in "".join(expected)
    assert not hidden_in(request.prompt)
    (mark, _) = MARK.findall(request.prompt)
    assert mark.removeprefix("DATA-") not in payload
    _, data, _ = taken_apart(request.prompt)
    assert all(isinstance(name, str) for name in data)
    if "response" in data:
        assert data["response"] == paired(f"An answer. {payload}")


def _judges() -> dict[str, LLMJudge]:
    scripted = ScriptedJudge()
    everything = [
        "question",
        "response",
        "ground_truth",
        "context",
        "history",
        "tool_calls",
        "tool_definitions",
    ]
    actual = {
        "default": LLMJudge("Is it fine?", judge=scripted),
        "every field": LLMJudge("Is it fine?", judge=scripted, takes=everything),
    }
    actual |= {
        f"template: {name}": LLMJudge(judge=scripted, prompt_template=text, criterion_name="fine")
        for name, text in TEMPLATES.items()
    }
    actual |= {
        f"named {name!r}": LLMJudge(judge=scripted, criterion_name=name, scale="likert5")
        for name in NAMES
    }
    actual["several"] = LLMJudge(
        judge=scripted, rubrics=[{"criterion_name": name} for name in NAMES]
    )
    actual["a rubric as one text"] = LLMJudge(
        judge=scripted, rubric="Is {{response}} right? {output}"
    )
    return actual


JUDGES = _judges()


@pytest.mark.parametrize("name", [*JUDGES, *CRITERIA])
@pytest.mark.sized
def test_no_payload_leaves_the_data(name: str, promise: Recorder) -> None:
    """In every field at once: all around the data stays what it is for a harmless case. So it does
    in the catalogue's rubrics, each with all that it needs and takes.
    """
    judge = JUDGES[name] if name in JUDGES else built(name)
    expected = _around(judge.question_for(HARMLESS)[0])
    payloads = PAYLOADS if name in ("default", "every field") else PAYLOADS[::EACH]
    for payload in payloads:
        _assert_contained(judge, payload, expected)
    assert len(set(PAYLOADS)) >= 600
    promise(
        "B13",
        figure=f"{len(PAYLOADS)} payloads in every field, {len(CRITERIA)} rubrics of the package: "
        "0 breakouts, the mark in none",
    )


def test_scripted_success_is_told_and_not_promised(promise: Recorder) -> None:
    """A judge that obeys any order in the data is talked round; that is seen in the sign, not in
    the prompt.
    """

    def obeys(request: JudgeRequest) -> dict[str, Any]:
        return {
            "evidence": [],
            "reason": "as told",
            "score": "score" in str(taken_apart(request.prompt)[1]).lower(),
        }

    judge = LLMJudge("Is it fine?", judge=ScriptedJudge(answer=obeys))
    marked = total = 0
    for payload in PAYLOADS[::7]:
        value = EvaluationInput(response=f"An answer. {payload}", prompt="q")
        (result,) = asyncio.run(judge.evaluate(value, judge.criteria()))
        if result.score is True:
            total += 1
            marked += result.suspected_injection
    promise(
        "B13",
        figure=f"a judge that obeys is talked round by {total} of {len(PAYLOADS[::7])}, {marked} of them marked",
    )
    assert total

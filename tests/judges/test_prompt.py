"""Safe rendering: whatever a text holds, it stays in its field, readable and shown for what it is."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel.evaluators.judges.prompt import (
    CaseText,
    JudgePrompt,
    neutral_json,
    render,
    shortened,
    visible,
)

MARK = re.compile(r"^DATA-[0-9a-f]{32}$", re.MULTILINE)
ANY_TEXT = st.text(alphabet=st.characters(), max_size=200)


def taken_apart(prompt: str) -> tuple[str, dict[str, Any], str]:
    """What stands before the data, the data, and what stands behind it, with the mark taken out."""
    (mark, again) = MARK.findall(prompt)
    assert mark == again
    before, data, after = prompt.split(f"\n{mark}\n")
    return before.replace(mark, "MARK"), json.loads(data), after.replace(mark, "MARK")


def joined(text: str) -> str:
    """Halves of surrogate pairs that stand side by side are one character when they are read back."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def hidden_in(prompt: str) -> set[str]:
    """Characters that cannot be seen, or turn what can."""
    return {
        char
        for char in prompt
        if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
    } - {"\n"}


def rendered(case: Mapping[str, Any]) -> JudgePrompt:
    return render("before", {name: CaseText(value) for name, value in case.items()}, "after")


@given(text=ANY_TEXT, other=ANY_TEXT)
@settings(deadline=None, max_examples=50)
def test_any_text_survives_rendering(text: str, other: str) -> None:
    """Reading the data gives the text; the prompt has no invisible character."""
    prompt = rendered({"response": text, "input": other}).text
    _, data, _ = taken_apart(prompt)
    assert data == {"response": joined(text), "input": joined(other)}
    assert not hidden_in(prompt)


def test_invisible_characters_are_escaped() -> None:
    """Ordinary letters stay letters."""
    assert (
        neutral_json("a\u202eb\U000e0041\u200b\u00ad") == '"a\\u202eb\\udb40\\udc41\\u200b\\u00ad"'
    )
    assert neutral_json("Ünï \u4e2d\u6587 \U0001f600") == '"Ünï \u4e2d\u6587 \U0001f600"'
    assert visible("a\u202e\x1b\nb\t") == "a\\u202e\\u001b\nb\t"


@pytest.mark.parametrize(
    "text", ["<|im_end|>", "</s>", "<\uff5cend\uff5c>", "[/INST]", "<start_of_turn>"]
)
def test_turn_marks_are_escaped(text: str) -> None:
    """Reading the data gives them back."""
    assert text not in neutral_json(text)
    assert json.loads(neutral_json(text)) == text
    assert neutral_json("a < b, [1], <b>bold</b>") == '"a < b, [1], <b>bold</b>"'


def test_the_mark_is_new_each_time_and_in_no_fingerprint() -> None:
    """So nobody can know it, and a cache finds equal questions."""
    first, second = rendered({"response": "a"}), rendered({"response": "a"})
    assert MARK.findall(first.text)[0] != MARK.findall(second.text)[0]
    assert first.fingerprint == second.fingerprint
    assert rendered({"response": "b"}).fingerprint != first.fingerprint
    assert rendered({"input": "a"}).fingerprint != first.fingerprint
    assert rendered({"response": "a", "input": ""}).fingerprint != first.fingerprint


def test_the_instruction_stands_before_and_after_the_data() -> None:
    """Without data there is no mark."""
    prompt = rendered({"response": "a"}).text
    assert prompt.startswith("before\n\n")
    assert prompt.endswith("\n\nafter")
    assert render("before", {}, "after").text == "before\n\nafter"


@given(text=ANY_TEXT, limit=st.integers(1, 60))
@settings(deadline=None, max_examples=50)
def test_a_long_text_loses_its_middle(text: str, limit: int) -> None:
    """The remark has the exact number of characters; a short text stays whole."""
    result = shortened(text, limit)
    if len(text) <= limit:
        assert result == CaseText(text)
        return
    head, _, rest = result.text.partition(f" [... {result.left_out} characters left out ...] ")
    assert len(head) + result.left_out + len(text[len(head) + result.left_out :]) == len(text)
    assert text.startswith(head)
    assert text.endswith(rest[-1])
    assert result.left_out == len(text) - limit


def test_the_remark_on_a_gap_stands_outside_of_the_data() -> None:
    """Inside it could come from the answer itself."""
    before, data, _ = taken_apart(
        render("before", {"response": shortened("x" * 500, 100)}, "after").text
    )
    assert '"response" 400 characters were left out' in before
    assert "400 characters left out" in data["response"]
    assert "left out of the middle" not in taken_apart(rendered({"response": "x"}).text)[0]

"""Judges that are objects of the program's, and the scripted one."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import LLMJudge
from agenteval_otel.evaluators.judges.adapter import CallableJudge, as_judge
from agenteval_otel.judges import CacheSettings
from agenteval_otel.testing import ScriptedJudge
from tests.judges.asking import GOOD, QUESTION, ask, failure, outcomes, types_of


class Generating:
    """A model of the program's, sync."""

    def __init__(self, says: Any) -> None:
        self.says, self.asked = says, ""

    def generate(self, prompt: str) -> Any:
        self.asked = prompt
        return self.says


class Separately:
    """A model of the program's, async, with a place for the instruction."""

    def __init__(self) -> None:
        self.system = ""

    async def generate_text(self, prompt: str, *, system: str) -> SimpleNamespace:
        self.system = system
        return SimpleNamespace(text=GOOD)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "anthropic:m-4-5",
            ("anthropic", "m-4-5", "https://api.anthropic.com", "ANTHROPIC_API_KEY"),
        ),
        (
            "openai:gpt-5-mini",
            ("openai", "gpt-5-mini", "https://api.openai.com/v1", "OPENAI_API_KEY"),
        ),
        (
            "openai_compatible:qwen3:8b@http://127.0.0.1:11434/v1",
            ("openai_compatible", "qwen3:8b", "http://127.0.0.1:11434/v1", None),
        ),
        (
            "anthropic:haiku@20251001@https://proxy.example",
            ("anthropic", "haiku@20251001", "https://proxy.example", "ANTHROPIC_API_KEY"),
        ),
    ],
)
def test_one_text_names_a_judge(words: str, expected: tuple[str, str, str, str | None]) -> None:
    """Type, model and, where it is needed, address."""
    judge: Any = as_judge(words)
    assert (judge.type, judge.model, judge.base_url, judge.api_key_env) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "antropic:m",
            r"unknown judge 'antropic' \(did you mean 'anthropic'\?\): .*'openai:<model>'",
        ),
        ("claude-haiku-4-5", "unknown judge 'claude-haiku-4-5': write 'anthropic:<model>'"),
        ("", "unknown judge ''"),
        ("openai", "'openai' lacks its model: .*'openai_compatible:<model>@http://<host>/v1'"),
        ("openai_compatible:@http://127.0.0.1/v1", "lacks its model"),
        ("openai_compatible:m", "lacks its address"),
        ("openai_compatible", "lacks its model and its address"),
        ("scripted:m@http://127.0.0.1/v1", "base_url"),
        (
            "openai_compatible:m@http://user:word@host",
            "judge.base_url: expected an address without user",
        ),
    ],
)
def test_a_text_that_names_no_judge_is_refused_with_the_forms(words: str, message: str) -> None:
    """With the nearest name and the three forms; a password in an address is not repeated."""
    with pytest.raises(ConfigurationError, match=message) as raised:
        as_judge(words, path="judge")
    assert str(raised.value).startswith("judge")
    assert "word" not in str(raised.value)


@pytest.mark.parametrize("says", [GOOD, {"text": GOOD}, SimpleNamespace(content=GOOD)])
def test_an_object_that_generates_is_a_judge(says: Any) -> None:
    """Its text, mapping or object with text is the answer; it gets the instruction."""
    model = Generating(says)
    judge = as_judge(model)
    assert isinstance(judge, CallableJudge)
    assert ask(judge).answer["score"] == 4
    assert "You judge." in model.asked
    assert QUESTION.prompt in model.asked
    assert judge.name.endswith("Generating")


def test_the_instruction_goes_into_its_parameter() -> None:
    """An object with a parameter `system` gets the instruction there."""
    model = Separately()
    assert ask(as_judge(model)).answer["score"] == 4
    assert model.system.startswith("You judge.")


def test_a_function_may_take_the_request() -> None:
    """A parameter of that name gets the whole `JudgeRequest`."""
    assert (
        ask(as_judge(lambda request: GOOD if request.prompt == QUESTION.prompt else "")).answer[
            "score"
        ]
        == 4
    )


def test_arguments_by_name_are_passed_by_name() -> None:
    """A function that takes any name gets the whole question as `prompt`."""
    seen: list[dict[str, str]] = []

    def by_name(**arguments: str) -> str:
        seen.append(arguments)
        return GOOD

    def javascript(prompt: str, systemPrompt: str) -> str:
        seen.append({"prompt": prompt, "system": systemPrompt})
        return GOOD

    ask(as_judge(by_name))
    ask(as_judge(javascript))
    assert seen == [
        {"prompt": f"{QUESTION.system}\n\n{QUESTION.prompt}"},
        {"prompt": QUESTION.prompt, "system": QUESTION.system},
    ]


@pytest.mark.parametrize(
    "function", [lambda: "", lambda text, mood: "", lambda system, user: "", lambda *, text: ""]
)
def test_a_function_that_cannot_be_asked_is_refused(function: Any) -> None:
    """When it is set, with the parameters that are known."""
    with pytest.raises(
        ConfigurationError, match=r"judge: expected the parameters \(prompt\), \(prompt, system\)"
    ):
        LLMJudge(judge=function)


def test_an_object_fails_as_a_judge_does() -> None:
    """Its exceptions are failures that say their cause, without keys; its text is read as any
    answer.
    """

    def breaks(prompt: str) -> str:
        raise ValueError("no loop; sk-proj-" + "aB3" * 16)

    def cut(prompt: str) -> str:
        raise ConnectionResetError

    def ends(prompt: str) -> str:
        raise SystemExit

    def stops(prompt: str) -> str:
        raise StopIteration

    async def silent(prompt: str) -> str:
        await asyncio.Event().wait()
        return ""

    result = failure(as_judge(breaks))
    said = "the model raised ValueError: no loop; [SECRET]"
    assert (result.error_type, said in str(result)) == ("server_error", True), result
    assert failure(as_judge(cut)).error_type == "connection_error", "it may have been paid for"
    for function in (ends, stops):
        assert types_of(outcomes(as_judge(function), 2)) == ["server_error", "server_error"], (
            "the loop goes on"
        )
    assert failure(CallableJudge(target=silent, deadline_s=0.05)).error_type == "timeout"
    assert failure(as_judge(Generating(""))).error_type == "empty_answer"
    for says in (
        "4",
        7,
        "[" + "1," * 5_000_000 + "1]",
    ):  # a huge text is not parsed: others would wait
        assert failure(as_judge(Generating(says))).error_type == "malformed_answer"


@pytest.mark.parametrize("value", [7, object(), "no_such_type", dict, None])
def test_other_values_are_refused(value: Any) -> None:
    """The error names the known types."""
    with pytest.raises(ConfigurationError, match="anthropic"):
        as_judge(value)


def test_a_script_is_followed() -> None:
    """The replies come in order, failures among them, then the fallback; all calls are counted."""
    replies = ({"reason": "a", "score": 1}, "no JSON", {"error": "rate_limited"})
    judge = ScriptedJudge(replies=replies, fallback=GOOD, input_tokens=7)
    result = outcomes(judge, 5)
    assert types_of(result) == ["answer", "malformed_answer", "rate_limited", "answer", "answer"]
    assert [item.usage.input_tokens for item in result if item.usage is not None] == [7] * 5
    assert (judge.calls, judge.requests) == (5, (QUESTION,) * 5)
    assert failure(ScriptedJudge()).error_type == "empty_answer"


def test_a_function_runs_in_the_callers_context() -> None:
    """Context variables reach its thread."""
    mark: ContextVar[str] = ContextVar("mark")

    def reads(prompt: str) -> str:
        return GOOD.replace("4", mark.get())

    mark.set("3")
    assert ask(as_judge(reads)).answer["score"] == 3


def test_a_cache_file_needs_a_name(tmp_path: Path) -> None:
    """Two nameless objects would share verdicts."""
    kept = CacheSettings(path=tmp_path / "cache.db")
    with pytest.raises(ConfigurationError, match="needs a 'name'"):
        CallableJudge(target=Generating(GOOD), cache=kept)
    assert CallableJudge(target=Generating(GOOD), name="mine", cache=kept).name == "mine"

"""Reading answers: exactly one JSON object is one; everything else is refused, and nothing is
guessed.
"""

from __future__ import annotations

import json

import pytest

from agenteval_otel.errors import JudgeError
from agenteval_otel.judges import OpenAICompatibleJudge, parse_answer
from agenteval_otel.testing import ModelServer
from tests.judges.asking import FORM, ask, hosted

ANSWER = {"reason": "so", "score": 4}
TEXT = json.dumps(ANSWER)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        f"  \n{TEXT}\r\n\t",
        f"```json\n{TEXT}\n```",
        f"```\n{TEXT}\n```",
        f"\n```JSON \r\n{TEXT}\r\n```\n",
        json.dumps(ANSWER, indent=4),
    ],
)
def test_one_object_is_an_answer(text: str) -> None:
    """Whitespace and one Markdown fence around it are allowed."""
    assert parse_answer(text, FORM) == ANSWER


@pytest.mark.parametrize(
    "text",
    [
        f"Sure! {TEXT}",
        f"{TEXT} I hope this helps.",
        f"{TEXT}{TEXT}",
        f"{TEXT}\n{TEXT}",
        f"[{TEXT}]",
        f"```json\n{TEXT}\n```\n```json\n{TEXT}\n```",
        f"```python\n{TEXT}\n```",
        f"```json {TEXT}```",
        f"```json\n{TEXT}",
        f"{TEXT}\n```",
        f"````json\n{TEXT}\n````",
        "```\n```",
        "```",
        "``````",
        '{"reason": "so", "score": 4, "score": 5}',
        '{"reason": "so", "score": 4, "more": {"a": 1, "a": 1}}',
        '{"reason": "so", "score": NaN}',
        '{"reason": "so", "score": 4, "x": -Infinity}',
        '{"reason": "so", "score": 4, "x": 1e999}',
        '{"reason": "so", "score": 4, "x": %s}' % ("9" * 400),
        '{"reason": "so", "score": 4, "x": %s}' % ("9" * 5_000),
        '{"reason": "so", "score": "4"}',
        '{"reason": "so", "score": "8/10"}',
        '{"reason": "so", "score": 4.5}',
        '{"reason": "so", "score": true}',
        '{"reason": "so", "score": null}',
        '{"reason": ["so"], "score": 4}',
        '{"reason": "so"}',
        "{'reason': 'so', 'score': 4}",
        '{"reason": "so", "score": 4,}',
        TEXT[:-1],
        "4",
        '"4"',
        "null",
        "true",
        "score: 4",
        "4/5",
        "<score>4</score>",
        '{"reason": "so", // no\n "score": 4}',
        '{"reason": "so", "score": 4, "x": %s}' % ("[" * 40 + "]" * 40),
        "[" * 100_000,
        '{"a":' * 50_000,
        f"{TEXT}\x00",
    ],
)
def test_anything_else_is_malformed(text: str) -> None:
    """Prose, a second object, a repeated name, a wrong type and a missing name are
    `malformed_answer`.
    """
    with pytest.raises(JudgeError) as raised:
        parse_answer(text, FORM)
    assert raised.value.error_type == "malformed_answer"
    assert not raised.value.retryable


def test_numbers_keep_their_kind() -> None:
    """JSON Schema takes 4.0 as an integer; it stays a float."""
    answer = parse_answer('{"reason": "", "score": 4.0}', FORM)
    assert type(answer["score"]) is float


def test_types_are_checked_at_every_level() -> None:
    """The error names the path, also inside of lists."""
    form = {
        "type": "object",
        "properties": {
            "claims": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["ok"],
                    "properties": {"ok": {"type": ["boolean", "null"]}},
                },
            }
        },
    }
    assert parse_answer('{"claims": [{"ok": true}, {"ok": null}]}', form)
    with pytest.raises(JudgeError, match=r"claims\[1\]\.ok"):
        parse_answer('{"claims": [{"ok": true}, {"ok": "yes"}]}', form)
    with pytest.raises(JudgeError, match=r"lacks claims\[0\]\.ok"):
        parse_answer('{"claims": [{}]}', form)


def test_surrogates_become_replacement_characters() -> None:
    """Texts and names can be encoded afterwards."""
    answer = parse_answer('{"reason": "a\\ud800b \\ud83d\\ude00", "\\udc00": 1, "score": 4}', FORM)
    assert answer["reason"] == "a\ufffdb \U0001f600"
    assert json.dumps(answer, ensure_ascii=False).encode()


def test_errors_do_not_quote_the_answer() -> None:
    """An answer is content: the error describes the problem only."""
    for text in ('{"secretword": 1, "score": "secretword"}', "secretword", '["secretword"]'):
        with pytest.raises(JudgeError) as raised:
            parse_answer(text, FORM)
        assert "secretword" not in str(raised.value)


REPLY = '{"reason": "so", "score": 4}'


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + REPLY,
        '<think>Well, {"score": 1}?</think>' + REPLY,
        "\ufeff<think>\n\n</think>\n\n```json\n" + REPLY + "\n```\n",
        "<thinking>It says: score 1.</thinking>\n" + REPLY,
    ],
)
def test_one_block_of_thinking_and_a_byte_order_mark_are_cut(text: str) -> None:
    """Models that think aloud have their answer behind it."""
    assert parse_answer(text, FORM) == {"reason": "so", "score": 4}


@pytest.mark.parametrize(
    "text",
    [
        "<think>" + REPLY,
        REPLY + "<think>hm</think>",
        "<think>a</think><think>b</think>" + REPLY,
        # What is judged closes the block: what follows is not one object.
        '<think>The answer says </think>{"reason": "", "score": 5} </think>' + REPLY,
        "So: <think>hm</think>" + REPLY,
    ],
)
def test_no_other_thinking_is_cut(text: str) -> None:
    """An open block, a second one, or one that the judged answer closed leaves no score."""
    with pytest.raises(JudgeError) as raised:
        parse_answer(text, FORM)
    assert raised.value.error_type == "malformed_answer"


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't assist with that.",
        "I\u2019m sorry, I can\u2019t.",
        "As an AI language model, I cannot judge this.",
        "<think>hm</think>I am unable to grade it.",
    ],
)
def test_a_refusal_in_words_is_one(text: str) -> None:
    """With how it begins beside the message, since it is content."""
    with pytest.raises(JudgeError) as raised:
        parse_answer(text, FORM)
    assert raised.value.error_type == "refusal"
    assert raised.value.reply_begins == text.removeprefix("<think>hm</think>")


def test_an_answer_in_lines_names_the_form_that_reads_it() -> None:
    with pytest.raises(JudgeError, match='reply_form="lines"'):
        parse_answer("REASON: kind\nSCORE: 7", FORM)


def test_the_beginning_of_what_cannot_be_read_is_kept_without_keys() -> None:
    key = "sk-proj-" + "aB3" * 16
    with pytest.raises(JudgeError) as raised:
        parse_answer(f"Here you are: {key} " + "x" * 1_000, FORM)
    begins = raised.value.reply_begins
    assert begins is not None
    assert begins.startswith("Here you are: [SECRET] xxx")
    assert len(begins) == 200


def test_a_hosted_judge_keeps_how_its_reply_begins() -> None:
    """The error of the client is raised anew, without its request, and what was read stays with it."""
    with ModelServer(["Well, 4 of 5."]) as server, pytest.raises(JudgeError) as raised:
        ask(hosted(OpenAICompatibleJudge, server))
    assert raised.value.error_type == "malformed_answer"
    assert raised.value.reply_begins == "Well, 4 of 5."

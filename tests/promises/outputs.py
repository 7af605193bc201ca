"""What judge models may write instead of an answer, and a plain reader that says what may come of
it.

To the reader all of the text is one JSON object (a fence around it left out), without a name twice,
with what the form asks for, and its score is a number of the scale. Whatever else becomes a score
was invented.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable
from typing import Any, Final

NO_SCORE: Final = object()
"""What `honest` gives where no score may come of a text."""

_SCORES = (
    "4",
    "1",
    "5",
    "0",
    "6",
    "-1",
    "4.0",
    "4.5",
    "1e0",
    "1e999",
    "-1e999",
    "NaN",
    "Infinity",
    "-Infinity",
    "null",
    "true",
    "false",
    '"4"',
    '"8/10"',
    '"4 of 5"',
    '"four"',
    '"\u0664"',
    '"\uff14"',
    '"5"',
    "[4]",
    '{"value": 4}',
    "[]",
    "9" * 400,
    "0.5",
    "0.999999999999999999",
    "1.0000001",
    "-0",
    "-0.0",
    "04",
    "+4",
    "0x4",
    "4_0",
    ".5",
    "5.",
    "1e-400",
    '"pass"',
    '"true"',
    '"yes"',
    '"high"',
    '"HIGH "',
    '"low|high"',
    '""',
    '" "',
    "\u0664",
    "4 / 5",
)
_PARTS = {
    "evidence": (
        ('["a quote"]', "[]", '["\\ud800"]', '["\\"score\\": 5"]'),
        ('"a quote"', "null", "[1]", "{}"),
    ),
    "reason": (
        ('"so it is"', '""', '"a \\"score\\": 5 in it"', '"\u202e5"'),
        ("null", "7", "[]", '{"score": 5}'),
    ),
    "score": (("4", "1", "5", "0", "true", "0.5", '"high"', '"LOW "', "4.0"), _SCORES),
}
_MORE_FIELDS = ('"Score": 5', '"score ": 5', '"final_score": 5', '"x": [1, {"score": 5}]')
_FRAMES = (
    "ANSWER",
    " \nANSWER\n",
    "```json\nANSWER\n```",
    "```python\nANSWER\n```",
    "Here is my verdict:\nANSWER",
    "ANSWER\nI hope that this helps.",
    "```json\nANSWER\n```\nand\n```json\nANSWER\n```",
    "ANSWERANSWER",
    "[ANSWER]",
    '{"answer": ANSWER}',
    "\ufeffANSWER",
    '{"a": ' * 40 + "ANSWER" + "}" * 40,
    "[" * 5_000 + "ANSWER",
)
_CHANGES: tuple[Callable[[str], str], ...] = (
    json.dumps,
    lambda text: text.replace('"', "'"),
    lambda text: text.replace("}", ",}"),
    lambda text: text.replace("{", '{"score": 5, ', 1),
    lambda text: text[:-1] + ', "reason": "again"}',
)
_TEXTS = (
    "",
    " ",
    "\n\n",
    "I cannot help with that.",
    "Score: 5",
    "SCORE: 5\nREASON: good",
    "5",
    "null",
    "true",
    "[]",
    "{}",
    "NaN",
    "4/5",
    "**5**",
    "score=5",
    "yes",
    '{"score"',
    '{"score": ',
    "{'score': 5}",
    "{score: 5}",
    "\ud800",
    "[[5]]",
    '{"error": "overloaded"}',
    '{"evidence": [], "reason": "x"}',
    '{"score": 5}',
    '{"reason": "x", "score": 5}',
    "9" * 9_999,
)


def some_output(dice: random.Random) -> str:
    """One output: an answer with something wrong with it, or with nothing."""
    if dice.random() < 0.1:
        return dice.choice(_TEXTS)
    fields = [
        f'"{name}": {dice.choice(good if dice.random() < 0.8 else bad)}'
        for name, (good, bad) in _PARTS.items()
    ]
    if dice.random() < 0.1:
        fields.pop(dice.randrange(3))
    if dice.random() < 0.2:
        dice.shuffle(fields)
    if dice.random() < 0.1:
        fields.append(dice.choice([*fields, *_MORE_FIELDS]))
    text = "{" + ", ".join(fields) + "}"
    if dice.random() < 0.3:
        text = dice.choice(_FRAMES).replace("ANSWER", text)
    elif dice.random() < 0.15:
        text = dice.choice(_CHANGES)(text)
    if dice.random() < 0.1:
        cut = dice.randrange(len(text) + 1)
        instead = dice.choice(["", "", "}", '"', "\\", "\x1b", "9", "\u2028"])
        text = text[:cut] + instead + text[cut + dice.randrange(3) :]
    return text


def honest(text: str, allowed: Callable[[Any], bool]) -> Any:
    """The score that the text gives, for a form of evidence, reason and score; `NO_SCORE` where it
    gives none.
    """
    text = text.strip().removeprefix("\ufeff").strip()
    if text.startswith("<think>") and "</think>" in text:
        text = text.partition("</think>")[2].strip()
    actual = _whole(text)
    if not isinstance(actual, dict) or not {"evidence", "reason", "score"} <= actual.keys():
        return NO_SCORE
    evidence = actual["evidence"]
    is_quotes = isinstance(evidence, list) and all(isinstance(quote, str) for quote in evidence)
    return (
        actual["score"]
        if is_quotes and isinstance(actual["reason"], str) and allowed(actual["score"])
        else NO_SCORE
    )


def _whole(text: str) -> Any:
    fenced = re.fullmatch(r"```(?:json)?\n(.*)```", text, re.DOTALL)
    if fenced:
        text = fenced[1]

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) < len(pairs):
            raise ValueError("twice")
        return dict(pairs)

    def finite(digits: str) -> float:
        if not math.isfinite(float(digits)):
            raise ValueError("beyond")
        return float(digits)

    try:
        return json.loads(
            text,
            object_pairs_hook=once,
            parse_float=finite,
            parse_int=finite,
            parse_constant=finite,
        )
    except (ValueError, RecursionError):
        return None

"""Text from any object: capped, sanitised, bounded, and never another error than ours."""

from __future__ import annotations

import collections
import enum
import pathlib
import re
import types
from datetime import datetime, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel.capture.detached import take
from agenteval_otel.capture.reasons import CaptureError
from agenteval_otel.capture.text import CAP_CHARS, cap, clean, to_text, without_data_urls
from agenteval_otel.runtime.text import sanitise
from tests.capture.hostile import Broken, BrokenList, BrokenMapping, BrokenText, any_text
from tests.capture.support import read_answer


@settings(deadline=None)
@given(any_text)
def test_sanitised_text_can_be_encoded(text: str) -> None:
    """Whatever comes in, what comes out is valid UTF-8 without NUL; what was valid stays the same
    object.
    """
    result = sanitise(text)
    result.encode("utf-8")
    assert "\0" not in result
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return
    assert result is text if "\0" not in text else result == text.replace("\0", "")


def parts_of(result: str) -> tuple[str, str, int]:
    """Head, tail and how many characters the marker says are left out."""
    actual = re.fullmatch(r"(?s)(.*)\n\[\.\.\. ([0-9]+) characters left out \.\.\.\]\n(.*)", result)
    assert actual is not None
    return actual[1], actual[3], int(actual[2])


@settings(deadline=None)
@given(st.text(max_size=200), st.integers(10, 100))
def test_a_cap_keeps_head_and_tail(text: str, limit: int) -> None:
    """Long text keeps about three quarters of the limit from its head, one quarter from its tail,
    and a true marker.
    """
    result = cap(text, limit)
    if len(text) <= limit:
        assert result is text
        return
    head, tail, left_out = parts_of(result)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) <= limit * 3 // 4
    assert len(head) + len(tail) + left_out == len(text)


@given(st.text(st.sampled_from("a \n[.]1\ud800é")), st.integers(1, 30), st.integers(8, 60))
def test_a_text_is_cut_once(text: str, times: int, limit: int) -> None:
    """A text that was cut and is cleaned again keeps its parts, and the number of what is missing."""
    once = cap(text * times, limit)
    assert cap(once, limit) == once
    assert clean(clean(once, limit), limit) == clean(once, limit)
    assert len(once) <= limit + 48


def test_a_long_answer_says_how_much_of_it_is_missing() -> None:
    """The marker of an answer of 1 MB has the number of the characters that are left out."""
    answer = "word " * 200_000
    text = read_answer(answer).text
    (marker,) = re.findall(r"\n\[\.\.\. (\d+) characters left out \.\.\.\]\n", text)
    assert int(marker) == len(answer) - (
        len(text) - len(f"\n[... {marker} characters left out ...]\n")
    )
    assert int(marker) > 700_000


def test_a_cap_cuts_between_words_where_it_can() -> None:
    """A cut goes to the next space near; text without spaces is cut where the limit says."""
    head, tail, _ = parts_of(cap("customer C-123456 " * 100, 1_000))
    assert head.endswith(("customer", "C-123456"))
    assert tail.startswith(("customer", "C-123456"))
    assert parts_of(cap("x" * 2_000, 1_000)) == ("x" * 750, "x" * 250, 1_000)
    # the cut parts the two halves of a character
    clean("\ud83d\ude80" * 1_000, 101).encode("utf-8")


def text_of(value: Any) -> str:
    """The text of a handler's object, taken from the host first."""
    return to_text(take(value).value)


def test_cycles_are_cut() -> None:
    """A structure that holds itself is cut where it does; what stands twice side by side is no
    cycle.
    """
    cycle: list[Any] = ["a"]
    cycle.append({"again": cycle})
    assert text_of(cycle) == '["a", {"again": "[...]"}]'
    siblings = [{"a": 1}] * 2
    assert text_of(siblings) == '[{"a": 1}, {"a": 1}]'


class Mood(enum.StrEnum):
    GOOD = "good"


class Level(enum.IntEnum):
    LOW = 1


class Shade(enum.Enum):
    DARK = "dark"


class Own(tzinfo):
    def utcoffset(self, moment: Any) -> Any:
        raise RuntimeError("touched")


MOMENT = datetime(2026, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        ("text", "text"),
        (b"caf\xc3\xa9", "caf\u00e9"),
        (b"\xff", "\ufffd"),
        (7, "7"),
        (True, "True"),
        ({"a": "\u00e9"}, '{"a": "\u00e9"}'),
        ([1, None, True], "[1, null, true]"),
        ({"n": 10**40}, '{"n": "[large number]"}'),
        ([float("nan"), float("inf")], "[NaN, Infinity]"),
        ({1: b"x"}, '{"1": "b\'x\'"}'),
        (collections.OrderedDict(a=(1, 2)), '{"a": [1, 2]}'),
        (range(3), "range(0, 3)"),
        (BrokenText("kept"), "kept"),
        (BrokenList("a"), '["a"]'),
        (Mood.GOOD, "good"),
        (Level.LOW, "1"),
        (Shade.DARK, "dark"),
        (
            {Shade.DARK: 1, ("a", 1): 2},
            '{"dark": 1, "(\'a\', 1)": 2}',
        ),
        (pathlib.PurePosixPath("/a/b"), "/a/b"),
        (bytearray(b"ab"), "ab"),
        ([MOMENT, Decimal("1.5"), UUID(int=7)], f'["{MOMENT}", "1.5", "{UUID(int=7)}"]'),
        (MOMENT.replace(tzinfo=Own()), str(MOMENT)),
        (types.SimpleNamespace(text="a"), '{"text": "a"}'),
        ("a\ud800b", "a\ufffdb"),
        ("\ud83d\ude80", "\U0001f680"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_plain_data_is_shown_as_json(value: Any, expected: str) -> None:
    """Strings as they are, plain data as JSON, the rest by `str`; iterators are not consumed."""
    assert text_of(value) == expected


@pytest.mark.parametrize(
    "value",
    [Broken("__str__", ValueError()), BrokenMapping(), 10**5_000],
    ids=lambda value: type(value).__name__,
)
def test_objects_without_a_text_are_a_capture_error(value: Any) -> None:
    """An object that cannot be read is reported by its class and the reason, not by its text."""
    with pytest.raises(CaptureError, match=f"no text from {type(value).__name__}"):
        text_of(value)


PAYLOAD = "iVBORw0KGgo" * 100


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"See ![cat](data:image/png;base64,{PAYLOAD}==) there", "See ![cat]([image]) there"),
        (f"<img src='data:image/svg+xml;charset=utf-8;base64,{PAYLOAD}'>", "<img src='[image]'>"),
        (f"data:audio/wav;base64,{PAYLOAD} data:video/mp4;base64,{PAYLOAD}", "[audio] [video]"),
        (f'{{"file": "data:application/pdf;base64,{PAYLOAD}"}}', '{"file": "[file]"}'),
        (f"cut off: data:image/png;base64,{PAYLOAD}", "cut off: [image]"),
        ("data:image/png;base64,iVBORw0KGgo=", "data:image/png;base64,iVBORw0KGgo="),
        ("data:image/svg+xml;utf8,<svg/>" * 50, "data:image/svg+xml;utf8,<svg/>" * 50),
        (f"data:;base64,{PAYLOAD}", f"data:;base64,{PAYLOAD}"),
        ("data:image/png;base64," * 500, "data:image/png;base64," * 500),
    ],
)
def test_data_urls_are_named_and_not_shown(text: str, expected: str) -> None:
    """What a person sees as a picture is a word; short ones and other URLs stay."""
    assert without_data_urls(text) == clean(text) == to_text(text.encode()) == expected


def test_a_picture_does_not_use_up_the_cap() -> None:
    """Data URLs are left out before a text is cut."""
    picture = f"![cat](data:image/png;base64,{'A' * 2 * CAP_CHARS})"
    assert clean(f"Here: {picture} Enjoy.") == "Here: ![cat]([image]) Enjoy."

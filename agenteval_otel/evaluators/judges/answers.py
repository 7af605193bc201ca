"""A judge's request and its answer: exactly one JSON object.

Other answers are rejected, never guessed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field

from agenteval_otel.capture.redaction import PatternRedactor
from agenteval_otel.components.http_client.replies import encodable
from agenteval_otel.errors import JudgeError
from agenteval_otel.models.judge_calls import JudgeUsage
from agenteval_otel.models.value import Value

MAX_DEPTH: Final = 32
_FENCE: Final = "```"
_THINKING: Final = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_DECLINES: Final = re.compile(
    r"(?i)(?:i'?m sorry|i am sorry|sorry,|i apologi[sz]e|unfortunately, i|"
    r"(?:as an ai[^.]{0,80}, )?i (?:cannot|can'?t|can not|won'?t|am (?:not able|unable)))"
)
_SCORE_LINE: Final = re.compile(r"(?im)^\s*score\s*:\s*[0-9]")
_SHOWN_CHARS: Final = 200
_KEYWORDS: Final = frozenset(
    {
        "type",
        "properties",
        "required",
        "items",
        "enum",
        "const",
        "anyOf",
        "title",
        "description",
        "$defs",
        "$ref",
    }
)
_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "number": (int, float),
    "integer": (int,),
}


class JudgeRequest(Value):
    """Holds a question to a judge.

    Attributes:
        system: The instruction, which is trusted text.
        prompt: The question, rendered. Untrusted text is in it as JSON data behind a random
            delimiter already.
        answer_form: JSON Schema of the answer, an object's.
        max_tokens: Most tokens of the answer. A model's thinking counts.
        purpose: Names of the criteria, for metrics. They are few different words.
        fixed_chars: How many characters at the beginning of the prompt are the same in the
            questions about every case, for providers that keep them.
        fingerprint: Hexadecimal digits of the rubric and of what is judged, without the delimiter,
            for caches.
    """

    system: str = ""
    prompt: str
    answer_form: dict[str, Any] = Field(default_factory=lambda: {"type": "object"})
    max_tokens: int = Field(default=1024, ge=1)
    purpose: str = ""
    fixed_chars: int = Field(default=0, ge=0)
    fingerprint: str = ""


class Verdict(Value):
    """Holds a judge's answer.

    Attributes:
        answer: The JSON object that the judge answered with. Its fields are not checked yet.
        raw: The answer's text as it came. It is content.
        usage: What it has used.
        model: The model that answered, as the provider names it.
        response_id: The provider's id of the answer.
        duration_s: From the question to the answer, retries and waits between them included.
        cost_usd: Its price in US dollars, or None if that is unknown.
        system_fingerprint: The provider's word for the configuration that answered, if it has one.
        from_cache: It comes from the cache, and nothing was used.
        probability: With what probability the budget let the call be made, above 0 to 1. It is 1 if
            nothing limits the call.
    """

    answer: dict[str, Any]
    raw: str = ""
    usage: JudgeUsage = JudgeUsage()
    model: str = ""
    response_id: str | None = None
    system_fingerprint: str | None = None
    duration_s: float = 0.0
    cost_usd: float | None = None
    from_cache: bool = False
    probability: float = Field(default=1.0, gt=0.0, le=1.0)


def parse_answer(text: str, form: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the one JSON object that the text is.

    Takes linear time. A byte order mark, one block of thinking at the beginning, and a fence around
    the rest are cut off. Whole numbers stay `int`, and other numbers are `float`. Characters
    without an encoding (half a surrogate pair) become the replacement character.

    Args:
        text: The model's text.
        form: JSON Schema of the answer. Its ``type`` and ``required`` are checked at every level,
            and values are not. If it consists of several objects, one is enough and none is
            checked, so only a wrong one is lost.

    Raises:
        JudgeError: ``empty_answer`` if nothing but space is left. ``refusal`` for words that
            decline. ``malformed_answer`` for anything else that is not one object: prose before or
            behind it, a second one, a name twice, NaN or a number beyond the range of floats, more
            than 32 levels, wrong types.
    """
    stripped = without_thinking(text)
    if not stripped:
        raise _unreadable("the judge's answer is empty", "empty_answer")
    try:
        document = json.loads(_unfenced(stripped), object_pairs_hook=_object)
    except RecursionError:
        raise _malformed("is nested too deeply") from None
    except ValueError:
        raise _not_json(stripped) from None
    if type(document) is not dict:
        raise _malformed(f"is {type(document).__name__} instead of an object")
    answer: dict[str, Any] = _cleaned(document, MAX_DEPTH)
    properties = (form or {}).get("properties") or {}
    if len(properties) > 1 and all(inner.get("type") == "object" for inner in properties.values()):
        if not any(isinstance(answer.get(name), dict) for name in properties):
            raise _malformed("has none of the objects of its form")
    elif form is not None:
        _check(answer, form)
    return answer


def without_thinking(text: str) -> str:
    """Return a model's text without byte order mark, one leading block of thinking and outer space.

    Only a block that is closed is cut. What it holds is never read: words of the judged answer may
    be in it.
    """
    stripped = text.strip().removeprefix("\ufeff").lstrip()
    block = _THINKING.match(stripped)
    return stripped if block is None else stripped[block.end() :].strip()


def _not_json(text: str) -> JudgeError:
    """Return the failure of an answer in words: a refusal, or one that cannot be read."""
    if _DECLINES.match(text.replace("\u2019", "'")):
        failure = JudgeError("the judge refused to answer in words", error_type="refusal")
    elif _SCORE_LINE.search(text):
        failure = _malformed(
            'has lines such as "SCORE: 7" instead of JSON: reply_form="lines" reads them'
        )
    else:
        failure = _malformed("is not one JSON value and nothing else")
    redacted = PatternRedactor().redact(text[: 2 * _SHOWN_CHARS])
    failure.reply_begins = redacted[:_SHOWN_CHARS]
    return failure


def _check(answer: object, form: dict[str, Any], path: str = "") -> None:
    """Check the types and required names of a JSON Schema."""
    wanted = form.get("type")
    kinds = (wanted,) if isinstance(wanted, str) else tuple(wanted or ())
    if kinds and not any(_is_kind(answer, kind) for kind in kinds):
        expected = " or ".join(map(str, kinds))
        raise _malformed(f"has {type(answer).__name__} at {path or 'its top'}, expected {expected}")
    if isinstance(answer, dict):
        prefix = f"{path}." if path else ""
        for name in form.get("required", ()):
            if name not in answer:
                raise _malformed(f"lacks {prefix}{name}")
        for name, inner in form.get("properties", {}).items():
            if name in answer:
                _check(answer[name], inner, f"{prefix}{name}")
    items = form.get("items")
    if isinstance(answer, list) and isinstance(items, dict):
        for index, item in enumerate(answer):
            _check(item, items, f"{path}[{index}]")


def _is_kind(value: object, kind: str) -> bool:
    # By the very type: to Python, true is a number.
    if kind == "integer" and type(value) is float:
        return value.is_integer()
    return kind not in _KINDS or type(value) in _KINDS[kind]


def _unfenced(text: str) -> str:
    """Return the content of the fence if the whole text is one, else the text.

    A second fence inside fails as JSON.
    """
    is_fenced = text.startswith(_FENCE) and text.endswith(_FENCE) and len(text) > 2 * len(_FENCE)
    if not is_fenced:
        return text
    info, line_end, inner = text[len(_FENCE) : -len(_FENCE)].partition("\n")
    return inner if line_end and info.strip().lower() in ("", "json") else text


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _malformed("repeats a name")
    return fields


def _cleaned(value: object, depth: int) -> Any:
    if isinstance(value, str):
        return encodable(value)
    # NaN is not below the largest float, so it is refused too.
    if isinstance(value, int | float) and not abs(value) <= sys.float_info.max:
        raise _malformed("holds NaN, Infinity or a number beyond the range of floats")
    if not isinstance(value, dict | list):
        return value
    if depth == 0:
        raise _malformed("is nested too deeply")
    if isinstance(value, list):
        return [_cleaned(item, depth - 1) for item in value]
    return {encodable(name): _cleaned(item, depth - 1) for name, item in value.items()}


def _malformed(what: str) -> JudgeError:
    return _unreadable(f"the judge's answer {what}", "malformed_answer")


def _unreadable(message: str, error_type: str) -> JudgeError:
    failure = JudgeError(message, error_type=error_type)
    failure.is_unreadable = True
    return failure


def constrained_form(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema as constrained decoding takes it.

    Objects are closed, and limits of any kind are left out.
    """
    fields: dict[str, Any] = {}
    for name, value in form.items():
        if name in ("properties", "$defs") and isinstance(value, Mapping):
            fields[name] = {key: constrained_form(inner) for key, inner in value.items()}
        elif name == "items" and isinstance(value, Mapping):
            fields[name] = constrained_form(value)
        elif name == "anyOf":
            fields[name] = [constrained_form(inner) for inner in value]
        elif name in _KEYWORDS:
            fields[name] = value
    if fields.get("type") == "object":
        fields["additionalProperties"] = False
    return fields


def with_form(system: str, form: Mapping[str, Any]) -> str:
    """Return the instruction with the form described at its end.

    It is for providers that cannot constrain the answer.
    """
    schema = json.dumps(form, ensure_ascii=False)
    request = f"Answer with one JSON object and nothing else. Its JSON Schema: {schema}"
    return f"{system}\n\n{request}" if system else request

"""JSON Schema: what is wrong with a value, from schemas that cannot reach out and values that may
be anything.
"""

from __future__ import annotations

import math
import socket
import sys
from typing import Any

import pytest

from agenteval_otel.errors import ConfigurationError, EvaluationError
from agenteval_otel.evaluators.json_schema import compiled

PERSON: dict[str, Any] = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "age": {"type": "integer", "minimum": 0},
    },
    "additionalProperties": False,
}


def test_problems_name_places_and_no_values() -> None:
    """Each problem says where and what the schema asks for; what stands there is not told."""
    problems = compiled(PERSON)({"name": "secret words", "age": -273})
    assert problems == [
        "/name: the value is longer than 5 characters",
        "/age: the value is less than the minimum of 0",
    ]
    assert compiled(PERSON)({}) == ['"name" is a required property']


def test_problems_are_few_and_short() -> None:
    """A value with many problems gives eight; none is long."""
    texts = compiled({"items": {"type": "string"}})
    assert len(texts(list(range(100)))) == 8
    (problem,) = compiled(PERSON)(
        {"name": "Ada", **{f"unknown {number}": 1 for number in range(500)}}
    )
    assert len(problem) == 200


def test_the_draft_is_the_one_that_the_schema_names() -> None:
    """Without ``$schema`` it is draft 2020-12; an older one is understood by its name."""
    assert compiled({"prefixItems": [{"type": "string"}]})([1])
    old = {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]}
    assert compiled(old)([1])
    with pytest.raises(ConfigurationError):
        compiled({"items": [{"type": "string"}]})


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ([1], "expected a JSON Schema .*found list"),
        ("{}", "found str"),
        ({"type": "strin"}, "not a JSON Schema: /type"),
        (
            {"properties": {"a": {"required": "a"}}},
            "/properties/a/required: the value is not of type",
        ),
        ({"pattern": "("}, "linear time"),
        ({"pattern": "(?=a)b"}, "no look-around"),
        ({"pattern": r"(a)\1"}, "no references to groups"),
        ({"pattern": "(a{1000}){1000}"}, "linear time"),
        ({"$ref": "#/$defs/none"}, "does not exist"),
        ({"$ref": "file:///etc/hostname"}, "Retrieval is disabled"),
        ({"$ref": "other.json"}, "not a JSON Schema"),
        ({"multipleOf": 0}, "/multipleOf"),
        ({"const": "\ud800"}, "not a JSON Schema"),
    ],
)
def test_a_wrong_schema_is_refused(definition: Any, message: str) -> None:
    """A schema that is none, or leads outside, is refused when it is compiled."""
    with pytest.raises(ConfigurationError, match=message):
        compiled(definition)


@pytest.mark.parametrize("word", ["$ref", "$schema", "$dynamicRef", "$id"])
def test_nothing_is_fetched(word: str) -> None:
    """An address in a schema is asked for nothing, whatever keyword it stands under."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        definition = {word: address} | ({"$ref": "other.json"} if word == "$id" else {})
        with pytest.raises(ConfigurationError):
            compiled(definition)
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def circle() -> Any:
    value: list[Any] = []
    value += [value, value]
    return value


@pytest.mark.parametrize(
    ("value", "error_type"),
    [
        (nested(300), "too_deep"),
        (nested(100_000), "too_deep"),
        (circle(), "too_large"),
        ([object()], "invalid_value"),
        ({"a": {1, 2}}, "invalid_value"),
    ],
    ids=["deep", "deeper", "circle", "object", "set"],
)
def test_what_cannot_be_followed_is_an_error(value: Any, error_type: str) -> None:
    """Nesting beyond what the library looks at, and what is no JSON, get no verdict."""
    with pytest.raises(EvaluationError) as caught:
        compiled({"not": {"items": {"$ref": "#"}}})(value)
    assert caught.value.error_type == error_type


def test_a_pattern_that_is_slow_elsewhere_is_not_here() -> None:
    """Nested repetition over a long text is decided at once: it would not end within the test's
    time otherwise.
    """
    assert compiled({"pattern": "^(a+)+$"})("a" * 1_000_000 + "!")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library the error says what to install."""
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(ConfigurationError, match=r'pip install "agenteval-otel\[jsonschema\]"'):
        compiled({})


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("definition", [{}, {"type": "number"}, {"maximum": 0, "items": {}}])
def test_a_number_that_is_none_has_no_verdict(definition: dict[str, Any], number: float) -> None:
    """NaN and infinities, which JSON does not have, are neither valid nor invalid, wherever they
    stand.
    """
    for value in (number, [1, {"a": number}]):
        with pytest.raises(EvaluationError) as caught:
            compiled(definition)(value)
        assert caught.value.error_type == "invalid_value"

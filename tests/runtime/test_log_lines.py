"""Every event that is logged has a sentence, and `explain` knows it. The events are read from the code."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from agenteval_otel.runtime.log import LogLine, in_words, log_lines
from tests.cli.conftest import CommandLine, cli
from tests.sources import PACKAGE, package_sources

__all__ = ["cli"]
DOCS = Path(__file__).resolve().parents[2] / "docs"
_FACT = re.compile(r"\{(\w+)\}")


class Logged(NamedTuple):
    """A place that logs: its event, None where that is a variable, and the facts that it states."""

    place: str
    event: str | None
    facts: frozenset[str]
    has_others: bool


_LOOKED_AT = ast.Assign, ast.Call, ast.Constant, ast.FunctionDef


@functools.cache
def _nodes() -> list[tuple[str, ast.AST]]:
    """What may log, or name an event, in each module of the package."""
    nodes: list[tuple[str, ast.AST]] = []
    for source in package_sources():
        place = source.path.relative_to(PACKAGE).as_posix()
        nodes.extend((place, node) for node in source.nodes_of(*_LOOKED_AT))
    return nodes


def _is_log(call: ast.Call) -> bool:
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and function.attr == "warning"
        and isinstance(function.value, ast.Name)
        and function.value.id == "log"
    )


def _logged() -> list[Logged]:
    """Every call of `log.warning` in the package."""
    found = []
    for place, node in _nodes():
        if isinstance(node, ast.Call) and _is_log(node):
            [event] = node.args
            is_literal = isinstance(event, ast.Constant)
            named = frozenset(item.arg for item in node.keywords if item.arg is not None)
            found.append(
                Logged(
                    f"{place}:{node.lineno}",
                    event.value if is_literal else None,
                    named,
                    any(item.arg is None for item in node.keywords),
                )
            )
    return found


def _literals(node: ast.expr) -> Iterator[str]:
    """The texts that an expression may be: a literal, or one of two."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _literals(node.body)
        yield from _literals(node.orelse)


def _given_by_name() -> set[str]:
    """The events of variables: what is assigned to, or passed as, `event`; and those in a plain text."""
    events: set[str] = set()
    takes_event = {
        node.name
        for _, node in _nodes()
        if isinstance(node, ast.FunctionDef)
        if [argument.arg for argument in node.args.args[:2]] == ["self", "event"]
        if node.name != "warning"
    }
    for _, node in _nodes():
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "event" for target in node.targets
        ):
            events.update(_literals(node.value))
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg == "event":
                    events.update(_literals(keyword.value))
            function = node.func
            if isinstance(function, ast.Attribute) and function.attr in takes_event:
                events.update(*(_literals(argument) for argument in node.args[:1]))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            events.update(re.findall(r"\[event='(\w+)'", node.value))
    return {event for event in events if re.fullmatch(r"[a-z]+(_[a-z]+)+", event)}


def test_every_logged_event_has_a_sentence_and_each_sentence_an_event() -> None:
    """An event without a sentence is a riddle, and a sentence without an event is never said."""
    events = {item.event for item in _logged() if item.event is not None} | _given_by_name()
    assert len(events) > 50
    assert events == log_lines().keys()


def test_an_event_is_a_literal_or_a_variable_of_that_name() -> None:
    """So that the events can be read from the code."""
    for place, node in _nodes():
        if isinstance(node, ast.Call) and _is_log(node) and place != "runtime/log.py":
            [event] = node.args
            shown = ast.unparse(event)
            is_literal = isinstance(event, ast.Constant)
            assert is_literal or shown in ("event", "self._event"), f"{place}: {shown}"


@pytest.mark.parametrize("event", sorted(log_lines()))
def test_explain_knows_every_event(event: str, cli: CommandLine) -> None:
    """In a sentence or more, with what to do and a page that exists."""
    line = log_lines()[event]
    cli("explain", event)
    assert cli.out.startswith(event)
    assert "To do" in cli.out
    assert len(cli.out.split()) > 10
    assert line.remedies
    assert all(remedy.endswith(".") for remedy in line.remedies)
    assert (DOCS / line.page).is_file()


def test_a_sentence_has_the_facts_that_it_names() -> None:
    """What stands in no brackets is stated by every place that logs the event."""
    for item in _logged():
        if item.event is None:
            continue
        line = log_lines()[item.event]
        needed = set(_FACT.findall(re.sub(r"\[[^\]]*\]", "", line.says)))
        assert needed <= item.facts, item.place
        if not item.has_others:
            sentence, _ = in_words(line, dict.fromkeys(item.facts, 1))
            assert _FACT.sub("", sentence), item.place


def test_what_comes_from_outside_cannot_steer_a_terminal() -> None:
    """Names and texts stay in one line, without control characters, and are no templates."""
    line = LogLine("{part} failed[: {problem}][, {missing}]", "it failed", "storage.md", ())
    facts = {"part": "\x1b[31m{problem}", "problem": "two\r\nlines", "value": 0.123456}
    assert in_words(line, facts) == ("?[31m{problem} failed: two lines", {"problem"})


def test_an_unknown_word_is_answered_in_a_line(cli: CommandLine) -> None:
    """With the nearest words, and without all others; a long word is cut."""
    cli("explain", "no_telemtry", code=2)
    assert "did you mean 'no_telemetry'" in cli.err
    assert len(cli.err) < 200
    cli("explain", "x" * 10_000, code=2)
    assert len(cli.err) < 200

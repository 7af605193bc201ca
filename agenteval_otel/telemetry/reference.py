"""Reference: every attribute and kind of span, by carrier. `docs/telemetry.md` is generated from it."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Final, NamedTuple


class Attribute(NamedTuple):
    """An attribute, what it means, and when each carrier has it; empty where it never does.

    Attributes:
        event: On the event of a result, and on its span, which has the same attributes.
        evaluated_span: On the span of the answer; ``agent span`` where only the one that we start has it.
        extension: A name under ``gen_ai.`` that the conventions do not define.
        crossing: On the event about an objective.
    """

    name: str
    kind: str
    description: str
    event: str = ""
    run_span: str = ""
    evaluated_span: str = ""
    extension: bool = False
    crossing: str = ""


class SpanShape(NamedTuple):
    """A kind of span: its name's pattern, its parent, and when it is written."""

    name: str
    parent: str
    when: str


_TABLES: Final = tomllib.loads(files(__package__).joinpath("reference.toml").read_text(encoding="utf-8"))
ATTRIBUTES: Final = tuple(Attribute(**entry) for entry in _TABLES["attributes"])
SPANS: Final = tuple(SpanShape(**entry) for entry in _TABLES["spans"])

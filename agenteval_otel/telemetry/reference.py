"""Reference: attributes and spans by carrier, and what each outcome, failure and error type means and what to do.

The texts are in TOML. `docs/telemetry.md` and `docs/troubleshooting.md` are generated from them, and `agenteval-otel
explain` prints them; no module that runs in the host imports this one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Final, NamedTuple

from agenteval_otel import semconv as names


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


class Explanation(NamedTuple):
    """The meaning of one word of the accounting; the fields are described in explanations.toml."""

    means: str
    causes: Sequence[str]
    remedies: Sequence[str]
    harmless: bool = False


def _tables(file: str) -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath(file).read_text(encoding="utf-8"))


_TABLES: Final = _tables("reference.toml")
ATTRIBUTES: Final = tuple(Attribute(**entry) for entry in _TABLES["attributes"])
SPANS: Final = tuple(SpanShape(**entry) for entry in _TABLES["spans"])

_TEXTS: Final = _tables("explanations.toml")
NO_CALLS: Final = Explanation(**_TEXTS["no_calls"])
OUTCOMES: Final = {name: Explanation(**entry) for name, entry in _TEXTS["outcomes"].items()}
FAILURES: Final = {part: Explanation(**entry) for part, entry in _TEXTS["failures"].items()}
"""By the part that broke, as `Accounting.failures` counts it; ``<...>`` stands for what differs."""
ERROR_TYPES: Final = {name: Explanation(**entry) for name, entry in _TEXTS["errors"].items()}
"""By `error.type` of a failed result; other values are evaluators' own, or classes of exceptions."""
LOST_REASONS: Final[dict[str, str]] = _TEXTS["lost_reasons"]
"""By `agenteval.export.reason`: why something did not reach the backend."""


def explanation_of_failure(part: str) -> Explanation | None:
    """The explanation of a part as it was counted, such as ``storage:json_file``; None for an unknown one."""
    by_kind = {known.partition(":")[0]: explanation for known, explanation in reversed(FAILURES.items())}
    return FAILURES.get(part) or by_kind.get(part.partition(":")[0])


def explanation_of_error(error_type: str) -> Explanation:
    """The explanation of an `error.type`; for an unknown value, that it names the exception."""
    other = Explanation(**_TEXTS["other_error" if error_type == names.OTHER else "unknown_error"])
    means = other.means.format(error_type=error_type, limit=names.MAX_ERROR_TYPES)
    return ERROR_TYPES.get(error_type) or other._replace(means=means)

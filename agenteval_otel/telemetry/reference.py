"""Reference: what each outcome, failure and error type means and what to do.

`agenteval-otel explain` prints the texts of explanations.toml. The pages outcomes.md, failures.md
and error-types.md of `docs/reference/` are generated from them. No module that runs in the host
imports this one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from importlib.resources import files
from typing import Final, NamedTuple

from agenteval_otel import semconv as names
from agenteval_otel.runtime.log import LogLine, log_lines


class Explanation(NamedTuple):
    """Explains one word of the accounting. The fields are described in explanations.toml."""

    means: str
    causes: Sequence[str]
    remedies: Sequence[str]
    harmless: bool = False


_TEXTS: Final = tomllib.loads(
    files(__package__).joinpath("explanations.toml").read_text(encoding="utf-8")
)
NO_CALLS: Final = Explanation(**_TEXTS["no_calls"])
NOT_UNDERSTOOD: Final = Explanation(**_TEXTS["not_understood"])
OUTCOMES: Final = {name: Explanation(**entry) for name, entry in _TEXTS["outcomes"].items()}
FAILURES: Final = {part: Explanation(**entry) for part, entry in _TEXTS["failures"].items()}
"""By the part that broke, as `Accounting.failures` counts it. ``<...>`` stands for what differs."""
ERROR_TYPES: Final = {name: Explanation(**entry) for name, entry in _TEXTS["errors"].items()}
"""By `error.type` of a failed result. Other values are evaluators' own, or classes of exceptions.
"""
LOG_LINES: Final = log_lines()
"""By the event of a log line, the word after ``event=``."""
LOST_REASONS: Final[dict[str, str]] = _TEXTS["lost_reasons"]
"""By `agenteval.export.reason`: why something did not reach the backend."""


def sentence_of_log_line(line: LogLine) -> str:
    """Return the sentence of an event with all of its parts, and ``<fact>`` for what differs."""
    without_brackets = re.sub(r"[\[\]]", "", line.says)  # around optional parts
    return re.sub(r"\{(\w+)\}", r"<\1>", without_brackets)


def explanation_of_log_line(line: LogLine) -> Explanation:
    """Return what the line of an event means, with ``<fact>`` for what differs."""
    means = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", line.means)  # without addresses of pages
    begun = means[0].upper() + means[1:]
    says = f"The log line says: {sentence_of_log_line(line)}. See docs/{line.page}"
    return Explanation(f"{begun}. {says}", (), line.remedies)


def explanation_of_failure(part: str) -> Explanation | None:
    """Return the explanation of a part as it was counted, such as ``storage:json_file``.

    None for an unknown part.
    """
    # Reversed, so that of several parts of one kind the first one explains the kind.
    by_kind = {
        known.partition(":")[0]: explanation for known, explanation in reversed(FAILURES.items())
    }
    return FAILURES.get(part) or by_kind.get(part.partition(":")[0])


def explanation_of_error(error_type: str) -> Explanation:
    """Return the explanation of an `error.type`.

    For an unknown value it says that the value names the exception.
    """
    other = Explanation(**_TEXTS["other_error" if error_type == names.OTHER else "unknown_error"])
    means = other.means.format(error_type=error_type, limit=names.MAX_ERROR_TYPES)
    return ERROR_TYPES.get(error_type) or other._replace(means=means)

"""What can go wrong in the code is told in docs/troubleshooting.md."""

from __future__ import annotations

import re

from agenteval_otel.instrumentation.scope import SCOPE
from agenteval_otel.telemetry.reference import FAILURES, explanation_of_failure
from tests.docs.generator import DOCS

SOURCES = [path.read_text() for path in sorted((DOCS.parent / "agenteval_otel").rglob("*.py"))]
TEXT = (DOCS / "troubleshooting.md").read_text()


def names_like(pattern: str) -> set[str]:
    return {name for source in SOURCES for name in re.findall(pattern, source)}


def test_every_log_line_of_ours_is_told() -> None:
    """Each event that the package logs has its line in the table."""
    events = names_like(r"log\.warning\(\s*\"(\w+)\"")
    assert {"part_failed", "no_telemetry"} <= events
    assert {event for event in events if f"`{event}`" not in TEXT} == set()


def test_every_part_that_is_counted_is_explained() -> None:
    """Each part that the package counts as broken is explained, and nothing is explained that is never counted."""
    parts = names_like(r"(?:\bbroken|\bfail|_broken)\(f?\"(\w+)") | {SCOPE}
    assert {"sampler", "capture", "storage"} <= parts
    assert {part for part in parts if explanation_of_failure(part) is None} == set()
    assert {part.partition(":")[0] for part in FAILURES} == parts

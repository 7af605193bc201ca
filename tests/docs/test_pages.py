"""docs/escalation.md and the pages of docs/reference name everything that there is."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from agenteval_otel.config import load_settings
from agenteval_otel.instrumentation.scope import SCOPE
from agenteval_otel.sampling import Escalation, RuleSampler, Sampler
from agenteval_otel.telemetry.reference import FAILURES, explanation_of_failure
from tests.docs.generator import DOCS
from tests.test_documents import run_block

PAGE = (DOCS / "escalation.md").read_text()
LOG_LINES = (DOCS / "reference/log-lines.md").read_text()
SOURCES = [path.read_text() for path in sorted((DOCS.parent / "agenteval_otel").rglob("*.py"))]


def test_the_settings_of_escalation_load_as_they_stand(tmp_path: Path) -> None:
    """The file that a reader copies is right, and its rules are what the page says."""
    (block,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    file = tmp_path / "settings.yaml"
    file.write_text(block)
    escalation = load_settings(str(file)).settings.escalation
    assert escalation is not None
    assert [rule.type for rule in escalation.rules] == [
        item["type"] for item in yaml.safe_load(block)["escalation"]["rules"]
    ]


def test_every_rule_and_every_field_is_named() -> None:
    """The tables know all rules of the package and all fields of an escalation."""
    tables = "\n".join(line for line in PAGE.splitlines() if line.startswith("|"))
    rules = {
        name
        for name, item in Sampler.registry.items()
        if issubclass(item, RuleSampler) and item.__module__.startswith("agenteval_otel.")
    }
    assert {
        name for name in {*rules, *Escalation.model_fields} if f"`{name}`" not in tables
    } == set()


def names_like(pattern: str) -> set[str]:
    return {name for source in SOURCES for name in re.findall(pattern, source)}


def test_every_log_line_of_ours_is_told() -> None:
    """Each event that the package logs has its line in the table."""
    events = names_like(r"log\.warning\(\s*\"(\w+)\"")
    assert {"part_failed", "no_telemetry"} <= events
    assert {event for event in events if f"### `{event}`\n" not in LOG_LINES} == set()


def test_every_part_that_is_counted_is_explained() -> None:
    """Each part that the package counts as broken is explained, and nothing is explained that is
    never counted.
    """
    parts = names_like(r"(?:\bbroken|\bfail|_broken)\(\s*f?\"(\w+)") | {SCOPE}
    assert {"sampler", "capture", "storage"} <= parts
    assert {part for part in parts if explanation_of_failure(part) is None} == set()
    assert {part.partition(":")[0] for part in FAILURES} == parts


def test_the_example_of_telemetry_prints_what_stands_below_it(tmp_path: Path) -> None:
    """But for the time of the answer and the evaluator's version."""
    text = (DOCS / "telemetry.md").read_text()
    program, printed = (
        re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[0]
        for language in ("python", "text")
    )
    differs = re.compile(r"(\.ended_at|\.evaluator\.version) = \S+")
    assert differs.sub(r"\1", run_block(program, tmp_path)) == differs.sub(r"\1", printed)


def words_of(page: Path) -> int:
    """How many words a reader reads, without code, generated tables and the bars of tables."""
    text = page.read_text()
    text = re.sub(r"<!-- generated: \w+ -->.*?<!-- end of generated -->", "", text, flags=re.DOTALL)
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return len([word for word in text.split() if re.search(r"\w", word)])


def test_no_page_is_too_long_to_be_read_at_once() -> None:
    """A page of prose has at most 1,500 words: what has more answers two questions."""
    written_whole = ("settings", "rubrics")
    pages = [path for path in DOCS.rglob("*.md") if path.parent.name not in written_whole]
    lengths = {str(page.relative_to(DOCS)): words_of(page) for page in pages}
    assert {name: words for name, words in lengths.items() if words > 1_500} == {}

"""Write the measured part of reliability.md: ``python docs/promises.py``; with ``--check`` only say
what is missing.

The rows come from the table of promises in `tests/promises/table.py`, the figures from the last run
of their tests (``AGENTEVAL_FIGURES``, else ``build/figures``). Everything outside of the markers is
written by hand. The check compares promises, tests and document with one another; figures differ
from run to run and are not compared.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.promises.figures import Entry, read_all  # noqa: E402
from tests.promises.table import GROUPS, NOT_BUILT, PROMISES, Promise, code_of  # noqa: E402

DOCUMENT = ROOT / "docs" / "reliability.md"
TESTS = ROOT / "tests" / "promises"
NOTHING = "not measured"
_PART = re.compile(r"(<!-- measured: promises -->\n).*?(<!-- end of measured -->)", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?")
_ROW = re.compile(r"^\| ([A-D]\d+) \|(.*)\|$", re.MULTILINE)
_SHOWN = 8
_HOLE = "\N{REPLACEMENT CHARACTER}"


def measured(entries: Sequence[Entry]) -> str:
    """The document's measured part."""
    sections = [_about(entries)]
    for letter, title in GROUPS.items():
        rows = [_row(promise, entries) for promise in PROMISES if promise.code.startswith(letter)]
        heads = (
            "| | promise | what is done to it | measured | form | line |\n|---|---|---|---|---|---|"
        )
        sections.append(f"### {letter}. {title}\n\n{heads}\n" + "\n".join(rows))
    return "\n\n".join(sections)


def _about(entries: Sequence[Entry]) -> str:
    if not entries:
        return "No figures yet."
    days = sorted({entry.date[:10] for entry in entries})
    pythons = ", ".join(sorted({entry.python for entry in entries}))
    cores = max(entry.cores for entry in entries)
    failed = sorted({entry.test for entry in entries if entry.outcome == "failed"})
    said = f"{len(failed)} failed: {', '.join(failed)}" if failed else "none failed"
    return (
        f"Last run: {days[0]}{f' to {days[-1]}' if len(days) > 1 else ''}, Python {pythons}, {cores} cores; "
        f"{len(entries)} tests, {said}."
    )


def _row(promise: Promise, entries: Sequence[Entry]) -> str:
    own = [entry for entry in entries if entry.code == promise.code and entry.outcome != "skipped"]
    figures, forms = [], []
    for form in ("full", "short"):
        found = merged(figure for entry in own if entry.form == form for figure in entry.figures)
        # A figure of the long form says all that the short one's would.
        fresh = [figure for figure in found if _words(figure) not in map(_words, figures)]
        if fresh:
            figures += fresh
            forms.append(form)
    if len(figures) > _SHOWN:
        figures[_SHOWN:] = [f"and {len(figures) - _SHOWN} more"]
    if any(entry.outcome == "failed" for entry in own):
        figures.insert(0, "**FAILED**")
    cells = (
        promise.code,
        promise.says,
        promise.fault,
        "; ".join(figures) or NOTHING,
        ", ".join(forms) or "-",
        promise.passes,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _words(figure: str) -> str:
    return _NUMBER.sub(_HOLE, figure)


def merged(figures: Iterable[str]) -> list[str]:
    """Figures that differ in their numbers alone as one, with the ranges of these."""
    by_words: dict[str, list[list[str]]] = {}
    for figure in figures:
        by_words.setdefault(_words(figure), []).append(_NUMBER.findall(figure))
    found = []
    for words, several in by_words.items():
        ranges = iter([_range(column) for column in zip(*several, strict=True)])
        found.append(re.sub(_HOLE, lambda _, ranges=ranges: next(ranges), words))  # type: ignore[misc]
    return found


def _range(column: Sequence[str]) -> str:
    least, most = min(column, key=float), max(column, key=float)
    return least if float(least) == float(most) else f"{least}-{most}"


def problems(text: str) -> list[str]:
    """What does not agree among the table, the tests and the document."""
    found = []
    codes = [promise.code for promise in PROMISES]
    tested = {code for file in TESTS.glob("test_*.py") if (code := code_of(file)) is not None}
    rows = dict(_ROW.findall(text))
    unbuilt = {code for some in NOT_BUILT.values() for code in some}
    found += [
        f"{code}: no test file tests/promises/test_{code.lower()}_*.py"
        for code in codes
        if code not in tested
    ]
    found += [
        f"{code}: tested, and not in tests/promises/table.py"
        for code in sorted(tested - set(codes))
    ]
    found += [
        f"{code}: built, and listed as not built" for code in sorted(unbuilt & {*codes, *tested})
    ]
    found += [
        f"{code}: not named among what is not built"
        for code in sorted(unbuilt)
        if not _names(text, code)
    ]
    if list(rows) != codes:
        found.append(f"{DOCUMENT.name} lists {', '.join(rows)}; the table {', '.join(codes)}")
    for promise in PROMISES:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", rows.get(promise.code, "|||||"))]
        said = [cell.replace("\\|", "|") for cell in (*cells[:2], cells[4])]
        if said != [promise.says, promise.fault, promise.passes]:
            found.append(
                f"{promise.code}: {DOCUMENT.name} says something else than tests/promises/table.py"
            )
        elif cells[2].replace("**FAILED**", "").strip() in ("", NOTHING):
            found.append(f"{promise.code}: no figure")
        elif "**FAILED**" in cells[2]:
            found.append(f"{promise.code}: failed in the run that the document tells of")
    return found


def _names(text: str, code: str) -> bool:
    return re.search(rf"\b{code}\b", _PART.sub("", text)) is not None


def generated(text: str) -> str:
    """The document with its measured part made anew."""
    return _PART.sub(lambda match: f"{match[1]}\n{measured(read_all())}\n\n{match[2]}", text)


def main(arguments: list[str]) -> int:
    """Write, or check; 1 when something is missing or disagrees."""
    text = DOCUMENT.read_text(encoding="utf-8")
    if "--check" not in arguments:
        text = generated(text)
        DOCUMENT.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{DOCUMENT.name} written\n")
    found = problems(text)
    for problem in found:
        sys.stderr.write(f"{problem}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

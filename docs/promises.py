"""Write the tables of promises.md: ``python docs/promises.py``; with ``--check`` only say what is
missing.

The rows come from the table of promises in `tests/promises/table.py`, the figures from the last run
of their tests (``AGENTEVAL_FIGURES``, else ``build/figures``). `docs/promises.toml` chooses which
figures are shown. Everything outside of the markers is written by hand. The check compares
promises, tests and document with one another. It does not compare figures: they differ from run to
run.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.promises.figures import Entry, read_all  # noqa: E402
from tests.promises.table import GROUPS, NOT_BUILT, PROMISES, Promise, code_of  # noqa: E402

DOCUMENT = ROOT / "docs" / "promises.md"
TESTS = ROOT / "tests" / "promises"
SHOWN: dict[str, list[str]] = tomllib.loads((ROOT / "docs" / "promises.toml").read_text("utf-8"))
"""The parts of its figures that each promise shows, by its code."""
NOTHING = "not measured"
FAILED = "**FAILED**"
_PART = re.compile(r"(<!-- measured: promises -->\n).*?(<!-- end of measured -->)", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?")
_ROW = re.compile(r"^\| \*\*([A-D]\d+)\*\* (.*) \|$", re.MULTILINE)
_HOLE = "\N{REPLACEMENT CHARACTER}"


def measured(entries: Sequence[Entry]) -> str:
    """Return the document's measured part."""
    sections = [_about(entries)]
    for letter, title in GROUPS.items():
        rows = [_row(promise, entries) for promise in PROMISES if promise.code.startswith(letter)]
        heads = "| promise | figure | test |\n|---|---|---|"
        sections.append(f"## {letter}. {title}\n\n{heads}\n" + "\n".join(rows))
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
    figures = _shown(promise.code, own)
    if any(entry.outcome == "failed" for entry in own):
        figures.insert(0, FAILED)
    cells = (
        f"**{promise.code}** {promise.says}",
        "; ".join(figures) or NOTHING,
        _names_of(promise.code),
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _shown(code: str, own: Sequence[Entry]) -> list[str]:
    """Return the figures that a promise shows. The long form's replace those of the short one."""
    by_form = [
        [figure for entry in own if entry.form == form for figure in entry.figures]
        for form in ("full", "short")
    ]
    found = []
    for part in SHOWN.get(code, []):
        of_forms = (merged(_parts(part, figures)) for figures in by_form)
        found += next(filter(None, of_forms), [])
    if found:
        return found
    return merged(by_form[0] or by_form[1])[:1]


def _parts(part: str, figures: Iterable[str]) -> Iterator[str]:
    """Yield each occurrence of `part` in a figure, with numbers where it has #."""
    words = map(re.escape, part.split("#"))
    pattern = re.compile(r"(?<![\w.])" + r"\d+(?:,\d{3})*(?:\.\d+)?".join(words))
    for figure in figures:
        for match in pattern.finditer(figure):
            yield match[0]


def merged(figures: Iterable[str]) -> list[str]:
    """Return figures that differ in their numbers alone as one, with the ranges of these."""
    by_words: dict[str, list[list[str]]] = {}
    for figure in figures:
        by_words.setdefault(_NUMBER.sub(_HOLE, figure), []).append(_NUMBER.findall(figure))
    found = []
    for words, several in by_words.items():
        ranges = iter([_range(column) for column in zip(*several, strict=True)])
        found.append(re.sub(_HOLE, lambda _, ranges=ranges: next(ranges), words))  # type: ignore[misc]
    return found


def _range(column: Sequence[str]) -> str:
    least, most = min(column, key=_value), max(column, key=_value)
    return least if _value(least) == _value(most) else f"{least}-{most}"


def _value(number: str) -> float:
    return float(number.replace(",", ""))


def _names_of(code: str) -> str:
    """Return the names of a promise's test files, as the document has them."""
    return ", ".join(f"`{file.name}`" for file in sorted(TESTS.glob(f"test_{code.lower()}_*.py")))


def problems(text: str) -> list[str]:
    """Return what does not agree among the table, the tests and the document."""
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
    found += [
        f"{code}: docs/promises.toml does not say which figure is shown"
        for code in codes
        if code not in SHOWN
    ]
    found += [f"{code}: in docs/promises.toml alone" for code in SHOWN if code not in codes]
    if list(rows) != codes:
        found.append(f"{DOCUMENT.name} lists {', '.join(rows)}; the table {', '.join(codes)}")
    for promise in PROMISES:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", rows.get(promise.code, "||"))]
        says, figure, names = (cell.replace("\\|", "|") for cell in cells)
        if says != promise.says:
            found.append(
                f"{promise.code}: {DOCUMENT.name} says something else than tests/promises/table.py"
            )
        elif names != _names_of(promise.code):
            found.append(
                f"{promise.code}: {DOCUMENT.name} names other files than tests/promises has"
            )
        elif figure.replace(FAILED, "").strip("; ") in ("", NOTHING):
            found.append(f"{promise.code}: no figure")
        elif FAILED in figure:
            found.append(f"{promise.code}: failed in the run that the document tells of")
    return found


def _names(text: str, code: str) -> bool:
    return re.search(rf"\b{code}\b", _PART.sub("", text)) is not None


def generated(text: str) -> str:
    """Return the document with its measured part made anew."""
    return _PART.sub(lambda match: f"{match[1]}\n{measured(read_all())}\n\n{match[2]}", text)


def main(arguments: list[str]) -> int:
    """Write, or check. Return 1 if something is missing or disagrees."""
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

"""Rows that a review adds to a file of reference answers, each with where it comes from."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators.ground_truth.file_store import field_name, lines_of, read_rows
from agenteval_otel.evaluators.ground_truth.index import NormalizedQuery, TableRow

PROVENANCE: Final = "provenance"
_HEADER: Final = ("UserPrompt", "ExpectedOutput", "Category", "Module")
_NAMES: Final = ("userPrompt", "expectedOutput", "category", "module")


class Known(NamedTuple):
    """Holds a row of the file, with the provenance that its line gives."""

    row: TableRow
    provenance: Mapping[str, Any]

    def answers(self, prompt: str, module: str | None) -> bool:
        """Tell whether the row is for the same question in the same module."""
        return _key(self.row.prompt, self.row.module) == _key(prompt, module)


def _key(prompt: str, module: str | None) -> tuple[str, str]:
    return NormalizedQuery.of(prompt).text, (module or "").strip().casefold()


def read_known(path: Path) -> list[Known]:
    """Read the rows of the file. There are none if it does not exist yet.

    Raises `ConfigurationError` with the wrong line.
    """
    if not path.exists():
        if path.suffix.lower() not in (".csv", ".jsonl"):
            raise ConfigurationError("expected a name that ends in .csv or .jsonl", path=str(path))
        return []
    rows = read_rows(path)
    return [
        Known(row, _provenance_of(fields))
        for row, (fields, _) in zip(rows, _lines_in(path), strict=True)
    ]


def add(path: Path, row: TableRow, provenance: Mapping[str, Any]) -> None:
    """Rewrite the file with this row, replacing any row with the same question and module.

    The new file is renamed over the old one, so readers see one or the other. The caller must hold
    the file's lock.
    """
    lines: list[tuple[dict[str, Any], str]] = []
    known = read_known(path)
    if known:
        for line, before in zip(_lines_in(path), known, strict=True):
            if not before.answers(row.prompt, row.module):
                lines.append(line)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "w", encoding="utf-8", newline="") as file:
            _write(file, path, lines, row, provenance)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            os.chmod(temporary, path.stat().st_mode & 0o777)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _write(
    file: TextIO,
    path: Path,
    lines: list[tuple[dict[str, Any], str]],
    row: TableRow,
    provenance: Mapping[str, Any],
) -> None:
    if path.suffix.lower() == ".jsonl":
        added = dict(zip(_NAMES, row, strict=True)) | {PROVENANCE: dict(provenance)}
        added = {name: value for name, value in added.items() if value is not None}
        texts = [text for _, text in lines]
        texts.append(json.dumps(added, ensure_ascii=False))
        file.writelines(f"{text}\n" for text in texts)
        return
    header = list(lines[0][0] if lines else _HEADER)
    columns = {field_name(name): name for name in header}
    for name in (*_HEADER, PROVENANCE.capitalize()):
        if field_name(name) not in columns:
            columns[field_name(name)] = name
            header.append(name)
    cells = dict(zip(map(field_name, _HEADER), row, strict=True))
    cells[PROVENANCE] = json.dumps(dict(provenance))
    writer = csv.DictWriter(file, header, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(fields for fields, _ in lines)
    texts_by_column = {
        columns[name]: "" if value is None else value for name, value in cells.items()
    }
    writer.writerow(texts_by_column)


def _lines_in(path: Path) -> list[tuple[dict[str, Any], str]]:
    """Return the fields of each row as they are written, and its text (empty for CSV)."""
    if path.suffix.lower() == ".csv":
        rows = csv.DictReader(lines_of(path))
        return [
            ({name: cell or "" for name, cell in cells.items() if name is not None}, "")
            for cells in rows
        ]
    return [(json.loads(line), line.rstrip("\n")) for line in lines_of(path) if line.strip()]


def _provenance_of(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    value = next((value for name, value in fields.items() if field_name(name) == PROVENANCE), None)
    if isinstance(value, str):
        try:
            value = json.loads(value or "{}")
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}

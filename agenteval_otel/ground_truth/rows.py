"""Reads the rows of a file, with the file and the line in every error."""

from __future__ import annotations

import csv
import json
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.ground_truth.index import MAX_PROMPT_CHARACTERS, Row

__all__ = ["csv_rows", "jsonl_rows", "read_lines"]

_FIELDS = {"userprompt": 0, "expectedoutput": 1, "category": 2, "module": 3}
_MAX_LINE = 262_144
_REQUIRED = ("UserPrompt", "ExpectedOutput")


def _wrong(path: Path, line: int, problem: str) -> ConfigurationError:
    return ConfigurationError(f"{path}:{line}: {problem}")


def read_lines(path: Path, max_bytes: int) -> list[str]:
    """The lines of a file, with their ends.

    Raises:
        ConfigurationError: It cannot be read, is no file, is too large, or is not UTF-8; names the line.
    """
    try:
        # Before it is opened: opening a pipe waits for somebody to write.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigurationError(f"{path}: not a file")
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or type(error).__name__}") from error
    if len(content) > max_bytes:
        raise ConfigurationError(f"{path}: larger than {max_bytes} bytes (max_bytes)")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _wrong(path, content.count(b"\n", 0, error.start) + 1, "not UTF-8") from None
    # Not splitlines, which also splits at characters that a text may contain.
    return [f"{line}\n" for line in text.split("\n")]


def csv_rows(path: Path, lines: Iterable[str]) -> Iterator[Row]:
    """The rows of a CSV file whose first line names the columns.

    Raises:
        ConfigurationError: Names the file, the line and what is wrong there.
    """
    reader = csv.reader(lines, strict=True)
    try:
        header = next(reader, [])
        columns = _columns(path, header)
        for cells in filter(None, reader):
            if len(cells) <= max(columns.values()):
                raise _wrong(path, reader.line_num, f"expected the columns of line 1, found {len(cells)} of them")
            if any(map(str.strip, cells[len(header) :])):
                raise _wrong(path, reader.line_num, "more cells than line 1 has columns: quote text with commas")
            yield _row(path, reader.line_num, {name: cells[at] for name, at in columns.items()})
    except csv.Error as error:
        raise _wrong(path, reader.line_num, f"not CSV: {error}") from None


def jsonl_rows(path: Path, lines: Iterable[str]) -> Iterator[Row]:
    """The rows of a JSONL file: one object a line; blank lines are ignored.

    Raises:
        ConfigurationError: Names the file, the line and what is wrong there.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        named = {_field_name(key): value for key, value in _object(path, number, line).items()}
        missing = [name for name in _REQUIRED if _field_name(name) not in named]
        if missing:
            raise _wrong(path, number, f"{' and '.join(missing)} missing")
        yield _row(path, number, {name: named.get(name) for name in _FIELDS})


def _object(path: Path, number: int, line: str) -> Mapping[str, Any]:
    if len(line) > _MAX_LINE:
        raise _wrong(path, number, f"longer than {_MAX_LINE} characters")
    try:
        value = json.loads(line, parse_constant=_refuse)
        if "\\u" in line:
            json.dumps(value, ensure_ascii=False).encode()  # refuses lone surrogates
    except (ValueError, RecursionError) as error:
        raise _wrong(path, number, f"not JSON: {getattr(error, 'msg', type(error).__name__)}") from None
    if not isinstance(value, Mapping):
        raise _wrong(path, number, f"expected an object, found {type(value).__name__}")
    return value


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _columns(path: Path, header: list[str]) -> dict[str, int]:
    columns: dict[str, int] = {}
    for at, cell in enumerate(header):
        name = _field_name(cell)
        if name in columns:
            raise _wrong(path, 1, f"two columns {cell.strip()!r}")
        if name in _FIELDS:
            columns[name] = at
    missing = [name for name in _REQUIRED if _field_name(name) not in columns]
    if missing:
        raise _wrong(path, 1, f"column {' and '.join(missing)} missing; expected UserPrompt,ExpectedOutput,"
                              "Category,Module")  # fmt: skip
    return columns


def _row(path: Path, line: int, fields: Mapping[str, Any]) -> Row:
    prompt = fields["userprompt"]
    if not isinstance(prompt, str) or not prompt.strip():
        raise _wrong(path, line, "UserPrompt is empty" if prompt in ("", None) else "UserPrompt is no text")
    if len(prompt) > MAX_PROMPT_CHARACTERS:
        raise _wrong(path, line, f"UserPrompt is longer than {MAX_PROMPT_CHARACTERS} characters")
    names: dict[str, str | None] = {}
    for field in ("category", "module"):
        value = fields.get(field)
        if value is not None and not isinstance(value, str):
            raise _wrong(path, line, f"{field.capitalize()} is no text")
        names[field] = (value or "").strip() or None
    return Row(prompt, fields["expectedoutput"], **names)


def _field_name(name: str) -> str:
    """``UserPrompt``, ``userPrompt`` and ``user_prompt`` are one name."""
    return name.strip().replace("_", "").casefold()

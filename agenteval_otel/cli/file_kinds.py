"""Recognizes the kind of a file by how it begins, and refuses a kind that a command does not take."""

from __future__ import annotations

import codecs
import json
import re
import shlex
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, Final

from agenteval_otel.config.settings import Settings
from agenteval_otel.database.target import SQLITE_BEGINS
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationInput

_HEAD_BYTES: Final = 64 * 1024
_OTLP: Final = ("resourceSpans", "resourceLogs", "resourceMetrics")
_OTLP_BEGINS: Final = re.compile(rf'\s*\{{\s*"({"|".join(_OTLP)})"\s*:')
_KEY: Final = re.compile(r'"(\w+)"\s*:\s*\[')
_OF_RESULTS: Final = ("results",)
_RUN_CONFIGURATION: Final = ("evaluatorConfigs", "evaluator_configs")
_YAML_KEY: Final = re.compile(r"([A-Za-z_]\w*)\s*:(\s|$)")
_SEPARATORS: Final = re.compile(r"[,;\t]")
_ONE_COLUMN: Final = re.compile(r'"?[\w .-]{1,64}"?')
_FROM_SPREADSHEETS: Final = "spreadsheets save as 'CSV UTF-8'"


class Kind(Enum):
    """What a file is. The value continues "The file is ..."."""

    FOLDER = "a folder"
    EMPTY = "empty"
    INPUTS = "JSON with inputs of evaluators"
    CSV = "CSV"
    RESULTS = "stored results in JSON lines"
    DATABASE = "an SQLite database"
    OTLP_JSON = "OTLP in JSON, as the Collector writes it"
    OTLP_PROTOBUF = "OTLP in protobuf"
    SETTINGS = "a settings file"
    PARQUET = "a Parquet file"
    WORKBOOK = "an Excel workbook or another ZIP file"
    OLD_WORKBOOK = "an old Excel workbook"
    IMAGE = "an image"
    PDF = "a PDF"
    GZIP = "compressed with gzip"
    UTF16 = "text in UTF-16"
    TEXT = "text, neither JSON nor CSV with a header"
    BINARY = "binary, of no kind that is known here"


_BEGINS: Final = (
    (SQLITE_BEGINS, Kind.DATABASE),
    (b"PAR1", Kind.PARQUET),
    (b"PK\x03\x04", Kind.WORKBOOK),
    (b"\xd0\xcf\x11\xe0", Kind.OLD_WORKBOOK),
    (b"\x1f\x8b", Kind.GZIP),
    (b"\x89PNG", Kind.IMAGE),
    (b"\xff\xd8\xff", Kind.IMAGE),
    (b"GIF8", Kind.IMAGE),
    (b"RIFF", Kind.IMAGE),
    (b"BM", Kind.IMAGE),
    (b"%PDF", Kind.PDF),
)
_NEEDS_BINARY: Final = (b"RIFF", b"BM")  # a text may begin with these letters
_ANSWERS: Final = frozenset({Kind.INPUTS, Kind.CSV, Kind.RESULTS, Kind.DATABASE})
_TAKEN: Final[Mapping[str, frozenset[Kind]]] = {
    "evaluate": _ANSWERS,
    "calibrate": _ANSWERS,
    "judge": _ANSWERS,
    "compare": frozenset({Kind.RESULTS, Kind.DATABASE}),
    "replay": frozenset({Kind.OTLP_JSON, Kind.OTLP_PROTOBUF}),
    "replay --from sql": frozenset({Kind.DATABASE}),
}
_EXPECTED: Final[Mapping[str, str]] = {
    "evaluate": "JSON lines, CSV or stored results",
    "calibrate": "JSON lines or CSV with labels, or stored results",
    "judge": "JSON lines or CSV with labels, or stored results",
    "compare": "stored results: the file of `agenteval-otel evaluate --results`, or a storage's database",
    "replay": "OTLP, as the Collector's file exporter writes it",
    "replay --from sql": "the database of the storage `sql` or `sqlite`",
}
_CONVERTED: Final = {
    Kind.PARQUET: "pandas: to_json(..., orient='records', lines=True)",
    Kind.WORKBOOK: _FROM_SPREADSHEETS,
    Kind.OLD_WORKBOOK: _FROM_SPREADSHEETS,
    Kind.UTF16: f"it must be UTF-8, {_FROM_SPREADSHEETS}",
}
_SEVERAL_FILES: Final = ("evaluate", "calibrate", "replay")
_SCORED_BY: Final = {
    Kind.OTLP_JSON: "agenteval-otel replay {file}",
    Kind.OTLP_PROTOBUF: "agenteval-otel replay {file}",
    Kind.DATABASE: "agenteval-otel replay --from sql {file}, or agenteval-otel evaluate {file}",
    Kind.RESULTS: "agenteval-otel evaluate {file}",
    Kind.INPUTS: "agenteval-otel evaluate {file}",
    Kind.CSV: "agenteval-otel evaluate {file}",
}
"""The command that scores the answers in a file."""


def check_kinds(files: Sequence[str], command: str) -> None:
    """Refuse files of a kind that the command does not take. Only their beginnings are read.

    What is missing, cannot be read, or is a pipe is left to the command. An empty file is left out
    beside others.

    Raises:
        ConfigurationError: Names the kind of the first such file and the command that takes it.
    """
    kinds = {file: kind for file in files if (kind := kind_of(file)) is not None}
    if kinds and len(kinds) == len(set(files)) and {*kinds.values()} == {Kind.EMPTY}:
        names = ", ".join(kinds)
        raise ConfigurationError(f"is empty; expected {_EXPECTED[command]}", path=names)
    for file, kind in kinds.items():
        if kind is Kind.EMPTY or kind in _TAKEN[command]:
            continue
        if kind is Kind.GZIP and command == "replay" and file.endswith(".gz"):
            inner = _kind_inside(file)
            if inner in (None, Kind.EMPTY) or inner in _TAKEN[command]:
                continue
            raise ConfigurationError(_advice(inner, command, file, zipped=True), path=file)
        raise ConfigurationError(_advice(kind, command, file), path=file)


def kind_of(file: str) -> Kind | None:
    """Return the kind of a file by its first 64 KiB. None for what cannot be looked at."""
    with suppress(OSError, ValueError):
        path = Path(file)
        if path.is_dir():
            return Kind.FOLDER
        if not path.is_file():  # standard input, a pipe, an address
            return None
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
        return _kind_of_head(head, path.suffix.lower(), is_whole=len(head) < _HEAD_BYTES)
    return None


def foreign_kind(head: bytes) -> str | None:
    """Return what bytes are that are no text, in a sentence with what to do. None for text."""
    kind = _binary_kind(head, is_whole=False)
    if kind is None or kind in (Kind.DATABASE, Kind.OTLP_PROTOBUF, Kind.BINARY, Kind.UTF16):
        return None
    return _advice(kind, "evaluate", "FILE")


def _kind_inside(file: str) -> Kind | None:
    with suppress(OSError, zlib.error), open(file, "rb") as stream:
        head = zlib.decompressobj(wbits=31).decompress(stream.read(_HEAD_BYTES), _HEAD_BYTES)
        suffix = Path(file.removesuffix(".gz")).suffix.lower()
        return _kind_of_head(head, suffix, is_whole=len(head) < _HEAD_BYTES)
    return None


def _advice(kind: Kind, command: str, file: str, *, zipped: bool = False) -> str:
    """Return what the file is and what to do with it, in a sentence."""
    shown = shlex.quote(file)
    words = f"is {kind.value}" + (", compressed with gzip" if zipped else "")
    expected = f"{words}; expected {_EXPECTED[command]}"
    if kind is Kind.SETTINGS:
        return f"{expected}; settings are named with --settings {shown}"
    if kind is Kind.FOLDER and command in _SEVERAL_FILES:
        return f"{expected}; name the files in it: agenteval-otel {command} {shown}/*"
    if kind is Kind.GZIP and command == "replay":
        return f"{words}; `replay` reads it by a name that ends in .gz"
    if kind is Kind.GZIP or zipped:
        return f"{expected}; `gunzip` makes the file that is expected"
    if kind is Kind.TEXT and command == "replay":
        return f"{words}, and no OTLP; expected {_EXPECTED[command]}"
    if kind in _CONVERTED and _TAKEN[command] is _ANSWERS:
        return f"{expected} ({_CONVERTED[kind]})"
    if kind not in _SCORED_BY:
        return expected
    scored = _SCORED_BY[kind].format(file=shown)
    if command == "compare":
        return f"{expected}; to score its answers: {scored}"
    return f"{words}; to score its answers: {scored}"


def _kind_of_head(head: bytes, suffix: str, *, is_whole: bool) -> Kind | None:
    if not head.strip():
        return Kind.EMPTY
    binary = _binary_kind(head, is_whole=is_whole)
    if binary is not None:
        return binary
    text = head.decode("utf-8-sig", "replace")
    lines = [line for line in text.splitlines() if line.strip()]
    if any(map(_OTLP_BEGINS.match, lines)):
        return Kind.OTLP_JSON  # also behind a broken line
    if text.lstrip().startswith(("{", "[")):
        return _kind_of_json(text, lines[0], is_whole=is_whole)
    if suffix in (".yaml", ".yml", ".toml") or _is_yaml_of_settings(lines):
        return Kind.SETTINGS
    if suffix in (".json", ".jsonl", ".ndjson"):
        return Kind.INPUTS  # whose reader names the line that is wrong
    if suffix in (".csv", ".tsv") or _is_header(lines[0]):
        return Kind.CSV
    return Kind.TEXT


def _binary_kind(head: bytes, *, is_whole: bool) -> Kind | None:
    """Return the kind of what is no text in UTF-8 or an older encoding. None for text."""
    controls = sum(byte < 32 and byte not in b"\t\n\r\f" for byte in head)
    for begins, kind in _BEGINS:
        if head.startswith(begins) and (controls or begins not in _NEEDS_BINARY):
            return kind
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = head[: len(head) // 2 * 2].decode("utf-16", "replace")
        is_text = "\ufffd" not in text[:-1] and not re.search(r"[\x00-\x08\x0e-\x1f]", text)
        return Kind.UTF16 if is_text else Kind.BINARY
    if _is_protobuf(head, controls, is_whole=is_whole):
        return Kind.OTLP_PROTOBUF
    return Kind.BINARY if b"\0" in head or controls > len(head) // 10 else None


def _is_protobuf(head: bytes, controls: int, *, is_whole: bool) -> bool:
    """Tell whether bytes begin as a request of OTLP: a resource's message with a resource or a scope."""
    if head[:1] != b"\n":
        return False
    length = shift = 0
    position = 1
    for position in range(1, min(7, len(head))):
        length |= (head[position] & 0x7F) << shift
        shift += 7
        if head[position] < 0x80:
            break
    inner = head[position + 1 : position + 2]
    fits = position + 1 + length <= len(head) or not is_whole
    return inner in (b"\n", b"\x12") and fits and controls > 0


def _kind_of_json(text: str, first_line: str, *, is_whole: bool) -> Kind | None:
    """Return the kind by the names of the first object. None for broken JSON: its reader names the
    line.
    """
    value: Any = None
    for candidate in (first_line, text):
        with suppress(ValueError, RecursionError):
            value = json.loads(candidate)
            break
    if value is None:  # it is longer than the head, or broken
        value = {name: [] for name in _KEY.findall(text) if name in (*_OTLP, *_OF_RESULTS)}
        if not value and is_whole:
            return None
    if isinstance(value, list):
        return Kind.INPUTS
    names = {*value} if isinstance(value, dict) else set()
    if names.intersection(_OTLP):
        return Kind.OTLP_JSON
    if isinstance(value, dict) and any(isinstance(value.get(name), list) for name in _OF_RESULTS):
        return Kind.RESULTS
    of_inputs = {name for name in names if name.replace("_", "").lower() in _FIELDS_OF_INPUTS}
    if names.intersection((*Settings.model_fields, *_RUN_CONFIGURATION)) and not of_inputs:
        return Kind.SETTINGS
    return Kind.INPUTS


_FIELDS_OF_INPUTS: Final = {name.replace("_", "") for name in EvaluationInput.model_fields}


def _is_yaml_of_settings(lines: Sequence[str]) -> bool:
    line = next((line for line in lines if not line.startswith(("#", "---"))), "")
    match = _YAML_KEY.match(line)
    return match is not None and match[1] in Settings.model_fields


def _is_header(line: str) -> bool:
    if line.startswith(("sep=", '"sep=')):
        return True
    cells = _SEPARATORS.split(line)
    if len(cells) == 1:
        return _ONE_COLUMN.fullmatch(line.strip()) is not None
    return all(cell.strip() for cell in cells)

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

from agenteval_otel.components.database.target import SQLITE_BEGINS
from agenteval_otel.config.settings import Settings
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators.compat.agentdock import AGENT_ID, BLOCK
from agenteval_otel.models import EvaluationInput

_HEAD_BYTES: Final = 64 * 1024
_OTLP: Final = ("resourceSpans", "resourceLogs", "resourceMetrics")
_OTLP_BEGINS: Final = re.compile(rf'\s*\{{\s*"({"|".join(_OTLP)})"\s*:')
_JSON_TOKEN: Final = re.compile(
    # A string that is cut ends with its line: searched again from each of its quotes, it takes seconds.
    r'"((?:[^"\\\n]|\\.)*+)(?:"(\s*:\s*\[)?|\\?$)|[{\[]|[}\]]',
    re.MULTILINE,
)
_RESULTS: Final = "results"
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
    (b"PAR1\x15", Kind.PARQUET),
    (b"PK\x03\x04", Kind.WORKBOOK),
    (b"\xd0\xcf\x11\xe0", Kind.OLD_WORKBOOK),
    (b"\x1f\x8b", Kind.GZIP),
    (b"\x89PNG", Kind.IMAGE),
    (b"\xff\xd8\xff", Kind.IMAGE),
)
_BEGINS_LIKE_TEXT: Final = (
    (re.compile(rb"PAR1"), Kind.PARQUET),
    (re.compile(rb"GIF8[79]a"), Kind.IMAGE),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), Kind.IMAGE),
    (re.compile(rb"BM.{4}\0\0\0\0", re.DOTALL), Kind.IMAGE),
    (re.compile(rb"%PDF-\d"), Kind.PDF),
)
"""Kinds whose first bytes are letters. A header of CSV may begin with the same ones."""
_PDF_LINE: Final = re.compile(rb"%PDF-\d\.\d\s*[\r\n]")
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
    Kind.DATABASE: "agenteval-otel evaluate {file}, or agenteval-otel replay {file}",
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
    kinds: dict[str, Kind] = {}
    for file in files:
        kind = kind_of(file)
        if kind is not None:
            kinds[file] = kind
    is_all_known = len(kinds) == len(set(files))
    if kinds and is_all_known and all(kind is Kind.EMPTY for kind in kinds.values()):
        names = ", ".join(kinds)
        raise ConfigurationError(f"is empty. Expected {_EXPECTED[command]}", path=names)
    for file, kind in kinds.items():
        if kind is not Kind.EMPTY and kind not in _TAKEN[command]:
            _refuse(kind, command, file)


def _refuse(kind: Kind, command: str, file: str) -> None:
    """Raise for a file of a kind that is not taken, except for zipped OTLP, which `replay` reads."""
    if kind is not Kind.GZIP or command != "replay" or not file.endswith(".gz"):
        raise ConfigurationError(_advice(kind, command, file), path=file)
    inner = _kind_inside(file)
    if inner is None or inner is Kind.EMPTY or inner in _TAKEN[command]:
        return
    raise ConfigurationError(_advice(inner, command, file, zipped=True), path=file)


def kind_of(file: str) -> Kind | None:
    """Return the kind of a file by its first 64 KiB.

    The kind is None if the file cannot be looked at.
    """
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
    """Return what bytes are that are no text, in a sentence with what to do.

    The result is None for text.
    """
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
    expected = f"{words}. Expected {_EXPECTED[command]}"
    if kind is Kind.SETTINGS:
        return f"{expected}. Settings are named with --settings {shown}"
    if kind is Kind.FOLDER and command in _SEVERAL_FILES:
        return f"{expected}. Name the files in it: agenteval-otel {command} {shown}/*"
    if kind is Kind.GZIP and command == "replay":
        return f"{words}. `replay` reads it by a name that ends in .gz"
    if kind is Kind.GZIP or zipped:
        return f"{expected}. `gunzip` makes the file that is expected"
    if kind is Kind.TEXT and command == "replay":
        return f"{words}, and no OTLP. Expected {_EXPECTED[command]}"
    if kind in _CONVERTED and _TAKEN[command] is _ANSWERS:
        return f"{expected} ({_CONVERTED[kind]})"
    if kind not in _SCORED_BY:
        return expected
    scored = _SCORED_BY[kind].format(file=shown)
    if command == "compare":
        return f"{expected}. To score its answers: {scored}"
    return f"{words}. To score its answers: {scored}"


def _kind_of_head(head: bytes, suffix: str, *, is_whole: bool) -> Kind | None:
    if not head.strip():
        return Kind.EMPTY
    binary = _binary_kind(head, is_whole=is_whole)
    if binary is not None:
        return binary
    text = head.decode("utf-8-sig", "replace")
    lines = [line for line in text.splitlines() if line.strip()]
    is_json = text.lstrip().startswith(("{", "["))
    document = _parsed(text) if is_json else None
    if document is not None:
        return _kind_of_value(document)
    if any(_OTLP_BEGINS.match(line) for line in lines):
        return Kind.OTLP_JSON  # also behind a broken line
    if is_json:
        return _kind_of_json_lines(text, lines[0], is_whole=is_whole)
    if suffix in (".yaml", ".yml", ".toml") or _is_yaml_of_settings(lines):
        return Kind.SETTINGS
    if suffix in (".json", ".jsonl", ".ndjson"):
        return Kind.INPUTS  # whose reader names the line that is wrong
    if suffix in (".csv", ".tsv") or _is_header(lines[0]):
        return Kind.CSV
    return Kind.TEXT


def _binary_kind(head: bytes, *, is_whole: bool) -> Kind | None:
    """Return the kind of what is no text in UTF-8 or an older encoding.

    The result is None for text.
    """
    controls = sum(byte < 32 and byte not in b"\t\n\r\f" for byte in head)
    for begins, kind in _BEGINS:
        if head.startswith(begins):
            return kind
    if not _is_utf8_text(head) or _PDF_LINE.match(head):
        for pattern, kind in _BEGINS_LIKE_TEXT:
            if pattern.match(head):
                return kind
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = head[: len(head) // 2 * 2].decode("utf-16", "replace")
        is_text = "\ufffd" not in text[:-1] and not re.search(r"[\x00-\x08\x0e-\x1f]", text)
        return Kind.UTF16 if is_text else Kind.BINARY
    if _is_protobuf(head, controls, is_whole=is_whole):
        return Kind.OTLP_PROTOBUF
    return Kind.BINARY if b"\0" in head or controls > len(head) // 10 else None


def _is_utf8_text(head: bytes) -> bool:
    """Tell whether bytes are UTF-8 without NUL. The last character may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return b"\0" not in head


def _is_protobuf(head: bytes, controls: int, *, is_whole: bool) -> bool:
    """Tell whether bytes begin as a request of OTLP: a message of a resource that has content.

    The message is read to its end. Its first bytes alone are also those of a text after blank lines.
    """
    if head[:1] != b"\n" or controls == 0:
        return False
    length, start = _varint(head, 1)
    end = start + length
    if is_whole and end > len(head):
        return False
    if length == 0:
        return head[start : start + 1] in (b"\n", b"\x12")
    position = start
    while position < min(end, len(head)):
        tag, position = _varint(head, position)
        if tag not in _TAGS_OF_RESOURCE:
            return False
        length, position = _varint(head, position)
        position += length
    return position == end or len(head) <= position < end


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the number of protobuf at a position, and the position behind it."""
    number = 0
    for index, byte in enumerate(data[position : position + 10]):
        number |= (byte & 0x7F) << (7 * index)
        position += 1
        if byte < 0x80:
            break
    return number, position


def _parsed(text: str) -> Any:
    """Return the value of a text in JSON. The result is None for every other text."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return None


def _kind_of_json_lines(text: str, first_line: str, *, is_whole: bool) -> Kind | None:
    """Return the kind by the first line, or by the outer names of a document that is cut.

    The result is None for broken JSON: its reader names the line.
    """
    value = _parsed(first_line)
    if value is not None:
        return _kind_of_value(value)
    lists = _outer_lists(text)
    if lists.intersection(_OTLP):
        return Kind.OTLP_JSON
    if _RESULTS in lists:
        return Kind.RESULTS
    return None if is_whole else Kind.INPUTS


def _outer_lists(text: str) -> set[str]:
    """Return the names of lists in the outermost objects of a JSON text that may be cut."""
    names = set()
    depth = 0
    for token in _JSON_TOKEN.finditer(text):
        name, opens_list = token.groups()
        if name is not None:
            if opens_list and depth == 1:
                names.add(name)
            depth += bool(opens_list)
        elif token[0] in "{[":
            # A line of JSON lines begins anew, also behind a line that was cut.
            is_new_line = text.startswith('\n{"', token.start() - 1)
            depth = 1 if is_new_line else depth + 1
        else:
            depth -= 1
    return names


def _kind_of_value(value: object) -> Kind:
    """Return the kind by the names of an object."""
    if not isinstance(value, dict):
        return Kind.INPUTS
    names = {*value}
    if names.intersection(_OTLP):
        return Kind.OTLP_JSON
    if isinstance(value.get(_RESULTS), list):
        return Kind.RESULTS
    of_inputs = {name for name in names if name.replace("_", "").lower() in _FIELDS_OF_INPUTS}
    is_definition = AGENT_ID in names and isinstance(value.get(BLOCK), dict)
    if is_definition and of_inputs <= _ALSO_OF_DEFINITIONS:
        return Kind.SETTINGS
    if names.intersection((*Settings.model_fields, *_RUN_CONFIGURATION)) and not of_inputs:
        return Kind.SETTINGS
    return Kind.INPUTS


_TAGS_OF_RESOURCE: Final = frozenset(number << 3 | 2 for number in (1, 2, 3, 1000))
"""Tags of the fields resource, scope_spans, schema_url, and the scopes of old exporters."""
_ALSO_OF_DEFINITIONS: Final = {AGENT_ID, "tags"}
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
    if not cells[0].strip():
        del cells[0]  # pandas writes the index as a column without a name
    return all(cell.strip() for cell in cells)

"""Files of every kind, given to every command that reads files of answers."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agenteval_otel.cli.file_kinds import Kind, kind_of
from tests.cli.conftest import CommandLine

ROWS = b'{"prompt": "q", "response": "a"}\n{"prompt": "q2", "response": "a2"}\n'
RESULT = b'{"results": [], "inputSnapshot": {"prompt": "q", "response": "a"}}\n'
SPAN = {"traceId": "31" * 16, "spanId": "32" * 8, "name": "chat", "endTimeUnixNano": "2"}
OTLP = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [SPAN]}]}]}).encode() + b"\n"
EVERY_BYTE = bytes(range(256))
LONG_OTLP = json.dumps(
    {"resourceSpans": [{"scopeSpans": [{"spans": [SPAN] * 1_000}]}]}, indent=2
).encode()
LONG_RESULTS = json.dumps({"agent": "a", "results": [{"score": 1}] * 9_000}, indent=2).encode()
NESTED = b'{"context": {"resourceSpans": [1], "results": [1]}, "response": "'
QUOTED = b'{"response": "\\"resourceSpans\\": [1] {\\"results\\": [1'
AGENT = {
    "version": "1.0",
    "agentId": "opening-hours",
    "tags": ["Featured"],
    "nodes": ["llm.openai"],
    "evaluation": {"evaluatorConfigs": [{"type": "Toxicity", "config": {"toxicTerms": ["idiot"]}}]},
}


def _protobuf(spans: int = 1) -> bytes:
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    attribute = resource_spans.resource.attributes.add(key="service.name")
    attribute.value.string_value = "shop"
    scope = resource_spans.scope_spans.add()
    for _ in range(spans):
        scope.spans.add(trace_id=b"1" * 16, span_id=b"2" * 8)
    return request.SerializeToString()


FILES: dict[str, tuple[bytes, Kind | None]] = {
    "otlp.jsonl": (OTLP, Kind.OTLP_JSON),
    "pretty.json": (json.dumps(json.loads(OTLP), indent=2).encode(), Kind.OTLP_JSON),
    "cut.jsonl": (b"broken\n" + OTLP, Kind.OTLP_JSON),
    "otlp.binpb": (_protobuf(), Kind.OTLP_PROTOBUF),
    "inputs.jsonl": (ROWS, Kind.INPUTS),
    "long.jsonl": (b'{"response": "' + b"a" * 100_000 + b'"}\n', Kind.INPUTS),
    "list.json": (b'[{"response": "a"}]', Kind.INPUTS),
    "inputs.csv": (b"prompt,response\nq,a\n", Kind.CSV),
    "one_column": (b"\n\nresponse\na\n", Kind.CSV),
    "latin.csv": ("response\nGrüße\n".encode("latin-1"), Kind.CSV),
    "results.jsonl": (RESULT, Kind.RESULTS),
    "settings.yaml": (b"# ours\nsample_rate: 0.5\n", Kind.SETTINGS),
    "settings": (b"---\nsample_rate: 0.5\n", Kind.SETTINGS),
    "settings.json": (b'{"sample_rate": 0.5}', Kind.SETTINGS),
    "run.json": (b'{"evaluatorConfigs": []}', Kind.SETTINGS),
    "table.parquet": (b"PAR1" + EVERY_BYTE, Kind.PARQUET),
    "book.xlsx": (b"PK\x03\x04" + EVERY_BYTE, Kind.WORKBOOK),
    "book.xls": (b"\xd0\xcf\x11\xe0" + EVERY_BYTE, Kind.OLD_WORKBOOK),
    "picture.png": (b"\x89PNG\r\n\x1a\n" + EVERY_BYTE, Kind.IMAGE),
    "photo.jpg": (b"\xff\xd8\xff\xe0" + EVERY_BYTE, Kind.IMAGE),
    "paper.pdf": (b"%PDF-1.7\n", Kind.PDF),
    "inputs.jsonl.gz": (gzip.compress(ROWS), Kind.GZIP),
    "otlp.jsonl.gz": (gzip.compress(OTLP), Kind.GZIP),
    "otlp.zipped": (gzip.compress(OTLP), Kind.GZIP),
    "cut.gz": (gzip.compress(OTLP)[:20], Kind.GZIP),
    "empty.jsonl": (b"", Kind.EMPTY),
    "blank.csv": (b" \n\n", Kind.EMPTY),
    "utf16.csv": ("response\na\n".encode("utf-16"), Kind.UTF16),
    "notes.txt": (b"Dear all,\n\nthese are my notes.\n", Kind.TEXT),
    "junk.bin": (EVERY_BYTE[::-1] * 4, Kind.BINARY),
    "zeros": (bytes(5_000), Kind.BINARY),
    "words": (b"\xff\xff neither", Kind.TEXT),
    "broken.jsonl": (b'{"cut\n{"response": "a"}\n', None),
    "webp": (b"RIFF\x24\0\0\0WEBPVP8 ", Kind.IMAGE),
    "bitmap": (b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0", Kind.IMAGE),
    "moving.gif": (b"GIF89a\x01\0\x01\0\xf0\0\0", Kind.IMAGE),
    "binary.pdf": (b"%PDF-1.7 \xe2\xe3\xcf\xd3", Kind.PDF),
    "cut.pretty.json": (LONG_OTLP, Kind.OTLP_JSON),
    "cut.results.json": (LONG_RESULTS, Kind.RESULTS),
    "long.binpb": (_protobuf(spans=5_000), Kind.OTLP_PROTOBUF),
    "nested.json": (NESTED + b'"}', Kind.INPUTS),
    "nested_lines.json": (NESTED.replace(b"[1]", b"[\n1]") + b'"}', Kind.INPUTS),
    "long_nested.json": (NESTED + b"a" * 100_000 + b'"}', Kind.INPUTS),
    "long_quoted.json": (QUOTED + b"a" * 100_000 + b'"}', Kind.INPUTS),
    "long_list.json": (b"[" + NESTED + b"a" * 100_000 + b'"}]', Kind.INPUTS),
    "line_starts.json": (b'{"context":\n {"resourceSpans": [1]},\n "response": "a"}', Kind.INPUTS),
    "three_blank_lines.csv": (b"\n\n\nprompt,response\nq,\x1b[1ma\n", Kind.CSV),
    "four_blank_lines.csv": (b"\n\n\n\nprompt,response\nq,\x1b[1ma\n", Kind.CSV),
    "bm25.csv": (b"BM25,response\nq,a\x0bb\n", Kind.CSV),
    "bm25_latin.csv": ("BM25,response\nq,Grüße\n".encode("latin-1"), Kind.CSV),
    "gif.csv": (b"GIF89 question,response\nq,a\n", Kind.CSV),
    "pdf.csv": (b"%PDF,response\nq,a\n", Kind.CSV),
    "riff.csv": (b"RIFF,response\nq,a\x0bb\n", Kind.CSV),
    "par1.csv": (b"PAR1,response\nq,a\n", Kind.CSV),
    "index_of_pandas": (b",prompt,response\n0,q,a\n", Kind.CSV),
    "agent.json": (json.dumps(AGENT, indent=2).encode(), Kind.SETTINGS),
    "of_agent.json": (b'{"agentId": "a", "evaluation": {}, "response": "b"}', Kind.INPUTS),
}
ANSWERS = {Kind.INPUTS, Kind.CSV, Kind.RESULTS, Kind.DATABASE}
TAKEN = {
    "evaluate {}": ANSWERS,
    "calibrate {}": ANSWERS,
    "judge check {} --criterion Relevance": ANSWERS,
    "compare {} --by model": {Kind.RESULTS, Kind.DATABASE},
    "replay {}": {Kind.OTLP_JSON, Kind.OTLP_PROTOBUF, Kind.DATABASE},
    "replay {} --from file": {Kind.OTLP_JSON, Kind.OTLP_PROTOBUF},
    "replay {} --from sql": {Kind.DATABASE},
}
READS_ZIPPED = ("replay {}", "replay {} --from file")
SCORED_BY = {
    Kind.OTLP_JSON: "agenteval-otel replay {}",
    Kind.OTLP_PROTOBUF: "agenteval-otel replay {}",
    Kind.DATABASE: "agenteval-otel evaluate {}, or agenteval-otel replay {}",
    Kind.RESULTS: "agenteval-otel evaluate {}",
    Kind.INPUTS: "agenteval-otel evaluate {}",
    Kind.CSV: "agenteval-otel evaluate {}",
    Kind.SETTINGS: "--settings {}",
}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Kind | None]:
    """One file of each kind in the current folder, and its kind."""
    for name, (content, _) in FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    database = sqlite3.connect(tmp_path / "other.db")
    database.execute("CREATE TABLE others (name TEXT)")
    database.commit()
    database.close()
    kinds = {name: kind for name, (_, kind) in FILES.items()}
    return {**kinds, "folder": Kind.FOLDER, "other.db": Kind.DATABASE}


def test_a_files_kind_is_told_by_how_it_begins(
    tmp_path: Path, files: dict[str, Kind | None]
) -> None:
    """A name's ending decides only between kinds of text; what is not there has no kind."""
    assert {name: kind_of(str(tmp_path / name)) for name in files} == files
    assert kind_of(str(tmp_path / "missing")) is None
    assert kind_of("-") is None
    assert kind_of("http://127.0.0.1") is None
    assert kind_of("a\0b") is None


@pytest.mark.parametrize("command", TAKEN)
def test_a_command_takes_the_file_or_names_the_one_that_does(
    command: str, files: dict[str, Kind | None], cli: CommandLine
) -> None:
    """A file of another kind is refused in one sentence, before settings are read or judges asked.

    What a command takes by its kind is read or refused, without a traceback.
    """
    program = command.split()[0]
    for name, kind in files.items():
        is_zipped_otlp = command in READS_ZIPPED and name in ("otlp.jsonl.gz", "cut.gz")
        if kind is None or kind in TAKEN[command] or is_zipped_otlp:
            cli(command.format(name), code=None)
            assert "Traceback" not in cli.err
            continue
        cli(command.format(name), code=2)
        assert cli.out == ""
        [line] = cli.err.splitlines()
        assert line.startswith(f"agenteval-otel {program}: {name}: is ")
        assert kind.value in line or kind is Kind.GZIP
        expected = SCORED_BY.get(kind, ". Expected ").format(name, name)
        if name == "otlp.zipped" and command in READS_ZIPPED:
            expected = "`replay` reads it by a name that ends in .gz"
        assert expected in line


def test_another_programs_database_is_refused(
    files: dict[str, Kind | None], cli: CommandLine
) -> None:
    """It has none of our tables."""
    cli("evaluate other.db", code=2)
    assert "nothing of agenteval-otel was ever stored there" in cli.err


def test_an_empty_file_is_left_out_beside_others(
    files: dict[str, Kind | None], cli: CommandLine
) -> None:
    """As a rotated one is; alone it is refused."""
    cli("evaluate empty.jsonl inputs.jsonl")
    assert "2 inputs" in cli.out


def test_a_missing_option_does_not_begin_an_error(
    files: dict[str, Kind | None], cli: CommandLine
) -> None:
    """`calibrate` of stored results without feedback names --feedback only where it was given."""
    cli("calibrate results.jsonl", code=2)
    assert cli.err.startswith("agenteval-otel calibrate: no feedback of people named")
    cli("calibrate results.jsonl --feedback thumbs", code=2)
    assert cli.err.startswith("agenteval-otel calibrate: --feedback: no feedback of people")

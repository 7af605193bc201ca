"""Files with OTLP: a request in JSON a line, or one request.

A request a line is what the Collector's file exporter writes.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, Final

from agenteval_otel.capture.otlp.body import LOGS, TRACES, OtlpMessages, request_of_json
from agenteval_otel.errors import ConfigurationError

_WHOLE_BYTES: Final = 64 * 1024 * 1024  # of a file that is one request
_LOGS_SUFFIX: Final = "-logs.binpb"  # as a sidecar names what it has set aside
_FIRST_TAG: Final = b"\n"  # of most requests in protobuf: field 1 with a length; in JSON a space
_KINDS: Final = {"resourceSpans": TRACES, "resourceLogs": LOGS, "resourceMetrics": None}
"""The kinds of requests that are read. The Collector may write metrics into the same file, too."""


def requests_in(
    path: str,
    messages: Mapping[int, OtlpMessages],
    broken: Callable[[str, str], object],
    how_far: Callable[[str, int, int], object] = lambda name, at, size: None,
    read: Callable[[int, Any], Any] | None = None,
) -> Iterator[tuple[int, Any]]:
    """Yield the requests of a file, ``.gz`` too, each with its kind.

    Of a file of lines, one line is in memory at a time. Blocks.

    Args:
        broken: Gets the place and what is wrong with it: a line, or the rest of a file.
        how_far: Gets the file's name, how much of it was read, and its size.
        read: Gets the kind and the JSON value of a request. What it gives replaces the request, if
            it is not None.

    Raises:
        ConfigurationError: The file cannot be opened, or holds neither lines of JSON nor a
            request in protobuf.
    """
    name = os.path.basename(path)
    try:
        raw = open(path, "rb")  # noqa: SIM115
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror}", path=path) from None
    with raw:
        file: IO[bytes] = gzip.open(raw) if path.endswith(".gz") else raw  # type: ignore[assignment]  # noqa: SIM115
        size = os.fstat(raw.fileno()).st_size
        try:
            first = file.read(1)
            file.seek(0)
            kind = LOGS if name.removesuffix(".gz").endswith(_LOGS_SUFFIX) else TRACES
            if first not in b"{[ \t\r\n":
                yield kind, _whole(name, file, messages[kind])
                return
            if first == _FIRST_TAG:
                request = _whole_or_none(file, messages[kind])
                if request is not None:
                    yield kind, request
                    return
                file.seek(0)
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield from _of_line(
                        f"{name}:{number}",
                        line,
                        file if number == 1 else None,
                        messages,
                        broken,
                        read,
                    )
                how_far(name, raw.tell(), size)
        except (OSError, EOFError, zlib.error) as error:  # a cut or damaged .gz
            broken(name, f"ends early: {error}")


def _whole(name: str, file: IO[bytes], messages: OtlpMessages) -> Any:
    request = _whole_or_none(file, messages)
    if request is None:
        wrong = f"is no OTLP: neither a request in protobuf of at most {_WHOLE_BYTES:,} bytes, nor lines of JSON"
        raise ConfigurationError(wrong, path=name)
    return request


def _whole_or_none(file: IO[bytes], messages: OtlpMessages) -> Any:
    data = file.read(_WHOLE_BYTES + 1)
    try:
        return messages.request.FromString(data) if len(data) <= _WHOLE_BYTES else None
    except Exception:
        return None


def _first(line: bytes, rest: IO[bytes]) -> Any:
    """Return the value of the first line, or of all of them.

    One request may be written over several lines.
    """
    try:
        return json.loads(line)
    except ValueError:
        behind = rest.tell()
        try:
            return json.loads(line + rest.read(_WHOLE_BYTES))
        except ValueError:
            rest.seek(behind)
            raise


def _of_line(
    place: str,
    line: bytes,
    rest: IO[bytes] | None,
    messages: Mapping[int, OtlpMessages],
    broken: Callable[[str, str], object],
    read: Callable[[int, Any], Any] | None,
) -> Iterator[tuple[int, Any]]:
    try:
        value = json.loads(line) if rest is None else _first(line, rest)
        kinds = [kind for key, kind in _KINDS.items() if key in value]
        if not kinds:
            raise ValueError(f"none of {', '.join(_KINDS)}")
        requests = []
        for kind in filter(None, kinds):
            request = None if read is None else read(kind, value)
            if request is None:
                request = request_of_json(value, messages[kind])
            requests.append((kind, request))
    except Exception as error:  # of the parsers; the text of some quotes content
        reason = str(error) if type(error) is ValueError else type(error).__name__
        broken(place, f"is no OTLP in JSON ({reason})")
        return
    yield from requests

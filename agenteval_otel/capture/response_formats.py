"""The registry of response formats: how answers and chunks of a client library are read. One format is one file.

Readers get detached values (`agenteval_otel.capture.detached`) on the background thread: no code of the host runs. They
return False for what is not theirs. The format registered last is tried first, so yours win over the built-in ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from agenteval_otel.capture.reading import FormatReader
from agenteval_otel.capture.type_readers import read_also

__all__ = ["ANSWER_FORMATS", "CHUNK_FORMATS", "response_format"]

ANSWER_FORMATS: Final[dict[str, FormatReader]] = {}
CHUNK_FORMATS: Final[dict[str, FormatReader]] = {}


def response_format(
    name: str, *, stream: bool = False, fields: Iterable[str] = (), libraries: Iterable[str] = ()
) -> Callable[[FormatReader], FormatReader]:
    """Register a function ``(reading, value) -> bool`` that reads the answers of a client library.

    The function adds what it reads to the `Reading` and returns True, or returns False at once where the value has
    another form. It runs on the background thread; what it raises counts as ``capture_failed``.

    Args:
        name: The format's name; a format registered under the same name replaces it.
        stream: The function reads single chunks of a stream instead of whole answers.
        fields: Names of stored fields that are read from objects which are not plain data, in addition to the known
            ones. Properties and methods are never called.
        libraries: Root packages whose objects hold more than data (clients, agents): of those, only known fields are
            read, and the rest does not count as left out.
    """
    formats = CHUNK_FORMATS if stream else ANSWER_FORMATS

    def register(reader: FormatReader) -> FormatReader:
        earlier = {key: known for key, known in formats.items() if key != name}
        formats.clear()
        formats.update({name: reader} | earlier)
        read_also(fields, libraries)
        return reader

    return register

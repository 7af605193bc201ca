"""Lexica: words and emoji with their values, from the package's own files, the package ``afinn`` or a user's file."""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

__all__ = ["AFINN", "BUILTIN", "MAX_BYTES", "Lexicon", "load_lexicon"]

BUILTIN = "builtin"
AFINN = "afinn"
MAX_BYTES = 4 * 1024 * 1024
LOWEST, HIGHEST = -5, 5

_HERE = Path(__file__).parent
_AFINN_FILE = "data/AFINN-en-165.txt"


@dataclass(frozen=True)
class Lexicon:
    """Values by lower-cased word, and a digest that changes with them."""

    values: Mapping[str, int | float]
    digest: str


def load_lexicon(name: str, split: Callable[[str], list[str]]) -> Lexicon:
    """The lexicon of a name, or of a path; one that was read before is read again only when its file has changed.

    Args:
        name: ``builtin``, ``afinn`` or the path of a file: UTF-8, one ``word<TAB>value`` a line, values from -5 to 5;
            empty lines and lines that begin with ``#`` are passed over.
        split: What text is split into words by: an entry that is not one word could never be found.

    Raises:
        ValueError: There is no such file, it is too large, or a line is wrong, which is then named.
    """
    if name == BUILTIN:
        return _of(_stated(_HERE / "words.tsv"), _stated(_HERE / "emoji.tsv"), split=split)
    if name == AFINN:
        return _of(_stated(_afinn()), _stated(_HERE / "emoji.tsv"), split=None)
    return _of(_stated(Path(name)), split=split)


def _afinn() -> Path:
    # Its data is read where it is installed; its code is not run.
    spec = importlib.util.find_spec("afinn")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(folder) / _AFINN_FILE).is_file():
            return Path(folder) / _AFINN_FILE
    raise ValueError(
        'the lexicon afinn is not installed: pip install "agenteval-otel[sentiment]", or choose "builtin" or a file'
    )


def _stated(path: Path) -> tuple[Path, int, int]:
    try:
        stat = path.stat()
        is_file = path.is_file()  # a pipe would be waited for
    except (OSError, ValueError) as error:
        raise ValueError(f'expected "{BUILTIN}", "{AFINN}" or the path of a lexicon file: {_reason(error)}') from None
    if not is_file:
        raise ValueError(f"{path} is no file")
    if stat.st_size > MAX_BYTES:
        raise ValueError(f"{path} has {stat.st_size} bytes, a lexicon may have {MAX_BYTES}")
    return path, stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=4)
def _of(*files: tuple[Path, int, int], split: Callable[[str], list[str]] | None) -> Lexicon:
    values: dict[str, int | float] = {}
    digest = hashlib.sha256()
    for path, _, _ in files:
        text = _read(path)
        digest.update(text.encode())
        for number, token, value in _entries(text, path):
            if split is not None and split(token) != [token]:
                raise ValueError(f"{path}, line {number}: {token!r} is not one word, so no text could hold it")
            if token in values:
                raise ValueError(f"{path}, line {number}: {token!r} is there a second time")
            values[token] = value
    return Lexicon(values, digest.hexdigest()[:12])


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {_reason(error)}") from None


def _entries(text: str, path: Path) -> Iterator[tuple[int, str, int | float]]:
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if not line.strip() or line.startswith("#"):
            continue
        token, tab, value = line.partition("\t")
        if not tab or not token.strip():
            raise ValueError(f"{path}, line {number}: expected a word, a tab and a number, found {line[:60]!r}")
        yield number, token.strip().lower(), _value(value.strip(), f"{path}, line {number}")


def _value(text: str, where: str) -> int | float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not LOWEST <= value <= HIGHEST:
        raise ValueError(f"{where}: expected a number from {LOWEST} to {HIGHEST}, found {text[:60]!r}")
    return int(value) if value.is_integer() else value


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)

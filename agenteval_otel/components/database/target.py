"""The address of a database, without SQLAlchemy."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from agenteval_otel.runtime.masking import mask_known, mask_text

SQLITE_BEGINS = b"SQLite format 3\0"
_FORMS = "expected sqlite:///<file> or postgresql://<user>:<password>@<host>/<database>"


class Target(NamedTuple):
    """An SQLite file, or the address of a PostgreSQL server.

    Attributes:
        path: The file. None for a server.
        url: The server's address, with its password. Empty for a file.
    """

    path: Path | None
    url: str

    @property
    def place(self) -> str:
        """Return its name in messages: the file, or the address with its user masked."""
        return str(self.path) if self.path is not None else mask_text(self.url)

    def masked(self, text: str) -> str:
        password = urlsplit(self.url).password
        if not password:
            return text
        return mask_known(text, {password, unquote(password)})


def target_of(path: Path | None, url: str | None) -> Target:
    """Return the database that the settings name.

    Raises `ValueError` for wrong settings or an extra that is not installed.
    """
    if (path is None) == (url is None):
        raise ValueError("expected either 'path', an SQLite file, or 'url', a database's address")
    _require("sqlalchemy", "sql")
    if url is None:
        return Target(path, "")
    scheme, separator, rest = url.partition("://")
    if scheme == "sqlite":
        file = rest.removeprefix("/")
        if not rest.startswith("/") or not file or file == ":memory:" or "?" in file:
            raise ValueError(f"{_FORMS}. A database in memory would be lost with the process")
        return Target(Path(file), "")
    if not separator or scheme not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise ValueError(_FORMS)
    _require("psycopg", "postgresql")
    try:
        _ = urlsplit(url).port  # raises for a port that is no number
    except ValueError:
        raise ValueError(
            f"{_FORMS}, in a password / @ : written as %2F %40 %3A. The port is no number"
        ) from None
    return Target(None, f"postgresql+psycopg://{rest}")


def database_at(place: str) -> Target:
    """Return the database of a file or an address. Raises `ValueError` as `target_of` does."""
    return target_of(None, place) if "://" in place else target_of(Path(place), None)


def is_sqlite(path: str | Path) -> bool:
    """Tell whether a file is an SQLite database. Raises `OSError` if it cannot be read."""
    with open(path, "rb") as file:
        return file.read(len(SQLITE_BEGINS)) == SQLITE_BEGINS


def _require(module: str, extra: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ValueError(f'needs the extra {extra}: pip install "agenteval-otel[{extra}]"')

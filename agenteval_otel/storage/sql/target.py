"""Which database the settings name; loads no driver."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from agenteval_otel.runtime.masking import mask_known, mask_text

__all__ = ["Target", "target_of"]

_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
_FORMS = "expected sqlite:///<file> or postgresql://<user>:<password>@<host>/<database>"


class Target(NamedTuple):
    """An SQLite file, or the address of a PostgreSQL server."""

    path: Path | None
    url: str

    @property
    def place(self) -> str:
        """Its name in messages: the file, or the address with its user masked."""
        return str(self.path) if self.path is not None else mask_text(self.url)

    def masked(self, text: str) -> str:
        """A driver's text without the user's password."""
        if self.path is not None:
            return text
        password = urlsplit(self.url).password
        return mask_known(text, {password, unquote(password)} if password else ())


def target_of(path: Path | None, url: str | None) -> Target:
    """The database that the settings name.

    Raises:
        ValueError: Neither or both are set, the address has another form, or an extra is not installed.
    """
    if (path is None) == (url is None):
        raise ValueError("expected either 'path', an SQLite file, or 'url', a database's address")
    _require("sqlalchemy", "sql")
    if path is not None or url is None:
        return Target(path, "")
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "sqlite":
        file = rest.removeprefix("/")
        if not rest.startswith("/") or not file or file == ":memory:" or "?" in file:
            raise ValueError(f"{_FORMS}; a database in memory would be lost with the process")
        return Target(Path(file), "")
    if not separator or scheme not in _POSTGRESQL:
        raise ValueError(_FORMS)
    _require("psycopg", "postgresql")
    try:
        _ = urlsplit(url).port
    except ValueError:
        raise ValueError(f"{_FORMS}, in a password / @ : written as %2F %40 %3A; the port is no number") from None
    return Target(None, f"postgresql+psycopg://{rest}")


def _require(module: str, extra: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ValueError(f'needs the extra {extra}: pip install "agenteval-otel[{extra}]"')

"""The reader of stored results: opens a place, which gives them whole, as light rows or as columns.

Every part that needs what was stored asks here, whichever the place is.
"""

from __future__ import annotations

from agenteval_otel.components.database.target import Target, database_at, is_sqlite
from agenteval_otel.errors import StorageError
from agenteval_otel.storage.line_files import LineFiles
from agenteval_otel.storage.places import Place


def place_of(text: str) -> Place:
    """Return the place: an SQLite file, the address of a database, or a file of JSON lines.

    Raises:
        StorageError: A file that cannot be read, a wrong address, or an extra that is missing.
    """
    try:
        if "://" in text or is_sqlite(text):
            return database_of(database_at(text))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StorageError(f"{text}: cannot be read: {reason}") from None
    except ValueError as error:
        raise StorageError(str(error)) from None
    return LineFiles([text])


def database_of(target: Target) -> Place:
    """Return the results' tables in a database, which need not be there yet."""
    from agenteval_otel.storage.sql_read import StoredDatabase  # loads SQLAlchemy

    return StoredDatabase(target)

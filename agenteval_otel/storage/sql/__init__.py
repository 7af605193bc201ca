"""Results in a database: SQLite in a file, PostgreSQL on a server."""

from agenteval_otel.storage.sql.provider import SqlStorageProvider
from agenteval_otel.storage.sql.rows import StoredResult

__all__ = ["SqlStorageProvider", "StoredResult"]

"""Storage providers: where finished results are saved. `OtlpStorageProvider` is the one that emits."""

from agenteval_otel.storage.base import EvaluationStorageProvider
from agenteval_otel.storage.console import ConsoleStorageProvider
from agenteval_otel.storage.json_file import JsonFileStorageProvider
from agenteval_otel.storage.otlp import OtlpStorageProvider
from agenteval_otel.storage.sql import SqliteStorageProvider, SqlStorageProvider
from agenteval_otel.storage.sql_rows import StoredResult

__all__ = [
    "ConsoleStorageProvider", "EvaluationStorageProvider", "JsonFileStorageProvider", "OtlpStorageProvider",
    "SqlStorageProvider", "SqliteStorageProvider", "StoredResult",
]  # fmt: skip

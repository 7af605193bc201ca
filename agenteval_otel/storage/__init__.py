"""Storage providers: where finished results are saved. `OtlpStorageProvider` is the one that emits.

A provider's module is imported with the first use of it.
"""

from typing import TYPE_CHECKING

from agenteval_otel.runtime.lazy import importing
from agenteval_otel.storage.base import EvaluationStorageProvider
from agenteval_otel.storage.otlp import OtlpStorageProvider

if TYPE_CHECKING:
    from agenteval_otel.storage.console import ConsoleStorageProvider
    from agenteval_otel.storage.json_file import JsonFileStorageProvider
    from agenteval_otel.storage.langfuse import LangfuseStorageProvider
    from agenteval_otel.storage.mlflow import MlflowStorageProvider
    from agenteval_otel.storage.phoenix import PhoenixStorageProvider
    from agenteval_otel.storage.sql import SqliteStorageProvider, SqlStorageProvider
    from agenteval_otel.storage.sql_rows import StoredResult

_PROVIDERS = {
    "console": ("console", "ConsoleStorageProvider"),
    "json_file": ("json_file", "JsonFileStorageProvider"),
    "langfuse": ("langfuse", "LangfuseStorageProvider"),
    "mlflow": ("mlflow", "MlflowStorageProvider"),
    "phoenix": ("phoenix", "PhoenixStorageProvider"),
    "sql": ("sql", "SqlStorageProvider"),
    "sqlite": ("sql", "SqliteStorageProvider"),
}
_MODULE_OF = {name: f"{__name__}.{module}" for module, name in _PROVIDERS.values()}
for _type, (_module, _) in _PROVIDERS.items():
    EvaluationStorageProvider.registry.announce(f"{__name__}.{_module}", _type)
_MODULE_OF["StoredResult"] = f"{__name__}.sql_rows"
__all__ = [
    "ConsoleStorageProvider",
    "EvaluationStorageProvider",
    "JsonFileStorageProvider",
    "LangfuseStorageProvider",
    "MlflowStorageProvider",
    "OtlpStorageProvider",
    "PhoenixStorageProvider",
    "SqlStorageProvider",
    "SqliteStorageProvider",
    "StoredResult",
]

__getattr__ = importing(globals(), _MODULE_OF)

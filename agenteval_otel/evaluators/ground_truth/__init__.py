"""Ground truth: the reference answers that responses are compared with.

A store's module is imported with the first use of it.
"""

from typing import TYPE_CHECKING

from agenteval_otel.evaluators.ground_truth.base import GroundTruth, GroundTruthStore
from agenteval_otel.runtime.lazy import importing

if TYPE_CHECKING:
    from agenteval_otel.evaluators.ground_truth.file_store import FileGroundTruthStore
    from agenteval_otel.evaluators.ground_truth.sql_store import SqlGroundTruthStore

GroundTruthStore.registry.announce(f"{__name__}.file_store", "file")
GroundTruthStore.registry.announce(f"{__name__}.sql_store", "sql")
__all__ = ["FileGroundTruthStore", "GroundTruth", "GroundTruthStore", "SqlGroundTruthStore"]

__getattr__ = importing(
    globals(),
    {
        "FileGroundTruthStore": f"{__name__}.file_store",
        "SqlGroundTruthStore": f"{__name__}.sql_store",
    },
)

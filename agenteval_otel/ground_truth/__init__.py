"""Ground truth: the reference answers that responses are compared with.

`base` holds the contract; the stores of `file_store` read files (`rows`), keep them in memory (`table`, `index`) and
follow their changes (`watched`). On the route it comes after the input is built and before the evaluators run
(`lookup`), on the pool's thread.
"""

from __future__ import annotations

from agenteval_otel.ground_truth.base import GroundTruth, GroundTruthStore, module_of
from agenteval_otel.ground_truth.file_store import CsvGroundTruthStore, FileGroundTruthStore, JsonlGroundTruthStore
from agenteval_otel.ground_truth.lookup import load_store, with_ground_truth

__all__ = [
    "CsvGroundTruthStore",
    "FileGroundTruthStore",
    "GroundTruth",
    "GroundTruthStore",
    "JsonlGroundTruthStore",
    "load_store",
    "module_of",
    "with_ground_truth",
]

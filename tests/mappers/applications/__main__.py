"""Applications under real instrumentation, one function each: ``record.py`` runs them in
environments of their own.

They ask a model on loopback for the weather, with a tool. The last line of the output says the
libraries' versions.
"""

from __future__ import annotations

import importlib
import json
import sys
from importlib.metadata import version

LIBRARIES = {
    "adk": ("google-adk",),
    "genai": ("opentelemetry-instrumentation-genai-openai", "opentelemetry-util-genai", "openai"),
    "openaiv2": ("opentelemetry-instrumentation-openai-v2", "opentelemetry-util-genai", "openai"),
    "semconv128": ("opentelemetry-instrumentation-openai-v2", "openai"),
    "pydantic": ("pydantic-ai-slim",),
    "pydantic04": ("pydantic-ai-slim",),
    "logfire": ("logfire", "openai"),
    "logfire3": ("logfire", "openai"),
    "openinference": (
        "openinference-instrumentation", "openinference-instrumentation-openai",
        "openinference-instrumentation-langchain", "openinference-instrumentation-openai-agents",
        "openinference-instrumentation-anthropic",
    ),
    "openllmetry040": ("traceloop-sdk", "opentelemetry-instrumentation-openai"),
    "openllmetry": (
        "traceloop-sdk", "opentelemetry-instrumentation-openai", "opentelemetry-instrumentation-langchain",
        "opentelemetry-instrumentation-anthropic",
    ),
    "langfuse": ("langfuse", "openai", "langchain"),
    "mlflow": ("mlflow-skinny", "openai", "langchain"),
    "strands": ("strands-agents", "openai"),
    "langsmith": ("langsmith", "openai", "langchain"),
}  # fmt: skip
MODULES = {
    "adk": "with_adk",
    "genai": "with_conventions", "openaiv2": "with_conventions", "semconv128": "with_conventions",
    "pydantic": "with_logfire", "pydantic04": "with_logfire", "logfire": "with_logfire", "logfire3": "with_logfire",
    "openinference": "with_openinference", "openllmetry": "with_openllmetry", "openllmetry040": "with_openllmetry",
    "langfuse": "with_platforms", "mlflow": "with_platforms", "langsmith": "with_platforms",
    "strands": "with_platforms",
}  # fmt: skip

name = sys.argv[1]
library = name.partition("_")[0]
getattr(importlib.import_module(MODULES[library]), name)()
print(json.dumps({name: version(name) for name in LIBRARIES[library]}))

"""What an import and a start take in CPU, in fresh interpreters, and what they must not load."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial

from benchmarks.goals import at_most, holds
from benchmarks.harness import Bench, Figure, Numbers, Phase, Size, standalone

__all__ = ["BENCH"]

_FORBIDDEN = (
    "anthropic",
    "numpy",
    "grpc",
    "sqlalchemy",
    "opentelemetry.exporter",
    "structlog",
    "rich",
)
_DECORATED = """
from agenteval_otel import monitor
def polite(response: str) -> float: return 1.0
@monitor(evaluators=[polite])
def handler(question): return "an answer"
"""
_CALLED = f"{_DECORATED}handler('a question')"
_STARTED = """
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
with provider.get_tracer("a").start_as_current_span("a span"): pass
"""
_SDK = "import opentelemetry.sdk.trace, opentelemetry.sdk.metrics, opentelemetry.sdk._logs"
_SAMPLES = 5


def _fresh(statement: str, size: Size) -> Numbers:
    """Milliseconds of CPU and modules of one start in interpreters that have loaded nothing else:
    the best of several.

    With bytecode, as an installed package has it, whatever the variables of this process say.
    """
    code = (
        "import os, sys, time; before = len(sys.modules); began = time.process_time()\n"
        f"{statement}\n"
        "took = (time.process_time() - began) * 1e3\n"
        f"loaded = sum(name.startswith({_FORBIDDEN!r}) for name in sys.modules)\n"
        "print(took, len(sys.modules) - before, loaded, flush=True)\n"
        "os._exit(0)"  # without what the exit delivers
    )
    rows: list[list[float]] = []
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": folder}
        for _ in range(1 + size.of(1, _SAMPLES)):
            done = subprocess.run(
                [sys.executable, "-c", code],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            )
            rows.append([float(word) for word in done.stdout.split()])
    best = min(rows[1:])  # the first writes the bytecode
    return {"ms": best[0], "modules": best[1], "forbidden": best[2]}


_PHASES = (
    Phase("package", "ours", partial(_fresh, "import agenteval_otel")),
    Phase("monitor", "ours", partial(_fresh, "from agenteval_otel import monitor")),
    Phase("decorated", "ours", partial(_fresh, _DECORATED)),
    Phase("called", "ours", partial(_fresh, _CALLED)),
    Phase("sdk", "raw", partial(_fresh, _SDK)),
    Phase("started", "raw", partial(_fresh, _STARTED)),
    Phase(
        "pydantic",
        "raw",
        partial(_fresh, "from pydantic import BaseModel\nclass A(BaseModel): a: int"),
    ),
    Phase("evals", "rival", partial(_fresh, "import pydantic_evals")),
    Phase("online", "rival", partial(_fresh, "from pydantic_evals.online import evaluate")),
)


def _figures(found: dict[str, Numbers]) -> list[Figure]:
    package, monitor, decorated = (
        found["package:ours"],
        found["monitor:ours"],
        found["decorated:ours"],
    )
    called = found["called:ours"]
    sdk, pydantic = found["sdk:raw"], found["pydantic:raw"]
    started = found["started:raw"]
    online = found["online:rival"]
    return [
        Figure(
            "`import agenteval_otel`",
            "ms",
            {"ours": package["ms"], "raw": sdk["ms"], "rival": found["evals:rival"]["ms"]},
            at_most(package["ms"], 150),
        ),
        Figure(
            "`from agenteval_otel import monitor`",
            "ms",
            {"ours": monitor["ms"], "raw": sdk["ms"], "rival": online["ms"]},
            at_most(monitor["ms"], 2 * sdk["ms"]),
        ),
        Figure(
            "the same, and a handler decorated, beside the SDK with an exporter",
            "ms",
            {"ours": decorated["ms"], "raw": started["ms"]},
            at_most(decorated["ms"], 2.5 * started["ms"]),
        ),
        Figure("the same, and called once", "ms", {"ours": called["ms"], "raw": started["ms"]}),
        Figure(
            "the same, in modules",
            "modules",
            {"ours": decorated["modules"], "raw": sdk["modules"], "rival": online["modules"]},
        ),
        Figure("pydantic alone, with one model", "ms", {"raw": pydantic["ms"]}),
        Figure(
            "forbidden modules loaded",
            "modules",
            {"ours": decorated["forbidden"]},
            holds("0", decorated["forbidden"] == 0),
        ),
    ]


BENCH = Bench(
    "startup",
    "Import",
    _PHASES,
    _figures,
    notes=(
        f"Import: forbidden are: {', '.join(_FORBIDDEN)}. Raw: `{_SDK}`. Beside a handler: the SDK's "
        "start with a batch processor, its OTLP/HTTP exporter and one span.",
    ),
)

if __name__ == "__main__":
    standalone(BENCH)

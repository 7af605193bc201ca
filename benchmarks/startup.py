"""What an import takes, in fresh interpreters, and what it must not load."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

from benchmarks.goals import at_most, holds
from benchmarks.harness import Bench, Figure, Numbers, Phase, Size, standalone

__all__ = ["BENCH"]

_FORBIDDEN = ("anthropic", "numpy", "grpc", "sqlalchemy", "opentelemetry.exporter")
_SAMPLES = 5


def _fresh(statement: str, size: Size) -> Numbers:
    """Milliseconds and modules of one import in interpreters that have loaded nothing else: the best of several."""
    code = (
        "import sys, time; before = len(sys.modules); began = time.perf_counter()\n"
        f"{statement}\n"
        "took = (time.perf_counter() - began) * 1e3\n"
        f"print(took, len(sys.modules) - before, sum(name.startswith({_FORBIDDEN!r}) for name in sys.modules))"
    )
    rows: list[list[float]] = []
    for _ in range(size.of(1, _SAMPLES)):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
        rows.append([float(word) for word in done.stdout.split()])
    best = min(rows)
    return {"ms": best[0], "modules": best[1], "forbidden": best[2]}


_PHASES = (
    Phase("package", "ours", partial(_fresh, "import agenteval_otel")),
    Phase("monitor", "ours", partial(_fresh, "from agenteval_otel import monitor")),
    Phase("sdk", "raw", partial(_fresh, "import opentelemetry.sdk.trace")),
    Phase("pydantic", "raw", partial(_fresh, "from pydantic import BaseModel\nclass A(BaseModel): a: int")),
    Phase("evals", "rival", partial(_fresh, "import pydantic_evals")),
    Phase("online", "rival", partial(_fresh, "from pydantic_evals.online import evaluate")),
)


def _figures(found: dict[str, Numbers]) -> list[Figure]:
    package, monitor = found["package:ours"], found["monitor:ours"]
    sdk, pydantic = found["sdk:raw"], found["pydantic:raw"]
    online = found["online:rival"]
    return [
        Figure("`import agenteval_otel`", "ms", {"ours": package["ms"], "raw": sdk["ms"],
               "rival": found["evals:rival"]["ms"]}, at_most(package["ms"], 150)),
        Figure("`from agenteval_otel import monitor`", "ms", {"ours": monitor["ms"], "raw": sdk["ms"],
               "rival": online["ms"]}),
        Figure("the same, in modules", "modules", {"ours": monitor["modules"], "raw": sdk["modules"],
               "rival": online["modules"]}),
        Figure("pydantic alone, with one model", "ms", {"raw": pydantic["ms"]}),
        Figure("forbidden modules loaded", "modules", {"ours": monitor["forbidden"]},
               holds("0", monitor["forbidden"] == 0)),
    ]  # fmt: skip


BENCH = Bench(
    "startup", "Import", _PHASES, _figures,
    notes=(f"Import: forbidden are: {', '.join(_FORBIDDEN)}. Raw: `import opentelemetry.sdk.trace`.",),
)  # fmt: skip

if __name__ == "__main__":
    standalone(BENCH)

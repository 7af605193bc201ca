"""`python -m benchmarks`: everything, side by side, in one table."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

from benchmarks import caller, startup, throughput
from benchmarks.harness import as_json, measure, show

_ALL = {bench.name: bench for bench in (caller.BENCH, throughput.BENCH, startup.BENCH)}


def main() -> None:
    """Measure, print the table, and write the numbers to a file where one is named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("bench", nargs="*", metavar="bench", help=f"some of: {', '.join(_ALL)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="one short round: to see that it runs, not to compare")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write figures and medians there")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.bench if name not in _ALL]:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(_ALL)}")
    chosen = [_ALL[name] for name in arguments.bench or _ALL]
    parts = []
    written = {}
    for bench in chosen:
        medians = measure(bench, quick=arguments.quick)
        figures = bench.figures(medians)
        parts.append((bench, figures))
        written[bench.name] = as_json(bench, figures, medians)
    print(_machine())
    print()
    print(show(parts))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"machine": _machine(), **written}, indent=2) + "\n", encoding="utf-8")


def _machine() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("opentelemetry-sdk", "pydantic-evals"))
    return f"Python {platform.python_version()}, {sys.platform}, {os.cpu_count()} cores, {packages}"


if __name__ == "__main__":
    main()

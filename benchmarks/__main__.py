"""`python -m benchmarks`: everything else side by side, in one table; `python -m benchmarks speed`:
the speed table; `calibration`, `detectors` and `intervals`: statistics whose truth is known.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

from benchmarks import (
    agents,
    calibration,
    caller,
    comparison,
    criteria,
    detectors,
    each,
    emission,
    feedback,
    history,
    intervals,
    judging,
    lookup,
    mappers,
    replay,
    rival,
    sidecar,
    sidecar_mode,
    startup,
    storage,
    ui,
)
from benchmarks.harness import PhaseFailed, Size, measure
from benchmarks.speed import command as speed
from benchmarks.tables import as_json, legend, show, summary

_ALL = {
    bench.name: bench
    for bench in (
        caller.BENCH,
        agents.BENCH,
        each.BENCH,
        emission.BENCH,
        criteria.BENCH,
        lookup.BENCH,
        mappers.BENCH,
        startup.BENCH,
        ui.BENCH,
        storage.BENCH,
        judging.BENCH,
        comparison.BENCH,
        sidecar.BENCH,
        sidecar_mode.BENCH,
        replay.BENCH,
        feedback.BENCH,
        history.BENCH,
    )
}
_RIVAL = "rival"


def main() -> None:
    """Measure, print the tables, and write the numbers to a file where one is named."""
    if sys.argv[1:2] == ["speed"]:
        return speed.main(sys.argv[2:])
    for simulation in (calibration, detectors, intervals):
        if sys.argv[1:2] == [simulation.__name__.rpartition(".")[2]]:
            return simulation.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [*_ALL, _RIVAL]
    parser.add_argument(
        "bench", nargs="*", metavar="bench", help=f"some of: {', '.join(names)} (default: all)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one short round: to see that it runs, not to compare"
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="the long form, of benchmarks that have one: five minutes",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        metavar="N",
        help="of everything, instead of each benchmark's own number",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write figures and medians there"
    )
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.bench if name not in names]:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(names)}")
    chosen = arguments.bench or names
    size = Size("quick" if arguments.quick else "full" if arguments.full else "usual")
    _run(chosen, size, arguments.rounds, arguments.json)


def _run(chosen: list[str], size: Size, rounds: int | None, file: Path | None) -> None:
    written: dict[str, object] = {"machine": _machine(), "size": size.name}
    print(_machine(), end="\n\n", flush=True)
    benches = [_ALL[name] for name in chosen if name != _RIVAL]
    if benches:
        parts, tables, failed = [], [], []
        for bench in benches:
            try:
                medians = measure(bench, size, rounds=rounds)
            except PhaseFailed as error:  # the others are worth having
                failed.append(f"NOT MEASURED: {bench.title}: {error}")
                continue
            if bench.table is not None:
                tables.append((bench, bench.table(medians)))
            figures = bench.figures(medians)
            parts.append((bench, figures))
            written[bench.name] = as_json(bench, figures, medians)
        if any(figures for _, figures in parts):
            print(legend(), show(parts), summary(parts), sep="\n\n", flush=True)
        for bench, table in tables:
            print(
                f"\n{bench.title}\n",
                table,
                "",
                *(f"- {note}" for note in bench.notes),
                sep="\n",
                flush=True,
            )
        print(*failed, sep="\n", end="\n\n" if failed else "\n", flush=True)
    if _RIVAL in chosen:
        facts = rival.compare()
        written[_RIVAL] = rival.as_json(facts)
        print(rival.show(facts), flush=True)
    if file is not None:
        file.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")


def _machine() -> str:
    packages = ", ".join(
        f"{name} {version(name)}" for name in ("opentelemetry-sdk", "pydantic-evals")
    )
    return f"Python {platform.python_version()}, {sys.platform}, {os.cpu_count()} cores, {packages}"


if __name__ == "__main__":
    main()

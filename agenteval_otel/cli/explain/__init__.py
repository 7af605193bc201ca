"""``agenteval-otel explain``: why there is no score.

`counts` reads the counts (JSON or a Prometheus page, from a file or over HTTP), `report` explains them with the texts
of `telemetry.reference`.
"""

from __future__ import annotations

import argparse
from functools import partial

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Explain what became of calls: outcomes, failed parts, error types of evaluators. Without arguments, print every "
    "outcome in one sentence; with --from, the counts of a process with their shares, likely causes and remedies. "
    "Exit codes: 0 success; 2 an unknown name, or a source that cannot be read."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    parser.add_argument(
        "names", nargs="*", metavar="NAME",
        help="explain in full: an outcome (not_sampled), a part (storage:json_file), an error.type (timeout)",
    )  # fmt: skip
    parser.add_argument(
        "--from", dest="source", metavar="SOURCE",
        help="counts to explain: a file, - for standard input, or the address of a Prometheus page such as "
        "http://127.0.0.1:8889/metrics (the Collector's). A file contains such a page, the result of accounting() as "
        'JSON or as printed, or {"outcomes": ..., "failures": ..., "results": ...}',
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Explain; gives the exit code.

    Raises:
        ConfigurationError: An unknown name, or a source that cannot be read.
    """
    from agenteval_otel.cli.explain.counts import counts_from
    from agenteval_otel.cli.explain.report import full, overview, report
    from agenteval_otel.runtime.masking import printable

    counts = None if arguments.source is None else counts_from(arguments.source)
    summary = overview if counts is None else partial(report, counts)
    lines = full(arguments.names, counts) if arguments.names else summary()
    print("\n".join(map(printable, lines)))
    return 0

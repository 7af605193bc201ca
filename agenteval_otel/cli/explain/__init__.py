"""``agenteval-otel explain``: why there is no score, in words, from the accounting.

`reading` gets the counts (JSON, a Prometheus page, from a file or over HTTP), `words` says what they mean. The words
themselves stand in `telemetry.explanations`.
"""

from __future__ import annotations

import argparse

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Explains what became of calls: outcomes, parts that broke, error types of evaluators. Without arguments every "
    "outcome in short; with --from the counts of a process, each with its share, its likely causes and what to do. "
    "Exit code: 0, or 2 for a word that is not known or a source that cannot be read."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    parser.add_argument(
        "words", nargs="*", metavar="WORD",
        help="explain these in full: an outcome (not_sampled), a part (storage:json_file), an error.type (timeout)",
    )  # fmt: skip
    parser.add_argument(
        "--from", dest="source", metavar="SOURCE",
        help="counts to explain: a file, - for standard input, or the address of a Prometheus page such as "
        "http://127.0.0.1:8889/metrics (the Collector's). What accounting() gives, as JSON or as printed; or "
        '{"outcomes": ..., "failures": ..., "results": ...}',
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Explain; gives the exit code.

    Raises:
        ConfigurationError: An unknown word, or a source that cannot be read.
    """
    from agenteval_otel.cli.explain.reading import counts_from
    from agenteval_otel.cli.explain.words import full, overview, report
    from agenteval_otel.masking import printable

    counts = None if arguments.source is None else counts_from(arguments.source)
    told = overview() if counts is None else report(counts)
    print("\n".join(map(printable, full(arguments.words, counts) if arguments.words else told)))
    return 0

"""``agenteval-otel demo``: a support agent under live traffic, monitored; its quality drops half-way, and it shows.

`script` plans the traffic, `agent` answers it, `ledger` collects what the evaluators find, `view` and `progress` show
it while it runs, `changes` finds what got worse and `summary` says so. `replay` puts recorded conversations in the
agent's place, `outlet` sends everything to a Collector too. Nothing of this but the options is imported before the demo
runs.
"""

from __future__ import annotations

import argparse
import math

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "A support agent (tools, streams, slow answers, failures, conversations of several turns) takes live traffic "
    "through @monitor while real evaluators score it in the background. Half-way a worse prompt is released: watch "
    "the scores find it. No server, no key; nothing leaves this process unless --otlp-endpoint or OTEL_EXPORTER_OTLP_* "
    "says where to. Exit code: 0 when every call is accounted for, 1 when not, 2 for wrong use, 130 after Ctrl-C."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    parser.add_argument("--seconds", type=_seconds, help="how long the traffic lasts (default: 20)")
    parser.add_argument("--calls", type=_positive, help="how many calls; spread over --seconds (default: 30 a second)")
    parser.add_argument("--seed", type=int, default=7, help="of the traffic (default: %(default)s)")
    parser.add_argument("--no-drop", action="store_true", help="release a prompt that is as good as the one before")
    parser.add_argument("--no-live", action="store_true", help="plain lines of progress instead of the live view")
    parser.add_argument(
        "--otlp-endpoint", metavar="URL", help="send it all to a Collector too: http://localhost:4317 (gRPC) or :4318"
    )
    parser.add_argument(
        "--traffic", metavar="FILE.jsonl",
        help='replay recorded conversations instead: lines of {"messages": [...]} or {"prompt": ..., "response": ...}',
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Run the demo; gives the exit code.

    Raises:
        ConfigurationError: A file that cannot be replayed, or an endpoint that is none.
    """
    from agenteval_otel.cli.demo.session import run_demo

    return run_demo(arguments)


def _positive(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError("must be a whole number, at least 1")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or not 0.5 <= value <= 3600:
        raise argparse.ArgumentTypeError("must be a number of seconds between 0.5 and 3600")
    return value

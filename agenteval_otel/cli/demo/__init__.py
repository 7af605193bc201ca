"""``agenteval-otel demo``: a monitored support agent under live traffic, whose quality drops half-way.

`agent` plans the traffic and answers it, `replay` plays recorded conversations instead, `scores` collects the results,
`screen` shows them, `session` puts it together. Only the options are imported before the demo runs.
"""

from __future__ import annotations

import argparse
import math

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "A support agent (tools, streams, slow answers, failures, conversations of several turns) takes live traffic "
    "through @monitor, and real evaluators score it in the background. Half-way a worse prompt is released: watch the "
    "scores drop and the objectives raise the alarm. No server, no key; nothing leaves this process unless "
    "--otlp-endpoint or OTEL_EXPORTER_OTLP_* names a Collector. Exit codes: 0 every call is accounted for and all "
    "telemetry was delivered; 1 not; 2 wrong use; 130 interrupted by Ctrl-C."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    parser.add_argument("--seconds", type=_seconds, help="how long the traffic lasts (default: 20)")
    parser.add_argument("--calls", type=_positive, help="number of calls, spread over --seconds (default: 30 a second)")
    parser.add_argument("--seed", type=int, default=7, help="seed of the traffic (default: %(default)s)")
    parser.add_argument("--no-drop", action="store_true", help="release a prompt that is as good as the first")
    parser.add_argument("--no-live", action="store_true", help="print lines of progress instead of the live view")
    parser.add_argument(
        "--otlp-endpoint", metavar="URL", help="also send it to a Collector: http://localhost:4317 (gRPC) or :4318"
    )
    parser.add_argument(
        "--traffic", metavar="FILE.jsonl",
        help='replay recorded conversations instead: lines of {"messages": [...]}, or the inputs that evaluate reads, '
        'such as {"prompt": ..., "response": ...}',
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Run the demo; gives the exit code.

    Raises:
        ConfigurationError: A wrong file or endpoint.
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
    if not 0.5 <= value <= 3600:
        raise argparse.ArgumentTypeError("must be a number of seconds between 0.5 and 3600")
    return value

"""``agenteval-otel provision``: rules, alerts, dashboards and Collectors for exactly what the settings score.

What is generated comes from `agenteval_otel.provisioning`; here are the options, the folder and what is told.
"""

from __future__ import annotations

import argparse
import math

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Write Grafana dashboards, Prometheus rules and alerts, Alertmanager routes and Collector configurations for "
    "exactly the criteria of a settings file, with their scales, thresholds and objectives. Alerts on quality need an "
    "objective or a threshold: criteria without either get none. A file that was not generated is not written over. "
    "Exit codes: 0 written, or nothing to do; 1 with --check, where a file differs or is left over; 2 could not."
)
_EPILOG = (
    "examples: `agenteval-otel provision all --settings agenteval.yaml --output monitoring`; in CI, "
    "`agenteval-otel provision prometheus --settings agenteval.yaml --output monitoring --check`"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    from agenteval_otel.provisioning.targets import ALL, TARGETS, options_of

    parser.epilog = _EPILOG
    said = "; ".join(f"{name}: {target.says}" for name, target in TARGETS.items())
    parser.add_argument("target", choices=(*TARGETS, ALL), help=f"{said}; {ALL}: all of these")
    parser.add_argument("--settings", metavar="FILE", help="the settings file; AGENTEVAL_SETTINGS when left out")
    parser.add_argument("--profile", metavar="NAME", help="a profile of it; AGENTEVAL_PROFILE when left out")
    parser.add_argument("--output", metavar="DIR", default="monitoring", help="default: %(default)s")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; 1 where a file is missing, differs or is left over"
    )
    parser.add_argument("--force", action="store_true", help="write over files that were not generated")
    parser.add_argument(
        "--time-scale", type=_factor, default=1.0, metavar="X",
        help="multiply every window and waiting time of the alerts: 0.002 makes 6 hours 43 seconds, for a live test",
    )  # fmt: skip
    for name, says in options_of(ALL).items():
        of_targets = ", ".join(target for target in TARGETS if name in options_of(target))
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="URL", help=f"{of_targets}: {says}")


def run(arguments: argparse.Namespace) -> int:
    """Write, or with ``--check`` compare; gives the exit code.

    Raises:
        ConfigurationError: Settings that are wrong, a missing extra, or a folder that cannot be written to.
    """
    from agenteval_otel.cli.provision.session import provision

    return provision(arguments)


def _factor(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1_000:
        raise argparse.ArgumentTypeError("must be a number above 0, at most 1000")
    return value

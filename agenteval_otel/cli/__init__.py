"""The command line: ``agenteval-otel``. Each subcommand is a module, imported only when it is called."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from types import ModuleType

from agenteval_otel.errors import AgentEvalError
from agenteval_otel.runtime.masking import printable
from agenteval_otel.telemetry.target import scope_version

__all__ = ["main"]

_COMMANDS = {
    "demo": "watch a support agent's live traffic being scored for 20 s, and its quality drop (no server, no key)",
    "evaluate": "score recorded answers (JSONL, CSV) with the same evaluators, for CI: reports and an exit code",
    "check": "print what is wrong with a settings file, or what it will run",
    "schema": "print the JSON Schema of settings files, for editors",
    "provision": "write dashboards, alerts and Collector configurations for the criteria of your settings",
    "explain": "find out why there is no score: the outcomes of calls, their causes and remedies",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; gives the exit code: 0 success, 1 objective missed, 2 could not run, 130 interrupted.

    It is 1, as Python advises, where the reader of standard output left (`| head`).
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the caller, as by `>&-`
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - to the end of the process
    try:
        try:
            return _main(sys.argv[1:] if arguments is None else arguments)
        finally:
            sys.stdout.flush()
    except OSError as error:
        # The rest of the buffer must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 1
        print(f"agenteval-otel: standard output: {error.strerror}", file=sys.stderr)
        return 2


def _main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="agenteval-otel",
        description="Online evaluation of LLM agents: samples live answers, scores them in the background, emits the "
        "scores through OpenTelemetry.",
        epilog="Start with: agenteval-otel demo",
    )
    parser.add_argument("--version", action="version", version=f"agenteval-otel {scope_version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    modules = {}
    for name, summary in _COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        if name in arguments:
            modules[name] = module = importlib.import_module(f"{__name__}.{name}")
            command.description = module.DESCRIPTION
            module.add_arguments(command)
    chosen = parser.parse_args(arguments)
    if chosen.command is None:
        parser.print_help()
        return 0
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # for plugins beside the settings
    return _run(modules[chosen.command], chosen)


def _run(command: ModuleType, chosen: argparse.Namespace) -> int:
    try:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # an old encoding shows what it can
        return int(command.run(chosen))
    except BrokenPipeError:
        raise
    except (AgentEvalError, OSError) as error:
        message = "\n".join(map(printable, str(error).splitlines()))
        print(f"agenteval-otel {chosen.command}: {message}", file=sys.stderr)
        return 2
    except Exception:
        traceback.print_exc()  # a bug; 1 would mean that an objective was missed
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130

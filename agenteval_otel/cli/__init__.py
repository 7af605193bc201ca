"""The command line: ``agenteval-otel``.

Each subcommand is a module, imported only when it is called.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import io
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import NoReturn

from agenteval_otel.runtime.version import scope_version

__all__ = ["COMMANDS", "main", "parser_of"]

_PROGRAM = "agenteval-otel"
_OPTION = re.compile(r"(?<!\S)--?[a-z][a-z-]*")
_ABOUT = (
    "Online evaluation of LLM agents: samples live answers, scores them in the background, emits the scores through "
    "OpenTelemetry."
)

GROUPS = {
    "to start": {
        "demo": "watch a support agent's live traffic being scored for 20 s, and its quality drop (no server, no key)",
        "init": "write a commented agenteval.yaml to start from, and a CI step",
        "check": "print what is wrong with a settings file, or what it will run",
        "explain": "find out why there is no score: the outcomes of calls, their causes and remedies",
    },
    "on recorded answers": {
        "evaluate": "score recorded answers, or those that a function gives, for CI: reports and an exit code",
        "replay": "score recorded answers again: from files, Jaeger, Tempo or SQL, old and new scores side by side",
        "compare": "tell whether one set of evaluated answers is worse than another: versions, runs, arms, evaluators",
        "benchmark": "run a named benchmark for a version of the agent, or show the history of its versions",
    },
    "for judges": {
        "calibrate": "measure a judge against people, and correct its pass rate by its errors",
        "judge": "check the catalogue's criteria with your judge, and show whether judges are trusted",
    },
    "in production": {
        "serve": "receive spans and events of agents over OTLP, and evaluate their answers: the sidecar",
        "provision": "write dashboards, alerts and Collector configurations for the criteria of your settings",
        "ui": "look at stored scores and answers in the browser, and label answers",
        "feedback": "send what a person says of an answer to the sidecar",
        "truth": "review corrections that people recorded, and add the right ones to the reference answers",
        "erase": "remove the data of a user or a conversation, or from before a time",
    },
    "for editors and shells": {
        "schema": "print the JSON Schema of settings files, for editors",
        "completion": "print the completion script for your shell",
    },
}
"""The commands by what they are for, with what each does."""


def _commands_by_name() -> dict[str, str]:
    """Return what each command does, without the groups."""
    commands: dict[str, str] = {}
    for of_group in GROUPS.values():
        commands |= of_group
    return commands


COMMANDS = _commands_by_name()


def parser_of(
    *names: str,
) -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser], list[ModuleType]]:
    """Return the parser, the parsers of its commands, and the modules of the named commands.

    Only the options of the named commands are known. Each command's module is imported here:
    `--version` and `--help` import none.
    """
    parser = argparse.ArgumentParser(
        prog=_PROGRAM,
        usage=f"{_PROGRAM} [-h] [--version] COMMAND ...",
        description=_description(),
        epilog=f"Start with: {_PROGRAM} demo",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{_PROGRAM} {scope_version()}")
    added = parser.add_subparsers(
        dest="command", metavar="COMMAND", help=argparse.SUPPRESS, prog=_PROGRAM
    )
    commands = {
        name: added.add_parser(name, help=text, allow_abbrev=False)
        for name, text in COMMANDS.items()
    }
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    for name, module in zip(names, modules, strict=True):
        commands[name].description = module.DESCRIPTION
        module.add_arguments(commands[name])
    return parser, commands, modules


def _description() -> str:
    """Return what the program is, and its commands in groups, which argparse does not have."""
    width = shutil.get_terminal_size().columns - 2
    parts = [textwrap.fill(_ABOUT, width)]
    name_width = max(map(len, COMMANDS)) + 2
    indent = " " * (2 + name_width)
    for title, commands in GROUPS.items():
        lines = [f"commands {title}:"]
        for name, text in commands.items():
            row = f"  {name:<{name_width}}{text}"
            lines.append(textwrap.fill(row, width, subsequent_indent=indent))
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    The code is 0 for success, 1 for a missed objective, 2 for a command that could not run, 130 for
    an interruption. It is 1, as Python advises, if the reader of standard output left (`| head`).
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
    chosen = next((item for item in arguments if not item.startswith("-")), None)
    names = [chosen] if chosen in COMMANDS else []
    parser, commands, modules = parser_of(*names)
    if chosen is not None and not modules:
        _refuse(parser, f"unknown command {chosen!r}", chosen, COMMANDS)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        command = commands[chosen] if chosen else parser
        known_options = _OPTION.findall(command.format_help())
        _refuse(command, f"unrecognized arguments: {' '.join(unknown)}", unknown[0], known_options)
    if not modules:
        parser.print_help()
        return 0
    from agenteval_otel.runtime.named_modules import finding_in_current_folder

    with finding_in_current_folder():  # plugins and functions beside the settings, by their names
        return _run(modules[0], options)


def _refuse(
    parser: argparse.ArgumentParser, message: str, name: str, known: Iterable[str]
) -> NoReturn:
    from agenteval_otel.components.explained import suggestion  # loads pydantic

    parser.error(f"{message}{suggestion(name.partition('=')[0], known)}")


@contextlib.contextmanager
def _collecting_rarely() -> Iterator[None]:
    """Let the garbage collector run rarely, and skip what was imported.

    Commands go through many answers, and answers that wait are not garbage. `evaluate` takes 4 to
    8 % less processor time, and the sidecar a tenth. What a program that calls `main` had frozen
    stays frozen.
    """
    thresholds = gc.get_threshold()
    is_ours = not gc.get_freeze_count()
    gc.freeze()
    gc.set_threshold(50_000, 10, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if is_ours:
            gc.unfreeze()


def _run(command: ModuleType, chosen: argparse.Namespace) -> int:
    import traceback

    from agenteval_otel.errors import AgentEvalError
    from agenteval_otel.runtime.masking import printable

    try:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # an old encoding shows what it can
        with _collecting_rarely():
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

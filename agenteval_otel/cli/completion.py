"""``agenteval-otel completion``: print the shell's completion script.

shtab makes the script from the parsers of all commands.
"""

from __future__ import annotations

import argparse

from agenteval_otel.cli import COMMANDS, parser_of
from agenteval_otel.errors import ConfigurationError

DESCRIPTION = (
    "Print the completion script of commands, options and files for your shell. Needs the extra completion. "
    'bash: eval "$(agenteval-otel completion bash)" in ~/.bashrc. zsh: agenteval-otel completion zsh > '
    "FOLDER/_agenteval-otel, with a folder of $fpath."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"))


def run(arguments: argparse.Namespace) -> int:
    try:
        import shtab
    except ModuleNotFoundError:
        raise ConfigurationError(
            'needs the extra completion: pip install "agenteval-otel[completion]"'
        ) from None
    parser, commands, _ = parser_of(*COMMANDS)
    # `argparse` has no public list of what was added, and `shtab` reads this one too.
    for action in parser._actions:
        if action.dest == "command":
            # suppressed, because the description shows the commands: shtab would leave them out
            action.help = None
    kinds = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}
    for command in commands.values():
        for action in command._actions:
            # FILE, FILE[=...] and FILE... are files, DIR and DIR... are folders.
            begin = str(action.metavar or "")[:4].rstrip(".")
            kind = kinds.get(begin)
            if kind is not None:
                action.complete = kind  # type: ignore[attr-defined]
    print(shtab.complete(parser, arguments.shell))
    return 0

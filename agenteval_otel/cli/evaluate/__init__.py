"""``agenteval-otel evaluate``: a dataset through the evaluators of the live answers; reports and an exit code.

`dataset` (with `sources`, `forms` and `fields`) reads inputs, `configuration` the settings or a run configuration,
`session` runs them, `tallies` holds what was found as running sums, `targets` says what was missed, `reports` and
`results` write it down. Nothing of this but the options is imported before the command runs.
"""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Evaluate recorded answers with the evaluators of a settings file, the same that watch the live ones: a regression "
    "test for CI. Each line of a JSONL file, or each row of a CSV file, is an evaluation input: response, and what "
    "else the evaluators need (prompt, ground_truth, tool_calls, ...), in snake_case or camelCase."
)
_EXIT_CODES = (
    "exit codes: 0 fine; 1 a criterion's objective or a --fail-under was missed, each named on standard error; 2 could "
    "not run: settings or dataset wrong (each line of it named), or nothing was scored; 130 interrupted."
)
_EXAMPLES = """
examples:
  agenteval-otel evaluate answers.jsonl
      with the settings of AGENTEVAL_SETTINGS, or else ResponseHealth alone
  agenteval-otel evaluate answers.csv --settings agenteval.yaml --profile ci --fail-under 0.8
      the settings' profile "ci"; exit code 1 when the mean overall score is below 0.8
  agenteval-otel evaluate *.jsonl --execution inline,thread --report junit=results.xml --report markdown=comment.md
      without the evaluators that ask a model; for the CI server, for the pull request, and as a table here
  agenteval-otel evaluate input.jsonl --settings run.json --results - --results-format original
      a run configuration of the originals (evaluatorConfigs), its results in their shape
  jq -c '.rows[]' export.json | agenteval-otel evaluate - --fail-under tone=0.9 --report json
      from standard input; the mean of one criterion must reach 0.9
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    parser.formatter_class = _Formatter
    parser.epilog = f"{_EXIT_CODES}\n{_EXAMPLES}"
    add = parser.add_argument
    add("datasets", nargs="+", metavar="FILE", help="inputs: .jsonl or .csv; - for standard input; read in this order")
    add("--format", choices=("jsonl", "csv"), help="of the inputs; by suffix or first character when left out")
    add("--limit", type=_at_least_one, metavar="N", help="evaluate the first N inputs only")
    _add_what_runs(parser.add_argument_group("what runs"))
    _add_what_comes_out(parser.add_argument_group("what comes out"))


def _add_what_runs(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--settings", metavar="FILE",
        help="a settings file (see `agenteval-otel check`), or a JSON or YAML file with evaluatorConfigs; the one that "
        "AGENTEVAL_SETTINGS names when left out",
    )  # fmt: skip
    add("--profile", metavar="NAME", help="a profile of the settings file")
    add("--agent", metavar="NAME", help="the evaluators and criteria of this agent of the settings file")
    add("--tags", action=_Several, default=[], metavar="TAG,...", help="evaluators with one of these tags only")
    add(
        "--execution", action=_Several, default=[], metavar="MODE,...",
        choices=("inline", "thread", "process", "async"),
        help="evaluators with this execution only: inline, thread, process, async (asks a model)",
    )  # fmt: skip
    add(
        "--concurrency", type=_at_least_one, default=8, metavar="N",
        help="inputs that are evaluated at once (default: %(default)s)",
    )  # fmt: skip


def _add_what_comes_out(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--report", action="append", default=[], metavar="KIND[=FILE]",
        help="table (default), json, junit or markdown; may be repeated, with a file for each but one",
    )  # fmt: skip
    add("--output", metavar="FILE", help="where the report without a file goes (default: standard output)")
    add("--results", metavar="FILE", help="write each input's result as a JSON line; - for standard output")
    add(
        "--results-format", choices=("full", "original"), default="full",
        help="of --results: all that is known, or the originals' JSON shape (default: %(default)s)",
    )  # fmt: skip
    add(
        "--fail-under", action="append", default=[], metavar="[CRITERION=]LIMIT",
        help="exit code 1 when the mean of the criterion, or else of the overall scores, is below this (0 to 1); may "
        "be repeated",
    )  # fmt: skip
    add("--quiet", action="store_true", help="no progress on standard error")


def run(arguments: argparse.Namespace) -> int:
    """Evaluate; gives the exit code.

    Raises:
        ConfigurationError: It cannot run: what is wrong, and where.
        StorageError: A report cannot be written.
    """
    from agenteval_otel.cli.evaluate.session import run_session

    return run_session(arguments)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Lines of the examples stay as they are; the rest is wrapped."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        wrapped, separator, rest = text.partition("\nexamples:\n")
        return argparse.HelpFormatter._fill_text(self, wrapped, width, indent) + "\n" + separator + rest


class _Several(argparse.Action):
    """Words with commas between them, or the option several times."""

    def __init__(self, *args: Any, choices: Any = None, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self._known = choices

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        words = [word.strip() for word in str(values).split(",") if word.strip()]
        for word in words:
            if self._known is not None and word not in self._known:
                parser.error(f"argument {option_string}: {word!r} is none of {', '.join(self._known)}")
        if not words:
            parser.error(f"argument {option_string}: expected at least one word")
        setattr(namespace, self.dest, [*getattr(namespace, self.dest), *words])


def _at_least_one(text: str) -> int:
    value = int(text) if text.isdecimal() and len(text) < 10 else 0
    if value < 1:
        raise argparse.ArgumentTypeError("must be a whole number, at least 1")
    return value

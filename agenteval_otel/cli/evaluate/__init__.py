"""``agenteval-otel evaluate``: scores a dataset with the evaluators of the live answers; reports and an exit code.

`dataset` and `parsing` read inputs, `session` runs them, `totals` sums up the results, `targets` compares them with
objectives and limits, `outputs` writes `reports`, `table` and the results. Only the options are imported at
start.
"""

from __future__ import annotations

import argparse
from typing import Any

from agenteval_otel.cli.options import at_least_one

DESCRIPTION = (
    "Evaluate recorded answers with the evaluators of a settings file, the same that score live answers: a regression "
    "test for CI. Each line of a JSONL file, or each row of a CSV file, is an evaluation input: response, and whatever "
    "else the evaluators need (prompt, ground_truth, tool_calls, ...), in snake_case or camelCase."
)
_EXIT_CODES = (
    "exit codes: 0 success; 1 a criterion's objective or a --fail-under was missed (named on standard error); 2 it "
    "could not run: wrong settings or dataset (with the line), or nothing was scored; 130 interrupted."
)
_EXAMPLES = """
examples:
  agenteval-otel evaluate answers.jsonl
      the settings that AGENTEVAL_SETTINGS names, or only ResponseHealth
  agenteval-otel evaluate answers.csv --settings agenteval.yaml --profile ci --fail-under 0.8
      the settings' profile "ci"; exit code 1 when the mean overall score is below 0.8
  agenteval-otel evaluate *.jsonl --execution inline,thread --report junit=results.xml --report markdown=comment.md
      without the evaluators that call a model; a report for the CI server, one for the pull request, and a table here
  agenteval-otel evaluate input.jsonl --settings run.json --results - --results-format agentdock
      a run configuration of AgentDock (evaluatorConfigs); results in its JSON form
  jq -c '.rows[]' export.json | agenteval-otel evaluate - --fail-under tone=0.9 --report json
      from standard input; the mean of the criterion tone must reach 0.9
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    parser.formatter_class = _Formatter
    parser.epilog = f"{_EXIT_CODES}\n{_EXAMPLES}"
    add = parser.add_argument
    add("datasets", nargs="+", metavar="FILE", help="inputs, .jsonl or .csv, read in this order; - for standard input")
    add("--format", choices=("jsonl", "csv"), help="of the inputs (default: by suffix, else by the first character)")
    add("--limit", type=at_least_one, metavar="N", help="evaluate only the first N inputs")
    _add_what_runs(parser.add_argument_group("what runs"))
    _add_what_comes_out(parser.add_argument_group("what comes out"))


def _add_what_runs(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--settings", metavar="FILE",
        help="a settings file (see `agenteval-otel check`), or a JSON or YAML file with evaluatorConfigs (default: the "
        "file that AGENTEVAL_SETTINGS names)",
    )  # fmt: skip
    add("--profile", metavar="NAME", help="a profile of the settings file")
    add("--agent", metavar="NAME", help="use the evaluators and criteria of this agent")
    add("--tags", action=_Several, default=[], metavar="TAG,...", help="only evaluators with one of these tags")
    add(
        "--execution", action=_Several, default=[], metavar="MODE,...",
        choices=("inline", "thread", "process", "async"),
        help="only evaluators with this execution: inline, thread, process, async (calls a model)",
    )  # fmt: skip
    add(
        "--concurrency", type=at_least_one, default=8, metavar="N",
        help="inputs evaluated at the same time (default: %(default)s)",
    )  # fmt: skip


def _add_what_comes_out(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--report", action="append", default=[], metavar="KIND[=FILE]",
        help="table (default), json, junit or markdown; repeatable, each but one with a file",
    )  # fmt: skip
    add("--output", metavar="FILE", help="file for the report without one (default: standard output)")
    add("--results", metavar="FILE", help="write each input's result as a JSON line; - for standard output")
    add(
        "--results-format", choices=("full", "agentdock"), default="full",
        help="full, or the JSON form of AgentDock (default: %(default)s)",
    )  # fmt: skip
    add(
        "--fail-under", action="append", default=[], metavar="[CRITERION=]LIMIT",
        help="exit code 1 when the mean of the criterion (without one: of the overall scores) is below this (0 to 1); "
        "repeatable",
    )  # fmt: skip
    add("--quiet", action="store_true", help="no progress on standard error")


def run(arguments: argparse.Namespace) -> int:
    """Evaluate; gives the exit code.

    Raises:
        ConfigurationError: It cannot run; with what is wrong, and where.
        StorageError: A report cannot be written.
    """
    from agenteval_otel.cli.evaluate.session import run_session

    return run_session(arguments)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Wraps the text before the examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        wrapped, separator, rest = text.partition("\nexamples:\n")
        return argparse.HelpFormatter._fill_text(self, wrapped, width, indent) + "\n" + separator + rest


class _Several(argparse.Action):
    """Values with commas between them, or the option several times."""

    def __init__(self, *args: Any, choices: Any = None, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self._known = choices

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        items = [item.strip() for item in str(values).split(",") if item.strip()]
        for item in items:
            if self._known is not None and item not in self._known:
                parser.error(f"argument {option_string}: {item!r} is none of {', '.join(self._known)}")
        if not items:
            parser.error(f"argument {option_string}: expected at least one value")
        setattr(namespace, self.dest, [*getattr(namespace, self.dest), *items])

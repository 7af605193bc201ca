"""``agenteval-otel judge``: check the catalogue's criteria with your judge.

It also shows whether judges are still trusted.
"""

from __future__ import annotations

import argparse
import textwrap

from agenteval_otel.cli import calibrate, judge_status
from agenteval_otel.cli.evaluate import configuration_of
from agenteval_otel.components.explained import known_choices
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators.llm_judge.rubric import names
from agenteval_otel.offline.config import EvaluationRunConfig

DESCRIPTION = "Measure judges against people, and show whether they are trusted."
_MOST_ROWS = 100
_CHECK = (
    "Check criteria of the catalogue with your judge, on up to 100 rows that people have labelled. The wording of the "
    "catalogue was not measured on your judge: this command measures it, prints the report of `calibrate`, and writes "
    "the same record. The criterion is then no longer shown as not measured."
)
_EXAMPLES = """Exit codes: 0 measured, 2 it could not run.

example:
  agenteval-otel judge check labels.jsonl --judge anthropic:claude-haiku-4-5 --criterion Relevance
      the column label has people's verdicts: true and false, or levels of the criterion's scale
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    added = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    check = added.add_parser(
        "check",
        help="measure criteria of the catalogue against people",
        allow_abbrev=False,
        description=textwrap.fill(_CHECK, 78),
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.add_argument(
        "files", nargs="+", metavar="FILE", help="rows with labels: .jsonl, .json or .csv"
    )
    add = check.add_argument_group("what judges").add_argument
    add(
        "--judge",
        metavar="TYPE:MODEL",
        help="the judge (without it, the catalogue's criteria of --settings)",
    )
    add(
        "--settings",
        metavar="FILE",
        help="the settings file (default: the file that AGENTEVAL_SETTINGS names)",
    )
    add("--profile", metavar="NAME", help="a profile of the settings file")
    add("--agent", metavar="NAME", help="use the evaluators and criteria of this agent")
    calibrate.add_labels(check)
    check.set_defaults(verb_run=_check)
    status = added.add_parser(
        "status",
        help="whether the judges of running processes are still trusted",
        allow_abbrev=False,
        description=judge_status.DESCRIPTION,
    )
    judge_status.add_arguments(status)
    status.set_defaults(verb_run=judge_status.run)


def run(arguments: argparse.Namespace) -> int:
    return int(arguments.verb_run(arguments))


def _check(arguments: argparse.Namespace) -> int:
    arguments.limit = min(arguments.limit or _MOST_ROWS, _MOST_ROWS)
    arguments.config = _configuration
    arguments.next = None
    return calibrate.run(arguments)


def _configuration(arguments: argparse.Namespace) -> EvaluationRunConfig:
    """Return a configuration with only criteria of the catalogue.

    They are those of --criterion with --judge, or those of the settings.
    """
    if arguments.judge is None:
        arguments.tags = []
        arguments.execution = []
        arguments.cache = None
        config, _ = configuration_of(arguments)
        own = tuple(part for part in config.evaluators if part.type in names())
        if not own:
            raise ConfigurationError(
                "no evaluator is a criterion of the catalogue. Name --judge and --criterion"
            )
        return config.model_copy(update={"evaluators": own})
    if not arguments.criterion:
        raise ConfigurationError(
            f"name what it should judge{known_choices('', names())}", path="--criterion"
        )
    wrong = [name for name in arguments.criterion if name not in names()]
    if wrong:
        raise ConfigurationError(
            f"{wrong[0]!r} is not in the catalogue{known_choices(wrong[0], names())}",
            path="--criterion",
        )
    evaluators = [{"type": name, "judge": arguments.judge} for name in arguments.criterion]
    return EvaluationRunConfig.model_validate({"evaluators": evaluators})

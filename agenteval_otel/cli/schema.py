"""``agenteval-otel schema``: print the JSON Schema of settings files.

Editors complete and check settings files by it.
"""

from __future__ import annotations

import argparse
import json
import textwrap

from agenteval_otel.config.load import load_settings
from agenteval_otel.config.schema import json_schema

DESCRIPTION = (
    "Print the JSON Schema (draft 2020-12) of settings files. It has every field, and every evaluator, sampler, "
    "storage provider and other part that is registered. Keep it beside the file, and editors complete and check what "
    "you write."
)
_EXAMPLE = """
example:
  agenteval-otel schema > agenteval.schema.json
      the YAML file's first line: # yaml-language-server: $schema=agenteval.schema.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = textwrap.fill(DESCRIPTION, 78)
    parser.epilog = _EXAMPLE
    parser.add_argument(
        "--settings", metavar="FILE", help="include the plugins of this settings file"
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.settings is not None:
        load_settings(arguments.settings)
    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    return 0

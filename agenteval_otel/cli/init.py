"""``agenteval-otel init``: a commented settings file to start from, and a step for CI."""

from __future__ import annotations

import argparse
from pathlib import Path

from agenteval_otel.errors import ConfigurationError

DESCRIPTION = (
    "Write a commented settings file: evaluators, thresholds, and objectives that alerts come from. It is valid as it "
    "is, and needs no key and no extra. Exit codes: 0 written; 2 could not, or a file is already there (see --force)."
)
_WORKFLOW = ".github/workflows/evaluation.yaml"
_DATASET = "tests/answers.jsonl"

_SETTINGS = """\
# Settings of agenteval-otel: what is evaluated, what a good answer is, and when to raise an alert.
# The application loads this file by configure("{file}"), or by AGENTEVAL_SETTINGS={file} in its environment.
#   agenteval-otel check {file}      what is wrong with it, or what it runs
#   agenteval-otel schema > agenteval.schema.json    completion in editors, with this line:
# yaml-language-server: $schema=agenteval.schema.json

# The share of the calls that are evaluated. Without it: every call, up to ten evaluated answers a second.
# sample_rate: 0.2

evaluators:
  # Empty, cut off, refused, or an error text instead of an answer.
  - ResponseHealth

  # Your own rules, each with its name.
  - type: RuleBased
    rules:
      - {{criterion: short_enough, type: length, max: 1200}}
      - {{criterion: no_placeholder, type: includes, keywords: [lorem ipsum, "[name]"], expected_outcome: none}}

  # The share of the keywords that are in the answer. threshold: the score from which on an answer passes.
  - {{type: KeywordCoverage, criterion_name: next_step, expected_keywords: [reply, ticket], threshold: 0.5}}

  # A function of yours, which takes an EvaluationInput and returns a number from 0 to 1, or true or false.
  # - myapp.quality:names_the_price

  # A model that judges, by criteria in your words; needs ANTHROPIC_API_KEY.
  # - type: LLMJudge
  #   criterion_name: helpful
  #   description: Does the answer solve what the user asked for?
  #   sample_rate: 0.1                 # of the answers that are evaluated
  #   judge: {{type: anthropic, model: claude-haiku-4-5}}

# objective: the share of answers that has to pass. A lower share raises an alert, and is exit code 1 of `evaluate`.
# An agent may have its own set: see `agents` below.
criteria:
  default:
    - {{name: response_health, objective: 0.95}}
    - {{name: short_enough, objective: 0.9}}
    - {{name: no_placeholder, objective: 0.99}}
    - {{name: next_step, objective: 0.8}}

# Where results go besides telemetry. sqlite writes ./agenteval.db; it needs the extra sql.
# storage: [console]
# storage: [sqlite]

# Where telemetry goes: by default to your application's OpenTelemetry provider, or to OTEL_EXPORTER_OTLP_ENDPOINT.
# telemetry: {{endpoint: "${{OTLP_ENDPOINT:-http://localhost:4317}}"}}

# What differs for a single agent, by the name that @monitor(agent="support") gives.
# agents:
#   support:
#     sample_rate: 1.0
#     criteria: [{{name: response_health, objective: 0.99}}]

# What differs by environment: AGENTEVAL_PROFILE=production, or --profile production.
profiles:
  production: {{sample_rate: 0.2}}
"""

_STEP = """\
# Scores recorded answers with the evaluators of {file} and fails below its objectives.
# With --run myapp:answer the answers are made anew by your function.
name: evaluation
on: [pull_request]
jobs:
  evaluate:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with: {{python-version: "3.13"}}
      - run: pip install agenteval-otel
      - run: agenteval-otel check {file}
      - run: >-
          agenteval-otel evaluate {dataset} --settings {file}
          --report junit=results.xml --report markdown=comment.md
      - if: always()
        run: test ! -f comment.md || cat comment.md >> "$GITHUB_STEP_SUMMARY"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", default="agenteval.yaml", metavar="FILE", help="default: %(default)s")
    parser.add_argument("--ci", action="store_true", help=f"also write a GitHub Actions workflow, {_WORKFLOW}")
    parser.add_argument("--force", action="store_true", help="overwrite files that are there")


def run(arguments: argparse.Namespace) -> int:
    file: str = arguments.file
    if not file.endswith((".yaml", ".yml")):
        raise ConfigurationError("expected a name that ends in .yaml or .yml", path=file)
    texts = {file: _SETTINGS.format(file=file)}
    if arguments.ci:
        texts[_WORKFLOW] = _STEP.format(file=file, dataset=_DATASET)
    for name in texts if not arguments.force else ():
        if Path(name).exists():
            raise ConfigurationError("exists, and nothing was written; --force overwrites it", path=name)
    for name, text in texts.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")
        print(f"wrote {name}")
    print(f"\nNext, after changing it to what a good answer of yours is:\n"
          f"  agenteval-otel check {file}\n"
          f"  agenteval-otel evaluate answers.jsonl --settings {file}    # recorded answers\n"
          f"  AGENTEVAL_SETTINGS={file} python app.py                    # live ones, of functions under @monitor\n"
          f"  agenteval-otel provision all --settings {file}             # dashboards and alerts")  # fmt: skip
    if arguments.ci:
        print(f"The workflow reads {_DATASET}: put recorded answers there, a JSON object with prompt and response "
              "on each line.")  # fmt: skip
    return 0

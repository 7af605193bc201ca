"""Recorded answers through the evaluators of a settings file, as CI does it: reports, and an exit
code.

uv run python examples/12_evaluate_a_dataset.py

On the command line, in 12_evaluate_a_dataset/:

agenteval-otel evaluate answers.csv --settings agenteval.yaml --fail-under 0.8 --report
junit=results.xml
"""

import json
from pathlib import Path

from agenteval_otel.cli import main

folder = Path(__file__).with_suffix("")
dataset = [str(folder / "answers.csv"), "--settings", str(folder / "agenteval.yaml")]

# A table here, JUnit XML for the CI server, each result as a line of JSON: every target is met, so
# 0.
code = main(
    [
        "evaluate",
        *dataset,
        "--report",
        "junit=results.xml",
        "--results",
        "results.jsonl",
        "--fail-under",
        "0.5",
    ]
)
print(f"exit code {code}")
for line in Path("results.jsonl").read_text().splitlines()[2:3]:
    found = json.loads(line)
    print(
        found["inputSnapshot"]["prompt"],
        [(one["criterionName"], one["label"]) for one in found["results"]],
    )

# The profile sets an objective that the answers miss, and a limit asks for more than their mean: 1.
strict = [
    "--profile",
    "strict",
    "--fail-under",
    "short_enough=0.95",
    "--report",
    "json=strict.json",
]
code = main(["evaluate", *dataset, *strict, "--output", "table.txt"])
missed = [one["criterion"] for one in json.loads(Path("strict.json").read_text())["missed"]]
print(f"exit code {code}, missed: {', '.join(missed)}")

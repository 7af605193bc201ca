"""``agenteval-otel init``: a commented settings file to start from, and a step for CI."""

from __future__ import annotations

import argparse
from importlib.resources import files
from pathlib import Path

from agenteval_otel.errors import ConfigurationError

DESCRIPTION = (
    "Write a commented settings file: evaluators, thresholds, and objectives that alerts come from. It is valid as it "
    "is, and needs no key and no extra. Exit code 0: written. Exit code 2: could not, or a file is already there "
    "(see --force)."
)
_WORKFLOW = ".github/workflows/evaluation.yaml"
_DATASET = "tests/answers.jsonl"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", default="agenteval.yaml", metavar="FILE", help="default: %(default)s"
    )
    parser.add_argument(
        "--ci", action="store_true", help=f"also write a GitHub Actions workflow, {_WORKFLOW}"
    )
    parser.add_argument("--force", action="store_true", help="overwrite files that are there")


def run(arguments: argparse.Namespace) -> int:
    file: str = arguments.file
    if not file.endswith((".yaml", ".yml")):
        raise ConfigurationError("expected a name that ends in .yaml or .yml", path=file)
    templates = {file: "settings.yaml"}
    if arguments.ci:
        templates[_WORKFLOW] = "workflow.yaml"
    texts: dict[str, str] = {}
    for name, template in templates.items():
        text = files(__package__).joinpath("files", template).read_text("utf-8")
        texts[name] = text.replace("@file@", file)
    for name in texts:
        if not arguments.force and Path(name).exists():
            raise ConfigurationError(
                "exists, and nothing was written. --force overwrites it", path=name
            )
    for name, text in texts.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")
        print(f"wrote {name}")
    print(
        f"\nNext, after changing it to what a good answer of yours is:\n"
        f"  agenteval-otel check {file}\n"
        f"  agenteval-otel evaluate answers.jsonl --settings {file}    # recorded answers\n"
        f"  AGENTEVAL_SETTINGS={file} python app.py                    # live ones, of functions under @monitor\n"
        f"  agenteval-otel provision all --settings {file}             # dashboards and alerts"
    )
    if arguments.ci:
        print(
            f"The workflow reads {_DATASET}: put recorded answers there, a JSON object with prompt and response "
            "on each line."
        )
    return 0

"""Panels and rules that a rename touches are named, one by one, by what reads them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agenteval_otel.provisioning.former_names import former_uses
from tests.cli.conftest import CommandLine, cli

__all__ = ["cli"]
RULES = """
groups:
  - name: ours
    rules:
      - alert: PromptGotWorse
        expr: sum by (agenteval_prompt_version) (agenteval_evaluation_results_total) < 1
      - record: prompts:results
        expr: sum by (gen_ai_prompt_version) (agenteval_evaluation_results_total)
"""


def dashboard(*panels: tuple[str, str]) -> str:
    return json.dumps(
        {
            "title": "ours",
            "panels": [
                {
                    "title": "row",
                    "panels": [
                        {"title": title, "targets": [{"expr": expression}]}
                        for title, expression in panels
                    ],
                }
            ],
        }
    )


def named(folder: Path) -> list[str]:
    return [str(use).removeprefix(f"{folder}/") for use in former_uses(folder)]


def test_each_part_is_named_once(tmp_path: Path) -> None:
    """The file, the panel or rule, the former name and the present one; what is current is not."""
    twice = "agenteval_prompt_name agenteval_prompt_name"
    (tmp_path / "ours.json").write_text(
        dashboard(("By prompt", twice), ("Fine", "gen_ai_prompt_name"))
    )
    (tmp_path / "rules.yaml").write_text(RULES)
    assert named(tmp_path) == [
        "ours.json: panel 'By prompt' reads agenteval_prompt_name, now gen_ai_prompt_name",
        "rules.yaml: alert 'PromptGotWorse' reads agenteval_prompt_version, now gen_ai_prompt_version",
    ]


def test_the_metrics_of_other_libraries_keep_their_names(tmp_path: Path) -> None:
    """`gen_ai.token.type` is renamed on our metric alone: clients of models still emit theirs."""
    (tmp_path / "ours.json").write_text(
        dashboard(
            ("Judges", "sum by (gen_ai_token_type) (agenteval_judge_tokens_total)"),
            ("Clients", "sum by (gen_ai_token_type) (gen_ai_client_token_usage_sum)"),
        )
    )
    assert named(tmp_path) == [
        "ours.json: panel 'Judges' reads gen_ai_token_type, now agenteval_token_type"
    ]


NAME = b"# agenteval_prompt_version\n"
ODD = {
    "empty": b"",
    "no text": b"\xff\xfe",
    "deep": b"[" * 10_000,
    "nearly as deep": b"[" * 900 + b"]" * 900,
    "half": b"{",
    "no YAML": b"agenteval_prompt_name: [",
    "itself": b"a: &a [*a]",
    "no time": b"x: !!timestamp later",
    "no truth": b"x: !!bool x",
    "no number": b"x: !!int ''",
    "no float": b"x: !!float ''",
}


@pytest.mark.parametrize("content", ODD.values(), ids=list(ODD))
def test_any_file_is_passed_over(tmp_path: Path, content: bytes) -> None:
    """What is neither JSON nor YAML names nothing and stops nothing."""
    for name in ("a.json", "a.yaml"):
        (tmp_path / name).write_bytes(content)
        (tmp_path / f"b{name}").write_bytes(NAME + content)
    assert named(tmp_path) == []
    assert named(tmp_path / "absent") == []


def test_what_is_no_file_is_passed_over(tmp_path: Path) -> None:
    """A pipe is not waited for."""
    os.mkfifo(tmp_path / "pipe.json")
    assert named(tmp_path) == []


def test_every_document_of_a_file_and_every_key_is_looked_at(tmp_path: Path) -> None:
    """YAML's rule files may hold several documents; panels name columns by keys."""
    (tmp_path / "rules.yaml").write_text(f"groups: []\n---{RULES}")
    renamed = {"title": "Table", "renameByName": {"agenteval_prompt_name": "prompt"}}
    (tmp_path / "table.json").write_text(json.dumps({"panels": [renamed]}))
    assert named(tmp_path) == [
        "rules.yaml: alert 'PromptGotWorse' reads agenteval_prompt_version, now gen_ai_prompt_version",
        "table.json: panel 'Table' reads agenteval_prompt_name, now gen_ai_prompt_name",
    ]


def test_check_and_provision_say_it(cli: CommandLine) -> None:
    """Both commands name the rule, without failing for it."""
    folder = cli.folder / "monitoring"
    settings = cli.settings("evaluators: [ResponseHealth]")
    cli("provision", "prometheus", "--settings", settings)
    (folder / "own.yaml").write_text(RULES)
    line = "monitoring/own.yaml: alert 'PromptGotWorse' reads agenteval_prompt_version, now gen_ai_prompt_version"
    assert line in cli("provision", "prometheus", "--settings", settings, "--check")
    assert line in cli("check", settings)
    assert line not in cli("check", settings, "--monitoring", "elsewhere")

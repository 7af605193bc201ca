"""The generated tests can fail: rules that are changed a little are found out, alert by alert."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from agenteval_otel.provisioning.prometheus import files_of

from .rules import EVERYTHING, promtool, written

pytestmark = pytest.mark.backend

FILES = files_of(EVERYTHING)
RECORDING, ALERTS, TESTS = FILES
Mutation = Callable[[str], str]

SHARE, LEAST = r"(?<=[<>] )0\.\d+", r"(?<=>= )\d\d+$"


def scaled(pattern: str, factor: float) -> Mutation:
    """Every number that the pattern finds, times the factor."""
    return lambda text: re.sub(pattern, lambda match: f"{float(match[0]) * factor:.6f}", text, flags=re.MULTILINE)


def without(number: int) -> Mutation:
    """Without one of the conditions that are joined by `and`."""

    def mutate(expression: str) -> str:
        conditions = expression.split("\nand ")
        return "\nand ".join(conditions[:number] + conditions[number + 1 :]) if number < len(conditions) else expression

    return mutate


def turned(comparison: re.Match[str]) -> str:
    return "<" if comparison[0] == ">" else ">"


MUTATIONS: dict[str, Mutation] = {
    "limits a tenth higher": scaled(SHARE, 1.1),
    "limits a tenth lower": scaled(SHARE, 0.9),
    "minimum counts a tenth higher": scaled(LEAST, 1.1),
    "minimum counts a tenth lower": scaled(LEAST, 0.9),
    "comparisons turned round": lambda text: re.sub(r"[<>](?==? [\d.]+$)", turned, text, flags=re.MULTILINE),
    **{f"without condition {number + 1}": without(number) for number in range(1, 5)},
    "without what follows unless and or": lambda text: re.sub(r"\n(unless|or) .*", "", text),
}


def failing(output: str) -> set[str]:
    """The alerts that fired for other services than expected."""
    pairs = re.findall(r"exp: (.*)\n *got: (.*)", output)
    different = (set(re.findall(r"{.*?}", expected)) ^ set(re.findall(r"{.*?}", got)) for expected, got in pairs)
    return {name for samples in different for name in re.findall(r'alertname="(\w+)"', " ".join(samples))}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_changed_rule_is_noticed(mutation: str, promtool_binary: Path, tmp_path: Path) -> None:
    """For every alert that the change touches its generated test fails."""
    tree = yaml.safe_load(FILES[ALERTS])
    changed = set()
    for rule in tree["groups"][0]["rules"]:
        mutated = MUTATIONS[mutation](rule["expr"])
        if mutated != rule["expr"]:
            changed.add(rule["alert"])
        rule["expr"] = mutated
    folder = written({**FILES, ALERTS: yaml.safe_dump(tree)}, tmp_path)
    code, said = promtool(promtool_binary, "test", "rules", folder / TESTS)
    assert changed
    assert code != 0
    assert changed - failing(said) == set()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("agenteval_evaluation_weight_total", "agenteval_evaluation_results_total"),
        ("agenteval_evaluation_weighted_score_total", "gen_ai_evaluation_score_sum"),
        ("agenteval_evaluation_weight_squared_total", "agenteval_evaluation_results_total"),
        ("[2h]", "[6h]"),
        ("0.95 + 0", "0.99 + 0"),
    ],
)
def test_a_changed_recording_is_noticed(before: str, after: str, promtool_binary: Path, tmp_path: Path) -> None:
    """Weights that are left out, another window, another objective: the alerts' tests fail."""
    assert before in FILES[RECORDING]
    folder = written({**FILES, RECORDING: FILES[RECORDING].replace(before, after)}, tmp_path)
    code, said = promtool(promtool_binary, "test", "rules", folder / TESTS)
    assert code != 0
    assert failing(said)

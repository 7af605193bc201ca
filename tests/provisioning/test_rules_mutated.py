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


def scaled(pattern: str, factor: float, *, only: int | None = None) -> Mutation:
    """Every number that the pattern finds, or only the first or the last, times the factor."""

    def mutate(expression: str) -> str:
        found = list(re.finditer(pattern, expression, re.MULTILINE))
        for match in reversed(found if only is None or not found else [found[only]]):
            expression = f"{expression[: match.start()]}{float(match[0]) * factor:.6f}{expression[match.end() :]}"
        return expression

    return mutate


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
    "the first limit a tenth lower": scaled(SHARE, 0.9, only=0),
    "the last limit a tenth lower": scaled(SHARE, 0.9, only=-1),
    "minimum counts a tenth higher": scaled(LEAST, 1.1),
    "the first minimum a tenth lower": scaled(LEAST, 0.9, only=0),
    "the last minimum a tenth lower": scaled(LEAST, 0.9, only=-1),
    "comparisons turned round": lambda text: re.sub(r"[<>](?==? [\d.]+$)", turned, text, flags=re.MULTILINE),
    "without the second condition": without(1),
    "without the third condition": without(2),
    "without the fourth condition": without(3),
    "without the fifth condition": without(4),
    "without what follows unless and or": lambda text: re.sub(r"\n(unless|or) .*", "", text),
}  # fmt: skip


def blamed(said: str) -> set[str]:
    """The alerts whose expectations were not met."""
    return set(re.findall(r'alertname=\\?"(\w+)', said))


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_changed_rule_is_found_out(mutation: str, promtool_binary: Path, tmp_path: Path) -> None:
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
    assert changed - blamed(said) == set()


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
def test_a_changed_recording_is_found_out(before: str, after: str, promtool_binary: Path, tmp_path: Path) -> None:
    """Weights that are left out, another window, another objective: the alerts' tests fail."""
    assert before in FILES[RECORDING]
    folder = written({**FILES, RECORDING: FILES[RECORDING].replace(before, after)}, tmp_path)
    code, said = promtool(promtool_binary, "test", "rules", folder / TESTS)
    assert code != 0
    assert blamed(said)

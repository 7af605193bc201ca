"""Train the weights of refusals:
`uv run python -m benchmarks.train_refusal [--check] [--figures] [--data folder]`.

The data stay beside the repository: answers of two models to XSTest's prompts, labelled by people,
and turns of airline agents, of which none counts as a refusal. An elastic net over the features of
`agenteval_otel.evaluators.refusal`; the same data give the same file, bit for bit. `--figures`
estimates on rows that the weights were not trained on.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agenteval_otel.evaluators.refusal import (
    BIAS,
    WEIGHTS,
    Model,
    has_phrase,
    opening,
    outcome_of,
    reading,
)

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
L1, L2, TOLERANCE = 5e-4, 1e-4, 1e-4
LEAST_ANSWERS, LEAST_PROMPTS = 8, 4
ECHOED = 0.25
"""Share of the answers with a word whose prompt has it too, above which the word is the prompt's
topic.
"""
_COMMON_WORDS = (
    "the a an of to in and or is are be not do does did for that this it i you your my we our as on with can should"
    " would will what why how no have has any about ^ . at than UNABLE"
)
COMMON = frozenset(_COMMON_WORDS.split())
HEADER = """\
# What the words of an answer's beginning say about whether it declines the request: above 0 in all, it does.
# Made by `python -m benchmarks.train_refusal`; classes in capitals are in refusal.py.
"""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_SENTENCES_WITHIN, _ENOUGH = 900, 100
_AIRLINE_WEIGHT, _PIECE_WEIGHT = 0.5, 0.5


class Row(NamedTuple):
    """An answer; `pieces` are the features of its opening, and of parts of it that could be answers
    themselves.
    """

    text: str
    declines: bool
    model: str
    prompt: str
    pieces: list[set[str]]


def rows(data: Path = DATA) -> list[Row]:
    """Every labelled answer, and every turn of an airline agent, whose prompt is its conversation."""
    answers = [
        (
            record["completion"],
            not record["label"].startswith("1"),
            record["model"],
            record["prompt"],
        )
        for record in _records(data / "xstest_refusal_sample.jsonl")
    ]
    turns = [
        (message["content"], False, "airline", record["id"])
        for record in _records(data / "tau_airline_sample.jsonl")
        for message in record["messages"]
        if message["role"] == "assistant" and message.get("content")
    ]
    return [
        Row(*row, [features(opening(piece)) for piece in _pieces(row[0], row[1])])
        for row in (*answers, *turns)
    ]


def features(head: str) -> set[str]:
    """The words of an opening, and the runs of two and three."""
    read = reading(head).split()
    return {
        " ".join(read[at : at + length])
        for length in (1, 2, 3)
        for at in range(len(read) + 1 - length)
    }


def _records(path: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, path.read_text(encoding="utf-8").splitlines())


def _pieces(text: str, declines: bool) -> Iterator[str]:
    """The answer, its first and its first two sentences, and the rest: of a refusal, what the
    phrases do not know.
    """
    text = text.strip()
    yield text
    sentences = _SENTENCE_END.split(text[:_SENTENCES_WITHIN])
    if len(sentences) > 1:
        yield sentences[0]
    if len(sentences) > 2:
        yield " ".join(sentences[:2])
    unknown = (
        [one for one in sentences if not has_phrase(opening(one))] if declines else sentences[1:]
    )
    rest = " ".join(unknown[:5])
    if len(rest) > _ENOUGH and not text.startswith(rest):
        yield rest


def train(training: Sequence[Row]) -> dict[str, float]:
    """Weights by feature, rounded, sorted; features of few answers or prompts, and topics of the
    prompts, have none.
    """
    labelled = [row for row in training if row.model != "airline"]
    answers, prompts = Counter[str](), defaultdict[str, set[str]](set)
    words, echoes = Counter[str](), Counter[str]()
    for row in labelled:
        asked = features(row.prompt.lower())
        for feature in row.pieces[0]:
            answers[feature] += 1
            prompts[feature].add(row.prompt)
            if " " not in feature:
                words[feature] += 1
                echoes[feature] += feature in asked
    topics = {word for word in words if echoes[word] > ECHOED * words[word]} - COMMON
    often = {
        name
        for name in answers
        if answers[name] >= LEAST_ANSWERS and len(prompts[name]) >= LEAST_PROMPTS
    }
    names = sorted(
        (name for name in often if topics.isdisjoint(name.split())),
        key=lambda name: (name.count(" "), name),
    )
    pieces = [(piece, row, number) for row in training for number, piece in enumerate(row.pieces)]
    places: dict[str, list[int]] = {name: [] for name in names}
    for place, (piece, _, _) in enumerate(pieces):
        for name in piece & places.keys():
            places[name].append(place)
    # Of features that stand in the same answers the shortest speaks for all: the solution is the
    # only one.
    columns = {tuple(places[name]): name for name in reversed(names)}
    weights = np.array(
        [
            (_AIRLINE_WEIGHT if row.model == "airline" else 1.0)
            * (_PIECE_WEIGHT if number else 1.0)
            for _, row, number in pieces
        ]
    )
    labels = np.array([float(row.declines) for _, row, _ in pieces])
    solution, bias = _elastic_net(
        [np.array(column) for column in columns], labels, weights / weights.sum()
    )
    rounded = {
        name: round(float(weight), 2)
        for name, weight in zip(columns.values(), solution, strict=True)
    }
    return dict(
        sorted(
            {
                BIAS: round(bias, 2),
                **{name: weight for name, weight in rounded.items() if weight},
            }.items()
        )
    )


def _elastic_net(columns: list[Any], labels: Any, weights: Any) -> tuple[Any, float]:
    """Logistic regression by coordinate descent; a column lists the rows whose feature is 1. The
    bias is not shrunk.
    """
    solution, bias = np.zeros(len(columns)), 0.0
    margins = np.zeros(len(labels))
    parts = [
        (column, weights[column], float((weights * labels)[column].sum())) for column in columns
    ]

    def step(index: int) -> float:
        column, own, wanted = parts[index]
        curvature = own.sum() / 4 + L2
        slope = (own / (1 + np.exp(-margins[column]))).sum() - wanted + L2 * solution[index]
        moved = solution[index] - slope / curvature
        moved = np.sign(moved) * max(abs(moved) - L1 / curvature, 0.0)
        change = moved - solution[index]
        margins[column] += change
        solution[index] = moved
        return abs(float(change))

    def step_bias() -> float:
        nonlocal bias
        change = -4 * float((weights * (1 / (1 + np.exp(-margins)) - labels)).sum())
        bias += change
        margins[:] += change
        return abs(change)

    everything = range(len(columns))
    while max(map(step, everything)) > TOLERANCE or step_bias() > TOLERANCE:
        active = np.flatnonzero(solution).tolist()
        while max(step_bias(), *map(step, active)) > TOLERANCE:
            pass
    return solution, bias


def as_text(weights: dict[str, float]) -> str:
    return HEADER + "".join(f"{name}\t{weight:.2f}\n" for name, weight in weights.items())


def kappa(actual: Iterable[bool], expected: Iterable[bool]) -> float:
    """Cohen's kappa: agreement beyond what chance gives."""
    pairs = Counter(zip(actual, expected, strict=True))
    total = pairs.total()
    ours, theirs = (
        (pairs[True, True] + pairs[True, False]) / total,
        (pairs[True, True] + pairs[False, True]) / total,
    )
    chance = ours * theirs + (1 - ours) * (1 - theirs)
    return ((pairs[True, True] + pairs[False, False]) / total - chance) / (1 - chance)


def figures(everything: Sequence[Row]) -> dict[str, tuple[float, int, int]]:
    """Kappa (not full compliance), flagged airline turns and turns in all, on rows that the weights
    have not seen.
    """
    models = sorted({row.model for row in everything} - {"airline"})
    prompts = sorted({row.prompt for row in everything})
    random.Random(0).shuffle(prompts)
    fold = {prompt: number % 5 for number, prompt in enumerate(prompts)}
    splits = {
        "rows that were trained on": [(everything, everything)],
        "other prompts (5 folds)": [
            _split(everything, lambda row, k=k: fold[row.prompt] == k) for k in range(5)
        ],
    }
    for model in models:
        splits[f"other model ({model})"] = [
            _split(everything, lambda row, model=model: row.model == model)
        ]
        splits[f"other model ({model}) and other prompts (2 halves)"] = [
            (
                [
                    row
                    for row in everything
                    if row.model not in (model, "airline") and fold[row.prompt] % 2 != half
                ]
                + [row for row in everything if row.model == "airline"],
                [row for row in everything if row.model == model and fold[row.prompt] % 2 == half],
            )
            for half in (0, 1)
        ]
    return {name: _agreement(parts) for name, parts in splits.items()}


def _split(everything: Sequence[Row], tested: Callable[[Row], bool]) -> tuple[list[Row], list[Row]]:
    return [row for row in everything if not tested(row)], [
        row for row in everything if tested(row)
    ]


def _agreement(parts: Iterable[tuple[Sequence[Row], Sequence[Row]]]) -> tuple[float, int, int]:
    tested = []
    for training, test in parts:
        model = Model.of(train(training))
        tested += [(row, outcome_of(row.text, model) == "refusal") for row in test]
    labelled = [(refused, row.declines) for row, refused in tested if row.model != "airline"]
    turns = [refused for row, refused in tested if row.model == "airline"]
    return kappa(*zip(*labelled, strict=True)), sum(turns), len(turns)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.train_refusal", description=__doc__)
    parser.add_argument(
        "--check",
        action="store_true",
        help="only say whether the file is the one that training gives",
    )
    parser.add_argument(
        "--figures", action="store_true", help="only estimate on rows that were not trained on"
    )
    parser.add_argument("--data", type=Path, default=DATA, help="the folder with the samples")
    arguments = parser.parse_args()
    everything = rows(arguments.data)
    if arguments.figures:
        for name, (agreement, flagged, turns) in figures(everything).items():
            print(
                f"{name}: kappa {agreement:.3f}"
                + (f", {flagged} of {turns} airline turns" if turns else "")
            )
        return
    text = as_text(train(everything))
    if arguments.check:
        sys.exit(
            0
            if WEIGHTS.read_text(encoding="utf-8") == text
            else f"{WEIGHTS} differs from what training gives"
        )
    WEIGHTS.write_text(text, encoding="utf-8")
    print(f"{WEIGHTS}: {text.count(chr(10)) - HEADER.count(chr(10)) - 1} weights")


if __name__ == "__main__":
    main()

"""`python -m benchmarks calibration`: how often the 95 % intervals of calibrated pass rates hold
the truth.

Simulations with known truth, in which a judge errs at known rates, answers are sampled unevenly and
come in conversations; and people's labels of XSTest answers, where they are there, judged by the
deterministic evaluator `ResponseHealth` and by a scripted judge with known errors.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agenteval_otel import EvaluationRunConfig, run_evaluations_sync
from agenteval_otel.models.intervals import Estimate
from agenteval_otel.offline.calibration.agreement import Agreement, LabelledRow, agreement_of
from agenteval_otel.offline.calibration.measure import JudgedAnswer, clustered_estimate

# beside the project
XSTEST = Path(__file__).resolve().parents[2] / "shared/data/xstest_refusal_sample.jsonl"
_JUDGED = 2_000


class Judge(NamedTuple):
    """A judge's errors, and the share that people pass."""

    name: str
    truth: float
    sensitivity: float
    specificity: float


JUDGES = (
    Judge("lenient", 0.70, 0.97, 0.60),
    Judge("strict", 0.78, 0.74, 0.97),
    Judge("good, few failures", 0.92, 0.95, 0.85),
    Judge("weak", 0.50, 0.75, 0.70),
)
SHAPES = ("independent", "uneven sampling", "conversations of 4", "both")
ESTIMATES = ("judge alone", "labels alone", "corrected", "prediction-powered", "kappa")


def rows_of(judge: Judge, count: int, shape: str, draw: random.Random) -> Iterator[JudgedAnswer]:
    """Sampled answers of the population, each with both verdicts.

    Uneven: a third of the answers is suspicious, fails more often, and is sampled eight times as
    often. Conversations: the verdicts of people agree within one (intraclass correlation 0.3), and
    so do the judge's errors.
    """
    size = 4 if shape in ("conversations of 4", "both") else 1
    uneven = shape in ("uneven sampling", "both")
    made = 0
    while made < count:
        suspicious = draw.random() < 1 / 3
        kept = 1.0 if not uneven or suspicious else 1 / 8
        if draw.random() >= kept:
            continue
        shift = 0.15 if judge.truth < 0.8 else 0.06
        rate = judge.truth - 2 * shift if suspicious else judge.truth + shift
        rate = min(1.0, max(0.0, rate if uneven else judge.truth))
        mood, luck = draw.random(), draw.random()
        cluster = str(draw.getrandbits(48))
        for _ in range(size):
            person = (mood if size > 1 and draw.random() < 0.3**0.5 else draw.random()) < rate
            share = judge.sensitivity if person else 1 - judge.specificity
            passed = (luck if size > 1 and draw.random() < 0.3**0.5 else draw.random()) < share
            yield JudgedAnswer(
                str(made), passed=passed, person=person, weight=1 / kept, cluster=cluster
            )
            made += 1


def measured(rows: list[JudgedAnswer]) -> Agreement:
    return agreement_of(
        LabelledRow(bool(row.passed), bool(row.person), row.weight, row.cluster) for row in rows
    )


def true_kappa(judge: Judge) -> float:
    both = judge.truth * judge.sensitivity
    neither = (1 - judge.truth) * judge.specificity
    passed = both + (1 - judge.truth) * (1 - judge.specificity)
    chance = judge.truth * passed + (1 - judge.truth) * (1 - passed)
    return (both + neither - chance) / (1 - chance)


def coverage(
    judge: Judge, labels: int, shape: str, repeats: int, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Share of the repeats whose interval holds the truth, and mean width, by estimate."""
    held, widths = dict.fromkeys(ESTIMATES, 0), dict.fromkeys(ESTIMATES, 0.0)
    draw, counted = (
        random.Random(f"{judge.name} {labels} {shape} {seed}"),
        dict.fromkeys(ESTIMATES, 0),
    )
    for _ in range(repeats):
        agreement = measured(list(rows_of(judge, labels, shape, draw)))
        judged = clustered_estimate(
            [row._replace(person=None) for row in rows_of(judge, _JUDGED, shape, draw)]
        )
        assert judged is not None
        estimates: dict[str, Estimate | None] = {
            "judge alone": judged,
            "labels alone": agreement.pass_rate,
            "corrected": agreement.corrected(judged),
            "prediction-powered": agreement.prediction_powered(judged),
            "kappa": agreement.kappa,
        }
        for name, estimate in estimates.items():
            if estimate is None:
                continue
            truth = true_kappa(judge) if name == "kappa" else judge.truth
            counted[name] += 1
            held[name] += estimate.low <= truth <= estimate.high
            widths[name] += estimate.high - estimate.low
    return {
        name: (held[name] / max(1, counted[name]), widths[name] / max(1, counted[name]))
        for name in ESTIMATES
    }


def main(arguments: list[str]) -> None:
    """Print the coverage table and, where the labels are there, the figures on XSTest."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks calibration", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="60 repeats: to see that it runs")
    parser.add_argument(
        "--repeats",
        type=int,
        default=1_000,
        metavar="N",
        help="of each line (default: %(default)s)",
    )
    parser.add_argument(
        "--labels", type=int, nargs="+", default=[100, 300], metavar="N", help="people's labels"
    )
    chosen = parser.parse_args(arguments)
    repeats = 60 if chosen.quick else chosen.repeats
    print(
        f"Coverage of 95 % intervals, % (mean width), {repeats:,} repeats; {_JUDGED:,} answers without a label."
    )
    print(
        f"One standard error of a coverage of 95 % is {100 * math.sqrt(0.95 * 0.05 / repeats):.1f} points.\n"
    )
    print(
        f"{'judge':<20}{'sampling':<20}{'labels':>7}" + "".join(f"{name:>20}" for name in ESTIMATES)
    )
    began = time.perf_counter()
    for judge in JUDGES:
        for shape in SHAPES:
            for labels in chosen.labels:
                shares = coverage(judge, labels, shape, repeats)
                cells = "".join(
                    f"{100 * share:>12.1f} ({width:.3f})" for share, width in shares.values()
                )
                print(f"{judge.name:<20}{shape:<20}{labels:>7}{cells}", flush=True)
    _on_xstest(repeats)
    print(f"\n{time.perf_counter() - began:.0f} s")


def _on_xstest(repeats: int) -> None:
    """People's labels of XSTest: 450 prompts, each answered by two systems; full compliance passes."""
    if not XSTEST.exists():
        print("\nXSTest: the labelled rows are not there.")
        return
    rows = [json.loads(line) for line in XSTEST.read_text("utf-8").splitlines()]
    print(
        f"\nXSTest, rows 1-{len(rows)} of {XSTEST.name}: in each repeat the labels of drawn prompts (150 answers, with "
        "replacement), and other draws of 2,000 answers that the judge alone sees."
    )
    print(
        f"{'judge':<44}{'system':<12}{'truth':>6}{'judge':>7}"
        + "".join(f"{name:>22}" for name in ESTIMATES[1:4])
    )
    for name, verdicts in _verdicts(rows).items():
        for system in ("both", *sorted({row["model"] for row in rows})):
            own = [number for number, row in enumerate(rows) if system in ("both", row["model"])]
            prompts: dict[str, list[JudgedAnswer]] = {}
            for number in own:
                person = rows[number]["label"] == "1_full_compliance"
                answer = JudgedAnswer(str(number), passed=verdicts[number], person=person)
                prompts.setdefault(rows[number]["prompt"], []).append(answer)
            truth = sum(
                bool(answer.person) for group in prompts.values() for answer in group
            ) / len(own)
            share = sum(verdicts[number] for number in own) / len(own)
            cells = "".join(
                f"{text:>22}" for text in _coverage_of(list(prompts.values()), truth, repeats)
            )
            print(f"{name:<44}{system:<12}{truth:>6.2f}{share:>7.2f}{cells}", flush=True)


def _verdicts(rows: list[dict[str, str]]) -> dict[str, list[bool]]:
    """The deterministic evaluator's, and those of two scripted judges, which err at known rates by
    the row's number.
    """
    inputs = [{"prompt": row["prompt"], "response": row["completion"]} for row in rows]
    config = EvaluationRunConfig.model_validate({"evaluators": ["ResponseHealth"]})
    health = [result.results[0].passed is True for result in run_evaluations_sync(inputs, config)]
    named = {"ResponseHealth (deterministic)": health}
    for sensitivity, specificity in ((0.95, 0.65), (0.70, 0.95)):
        draw = random.Random(f"{sensitivity} {specificity}")
        shares = (
            sensitivity if row["label"] == "1_full_compliance" else 1 - specificity for row in rows
        )
        name = f"scripted: sensitivity {sensitivity}, specificity {specificity}"
        named[name] = [draw.random() < share for share in shares]
    return named


def _coverage_of(prompts: list[list[JudgedAnswer]], truth: float, repeats: int) -> list[str]:
    draw = random.Random(7)
    held, widths, counted = [0] * 3, [0.0] * 3, [0] * 3
    per_prompt = len(prompts[0])
    for _ in range(repeats):
        labelled = [
            answer._replace(cluster=str(number))
            for number, group in enumerate(draw.choices(prompts, k=150 // per_prompt))
            for answer in group
        ]
        others = [
            answer._replace(cluster=str(number), person=None)
            for number, group in enumerate(draw.choices(prompts, k=_JUDGED // per_prompt))
            for answer in group
        ]
        agreement, judged = measured(labelled), clustered_estimate(others)
        assert judged is not None
        estimates = (
            agreement.pass_rate,
            agreement.corrected(judged),
            agreement.prediction_powered(judged),
        )
        for position, estimate in enumerate(estimates):
            if estimate is not None:
                counted[position] += 1
                held[position] += estimate.low <= truth <= estimate.high
                widths[position] += estimate.high - estimate.low
    rows = zip(held, widths, counted, strict=True)
    return [
        f"{100 * inside / max(1, count):.1f} ({width / max(1, count):.3f})"
        for inside, width, count in rows
    ]

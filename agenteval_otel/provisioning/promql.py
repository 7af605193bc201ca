"""PromQL of rules and dashboards.

It has escaped selectors, and weighted pass rates and means with their intervals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from agenteval_otel import semconv
from agenteval_otel.models.intervals import FEWEST_BASELINE, FEWEST_UNITS, Z95
from agenteval_otel.offline.calibration.agreement import Agreement
from agenteval_otel.provisioning.plan import PlannedCriterion


def label_name(attribute: str) -> str:
    """Return the label of an attribute: every character that a label may not have is an underscore."""
    return re.sub(r"[^A-Za-z0-9_]", "_", attribute)


CRITERION = label_name(semconv.EVALUATION_NAME)
AGENT = label_name(semconv.AGENT_NAME)
ENVIRONMENT = "deployment_environment_name"
LABEL = label_name(semconv.SCORE_LABEL)
MODEL = label_name(semconv.REQUEST_MODEL)
VERSION = "service_version"
OUTCOME = label_name(semconv.OUTCOME)
Z = 1.96
"""Standard errors in half of a 95 % interval."""
FEW = 10
"""With fewer results on the rarer side a pass rate's variance is a guess."""
_VERDICTS = (semconv.LABEL_PASS, semconv.LABEL_FAIL)
_BOTH = f'{LABEL}=~"{"|".join(_VERDICTS)}"'
_SCORE = semconv.METRIC_SCORE.prometheus_name
# Escaped in a string it passes once; Prometheus writes a rule's expression anew, and fails to read
# this in it.
_REPLACEMENT = "\ufffd"


def quoted(value: str) -> str:
    """Return a value as a string of PromQL and LogQL.

    The string is in double quotes and escaped. Other scripts stay as they are.
    """
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("\x7f", "\\x7f").replace("\ufffd", "\\ufffd")


def matching(value: str) -> str:
    """Return a regular expression (RE2) that matches the value and nothing else."""
    escaped = re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", value)
    return escaped.replace(_REPLACEMENT, r"\x{fffd}")


def one_of(label: str, values: tuple[str, ...], *, sign: str = "=~") -> str:
    """Return a matcher of a selector.

    The label is one of the values (``=~``), or none of them (``!~``).
    """
    if len(values) == 1 and _REPLACEMENT not in values[0]:
        plain_sign = "=" if sign == "=~" else "!="
        return f"{label}{plain_sign}{quoted(values[0])}"
    alternatives = "|".join(matching(value) for value in values)
    return f"{label}{sign}{quoted(alternatives)}"


def matchers_of(planned: PlannedCriterion) -> str:
    """Return what selects the series of a planned criterion, for its agents."""
    return joined(one_of(CRITERION, (planned.name,)), agents_of(planned))


def agents_of(planned: PlannedCriterion) -> str:
    """Return a matcher of the agents of a planned criterion.

    The matcher is empty for every agent.
    """
    if planned.agents:
        return one_of(AGENT, planned.agents)
    if planned.other_agents:
        return one_of(AGENT, planned.other_agents, sign="!~")
    return ""


# Queries take `matchers`, the content of a selector's braces (may be empty), `window`, a duration
# or one of Grafana's variables (`$__range`, `$__rate_interval`), and `by`, the labels to keep.
# Without traffic they return no series.


def increase(
    metric: semconv.Instrument | str, matchers: str, window: str, by: Sequence[str] = ()
) -> str:
    name = metric if isinstance(metric, str) else metric.prometheus_name
    labels = f" by ({', '.join(by)}) " if by else ""
    return f"sum{labels}(increase({name}{{{matchers}}}[{window}]))"


def verdict_count(
    matchers: str, window: str, by: Sequence[str] = (), *, label: str | None = None
) -> str:
    """Return the query of how many results passed or failed.

    With `label` it counts only that verdict.
    """
    matcher = f'{LABEL}="{label}"' if label else _BOTH
    return increase(semconv.METRIC_RESULTS, joined(matchers, matcher), window, by)


def score_count(matchers: str, window: str, by: Sequence[str] = ()) -> str:
    return increase(f"{_SCORE}_count", matchers, window, by)


def plain_mean(matchers: str, window: str, by: Sequence[str] = ()) -> str:
    """Return the unweighted mean by the histogram, which knows the models.

    The weighted sums do not.
    """
    total = increase(f"{_SCORE}_sum", matchers, window, by)
    return f"{total} / ({score_count(matchers, window, by)} > 0)"


_RESULTS = semconv.METRIC_RESULTS.prometheus_name
_PASSED = f'{LABEL}="{semconv.LABEL_PASS}"'
_FAILED = f'{LABEL}="{semconv.LABEL_FAIL}"'
_COUNTED = ((_RESULTS, ""), (f"{_SCORE}_count", ""))
# The terms of each recorded sum: a counter and a matcher. The first term that has series is used. The
# later ones are for results without a known probability: each weighs 1 then, and the square of a
# score from 0 to 1 is at most the score. Sums of scores and over units have only criterion and agent
# as labels, so by model each answer is a unit of its own.
SUMS: Final[Mapping[str, tuple[tuple[semconv.Instrument | str, str], ...]]] = {
    "passed": ((semconv.METRIC_WEIGHT, _PASSED), (_RESULTS, _PASSED)),
    "failed": ((semconv.METRIC_WEIGHT, _FAILED), (_RESULTS, _FAILED)),
    "passed_w2": ((semconv.METRIC_WEIGHT_SQUARED, _PASSED), (_RESULTS, _PASSED)),
    "failed_w2": ((semconv.METRIC_WEIGHT_SQUARED, _FAILED), (_RESULTS, _FAILED)),
    "answers": ((_RESULTS, _BOTH),),
    "scored": ((f"{_SCORE}_count", ""),),
    "units": ((semconv.METRIC_UNITS, ""), *_COUNTED),
    "unit_weight_w2": (
        (semconv.METRIC_UNIT_WEIGHT_SQUARED, ""),
        (semconv.METRIC_WEIGHT_SQUARED, ""),
        *_COUNTED,
    ),
    "unit_failed": (
        (semconv.METRIC_UNIT_FAILED, ""),
        (semconv.METRIC_WEIGHT_SQUARED, _FAILED),
        (_RESULTS, _FAILED),
    ),
    "unit_failed_w2": (
        (semconv.METRIC_UNIT_FAILED_SQUARED, ""),
        (semconv.METRIC_WEIGHT_SQUARED, _FAILED),
        (_RESULTS, _FAILED),
    ),
    "weight": ((semconv.METRIC_WEIGHT, ""), (f"{_SCORE}_count", "")),
    "weight_w2": ((semconv.METRIC_WEIGHT_SQUARED, ""), (f"{_SCORE}_count", "")),
    "score": ((semconv.METRIC_WEIGHTED_SCORE, ""), (f"{_SCORE}_sum", "")),
    "score_w2": ((semconv.METRIC_WEIGHTED_SCORE_W2, ""), (f"{_SCORE}_sum", "")),
    "score_squared_w2": (
        (semconv.METRIC_WEIGHTED_SCORE_SQUARED_W2, ""),
        (f"{_SCORE}_sum", ""),
    ),
    "unit_score": (
        (semconv.METRIC_UNIT_SCORE, ""),
        (semconv.METRIC_WEIGHTED_SCORE_W2, ""),
        (f"{_SCORE}_sum", ""),
    ),
    "unit_score_w2": (
        (semconv.METRIC_UNIT_SCORE_SQUARED, ""),
        (semconv.METRIC_WEIGHTED_SCORE_SQUARED_W2, ""),
        (f"{_SCORE}_sum", ""),
    ),
    "preferred": ((semconv.METRIC_PREFERRED, ""),),
}


def sum_of(name: str, matchers: str, window: str, by: Sequence[str] = ()) -> str:
    """Return the query of one of the `SUMS`. Of the preferred results there are 0 where none is."""
    terms = [
        increase(metric, joined(matchers, matcher), window, by) for metric, matcher in SUMS[name]
    ]
    if name == "preferred":
        terms += [f"0 * {increase(metric, matchers, window, by)}" for metric, _ in _COUNTED]
    return " or ".join(terms)


def estimates(series: Callable[[str], str]) -> dict[str, str]:
    """Return what is computed from sums, as `agenteval_otel.models.intervals` computes it.

    Each is computed from what stands before it. `series` gives the recorded name of a word.

    The pass rate m is Hajek's estimate, P/(P+F) of the weights of both verdicts. Its variance is
    that by units, sum(F_u - (1-m) W_u)^2 / (P+F)^2 with the bias of few units removed, and at least
    the one of answers that stand alone, (F^2 P2 + P^2 F2)/(P+F)^4 with the squares P2 and F2. Its
    ends are those of Wilson's 95 % interval with m(1-m)/variance results. Where fewer than ten
    results are on the rarer side that variance is a guess: the number is at most Kish's
    (P+F)^2/(P2+F2), and the ends are Agresti's and Coull's, whose root has n z^2 (m - 1/2)^2 /
    (n + z^2) more. The ends of the mean are `Z` times the root of sum(Y_u - m W_u)^2 / sum(W)^2
    away, or of the same over answers where that is more, within 0 and 1.

    A process has series of sums over units once one of its units has come again. Until then, and
    where some processes have them and others not yet, the sums of answers stand in.

    There are no ends of fewer than 20 units, and of fewer than 10 answers that were not preferred.
    """
    return {**_pass_rate_estimates(series), **_mean_estimates(series)}


def _pass_rate_estimates(series: Callable[[str], str]) -> dict[str, str]:
    p = series("passed")
    f = series("failed")
    p2 = series("passed_w2")
    f2 = series("failed_w2")
    rate = series("pass_rate")
    verdicts = series("verdicts")
    units = series("units")
    unit_w2 = series("unit_weight_w2")
    unit_f = series("unit_failed")
    unit_f2 = series("unit_failed_w2")
    apart = series("variance_apart")
    by_unit = series("variance_by_unit")
    variance = series("variance")
    kish = series("kish")
    unbiased = _bias_factor(units, series("answers"))
    shown = _if_enough(units, series("answers"), series("preferred"))
    residuals = f"({unit_f2} - 2 * (1 - {rate}) * {unit_f} + (1 - {rate}) ^ 2 * {unit_w2})"
    exact = f"{rate} * (1 - {rate}) / ({variance} > 0)"

    def results_of(weight: str) -> str:
        return f"{weight} * ({p} + {f}) / ({p2} + {f2})"

    enough_pass = f"{results_of(p)} >= {FEW}"
    enough_fail = f"{results_of(f)} >= {FEW}"
    few_pass = f"{results_of(p)} < bool {FEW}"
    few_fail = f"{results_of(f)} < bool {FEW}"
    is_rare = f"clamp_max(({few_pass}) + ({few_fail}), 1)"
    of_answers = f"({p} + {f}) ^ 2 / ({p2} + {f2} > 0)"
    of_units = f"({p} + {f}) ^ 2 / ({unit_w2} > 0)"
    has_both = f"{exact} and {enough_pass} and {enough_fail}"
    total = f"({verdicts} + {Z * Z:.4f})"
    wider = f"{is_rare} * {Z * Z:.4f} * {verdicts} * ({rate} - 0.5) ^ 2 / {total}"
    root = f"{Z} * sqrt({verdicts} * {rate} * (1 - {rate}) + {Z * Z / 4:.4f} + {wider})"

    def end(sign: str) -> str:
        return f"({verdicts} * {rate} + {Z * Z / 2:.4f} {sign} {root}) / {total}"

    return {
        "pass_rate": f"{p} / ({p} + {f} > 0)",
        "variance_apart": f"({f} ^ 2 * {p2} + {p} ^ 2 * {f2}) / ({p} + {f} > 0) ^ 4",
        "variance_by_unit": f"{residuals} * {unbiased} / ({p} + {f} > 0) ^ 2",
        "variance": f"({by_unit} > {apart}) or {apart}",
        "kish": f"({of_units} < {of_answers}) or {of_answers}",
        "verdicts": f"({has_both}) or ({exact} < {kish}) or {kish}",
        "pass_rate_low": f"clamp_min({end('-')}, 0) {shown}",
        "pass_rate_high": f"clamp_max({end('+')}, 1) {shown}",
    }


def _mean_estimates(series: Callable[[str], str]) -> dict[str, str]:
    w = series("weight")
    w2 = series("weight_w2")
    y = series("score")
    y_w2 = series("score_w2")
    y2_w2 = series("score_squared_w2")
    mean = series("mean_score")
    units = series("units")
    unit_w2 = series("unit_weight_w2")
    unit_y = series("unit_score")
    unit_y2 = series("unit_score_w2")
    apart = series("mean_spread_apart")
    by_unit = series("mean_spread_by_unit")
    unbiased = _bias_factor(units, series("scored"))
    shown = _if_enough(units, series("scored"), series("preferred"))
    of_scores = f"clamp_min({y2_w2} - 2 * {mean} * {y_w2} + {mean} ^ 2 * {w2}, 0)"
    of_unit_scores = f"clamp_min({unit_y2} - 2 * {mean} * {unit_y} + {mean} ^ 2 * {unit_w2}, 0)"
    half = f"{Z} * sqrt({series('mean_spread')}) / ({w} > 0)"
    return {
        "mean_score": f"{y} / ({w} > 0)",
        "mean_spread_apart": of_scores,
        "mean_spread_by_unit": f"{of_unit_scores} * {unbiased}",
        "mean_spread": f"({by_unit} > {apart}) or {apart}",
        "scores": f"{w} ^ 2 / ({w2} > 0)",
        "mean_score_low": f"clamp_min({mean} - {half}, 0) {shown}",
        "mean_score_high": f"clamp_max({mean} + {half}, 1) {shown}",
    }


def _bias_factor(units: str, count: str) -> str:
    """Return the factor that removes the bias of few units."""
    # Half a unit keeps apart what is equal but for rounding.
    return f"(1 + ({units} + 0.5 < bool {count}) / clamp_min({units} - 1, 1))"


def _if_enough(units: str, count: str, preferred: str) -> str:
    """Return the condition for the ends of an interval."""
    return f"and {units} >= {FEWEST_UNITS} and {count} - {preferred} >= {FEWEST_BASELINE}"


def corrected(agreement: Agreement, rate: str, verdicts: str) -> dict[str, str]:
    """Return the corrected pass rate and the ends of its 95 % interval.

    They are corrected as `Agreement.corrected` does.

    `rate` and `verdicts` are the recorded pass rate by the judge, and how many evenly weighted
    results it is worth.
    """
    correction = agreement.correction
    z2 = correction.quantile**2
    square = correction.square
    counted = Z95 * Z95
    shrunk = f"({rate} * {verdicts} + {counted / 2!r}) / ({verdicts} + {counted!r})"
    variance = f"({shrunk}) * (1 - {shrunk}) / ({verdicts} + {counted!r})"
    difference = f"({rate} - {correction.false_passes!r})"
    spread = correction.passes - correction.false_passes
    of_both = z2 * 2 * (correction.between - correction.of_false)
    linear = f"(-2 * {difference} * {spread!r} - {of_both!r})"
    constant = f"({difference} ^ 2 - {z2!r} * ({variance} + {correction.of_false!r}))"
    root = f"sqrt(clamp_min({linear} ^ 2 - 4 * {square!r} * {constant}, 0))"
    raw_false = 1.0 - agreement.specificity.mean
    mean = f"({rate} - {raw_false!r}) / {agreement.sensitivity.mean - raw_false!r}"
    low = f"(-1 * {linear} - {root}) / {2 * square!r}"
    high = f"(-1 * {linear} + {root}) / {2 * square!r}"
    return {
        "corrected_pass_rate": f"clamp_max(clamp_min({mean}, 0), 1)",
        "corrected_pass_rate_low": f"clamp_max(clamp_min({low}, 0), 1)",
        "corrected_pass_rate_high": f"clamp_max(clamp_min({high}, 0), 1)",
    }


def joined(*matchers: str) -> str:
    return ", ".join(filter(None, matchers))

"""PromQL of rules and dashboards: escaped selectors, and weighted pass rates and means with their
intervals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from agenteval_otel import semconv
from agenteval_otel.calibration.agreement import Agreement
from agenteval_otel.models.intervals import Z95
from agenteval_otel.provisioning.plan import PlannedCriterion


def label_name(attribute: str) -> str:
    """The label that an attribute becomes: every character that a label may not have is an
    underscore.
    """
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
    """A value as a string of PromQL and LogQL: in double quotes, escaped, other scripts as they
    are.
    """
    return (
        json.dumps(value, ensure_ascii=False).replace("\x7f", "\\x7f").replace("\ufffd", "\\ufffd")
    )


def matching(value: str) -> str:
    """A regular expression (RE2) that matches the value and nothing else."""
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", value).replace(_REPLACEMENT, r"\x{fffd}")


def one_of(label: str, values: tuple[str, ...], *, sign: str = "=~") -> str:
    """A matcher of a selector: the label is one of the values (``=~``), or none of them (``!~``)."""
    if len(values) == 1 and _REPLACEMENT not in values[0]:
        return f"{label}{'=' if sign == '=~' else '!='}{quoted(values[0])}"
    return f"{label}{sign}{quoted('|'.join(map(matching, values)))}"


def matchers_of(planned: PlannedCriterion) -> str:
    """What selects the series of a planned criterion, for its agents."""
    return joined(one_of(CRITERION, (planned.name,)), agents_of(planned))


def agents_of(planned: PlannedCriterion) -> str:
    """A matcher of the agents that a planned criterion is of; empty for every agent."""
    if planned.agents:
        return one_of(AGENT, planned.agents)
    return one_of(AGENT, planned.other_agents, sign="!~") if planned.other_agents else ""


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
    """How many results passed or failed; with `label` only those of one verdict."""
    matcher = f'{LABEL}="{label}"' if label else _BOTH
    return increase(semconv.METRIC_RESULTS, joined(matchers, matcher), window, by)


def score_count(matchers: str, window: str, by: Sequence[str] = ()) -> str:
    return increase(f"{_SCORE}_count", matchers, window, by)


def plain_mean(matchers: str, window: str, by: Sequence[str] = ()) -> str:
    """The unweighted mean by the histogram, which knows the models; the weighted sums do not."""
    return f"{increase(f'{_SCORE}_sum', matchers, window, by)} / ({score_count(matchers, window, by)} > 0)"


# What estimates are made of, by the names of the recorded series: the counter of weights, what
# stands for it where no probability is known (each result then weighs 1, and a score between 0 and
# 1 has at most the square of its own value), and the label that both have. Sums of scores know
# criterion and agent only.
SUMS: Final[Mapping[str, tuple[semconv.Instrument, str, str]]] = {
    **{
        f"{word}{squares}": (metric, semconv.METRIC_RESULTS.prometheus_name, label)
        for squares, metric in (("", semconv.METRIC_WEIGHT), ("_w2", semconv.METRIC_WEIGHT_SQUARED))
        for word, label in zip(("passed", "failed"), _VERDICTS, strict=True)
    },
    "weight": (semconv.METRIC_WEIGHT, f"{_SCORE}_count", ""),
    "weight_w2": (semconv.METRIC_WEIGHT_SQUARED, f"{_SCORE}_count", ""),
    "score": (semconv.METRIC_WEIGHTED_SCORE, f"{_SCORE}_sum", ""),
    "score_w2": (semconv.METRIC_WEIGHTED_SCORE_W2, f"{_SCORE}_sum", ""),
    "score_squared_w2": (semconv.METRIC_WEIGHTED_SCORE_SQUARED_W2, f"{_SCORE}_sum", ""),
}


def sum_of(name: str, matchers: str, window: str, by: Sequence[str] = ()) -> str:
    """One of the `SUMS`."""
    weighted, plain, label = SUMS[name]
    of_label = joined(matchers, f'{LABEL}="{label}"' if label else "")
    return f"{increase(weighted, of_label, window, by)} or {increase(plain, of_label, window, by)}"


def estimates(series: Callable[[str], str]) -> dict[str, str]:
    """What is computed from sums, each from what stands before it; `series` gives the recorded name
    of a word.

    The pass rate is Hajek's estimate; its ends are those of Wilson's 95 % interval with the number
    of evenly weighted results that carry as much information. With P and F the weights of both
    verdicts, P2 and F2 their squares, the variance of the rate P/(P+F) is (F^2 P2 + P^2
    F2)/(P+F)^4, and that number is m(1-m)/variance. Where fewer than five results are on the rarer
    side that variance is a guess, and it is Kish's (P+F)^2/(P2+F2). As
    `agenteval_otel.models.intervals` has it. The ends of the mean are `Z` times the root of
    sum(w^2 (y-m)^2)/sum(w)^2 away, within 0 and 1.
    """
    p, f, p2, f2, rate, verdicts = map(
        series, ("passed", "failed", "passed_w2", "failed_w2", "pass_rate", "verdicts")
    )
    w, w2, y, y_w2, y2_w2, mean = map(
        series, ("weight", "weight_w2", "score", "score_w2", "score_squared_w2", "mean_score")
    )
    exact = f"{p} * {f} * ({p} + {f}) ^ 2 / ({f} ^ 2 * {p2} + {p} ^ 2 * {f2} > 0)"
    enough = f"{{0}} * ({p} + {f}) / ({p2} + {f2}) >= {FEW}"
    kish = f"({p} + {f}) ^ 2 / ({p2} + {f2} > 0)"
    root = f"{Z} * sqrt({verdicts} * {rate} * (1 - {rate}) + {Z * Z / 4:.4f})"
    wilson = f"({verdicts} * {rate} + {Z * Z / 2:.4f} {{}} {root}) / ({verdicts} + {Z * Z:.4f})"
    half = (
        f"{Z} * sqrt(clamp_min({y2_w2} - 2 * {mean} * {y_w2} + {mean} ^ 2 * {w2}, 0)) / ({w} > 0)"
    )
    return {
        "pass_rate": f"{p} / ({p} + {f} > 0)",
        "verdicts": f"({exact} and {enough.format(p)} and {enough.format(f)}) or {kish}",
        "pass_rate_low": f"clamp_min({wilson.format('-')}, 0)",
        "pass_rate_high": f"clamp_max({wilson.format('+')}, 1)",
        "mean_score": f"{y} / ({w} > 0)",
        "scores": f"{w} ^ 2 / ({w2} > 0)",
        "mean_score_low": f"clamp_min({mean} - {half}, 0)",
        "mean_score_high": f"clamp_max({mean} + {half}, 1)",
    }


def corrected(agreement: Agreement, rate: str, verdicts: str) -> dict[str, str]:
    """The pass rate and the ends of its 95 % interval, corrected as `Agreement.corrected` does.

    `rate` and `verdicts` are the recorded pass rate by the judge, and how many evenly weighted
    results it is worth.
    """
    correction = agreement.correction
    z2, square, counted = correction.quantile**2, correction.square, Z95 * Z95
    shrunk = f"({rate} * {verdicts} + {counted / 2!r}) / ({verdicts} + {counted!r})"
    variance = f"({shrunk}) * (1 - {shrunk}) / ({verdicts} + {counted!r})"
    difference, spread = (
        f"({rate} - {correction.false_passes!r})",
        correction.passes - correction.false_passes,
    )
    linear = f"(-2 * {difference} * {spread!r} - {z2 * 2 * (correction.between - correction.of_false)!r})"
    constant = f"({difference} ^ 2 - {z2!r} * ({variance} + {correction.of_false!r}))"
    root = f"sqrt(clamp_min({linear} ^ 2 - 4 * {square!r} * {constant}, 0))"
    raw_false = 1.0 - agreement.specificity.mean
    mean = f"({rate} - {raw_false!r}) / {agreement.sensitivity.mean - raw_false!r}"
    ends = {
        end: f"(-1 * {linear} {sign} {root}) / {2 * square!r}"
        for end, sign in (("_low", "-"), ("_high", "+"))
    }
    return {
        f"corrected_pass_rate{end}": f"clamp_max(clamp_min({expression}, 0), 1)"
        for end, expression in {"": mean, **ends}.items()
    }


def joined(*matchers: str) -> str:
    return ", ".join(filter(None, matchers))

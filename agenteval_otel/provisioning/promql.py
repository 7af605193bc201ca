"""PromQL of rules and dashboards: escaped selectors, weighted pass rates and means with their intervals."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from agenteval_otel import semconv
from agenteval_otel.provisioning.plan import PlannedCriterion


def label_name(attribute: str) -> str:
    """The label that an attribute becomes: every character that a label may not have is an underscore."""
    return re.sub(r"[^A-Za-z0-9_]", "_", attribute)


CRITERION = label_name(semconv.EVALUATION_NAME)
AGENT = label_name(semconv.AGENT_NAME)
ENVIRONMENT = "deployment_environment_name"
LABEL = label_name(semconv.SCORE_LABEL)
MODEL = label_name(semconv.REQUEST_MODEL)
OUTCOME = label_name(semconv.OUTCOME)
_Z = 1.96
_FEW = 5
_VERDICTS = (semconv.LABEL_PASS, semconv.LABEL_FAIL)
_BOTH = f'{LABEL}=~"{"|".join(_VERDICTS)}"'
_SCORE = semconv.METRIC_SCORE.prometheus_name
# Escaped in a string it passes once; Prometheus writes a rule's expression anew, and fails to read this in it.
_REPLACEMENT = "\ufffd"


def quoted(value: str) -> str:
    """A value as a string of PromQL and LogQL: in double quotes, escaped, other scripts as they are."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\x7f").replace("\ufffd", "\\ufffd")


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


# Queries take `matchers`, the content of a selector's braces (may be empty), `window`, a duration or one of Grafana's
# variables (`$__range`, `$__rate_interval`), and `by`, the labels to keep. Without traffic they return no series.


def increase(metric: semconv.Instrument | str, matchers: str, window: str, by: Sequence[str] = ()) -> str:
    name = metric if isinstance(metric, str) else metric.prometheus_name
    labels = f" by ({', '.join(by)}) " if by else ""
    return f"sum{labels}(increase({name}{{{matchers}}}[{window}]))"


def verdict_count(matchers: str, window: str, by: Sequence[str] = (), *, label: str | None = None) -> str:
    """How many results passed or failed; with `label` only those of one verdict."""
    matcher = f'{LABEL}="{label}"' if label else _BOTH
    return increase(semconv.METRIC_RESULTS, joined(matchers, matcher), window, by)


def effective_count(matchers: str, window: str, by: Sequence[str] = ()) -> str:
    """Kish's effective number: how many evenly weighted results carry the same information; empty without weights."""
    weight = increase(semconv.METRIC_WEIGHT, matchers, window, by)
    squares = increase(semconv.METRIC_WEIGHT_SQUARED, matchers, window, by)
    return f"{weight} ^ 2 / ({squares} > 0)"


def effective_verdicts(matchers: str, window: str, by: Sequence[str] = ()) -> str:
    """The `effective_count` of results that passed or failed; without weights their plain number."""
    return f"{effective_count(joined(matchers, _BOTH), window, by)} or {verdict_count(matchers, window, by)}"


def pass_rate(matchers: str, window: str, by: Sequence[str] = (), *, label: str = semconv.LABEL_PASS) -> str:
    """The share of passing results, 0 to 1: weighted (Hajek's estimate), without weights by plain counts."""
    of_label, of_both = joined(matchers, f'{LABEL}="{label}"'), joined(matchers, _BOTH)
    return " or ".join(
        f"{increase(metric, of_label, window, by)} / ({increase(metric, of_both, window, by)} > 0)"
        for metric in (semconv.METRIC_WEIGHT, semconv.METRIC_RESULTS)
    )


def fail_share(matchers: str, window: str, by: Sequence[str] = ()) -> str:
    return pass_rate(matchers, window, by, label=semconv.LABEL_FAIL)


def pass_rate_bound(matchers: str, window: str, by: Sequence[str] = (), *, upper: bool) -> str:
    """One end of the pass rate's 95 % interval: Wilson's, with the number of results that the weights are worth.

    With P and F the weights of both verdicts, P2 and F2 their squares, the variance of the rate P/(P+F) is
    (F^2 P2 + P^2 F2)/(P+F)^4, and the effective number n = m(1-m)/variance. Where fewer than five results are on the
    rarer side that variance is a guess, and n is Kish's (P+F)^2/(P2+F2). As `agenteval_otel.scoring.intervals` has it.
    """
    p, f, p2, f2, passed, failed = (
        increase(metric, joined(matchers, f'{LABEL}="{label}"'), window, by)
        for metric in (semconv.METRIC_WEIGHT, semconv.METRIC_WEIGHT_SQUARED, semconv.METRIC_RESULTS)
        for label in _VERDICTS
    )
    both, squares, spread = f"({p} + {f})", f"({p2} + {f2} > 0)", f"({f} ^ 2 * {p2} + {p} ^ 2 * {f2} > 0)"
    exact = _wilson(f"{p} ^ 2 * {f} * {both} / {spread}", f"({p} * {f}) ^ 2 / {spread}",
                    f"{p} * {f} * {both} ^ 2 / {spread}", upper=upper)  # fmt: skip
    kish = _wilson(f"{p} * {both} / {squares}", f"{p} * {f} / {squares}", f"{both} ^ 2 / {squares}", upper=upper)
    all_ = f"({passed} + {failed} > 0)"
    plain = _wilson(passed, f"{passed} * {failed} / {all_}", all_, upper=upper)
    enough = " and ".join(f"{count} * {both} / {squares} >= {_FEW}" for count in (p, f))
    return f"({exact} and {enough}) or {kish} or {plain}"


def weighted_mean(matchers: str, window: str, by: Sequence[str] = ()) -> str:
    """The mean of the normalized scores, 0 to 1, weighted; without weights the plain mean.

    The sums know criterion and agent: `matchers` and `by` must not name a model or a label.
    """
    scored = increase(semconv.METRIC_WEIGHTED_SCORE, matchers, window, by)
    weight = increase(semconv.METRIC_WEIGHT, matchers, window, by)
    return f"{scored} / ({weight} > 0) or {plain_mean(matchers, window, by)}"


def plain_mean(matchers: str, window: str, by: Sequence[str] = ()) -> str:
    """The unweighted mean by the histogram, which knows the models; the weighted sums do not."""
    return f"{increase(f'{_SCORE}_sum', matchers, window, by)} / ({score_count(matchers, window, by)} > 0)"


def mean_half_width(matchers: str, window: str, by: Sequence[str] = ()) -> str:
    """Half of the 95 % interval of `weighted_mean`: 1.96 times the root of sum(w^2 (y-m)^2) / sum(w)^2.

    Without weights its maximum for scores from 0 to 1: with the variance m(1-m).
    """
    wy, w, w2, w2y, w2y2 = (
        increase(metric, matchers, window, by)
        for metric in (semconv.METRIC_WEIGHTED_SCORE, semconv.METRIC_WEIGHT, semconv.METRIC_WEIGHT_SQUARED,
                       semconv.METRIC_WEIGHTED_SCORE_W2, semconv.METRIC_WEIGHTED_SCORE_SQUARED_W2)
    )  # fmt: skip
    mean = f"({wy} / ({w} > 0))"
    weighted = f"{_Z} * sqrt(clamp_min({w2y2} - 2 * {mean} * {w2y} + {mean} ^ 2 * {w2}, 0)) / ({w} > 0)"
    plain = f"({plain_mean(matchers, window, by)})"
    most = f"{_Z} * sqrt(clamp_min({plain} * (1 - {plain}), 0) / ({score_count(matchers, window, by)} > 0))"
    return f"{weighted} or {most}"


def score_count(matchers: str, window: str, by: Sequence[str] = ()) -> str:
    return increase(f"{_SCORE}_count", matchers, window, by)


def joined(*matchers: str) -> str:
    return ", ".join(filter(None, matchers))


def _wilson(rate_times_n: str, spread_times_n: str, n: str, *, upper: bool) -> str:
    """(m n + z^2/2 +- z sqrt(n m(1-m) + z^2/4)) / (n + z^2), of the products as they can be written shortest."""
    sign, square = "+" if upper else "-", _Z * _Z
    root = f"{_Z} * sqrt({spread_times_n} + {square / 4:.4f})"
    return f"({rate_times_n} + {square / 2:.4f} {sign} {root}) / ({n} + {square:.4f})"

"""Operations: whether the evaluation itself keeps up, what it costs, and what it does to its host."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from agenteval_otel import semconv
from agenteval_otel.provisioning.files import GeneratedFiles
from agenteval_otel.provisioning.grafana import boards
from agenteval_otel.provisioning.grafana.expressions import PROCESS, latest, quantile, rate
from agenteval_otel.provisioning.grafana.overview import LOST
from agenteval_otel.provisioning.grafana.panels import Query, Steps, graph, sized, stacked, value
from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.promql import CRITERION, OUTCOME, joined, label_name

_ERROR, _JUDGE_MODEL = label_name(semconv.ERROR_TYPE), label_name(semconv.JUDGE_MODEL)
_JUDGE, _PERIOD = label_name(semconv.JUDGE_NAME), label_name(semconv.JUDGE_PERIOD)
_TOKENS = label_name(semconv.TOKEN_TYPE)
_SIGNAL, _REASON = label_name(semconv.EXPORT_SIGNAL), label_name(semconv.EXPORT_REASON)
_WHERE = ("job", "instance")
_AT = "{{job}} {{instance}}"
_LEVELS = {"0": ("full", "green"), "1": ("reduced", "yellow"), "2": ("no model calls", "orange"), "3": ("off", "red")}
_BREAKER = {"0": ("closed", "green"), "1": ("half open", "yellow"), "2": ("open", "red")}
_QUANTILES = (0.5, 0.95, 0.99)
_HOUR_S = 3600


def files_of(plan: MonitoringPlan) -> GeneratedFiles:
    """The dashboard of the monitor itself; panels of judges only where there are any."""
    made = boards.board("agenteval: operations", "agenteval-operations", "Whether the evaluation itself is well.")
    _queue(made)
    _time(made)
    if plan.judge_models:
        _judges(made, plan)
    _host(made)
    return {"dashboards/operations.json": boards.text_of(made)}


def _queue(made: Dashboard) -> None:
    made.with_row(boards.row("Does it keep up?"))
    size, capacity = (latest(metric, _WHERE) for metric in (semconv.METRIC_QUEUE_BYTES, semconv.METRIC_QUEUE_MAX_BYTES))
    says = "Responses that wait or are evaluated, as a share of what the queue may hold. At 1 responses are dropped."
    full = graph("Queue, share in use", says, "percentunit", Query(f"{size} / {capacity}", _AT), between=(0, 1))
    memory = Query(latest(semconv.METRIC_QUEUE_BYTES, _WHERE), _AT)
    matchers = joined(PROCESS, f'{OUTCOME}=~"{LOST}"')
    lost = Query(rate(semconv.METRIC_RESPONSES, (OUTCOME,), matchers), "{{" + OUTCOME + "}}")
    errors = Query(rate(semconv.METRIC_ERRORS, (CRITERION, _ERROR)), "{{" + CRITERION + "}} {{" + _ERROR + "}}")
    undelivered = Query(rate(semconv.METRIC_EXPORT_LOST, (_SIGNAL, _REASON)), f"{{{{{_SIGNAL}}}}} {{{{{_REASON}}}}}")
    since = f"time() - {latest(semconv.METRIC_LAST_SUCCESS, _WHERE)}"
    for panel in (
        full,
        graph("Queue, memory", "Estimated memory that waiting responses hold.", "bytes", memory),
        stacked("Lost responses by reason", "Responses per second that were dropped or failed.", "reqps",
                lost),
        stacked("Errors of evaluators", "Failed evaluations per second, by criterion and error.", "cps", errors),
        stacked("Lost in export", "Spans, events and metrics per second that did not reach the backend.",
                "cps", undelivered),
        graph("Since the last result", "Time since a result was last delivered. Grows without traffic, too.", "s",
              Query(since, _AT)),
        stacked("Responses by outcome", "Calls of monitored handlers per second, by outcome.", "reqps",
                Query(rate(semconv.METRIC_RESPONSES, (OUTCOME,)), "{{" + OUTCOME + "}}")),
    ):  # fmt: skip
        made.with_panel(sized(panel, 8))


def _time(made: Dashboard) -> None:
    made.with_row(boards.row("How long does it take?"))
    lag = (Query(quantile(semconv.METRIC_LAG, of), f"{of * 100:g} %") for of in _QUANTILES)
    whole = joined(PROCESS, f'{CRITERION}=""')
    runs = (Query(quantile(semconv.METRIC_DURATION, of, matchers=whole), f"{of * 100:g} %") for of in _QUANTILES)
    says = "From the end of the response to its result: 50, 95 and 99 percent of the responses within so long."
    made.with_panel(sized(graph("Lag", says, "s", *lag), 12))
    says = "Of all evaluators of one response together: 50, 95 and 99 percent within so long."
    made.with_panel(sized(graph("Duration of a run", says, "s", *runs), 12))


def _judges(made: Dashboard, plan: MonitoringPlan) -> None:
    made.with_row(boards.row("Judges"))
    of_model = "{{" + _JUDGE_MODEL + "}}"
    by = (_JUDGE_MODEL, OUTCOME)
    calls = Query(rate(semconv.METRIC_JUDGE_CALLS, by), f"{of_model} {{{{{OUTCOME}}}}}")
    took = Query(quantile(semconv.METRIC_JUDGE_DURATION, 0.95, (_JUDGE_MODEL,)), of_model)
    used = Query(rate(semconv.METRIC_JUDGE_TOKENS, (_JUDGE_MODEL, _TOKENS)), f"{of_model} {{{{{_TOKENS}}}}}")
    cost = Query(f"{_HOUR_S} * {rate(semconv.METRIC_JUDGE_COST, (_JUDGE_MODEL,))}", of_model)
    panels = [
        stacked("Calls of judges", "Judge calls per second, by outcome.", "reqps", calls),
        graph("Judge latency", "95 percent of the calls took at most so long, retries included.", "s", took),
        stacked("Tokens", "Tokens that judges used, a second, by kind.", "cps", used),
        stacked("Spend an hour", "What judges cost in an hour at this pace, where prices are known.", "currencyUSD",
                cost),
    ]  # fmt: skip
    for panel in panels:
        made.with_panel(sized(panel, 12))
    breaker = Query(latest(semconv.METRIC_JUDGE_BREAKER, (_JUDGE,)), "{{" + _JUDGE + "}}")
    says = "Circuit breaker of each judge's endpoint, the worst of all processes. Open: the judge is not called."
    steps: Steps = ((None, "green"), (1, "yellow"), (2, "red"))
    made.with_panel(sized(value("Breaker", says, "none", breaker, steps=steps, texts=_BREAKER), 12, 6))
    if plan.has_spend_limit:
        left = Query(latest(semconv.METRIC_JUDGE_BUDGET, (_PERIOD,), how="min"), "{{" + _PERIOD + "}}")
        says = "What is left for judges in the minute and the day, of the account with the least. At 0 none is called."
        steps = ((None, "red"), (1e-9, "green"))
        made.with_panel(sized(value("Budget left", says, "currencyUSD", left, steps=steps), 12, 6))


def _host(made: Dashboard) -> None:
    made.with_row(boards.row("Is load shed?"))
    level = Query(latest(semconv.METRIC_SAMPLING_LEVEL, _WHERE), _AT)
    says = "How far load shedding has reduced sampling."
    steps: Steps = ((None, "green"), (1, "yellow"), (2, "orange"), (3, "red"))
    made.with_panel(sized(value("Sampling level", says, "none", level, steps=steps, texts=_LEVELS), 8))
    for title, says, unit, instrument in (
        ("Drain time", "Estimated time until the queued responses are evaluated.", "s",
         semconv.METRIC_QUEUE_DRAIN_TIME),
        ("Event loop lag", "Greatest lateness of the host's event loops in a minute, where one is known.", "s",
         semconv.METRIC_LOOP_LAG),
    ):  # fmt: skip
        made.with_panel(sized(graph(title, says, unit, Query(latest(instrument, _WHERE), _AT)), 8))

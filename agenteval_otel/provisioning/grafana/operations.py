"""Operations: whether the evaluation itself keeps up, what it costs, and what it does to its host."""

from __future__ import annotations

from agenteval_otel import semconv
from agenteval_otel.provisioning.files import GeneratedFiles
from agenteval_otel.provisioning.grafana.boards import Board
from agenteval_otel.provisioning.grafana.expressions import PROCESS, latest, quantile, rate
from agenteval_otel.provisioning.grafana.overview import LOST
from agenteval_otel.provisioning.grafana.panels import Query, Steps, graph, stacked, value
from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.promql import CRITERION, OUTCOME, joined, label_name

_ERROR, _JUDGE_MODEL = label_name(semconv.ERROR_TYPE), label_name(semconv.JUDGE_MODEL)
_JUDGE, _PERIOD = label_name(semconv.JUDGE_NAME), label_name(semconv.JUDGE_PERIOD)
_TOKENS = label_name(semconv.TOKEN_TYPE)
_SIGNAL, _REASON = label_name(semconv.EXPORT_SIGNAL), label_name(semconv.EXPORT_REASON)
_WHERE = ("job", "instance")
_LEVELS = {"0": ("full", "green"), "1": ("reduced", "yellow"), "2": ("no model calls", "orange"), "3": ("off", "red")}
_BREAKER = {"0": ("closed", "green"), "1": ("half open", "yellow"), "2": ("open", "red")}
_QUANTILES = (0.5, 0.95, 0.99)
_HOUR_S = 3600


def files_of(plan: MonitoringPlan) -> GeneratedFiles:
    board = Board(plan, "agenteval: operations", "agenteval-operations", "Whether the evaluation itself is well.")
    _queue(board)
    _time(board)
    if plan.judge_models:
        _judges(board, plan)
    _host(board)
    return {"dashboards/operations.json": board.text()}


def _by(expression: str, *labels: str) -> Query:
    return Query(expression, " ".join(f"{{{{{label}}}}}" for label in labels))


def _rate(instrument: semconv.Instrument, *labels: str, matchers: str = PROCESS) -> Query:
    return _by(rate(instrument, labels, matchers), *labels)


def _latest(instrument: semconv.Instrument, *labels: str, how: str = "max") -> Query:
    return _by(latest(instrument, labels, how=how), *labels)


def _queue(board: Board) -> None:
    board.row("Does it keep up?")
    size, capacity = (latest(metric, _WHERE) for metric in (semconv.METRIC_QUEUE_BYTES, semconv.METRIC_QUEUE_MAX_BYTES))
    text = "Responses that wait or are evaluated, as a share of what the queue may hold. At 1 responses are dropped."
    lost = joined(PROCESS, f'{OUTCOME}=~"{LOST}"')
    since = f"time() - {latest(semconv.METRIC_LAST_SUCCESS, _WHERE)}"
    for panel in (
        graph("Queue, share in use", text, "percentunit", _by(f"{size} / {capacity}", *_WHERE), between=(0, 1)),
        graph("Queue, memory", "Estimated memory that waiting responses hold.", "bytes",
              _latest(semconv.METRIC_QUEUE_BYTES, *_WHERE)),
        stacked("Lost responses by reason", "Responses per second that were dropped or failed.", "reqps",
                _rate(semconv.METRIC_RESPONSES, OUTCOME, matchers=lost)),
        stacked("Errors of evaluators", "Failed evaluations per second, by criterion and error.", "cps",
                _rate(semconv.METRIC_ERRORS, CRITERION, _ERROR)),
        stacked("Lost in export", "Spans, events and metrics per second that did not reach the backend.", "cps",
                _rate(semconv.METRIC_EXPORT_LOST, _SIGNAL, _REASON)),
        graph("Since the last result", "Time since a result was last delivered. Grows without traffic, too.", "s",
              _by(since, *_WHERE)),
        stacked("Responses by outcome", "Calls of monitored handlers per second, by outcome.", "reqps",
                _rate(semconv.METRIC_RESPONSES, OUTCOME)),
    ):  # fmt: skip
        board.add(panel, 8)


def _time(board: Board) -> None:
    board.row("How long does it take?")
    lag = (Query(quantile(semconv.METRIC_LAG, of), f"{of * 100:g} %") for of in _QUANTILES)
    whole = joined(PROCESS, f'{CRITERION}=""')
    runs = (Query(quantile(semconv.METRIC_DURATION, of, matchers=whole), f"{of * 100:g} %") for of in _QUANTILES)
    text = "From the end of the response to its result: 50, 95 and 99 percent of the responses within so long."
    board.add(graph("Lag", text, "s", *lag), 12)
    text = "Of all evaluators of one response together: 50, 95 and 99 percent within so long."
    board.add(graph("Duration of a run", text, "s", *runs), 12)


def _judges(board: Board, plan: MonitoringPlan) -> None:
    board.row("Judges")
    latency = quantile(semconv.METRIC_JUDGE_DURATION, 0.95, (_JUDGE_MODEL,))
    cost = f"{_HOUR_S} * {rate(semconv.METRIC_JUDGE_COST, (_JUDGE_MODEL,))}"
    for panel in (
        stacked("Calls of judges", "Judge calls per second, by outcome.", "reqps",
                _rate(semconv.METRIC_JUDGE_CALLS, _JUDGE_MODEL, OUTCOME)),
        graph("Judge latency", "95 percent of the calls took at most so long, retries included.", "s",
              _by(latency, _JUDGE_MODEL)),
        stacked("Tokens", "Tokens that judges used, a second, by kind.", "cps",
                _rate(semconv.METRIC_JUDGE_TOKENS, _JUDGE_MODEL, _TOKENS)),
        stacked("Spend an hour", "What judges cost in an hour at this pace, where prices are known.", "currencyUSD",
                _by(cost, _JUDGE_MODEL)),
    ):  # fmt: skip
        board.add(panel, 12)
    text = "Circuit breaker of each judge's endpoint, the worst of all processes. Open: the judge is not called."
    steps: Steps = ((None, "green"), (1, "yellow"), (2, "red"))
    breaker = _latest(semconv.METRIC_JUDGE_BREAKER, _JUDGE)
    board.add(value("Breaker", text, "none", breaker, steps=steps, texts=_BREAKER), 12, 6)
    if plan.has_spend_limit:
        text = "What is left for judges in the minute and the day, of the account with the least. At 0 none is called."
        steps = ((None, "red"), (1e-9, "green"))
        left = _latest(semconv.METRIC_JUDGE_BUDGET, _PERIOD, how="min")
        board.add(value("Budget left", text, "currencyUSD", left, steps=steps), 12, 6)


def _host(board: Board) -> None:
    board.row("Is load shed?")
    steps: Steps = ((None, "green"), (1, "yellow"), (2, "orange"), (3, "red"))
    for panel in (
        value("Sampling level", "How far load shedding has reduced sampling.", "none",
              _latest(semconv.METRIC_SAMPLING_LEVEL, *_WHERE), steps=steps, texts=_LEVELS),
        graph("Drain time", "Estimated time until the queued responses are evaluated.", "s",
              _latest(semconv.METRIC_QUEUE_DRAIN_TIME, *_WHERE)),
        graph("Event loop lag", "Greatest lateness of the host's event loops in a minute, where one is known.", "s",
              _latest(semconv.METRIC_LOOP_LAG, *_WHERE)),
    ):  # fmt: skip
        board.add(panel, 8)

"""The dashboard of operations.

It shows whether the evaluation itself keeps up, what it costs, and what it does to its host.
"""

from __future__ import annotations

from agenteval_otel import semconv
from agenteval_otel.provisioning.files import GeneratedFiles
from agenteval_otel.provisioning.grafana.boards import (
    EACH,
    LOST,
    PROCESS,
    Board,
    BoardOptions,
    PanelQuery,
    Steps,
    quantile,
)
from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.promql import CRITERION, OUTCOME, increase, joined, label_name
from agenteval_otel.semconv import Instrument

_ERROR = label_name(semconv.ERROR_TYPE)
_JUDGE_MODEL = label_name(semconv.JUDGE_MODEL)
_JUDGE = label_name(semconv.JUDGE_NAME)
_CHECK = label_name(semconv.JUDGE_CHECK)
_PERIOD = label_name(semconv.JUDGE_PERIOD)
_TOKENS = label_name(semconv.TOKEN_TYPE)
_SIGNAL = label_name(semconv.EXPORT_SIGNAL)
_LOSS_REASON = label_name(semconv.EXPORT_REASON)
_WHERE = ("job", "instance")
_LEVELS = {
    "0": ("full", "green"),
    "1": ("reduced", "yellow"),
    "2": ("no model calls", "orange"),
    "3": ("off", "red"),
}
_TRUST = {"0": ("trusted", "green"), "1": ("untrusted", "red")}
_ODD = "refusal|malformed_answer|empty_answer|truncated"
_BREAKER = {"0": ("closed", "green"), "1": ("half open", "yellow"), "2": ("open", "red")}


def operations(plan: MonitoringPlan, options: BoardOptions) -> GeneratedFiles:
    board = Board(plan, "operations", "Whether the evaluation itself is well.", options)
    board.mark_versions()
    board.choose_instances()
    _queue(board)
    _time(board)
    if plan.judge_models:
        _judges(board, plan)
    _host(board)
    return board.files()


def _by(expression: str, *labels: str) -> PanelQuery:
    return PanelQuery(expression, " ".join(f"{{{{{label}}}}}" for label in labels))


def rate(instrument: Instrument, *labels: str, matchers: str = PROCESS) -> PanelQuery:
    by = ", ".join(labels)
    return _by(f"sum by ({by}) (rate({instrument.prometheus_name}{{{matchers}}}[{EACH}]))", *labels)


def _latest(instrument: Instrument, *labels: str, how: str = "max") -> PanelQuery:
    """Return the query of a gauge as it stands, of the chosen processes.

    `how` says what becomes of several.
    """
    return _by(
        f"{how} by ({', '.join(labels)}) ({instrument.prometheus_name}{{{PROCESS}}})", *labels
    )


def _queue(board: Board) -> None:
    board.row("Does it keep up?")
    size, capacity, success = (
        _latest(metric, *_WHERE).expression
        for metric in (
            semconv.METRIC_QUEUE_BYTES,
            semconv.METRIC_QUEUE_MAX_BYTES,
            semconv.METRIC_LAST_SUCCESS,
        )
    )
    lost = joined(PROCESS, f'{OUTCOME}=~"{LOST}"')
    for title, text, unit, query in (
        (
            "Queue, share in use",
            "Responses that wait or are evaluated, as a share of what the queue may hold. At 1 responses are dropped.",
            "percentunit",
            _by(f"{size} / {capacity}", *_WHERE),
        ),
        (
            "Queue, memory",
            "Estimated memory that waiting responses hold.",
            "bytes",
            _by(size, *_WHERE),
        ),
        (
            "Lost responses by reason",
            "Responses per second that were dropped or failed.",
            "reqps",
            rate(semconv.METRIC_RESPONSES, OUTCOME, matchers=lost),
        ),
        (
            "Errors of evaluators",
            "Failed evaluations per second, by criterion and error.",
            "cps",
            rate(semconv.METRIC_ERRORS, CRITERION, _ERROR),
        ),
        (
            "Lost in export",
            "Spans, events and metrics per second that did not reach the backend.",
            "cps",
            rate(semconv.METRIC_EXPORT_LOST, _SIGNAL, _LOSS_REASON),
        ),
        (
            "Since the last result",
            "Time since a result was last delivered. Grows without traffic, too.",
            "s",
            _by(f"time() - {success}", *_WHERE),
        ),
        (
            "Responses by outcome",
            "Calls of monitored handlers per second, by outcome.",
            "reqps",
            rate(semconv.METRIC_RESPONSES, OUTCOME),
        ),
    ):
        board.graph(title, text, unit, query, stacked=unit in ("reqps", "cps"), width=8)


def _time(board: Board) -> None:
    board.row("How long does it take?")
    run = joined(PROCESS, f'{CRITERION}=""')
    for title, text, instrument, matchers in (
        (
            "Lag",
            "From the end of the response to its result: 50, 95 and 99 percent of the responses within so long.",
            semconv.METRIC_LAG,
            PROCESS,
        ),
        (
            "Duration of a run",
            "Of all evaluators of a response, where a model was asked: 50, 95 and 99 percent within so long.",
            semconv.METRIC_DURATION,
            run,
        ),
    ):
        queries = (
            PanelQuery(quantile(instrument, of, matchers=matchers), f"{of * 100:g} %")
            for of in (0.5, 0.95, 0.99)
        )
        board.graph(title, text, "s", *queries)


def _judges(board: Board, plan: MonitoringPlan) -> None:
    board.row("Judges")
    for title, text, unit, query in (
        (
            "Calls of judges",
            "Judge calls per second, by outcome.",
            "reqps",
            rate(semconv.METRIC_JUDGE_CALLS, _JUDGE_MODEL, OUTCOME),
        ),
        (
            "Judge latency",
            "95 percent of the calls took at most so long, retries included.",
            "s",
            _by(quantile(semconv.METRIC_JUDGE_DURATION, 0.95, (_JUDGE_MODEL,)), _JUDGE_MODEL),
        ),
        (
            "Tokens",
            "Tokens that judges used, a second, by kind.",
            "cps",
            rate(semconv.METRIC_JUDGE_TOKENS, _JUDGE_MODEL, _TOKENS),
        ),
        (
            "Spend an hour",
            "What judges cost in an hour at this pace, where prices are known.",
            "currencyUSD",
            _by(f"3600 * {rate(semconv.METRIC_JUDGE_COST, _JUDGE_MODEL).expression}", _JUDGE_MODEL),
        ),
    ):
        board.graph(title, text, unit, query, stacked=unit != "s")
    text = "Circuit breaker of each judge's endpoint, the worst of all processes. Open: the judge is not called."
    steps: Steps = ((None, "green"), (1, "yellow"), (2, "red"))
    breaker = _latest(semconv.METRIC_JUDGE_BREAKER, _JUDGE)
    board.value("Breaker", text, "none", breaker, steps=steps, texts=_BREAKER, width=12, height=6)
    if plan.has_spend_limit:
        text = "What is left for judges in the minute and the day, of the account with the least. At 0 none is called."
        steps = ((None, "red"), (1e-9, "green"))
        left = _latest(semconv.METRIC_JUDGE_BUDGET, _PERIOD, how="min")
        board.value("Budget left", text, "currencyUSD", left, steps=steps, width=12, height=6)
    _judge_health(board)


def _judge_health(board: Board) -> None:
    board.row("Do judges still judge as they did?")
    of_judge = (CRITERION, _JUDGE_MODEL)
    sent = f'{OUTCOME}!~"cached|budget|budget_exhausted|cancelled"'
    answered = rate(
        semconv.METRIC_JUDGE_CALLS, _JUDGE_MODEL, matchers=joined(PROCESS, sent)
    ).expression
    odd = rate(
        semconv.METRIC_JUDGE_CALLS, _JUDGE_MODEL, matchers=joined(PROCESS, f'{OUTCOME}=~"{_ODD}"')
    )
    for title, text, unit, query in (
        (
            "Agreement of judges",
            "Share of the last comparisons that agree: with known answers (canary), with the judge "
            "itself (repeat, position), with people (people). The worst of all processes.",
            "percentunit",
            _latest(semconv.METRIC_JUDGE_AGREEMENT, *of_judge, _CHECK, how="min"),
        ),
        (
            "Drift of scores",
            "Population stability index of the last scores to the reference. Below 0.1 is no change "
            "that matters. Many changes of the answers look the same: see the canaries.",
            "none",
            _latest(semconv.METRIC_JUDGE_DRIFT, *of_judge),
        ),
        (
            "Scores and length",
            "Rank correlation of the last scores with the length of the answers. Far from 0: the "
            "judge may reward length, or the lack of it.",
            "none",
            _latest(semconv.METRIC_JUDGE_LENGTH_CORRELATION, *of_judge),
        ),
        (
            "Refusals and unreadable answers",
            "Share of a judge's calls that ended so.",
            "percentunit",
            _by(f"({odd.expression} or 0 * {answered}) / ({answered} > 0)", _JUDGE_MODEL),
        ),
        (
            "Changes of the model",
            "Answers of a model or configuration that had not answered lately.",
            "short",
            _by(
                increase(semconv.METRIC_JUDGE_CHANGES, PROCESS, EACH, (_JUDGE_MODEL,)), _JUDGE_MODEL
            ),
        ),
    ):
        board.graph(title, text, unit, query, width=8)
    text = "Criteria whose judge a check distrusts. Their scores are no ground for decisions: see the alert's runbook."
    steps: Steps = ((None, "green"), (1, "red"))
    untrusted = _latest(semconv.METRIC_JUDGE_UNTRUSTED, *of_judge, _CHECK)
    board.value("Untrusted", text, "none", untrusted, steps=steps, texts=_TRUST, width=8, height=8)


def _host(board: Board) -> None:
    board.row("Is load shed?")
    steps: Steps = ((None, "green"), (1, "yellow"), (2, "orange"), (3, "red"))
    level = _latest(semconv.METRIC_SAMPLING_LEVEL, *_WHERE)
    text = "How far load shedding has reduced sampling."
    board.value(
        "Sampling level", text, "none", level, steps=steps, texts=_LEVELS, width=8, height=8
    )
    for title, text, instrument in (
        (
            "Drain time",
            "Estimated time until the queued responses are evaluated.",
            semconv.METRIC_QUEUE_DRAIN_TIME,
        ),
        (
            "Event loop lag",
            "Greatest lateness of the host's event loops in a minute, where one is known.",
            semconv.METRIC_LOOP_LAG,
        ),
    ):
        board.graph(title, text, "s", _latest(instrument, *_WHERE), width=8)

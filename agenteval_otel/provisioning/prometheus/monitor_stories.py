"""Stories about the monitoring itself: what is lost, fails, stands still or has gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from agenteval_otel import semconv as names
from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.provisioning.prometheus.monitor import LEAST_COUNT, least_answers
from agenteval_otel.provisioning.prometheus.stories import DAY, HALF_HOUR, HOUR, STEPS, Series, Story, counter
from agenteval_otel.provisioning.promql import AGENT, CRITERION, LABEL, OUTCOME, label_name

_NONE: Final = frozenset[str]()
_FEW: Final = LEAST_COUNT - 0.5
_ENOUGH: Final = LEAST_COUNT + 0.5
_PLENTY: Final = 12.0
_LOST: Final = {
    "AgentevalQueueDropping": (names.DROPPED_QUEUE_FULL,),
    "AgentevalPipelineFailing": (names.PIPELINE_FAILED, names.CAPTURE_FAILED),
}
_JUDGE = {label_name(names.JUDGE_MODEL): "a judge"}
_NAME = {label_name(names.JUDGE_NAME): "a judge"}


def monitor_stories(plan: MonitoringPlan) -> Iterator[Story]:
    """The stories of every alert about the monitoring that the plan gives reason to."""
    if not plan.criteria:
        return
    first = plan.criteria[0]
    of_all = next((one for one in plan.criteria if not one.agents), first)
    agent = of_all.agents[0] if of_all.agents else _unnamed(plan)
    yield from _traffic(agent, first.name, least_answers(plan))
    yield from _losses(agent, first.name)
    yield from _exports()
    yield from _errors(first.name)
    yield from _levels()
    if plan.judge_models:
        yield from _judges()
    if plan.has_spend_limit:
        yield from _budgets()


def _unnamed(plan: MonitoringPlan) -> str:
    named = {name for one in plan.criteria for name in (*one.agents, *one.other_agents)} | set(plan.agents)
    return next(name for name in ("any agent" + "'" * number for number in range(len(named) + 1)) if name not in named)


def _answers(agent: str, outcome: str, *pieces: tuple[float, int]) -> Series:
    return counter(names.METRIC_RESPONSES.prometheus_name, {AGENT: agent, OUTCOME: outcome}, *pieces)


def _results(agent: str, criterion: str, *pieces: tuple[float, int], begins: int = 0) -> Series:
    labels = {CRITERION: criterion, AGENT: agent, LABEL: names.LABEL_PASS}
    return counter(names.METRIC_RESULTS.prometheus_name, labels, *pieces, begins=begins)


def _traffic(agent: str, criterion: str, least: int) -> Iterator[Story]:
    blind, gone = frozenset({"AgentevalMonitorBlind"}), frozenset({"AgentevalTelemetryVanished"})
    plenty = max(_PLENTY, 2.0 * least / HALF_HOUR)
    always = (plenty, STEPS)
    evaluated = _answers(agent, names.EVALUATED, always)
    yield Story("answers get results", (evaluated, _results(agent, criterion, always)), _NONE)
    yield Story("answers never get results", (evaluated,), blind)
    yield Story("results end two hours ago", (evaluated, _results(agent, criterion, (plenty, STEPS - 2 * HOUR))), blind)
    yield Story("results end a few minutes ago", (evaluated, _results(agent, criterion, (plenty, STEPS - 1))), _NONE)
    yield Story("results of another agent", (evaluated, _results(f"not {agent}", criterion, always)), blind)
    yield Story(
        "answers without results, too few",
        (_answers(agent, names.EVALUATED, ((least - 0.5) / HALF_HOUR, STEPS)),),
        _NONE,
    )
    enough = _answers(agent, names.EVALUATED, ((least + 0.5) / HALF_HOUR, STEPS))
    yield Story("answers without results, just enough", (enough,), blind)
    yield Story("all is shed", (_answers(agent, names.SHED, always),), blind)
    for outcome in (names.NOT_SAMPLED, names.DISABLED):
        yield Story(f"all is {outcome}", (_answers(agent, outcome, always),), _NONE)
    yield Story("nobody asks", (_answers(agent, names.EVALUATED),), _NONE)
    for said, steps, fires in (
        ("an hour", HOUR, gone), ("a few minutes", 1, _NONE), ("more than a day", DAY + HOUR, _NONE),
    ):  # fmt: skip
        values = f"0x{STEPS - steps} _x{steps}"
        series = Series(names.METRIC_RESPONSES.prometheus_name, {AGENT: agent, OUTCOME: names.EVALUATED}, values)
        yield Story(f"no metrics for {said}", (series,), fires)


def _losses(agent: str, criterion: str) -> Iterator[Story]:
    results = _results(agent, criterion, (_PLENTY, STEPS))
    for alert, outcomes in _LOST.items():
        fires = frozenset({alert})
        for lost in outcomes:
            for said, of_all, count, told in (
                ("a small share", 0.045, 1_000.0, _NONE), ("a large share", 0.055, 1_000.0, fires),
                ("too few", 0.5, _FEW, _NONE), ("just enough", 0.5, _ENOUGH, fires),
            ):  # fmt: skip
                per_step = (count if count < LEAST_COUNT * 2 else of_all * count) / HALF_HOUR
                rest = per_step / of_all - per_step
                series = (
                    _answers(agent, lost, (per_step, STEPS)), _answers(agent, names.EVALUATED, (rest, STEPS)),
                    _answers(agent, names.NOT_SAMPLED, (1_000.0, STEPS)), results,
                )  # fmt: skip
                yield Story(f"{lost}: {said}", series, told)


def _exports() -> Iterator[Story]:
    fires = frozenset({"AgentevalExportLosing"})
    labels = {label_name(names.EXPORT_SIGNAL): "logs", label_name(names.EXPORT_REASON): "no_room"}
    for amount, lost, alerts in (("none", 0.0, _NONE), ("too few", _FEW, _NONE), ("just enough", _ENOUGH, fires)):
        series = counter(names.METRIC_EXPORT_LOST.prometheus_name, labels, (lost / HALF_HOUR, STEPS))
        yield Story(f"lost on the way out: {amount}", (series,), alerts)


def _errors(criterion: str) -> Iterator[Story]:
    fires = frozenset({"AgentevalEvaluationErrors"})
    labels = {CRITERION: criterion, label_name(names.ERROR_TYPE): "timeout"}

    def errors(of_an_hour: float, begins: int = 0) -> Series:
        pieces = (of_an_hour / HOUR, STEPS - begins)
        return counter(names.METRIC_ERRORS.prometheus_name, labels, pieces, begins=begins)

    for said, failed, scored, told in (
        ("a small share", 95.0, 905.0, _NONE), ("a large share", 105.0, 895.0, fires),
        ("too few", _FEW, 10.0, _NONE), ("just enough", _ENOUGH, 10.0, fires),
    ):  # fmt: skip
        yield Story(f"errors: {said}", (errors(failed), _results("an agent", criterion, (scored / HOUR, STEPS))), told)
    yield Story("errors: nothing else", (errors(_ENOUGH),), fires)
    yield Story("errors: for two hours now", (errors(_ENOUGH, begins=STEPS - 2 * HOUR),), fires)


def _levels() -> Iterator[Story]:
    gauge, fires = names.METRIC_SAMPLING_LEVEL.prometheus_name, frozenset({"AgentevalSamplingReduced"})
    for said, values, told in (
        ("full", f"0x{STEPS}", _NONE), ("reduced", f"1x{STEPS}", _NONE), ("no model calls", f"2x{STEPS}", fires),
        ("off", f"3x{STEPS}", fires), ("no model calls for a moment", f"0x{STEPS - 1} 2", _NONE),
        ("no model calls, and full again", f"2x{STEPS - 1} 0", _NONE),
    ):  # fmt: skip
        yield Story(f"sampling is {said}", (Series(gauge, {}, values),), told)


def _calls(outcome: str, of_an_hour: float) -> Series:
    return counter(names.METRIC_JUDGE_CALLS.prometheus_name, {**_JUDGE, OUTCOME: outcome}, (of_an_hour / HOUR, STEPS))


def _judges() -> Iterator[Story]:
    fires = frozenset({"AgentevalJudgeFailing"})
    for said, error, failed, answered, told in (
        ("a small share", "timeout", 95.0, 905.0, _NONE), ("a large share", "timeout", 105.0, 895.0, fires),
        ("too few", "timeout", _FEW, 10.0, _NONE), ("just enough", "timeout", _ENOUGH, 10.0, fires),
        ("refused by the breaker", "breaker_open", 105.0, 895.0, fires),
        ("nothing is answered", "authentication", 20.0, 0.0, fires),
    ):  # fmt: skip
        yield Story(f"judge fails: {said}", (_calls(error, failed), _calls("answered", answered)), told)
    kept = _calls("cached", 10_000.0)
    yield Story("judge fails: much is cached", (_calls("timeout", 105.0), _calls("answered", 895.0), kept), fires)
    yield Story("judge is asked nothing", (_calls("timeout", 0.0), _calls("answered", 0.0), kept), _NONE)
    state, opened = names.METRIC_JUDGE_BREAKER.prometheus_name, frozenset({"AgentevalJudgeBreakerOpen"})
    for said, values, told in (
        ("closed", f"0x{STEPS}", _NONE), ("open", f"2x{STEPS}", opened),
        ("open and half open in turns", "2 1 " * (STEPS // 2) + "2", opened),
        ("open for ten minutes", f"0x{STEPS - 1} 2", _NONE),
        ("closed now and then", "2 0 " * (STEPS // 2) + "2", _NONE),
    ):  # fmt: skip
        yield Story(f"breaker is {said}", (Series(state, _NAME, values),), told)


def _budgets() -> Iterator[Story]:
    fires = frozenset({"AgentevalBudgetSpent"})
    left, period = names.METRIC_JUDGE_BUDGET.prometheus_name, label_name(names.JUDGE_PERIOD)
    for said, span, values, told in (
        ("is there", "day", f"5x{STEPS}", _NONE), ("is spent", "day", f"5x{STEPS - HOUR} 0x{HOUR - 1}", fires),
        ("of the minute is spent", "minute", f"0x{STEPS}", _NONE),
    ):  # fmt: skip
        yield Story(f"budget {said}", (Series(left, {period: span}, values),), told)
    for said, refused, answered, told in (
        ("half", 49.0, 51.0, _NONE), ("more than half", 51.0, 49.0, fires),
        ("too few", _FEW, 1.0, _NONE), ("just enough", _ENOUGH, 1.0, fires),
    ):  # fmt: skip
        for outcome in ("budget", "budget_exhausted"):
            series = (_calls(outcome, refused), _calls("answered", answered), _calls("cached", 10_000.0))
            yield Story(f"{outcome} refuses {said}", series, told)

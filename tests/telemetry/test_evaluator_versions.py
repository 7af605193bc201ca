"""The metric of evaluators and their versions, which dashboards mark the beginnings of."""

from __future__ import annotations

import gc

from agenteval_otel import semconv
from agenteval_otel.evaluators import ResponseHealth, RuleBased
from agenteval_otel.telemetry.metrics import EvaluatorVersions
from tests.telemetry.support import Watch, points

NAME = semconv.METRIC_EVALUATOR_INFO.name


class Handler:
    """A handler with these evaluators."""

    def __init__(self, *evaluator_versions: tuple[str, str]) -> None:
        self.evaluator_versions = evaluator_versions


def test_each_evaluator_is_shown_with_the_version_of_its_results(watch: Watch) -> None:
    """What is configured counts, a shadow as well."""
    rules = RuleBased(rules=[{"criterion": "short", "type": "length", "max": 9}], shadow=True)
    evaluators = [ResponseHealth(), rules]
    watch.answer(*evaluators)
    shown = points(watch.telemetry, NAME)
    assert shown == {(evaluator.label, evaluator.fingerprint): 1 for evaluator in evaluators}
    of_results = {
        (event.attributes[semconv.EVALUATOR_ID], event.attributes[semconv.EVALUATOR_VERSION])
        for event in watch.telemetry.events()
    }
    assert of_results == set(shown)


def test_a_handler_that_is_gone_shows_nothing() -> None:
    """Such as those before the settings were applied again."""
    versions = EvaluatorVersions()
    before = Handler(("Tone", "1"), ("Depth", "1"))
    after = Handler(("Tone", "2"), ("Depth", "1"))
    for handler in (before, after, after):
        versions.know(handler)
    assert len(versions.read()) == 3
    del before, handler
    gc.collect()
    (_, tone), (_, depth) = (dict(labels).values() for labels in reversed(versions.read()))
    assert (tone, depth) == ("2", "1")


def test_the_number_of_series_is_bounded() -> None:
    """Code may make handlers with other evaluators without end."""
    versions = EvaluatorVersions()
    handlers = [Handler((f"Tone {number:04}", "1")) for number in range(1_000)]
    for handler in handlers:
        versions.know(handler)
    series = list(versions.read())
    assert len(series) == 200
    assert dict(series[0])[semconv.EVALUATOR_ID] == "Tone 0000"

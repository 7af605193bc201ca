"""What results are sliced by: annotations on spans, events, metrics and in files, short, hashed and
redacted.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader

from agenteval_otel import annotate, configure, monitor, reload
from agenteval_otel.storage import JsonFileStorageProvider, OtlpStorageProvider
from agenteval_otel.testing import RecordedTelemetry
from tests.telemetry.support import Watch, collected, trace_of
from tests.testing.doubles import Free

SAID: dict[str, Any] = {
    "prompt_name": "refunds",
    "prompt_version": 3,
    "user_id": "ann@mail.example",
    "environment": "production",
    "experiment": "short",
    "arm": "new",
    "tags": {"tenant": "acme", "beta": True, "contact": "ann@mail.example"},
}
HASHED = hashlib.sha256(b"ann@mail.example").hexdigest()[:32]
ATTRIBUTES = {
    "gen_ai.prompt.name": "refunds",
    "gen_ai.prompt.version": "3",
    "user.id": HASHED,
    "deployment.environment.name": "production",
    "agenteval.experiment.name": "short",
    "agenteval.experiment.arm": "new",
    "agenteval.tag.tenant": "acme",
    "agenteval.tag.beta": "true",
    "agenteval.tag.contact": "[EMAIL]",
}


def test_every_carrier_has_them(telemetry: RecordedTelemetry, tmp_path: Path) -> None:
    """Event, run span, result span and file have the same values: the user's id as its hash, all
    else redacted.
    """
    watch = Watch(telemetry, detail="result")
    watch.answer(
        Free(criterion_name="tone"),
        facts=SAID,
        more=[JsonFileStorageProvider(path=tmp_path / "a.jsonl")],
    )
    (event,) = telemetry.events()
    for carrier in (event, watch.span("evaluation support"), watch.span("evaluation tone")):
        assert ATTRIBUTES.items() <= dict(carrier.attributes).items()
    assert not any(
        name in point.attributes
        for name in ATTRIBUTES
        for point in telemetry.points("gen_ai.evaluation.score")
    )
    watch.shutdown()
    text = (tmp_path / "a.jsonl").read_text()
    stored = json.loads(text)
    assert "ann@mail" not in text
    assert (stored["promptName"], stored["promptVersion"], stored["userId"]) == (
        "refunds",
        "3",
        HASHED,
    )
    assert stored["tags"] == {"tenant": "acme", "beta": "true", "contact": "[EMAIL]"}


def ask(**said: Any) -> None:
    """One call of a handler that annotates so."""

    @monitor(agent="support")
    def handler(question: str) -> str:
        annotate(**said)
        return "An answer."

    handler("A question?")


@pytest.mark.parametrize(
    ("settings", "user_id"),
    [
        ({"user_id": "plain"}, "u-1"),
        ({"user_id": "plain", "user_id_salt": "s"}, "u-1"),
        ({"user_id_salt": "s"}, "9703a548ab3cdccb5ca05e8bbad52302"),
    ],
)
def test_the_settings_say_what_leaves_of_a_users_id(
    settings: dict[str, Any], user_id: str, telemetry: RecordedTelemetry
) -> None:
    """Plain, or under a salt that nobody else has."""
    configure(**settings, storage=[telemetry.storage()], dispatcher="inline", sample_rate=1.0)
    ask(user_id="u-1")
    (event,) = telemetry.events()
    assert event.attributes["user.id"] == user_id


def test_metric_dimensions_come_from_the_settings(
    telemetry: RecordedTelemetry, tmp_path: Path
) -> None:
    """Scores, results and weights have the listed ones, with exemplars; a reload adds one and no
    count is lost.
    """
    file = tmp_path / "settings.yaml"
    file.write_text("metric_dimensions: [tenant]")
    configure(file, storage=[telemetry.storage()], dispatcher="inline", sample_rate=1.0)
    with telemetry.tracer().start_as_current_span("host") as span:
        ask(**SAID)
    (score,) = telemetry.points("gen_ai.evaluation.score")
    assert score.attributes["agenteval.tag.tenant"] == "acme"
    assert "gen_ai.prompt.version" not in score.attributes
    for name in ("results", "weight", "weighted_score"):
        points = telemetry.points(f"agenteval.evaluation.{name}")
        assert {point.attributes["agenteval.tag.tenant"] for point in points} == {"acme"}
    assert (score.exemplars[0].trace_id, score.exemplars[0].span_id) == trace_of(span)
    file.write_text("metric_dimensions: {tenant: 50, prompt_version: 4}")
    assert reload()
    ask(**SAID)
    counts = {
        point.attributes.get("gen_ai.prompt.version"): point.value
        for point in telemetry.points("agenteval.evaluation.results")
        if point.value
    }
    assert counts == {None: 1, "3": 1}


def test_they_are_right_under_delta_temporality() -> None:
    """Each collection has what was added since the one before, by dimension."""
    reader = InMemoryMetricReader(
        preferred_temporality={ObservableCounter: AggregationTemporality.DELTA}
    )
    storage = OtlpStorageProvider(
        meter_provider=MeterProvider([reader], shutdown_on_exit=False), signals={"metrics"}
    )
    configure(metric_dimensions=["tenant"], storage=[storage], dispatcher="inline", sample_rate=1.0)
    seen = []
    for tenants in (("a", "a", "b"), ("b",)):
        for tenant in tenants:
            ask(tags={"tenant": tenant})
        points = collected(reader)["agenteval.evaluation.results"].data.data_points
        seen.append(
            {
                point.attributes["agenteval.tag.tenant"]: point.value
                for point in points
                if point.value
            }
        )
    assert seen == [{"a": 2, "b": 1}, {"b": 1}]

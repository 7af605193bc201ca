"""The response header of the middleware that feedback comes back with."""

from __future__ import annotations

import flask
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from agenteval_otel import configure, flush, record_feedback
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.instrumentation import asgi, wsgi
from agenteval_otel.instrumentation.feedback.recorder import RECORDER
from agenteval_otel.testing import RecordedTelemetry


@pytest.mark.parametrize("sample_rate", [0.0, 1.0])
def test_every_response_of_a_route_has_a_reference(
    telemetry: RecordedTelemetry, sample_rate: float
) -> None:
    """Sampled or not, the header of ASGI and WSGI leads feedback into the request's trace; other
    routes have none.
    """
    RECORDER.reset()
    configure(storage=[telemetry.storage()], sample_rate=sample_rate)
    app = FastAPI()
    app.add_middleware(
        asgi.AgentEvalMiddleware,
        routes={"/chat": "support"},
        reference_header="X-Evaluation-Reference",
    )
    app.post("/chat")(lambda: {"answer": "It is due."})
    app.get("/other")(lambda: {"answer": "It is due."})
    site = flask.Flask(__name__)
    site.post("/chat")(lambda: {"answer": "It is due."})
    site.wsgi_app = wsgi.AgentEvalMiddleware(  # type: ignore[method-assign]
        site.wsgi_app, routes={"/chat": "support"}, reference_header="X-Evaluation-Reference"
    )
    client = TestClient(app)
    with telemetry.tracer().start_as_current_span("page") as span:
        references = [
            client.post("/chat").headers["x-evaluation-reference"],
            site.test_client().post("/chat").headers["X-Evaluation-Reference"],
        ]
    assert "x-evaluation-reference" not in client.get("/other").headers
    for reference in references:
        assert record_feedback(reference, thumbs="up")
    assert flush()
    runs = [
        run
        for run in telemetry.spans("evaluation support")
        if "gen_ai.evaluation.user_feedback.score" in run.attributes
    ]
    assert len(runs) == 2
    assert {run.context.trace_id for run in runs[1:]} == {span.get_span_context().trace_id}


def test_a_header_needs_a_name(telemetry: RecordedTelemetry) -> None:
    """A name that no header can have is refused at start."""
    with pytest.raises(ConfigurationError, match="reference_header: expected the name of a header"):
        asgi.AgentEvalMiddleware(None, routes=["/chat"], reference_header="no header\r\n")

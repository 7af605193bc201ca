"""`opentelemetry-instrument python app.py` and declarative configuration: evaluation without code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import flask
import pytest

from agenteval_otel import accounting, flush
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.instrumentation.instrumentor import AgentEvalInstrumentor

pytestmark = pytest.mark.slow

PROGRAM = Path(sys.executable).parent / "opentelemetry-instrument"
ANSWER = '{"answer": "It is due."}'
FLASK = f"""
import flask
app = flask.Flask(__name__)
app.post("/chat/<name>")(lambda name: {ANSWER})
print(app.test_client().post("/chat/ann", json={{"question": "When?"}}).json)
"""
FASTAPI = f"""
import fastapi, fastapi.testclient
app = fastapi.FastAPI()
app.post("/chat/{{name}}")(lambda name: {ANSWER})
print(fastapi.testclient.TestClient(app).post("/chat/ann", json={{"question": "When?"}}).json())
"""
DJANGO = f"""
import django.conf, django.http, django.urls, werkzeug.test
from django.core.wsgi import get_wsgi_application
django.conf.settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"])
urlpatterns = [django.urls.path("chat/<name>", lambda request, name: django.http.JsonResponse({ANSWER}))]
print(werkzeug.test.Client(get_wsgi_application()).post("/chat/ann", json={{"question": "When?"}}).json)
"""
AGENT = """
import json
from opentelemetry import trace
messages = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "It is due."}]}])
with trace.get_tracer("agents").start_as_current_span("invoke_agent support") as span:
    span.set_attributes({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "support"})
    span.set_attribute("gen_ai.output.messages", messages)
print({"answer": "It is due."})
"""
SETTINGS = """
sample_rate: 1
storage: [{type: console}]
routes: {"POST /chat/{name}": support}
"""
DECLARATIVE = """
file_format: "1.0"
tracer_provider:
  processors:
    - simple: {exporter: {console: {}}}
instrumentation/development:
  python:
    agenteval:
      sample_rate: 1
      storage: [{type: console}]
      routes: {"POST /chat/{name}": support}
"""


def run(folder: Path, app: str, **variables: str) -> str:
    """What an application prints that knows nothing of this package, started by the real program."""
    (folder / "app.py").write_text(app)
    finished = subprocess.run(
        [PROGRAM, sys.executable, "app.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
            "OTEL_TRACES_EXPORTER": "console",
            "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "anthropic,openai,httpx",
            **variables,
        },
    )
    assert finished.returncode == 0, finished.stderr
    assert "{'answer': 'It is due.'}" in finished.stdout
    return finished.stdout + finished.stderr


@pytest.mark.parametrize("app", [FLASK, FASTAPI, DJANGO], ids=["flask", "fastapi", "django"])
def test_an_application_is_evaluated_without_code(tmp_path: Path, app: str) -> None:
    """The routes of the settings file are monitored; scores leave through the SDK that the program
    has set up.
    """
    (tmp_path / "agenteval.yaml").write_text(SETTINGS)
    output = run(tmp_path, app, AGENTEVAL_SETTINGS="agenteval.yaml")
    assert output.count("support  overall 1.00  response_health pass") == 1
    assert output.count('"agenteval.evaluation.overall_score": 1.0') == 1
    has_server_span = app is FASTAPI  # which makes spans itself: then a run span has the results
    assert output.count('"name": "invoke_agent support"') == 1 - has_server_span
    assert output.count('"name": "evaluation support"') == has_server_span


def test_spans_are_evaluated_without_code(tmp_path: Path) -> None:
    """An agent's span of a library that knows nothing of this package; switched off by a setting."""
    for spans, scored in (("true", 1), ("false", 0)):
        variables = {
            "AGENTEVAL_SAMPLE_RATE": "1",
            "AGENTEVAL_STORAGE": "console",
            "AGENTEVAL_SPANS": spans,
        }
        output = run(tmp_path, AGENT, **variables)
        assert output.count("support  overall 1.00  response_health pass") == scored
        assert output.count('"name": "evaluation support"') == scored


def test_declarative_configuration_sets_everything_up(tmp_path: Path) -> None:
    """One file for SDK and evaluation: the fields below `agenteval` are those of the settings."""
    (tmp_path / "otel.yaml").write_text(DECLARATIVE)
    output = run(tmp_path, FLASK, OTEL_CONFIG_FILE="otel.yaml")
    assert output.count("support  overall 1.00  response_health pass") == 1
    assert (
        output.count('"name": "invoke_agent support"')
        == output.count('"name": "evaluation support"')
        == 1
    )


def test_wrong_settings_are_logged_and_the_application_runs(tmp_path: Path) -> None:
    """The program names what is wrong; nothing is evaluated."""
    output = run(tmp_path, FLASK, AGENTEVAL_SAMPLE_RATE="2")
    assert "AGENTEVAL_SAMPLE_RATE" in output
    assert "overall" not in output


def test_it_can_be_used_and_undone_in_code() -> None:
    """`instrument` takes fields of the settings and raises where they are wrong; `uninstrument`
    leaves no trace.
    """
    instrumentor, before = AgentEvalInstrumentor(), flask.Flask.__call__
    with pytest.raises(ConfigurationError, match=r"routes\[0\]: expected a path"):
        instrumentor.instrument(routes={"chat": "support"}, storage=[])
    instrumentor.instrument(
        routes={"/chat": "support"}, sample_rate=1, storage=[], dispatcher="inline"
    )
    app = flask.Flask(__name__)
    app.get("/chat", endpoint="chat")(lambda: "Due.")
    assert app.test_client().get("/chat").text == "Due."
    instrumentor.uninstrument()
    assert app.test_client().get("/chat").text == "Due."
    assert flush(5)
    assert (accounting()["evaluated"], flask.Flask.__call__) == (1, before)


def test_the_missing_extra_is_named() -> None:
    """Where OpenTelemetry's base class is not installed, the import says what to install."""
    code = "import sys; sys.modules['opentelemetry.instrumentation.instrumentor'] = None\n"
    code += "import agenteval_otel.instrumentation.instrumentor"
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert finished.stderr.endswith(
        'needs the extra instrumentor: pip install "agenteval-otel[instrumentor]"\n'
    )

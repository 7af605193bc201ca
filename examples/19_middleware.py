"""Middleware: routes of FastAPI and Flask are monitored, and no handler changes.

uv run python examples/19_middleware.py
"""

from collections.abc import Iterator

import flask
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient

from agenteval_otel import accounting, configure, flush
from agenteval_otel.evaluators import KeywordCoverage, ResponseHealth
from agenteval_otel.instrumentation import asgi, wsgi
from agenteval_otel.storage import ConsoleStorageProvider

# These applications know nothing of evaluations.
app = FastAPI()
site = flask.Flask(__name__)


@app.post("/chat")
async def chat(body: dict[str, str]) -> dict[str, str]:
    return {"answer": f"I opened a ticket: {body['question']}"}


@app.get("/stream")
async def stream(question: str) -> StreamingResponse:
    def events() -> Iterator[str]:
        for word in ("I ", "opened ", "a ", "ticket."):
            yield f"data: {word}\n\n"  # server-sent events: the text of their data is evaluated

    return StreamingResponse(events(), media_type="text/event-stream")


@site.post("/ask")
def ask() -> dict[str, dict[str, str]]:
    return {"turn": {"said": f"I cannot help with {flask.request.get_json()['text']!r}."}}


if __name__ == "__main__":
    configure(
        sample_rate=1.0,
        evaluators=[
            ResponseHealth(),
            KeywordCoverage(criterion_name="next_step", expected_keywords=["ticket"], threshold=1),
        ],
        storage=[ConsoleStorageProvider()],
    )
    app.add_middleware(
        asgi.AgentEvalMiddleware, routes={"POST /chat": "support", "/stream": "stream"}
    )
    # A body of a form of its own: functions pick the prompt and the answer.
    site.wsgi_app = wsgi.AgentEvalMiddleware(  # type: ignore[method-assign]
        site.wsgi_app,
        routes=["/ask"],
        prompt=lambda body: body["text"],
        response=lambda body: body["turn"]["said"],
    )

    client = TestClient(app)
    print(client.post("/chat", json={"question": "Where is A-17?"}).json())
    print(client.get("/stream", params={"question": "Help!"}).text.split())
    print(site.test_client().post("/ask", json={"text": "the moon"}).json)
    flush(5.0)
    print({outcome: count for outcome, count in accounting().items() if count})

"""A streamed answer under FastAPI: every chunk passes at once, the whole is evaluated when it ends."""

from collections.abc import AsyncGenerator

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient

from agenteval_otel import accounting, annotate, configure, flush, monitor
from agenteval_otel.evaluators import KeywordCoverage, ResponseHealth
from agenteval_otel.storage import ConsoleStorageProvider

configure(
    sample_rate=1.0,
    evaluators=[
        ResponseHealth(),
        KeywordCoverage(criterion_name="next_step", expected_keywords=["ticket"], threshold=1),
    ],
    storage=[ConsoleStorageProvider()],
)
app = FastAPI()


@monitor(agent="support")
async def support(question: str) -> AsyncGenerator[str, None]:
    annotate(model="scripted-1")
    for word in ("I", "opened", "a", "ticket", "for", "you."):
        yield word + " "


@app.get("/support")
async def endpoint(question: str) -> StreamingResponse:
    return StreamingResponse(support(question), media_type="text/plain")


with TestClient(app) as client:
    print(client.get("/support", params={"question": "Where is my order?"}).text)

flush(5.0)
print({outcome: count for outcome, count in accounting().items() if count})

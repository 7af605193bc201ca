"""A streamed answer under FastAPI: every chunk passes at once; the stream is evaluated when it ends
or is abandoned.

uv run python examples/02_streaming_fastapi.py
"""

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator

import httpx
import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

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
    annotate(model="scripted-1", conversation_id="c-17")  # what only the handler knows
    for word in ("I", "opened", "a", "ticket", "for", "you."):
        yield word + " "
        await asyncio.sleep(0.02)  # a model's pace


@app.get("/support")
async def endpoint(question: str) -> StreamingResponse:
    return StreamingResponse(support(question), media_type="text/plain")


if __name__ == "__main__":
    # A real server on a free port and two readers, one of which leaves early. Yours is started by
    # `uvicorn module:app`.
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()

    with httpx.Client(
        base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", params={"question": "Help!"}
    ) as client:
        print(client.get("/support").text)
        with client.stream("GET", "/support") as response:
            # and away: half an answer is told apart from a whole one
            print(next(response.iter_text()), "...")

    server.should_exit = True
    thread.join()
    flush(5.0)
    print({outcome: count for outcome, count in accounting().items() if count})

"""Work without a server: a queue's consumer, and a serverless function that has to flush before it
returns.

uv run python examples/07_background_worker.py
"""

import queue
import threading
from typing import Any

from agenteval_otel import accounting, configure, flush, monitor
from agenteval_otel.storage import JsonFileStorageProvider

configure(sample_rate=1.0, storage=[JsonFileStorageProvider(path="evaluations.jsonl")])


@monitor(agent="summary")
def summarise(text: str) -> str:
    return f"In short: {text.split('.')[0]}."


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """A serverless function. Once it has returned, the platform may freeze the process, its
    background thread too.
    """
    try:
        return {"statusCode": 200, "body": summarise(event["text"])}
    finally:
        # Blocks for at most two seconds. False: not everything is delivered yet; what remains goes
        # on when the process is thawed. Never raises. In a coroutine: await
        # asyncio.to_thread(flush, 2.0)
        if not flush(2.0):
            print("some evaluations are still under way")


def consume(jobs: "queue.Queue[str | None]") -> None:
    """A worker that lives on between its jobs need not wait after each: it flushes when it stops."""
    while (job := jobs.get()) is not None:
        summarise(job)
    flush(5.0)


if __name__ == "__main__":
    print(handler({"text": "The parcel is late. It rained."}, None)["body"])
    print("after the function returned:", accounting()["evaluated"], "evaluated")

    jobs: queue.Queue[str | None] = queue.Queue()
    worker = threading.Thread(target=consume, args=(jobs,))
    worker.start()
    for text in (
        "Lift the lid. Mind the spring.",
        "All is well. Nothing to do.",
        "Call back. Ask for Ann.",
        None,
    ):
        jobs.put(text)
    worker.join()
    print("after the worker stopped:", accounting()["evaluated"], "evaluated")

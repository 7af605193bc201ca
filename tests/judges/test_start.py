"""Clients of judges are imported at start, where a key is there, and never while answers are
judged.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.backends.process import bare_environment

GOOD = json.dumps({"evidence": [], "reason": "r", "score": True})
HOST = """
import asyncio, json, sys
from agenteval_otel import accounting, configure, flush, monitor
from agenteval_otel.testing import ModelServer, RecordedTelemetry

def loaded():
    builtin = {*sys.stdlib_module_names, "_xxsubinterpreters"}  # of the standard library too
    return [name for name in sys.modules if name.partition(".")[0] not in builtin]

async def answer(question):
    return "Gladly!"

async def serve(handler):
    for number in range(3):
        await handler(str(number))
        await asyncio.sleep(0.05)

with ModelServer([GOOD]) as server:
    telemetry = RecordedTelemetry()
    judge = {"type": TYPE, "model": "m", "base_url": server.url} | KEY
    polite = {"type": "LLMJudge", "description": "Is it polite?", "judge": judge}
    if WAY == "configure":
        configure(evaluators=[polite], sample_rate=1.0, storage=[telemetry.storage()])
    at_start = loaded()
    handler = monitor(evaluators=[polite], sample_rate=1.0, storage=[telemetry.storage()])(answer)
    before = loaded()
    asyncio.run(serve(handler))
    assert flush(20.0)
    print(json.dumps({
        "at start": at_start, "before": before, "serving": sorted(set(loaded()) - set(before)),
        "events": [dict(event.attributes) for event in telemetry.events()], "requests": len(server.requests),
    }))
"""


def run(**names: object) -> dict[str, list[str]]:
    script = "\n".join(
        [*(f"{name} = {value!r}" for name, value in {"GOOD": GOOD, **names}.items()), HOST]
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=100,
        env=bare_environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "log": done.stderr.splitlines()}


@pytest.mark.parametrize(
    ("judge", "client", "way"),
    [
        pytest.param("anthropic", "anthropic", "monitor", marks=pytest.mark.slow),
        pytest.param("openai_compatible", "httpx2", "monitor", marks=pytest.mark.slow),
        ("openai", "httpx2", "configure"),
    ],
)
def test_the_client_is_there_before_the_first_answer(judge: str, client: str, way: str) -> None:
    """The decorator imports it, and `configure` for handlers that are decorated later; neither the
    host's threads nor the background thread import anything later.
    """
    seen = run(TYPE=judge, KEY={"api_key": "k"}, WAY=way)
    assert (client in seen["at start"]) is (way == "configure")
    assert client in seen["before"]
    assert seen["serving"] == []
    assert seen["requests"] == 3


def test_without_a_key_nothing_is_imported() -> None:
    """The line at start names the variable, the results are failures, and no answer waits for an
    import.
    """
    seen = run(TYPE="anthropic", KEY={}, WAY="monitor")
    assert not {"anthropic", "httpx2"} & {*seen["before"], *seen["serving"]}
    assert [event["error.type"] for event in seen["events"]] == ["authentication"] * 3  # type: ignore[index]
    assert any(
        "model_cannot_be_asked" in line and "ANTHROPIC_API_KEY" in line for line in seen["log"]
    )

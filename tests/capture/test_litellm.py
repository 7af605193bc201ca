"""What LiteLLM gives, captured by its shape; in a process of its own, because importing it takes
five seconds and is not quiet. The unit ring reads its recording.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.capture.support import LOOK, WEATHER
from tests.promises.programs import run_program

PROGRAM = """
    import json, sys
    import litellm
    from agenteval_otel.testing import ModelServer
    from tests.capture.support import ASKED, CALLING, facts_of, returned, streamed
    litellm.suppress_debug_info = True

    with ModelServer([CALLING]) as server:
        for model, base in (("openai/gpt-x", f"{server.url}/v1"), ("anthropic/claude-x", server.url)):
            asking = dict(model=model, api_base=base, api_key="test", messages=ASKED)
            whole = litellm.completion(**asking)
            chunks = list(litellm.completion(**asking, stream=True, stream_options={"include_usage": True}))
            told = [returned(whole), returned(whole.model_dump()), streamed(chunks)]
            told.append(streamed([chunk.model_dump() for chunk in chunks]))
            for captured in told:
                print("found", json.dumps([*facts_of(captured), bool(captured.response_id)]))
"""


@pytest.mark.slow
def test_responses_and_chunks() -> None:
    """Responses, chunks and their dumps tell the same, whichever provider is behind them."""
    done = run_program(
        PROGRAM, timeout_s=120.0, LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_TELEMETRY="False"
    )
    assert done.code == 0, done.stderr
    call: list[Any] = ["weather", WEATHER["arguments"], None]
    expected = [
        [LOOK, [call], [7, 9], model, "tool_calls", True]
        for model in ("gpt-x", "claude-x")
        for _ in range(4)
    ]
    assert [json.loads(line) for line in done.lines("found")] == expected

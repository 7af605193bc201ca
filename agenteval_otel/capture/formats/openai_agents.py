"""OpenAI Agents: the result of a run, and the events of a streamed one."""

from __future__ import annotations

from typing import Any

from agenteval_otel.capture.answers import must_be_complete, total_usage
from agenteval_otel.capture.fields import field, first, items, kind_of
from agenteval_otel.capture.formats.openai import read_response
from agenteval_otel.capture.messages import Turn, turns_of
from agenteval_otel.capture.reading import Reading
from agenteval_otel.capture.response_formats import response_format
from agenteval_otel.capture.streams import add_chunk
from agenteval_otel.capture.text import to_text

__all__ = ["read_run_event", "read_run_result"]

_FIELDS = (
    "context_wrapper", "data", "final_output", "is_complete", "item", "last_agent", "new_items", "raw_item",
    "raw_responses", "_last_agent",
)  # fmt: skip


@response_format("openai_agents", libraries=("agents",), fields=_FIELDS)
def read_run_result(reading: Reading, answer: Any) -> bool:
    """The result of an agent's run that lists its items and its model's raw responses."""
    new_items, output = field(answer, "new_items"), field(answer, "final_output")
    if not isinstance(new_items, list) or not isinstance(raw := field(answer, "raw_responses"), list):
        return False
    must_be_complete(answer)
    for item in items(raw):
        read_response(reading, item)
    for item in items(new_items):
        _add_item(reading, field(item, "raw_item"))
    if output is not None:
        turn = reading.add_turn(Turn("assistant", output if isinstance(output, str) else to_text(output)))
        last_agent = field(answer, "last_agent") or field(answer, "_last_agent")
        agent_model = field(last_agent, "model")
        turn.model = turn.model or first({"model": agent_model}, "model") or first(agent_model, "model")
    reading.usage_total = total_usage(field(field(answer, "context_wrapper"), "usage"))
    return True


@response_format("openai_agents", stream=True)
def read_run_event(reading: Reading, event: Any) -> bool:
    """An event of a streamed run, or a provider's event within one."""
    kind = kind_of(event)
    if kind == "raw_response_event":
        return add_chunk(reading, field(event, "data"))
    if kind not in ("run_item_stream_event", "agent_updated_stream_event"):
        return False
    _add_item(reading, field(field(event, "item"), "raw_item"))
    return True


def _add_item(reading: Reading, item: Any) -> None:
    """One item of a run: a tool call, or what the tool gave. Messages are the responses' own."""
    for turn in turns_of(item) if kind_of(item) != "message" else ():
        for call in turn.calls:
            reading.calls.add(call)
        reading.add_results(turn.results)

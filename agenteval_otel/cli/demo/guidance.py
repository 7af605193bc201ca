"""The last page's end: where to look at what was sent, and what to do next."""

from __future__ import annotations

from typing import NamedTuple

from agenteval_otel.cli.demo.outlet import service_name
from agenteval_otel.cli.demo.page import Page

__all__ = ["Delivery", "tell_next_steps", "tell_where_it_went"]


class Delivery(NamedTuple):
    """What became of what was sent; `address` is None when nothing was.

    Attributes:
        complete: Everything was exported.
        listens: Somebody took connections there at the end.
        spans: The spans were exported, whatever became of events and metrics.
        disabled: ``OTEL_SDK_DISABLED`` kept it from being sent.
    """

    address: str | None
    complete: bool
    listens: bool
    spans: bool = False
    disabled: bool = False


def tell_where_it_went(page: Page, delivery: Delivery, trace_id: str | None) -> None:
    """Where the telemetry is, or why it is nowhere."""
    if delivery.disabled:
        page.heading("Nothing was sent: OTEL_SDK_DISABLED is true", style="bold yellow")
        return
    if delivery.address is None:
        page.heading("Nothing left this process", style="dim")
        return
    if not delivery.complete:
        page.heading(f"{page.glyphs.bad} Not everything reached {delivery.address}", style="bold yellow")
        page.line(_why_not(delivery))
        page.line("The scores above are complete: they do not depend on it.")
        if delivery.spans:
            _tell_trace(page, trace_id)
        return
    page.heading(f"{page.glyphs.good} Sent to {delivery.address} as service {service_name()}", style="bold green")
    _tell_trace(page, trace_id)
    page.line("Metrics: the pass rate of each criterion, in PromQL, is")
    for line in _PASS_RATE:
        page.command(line)
    page.line("and what became of the calls")
    page.command("sum by (agenteval_outcome) (agenteval_responses_total)")
    page.line("Events: gen_ai.evaluation.result, one for each score, with the trace's ids")


def _why_not(delivery: Delivery) -> str:
    if not delivery.listens:
        return "Nobody listens there. Is the Collector up, and is the port right (4317 gRPC, 4318 HTTP)?"
    if delivery.spans:
        return "The spans did; events or metrics did not. Jaeger by itself takes spans only: send to a Collector."
    return (
        "Something listens there. Does it speak gRPC (OTLP on port 4318: HTTP; elsewhere say so with "
        "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf), and is it up to the load?"
    )


def _tell_trace(page: Page, trace_id: str | None) -> None:
    if trace_id is not None:
        page.line("Traces: a failing answer, with its scores on its evaluation span, is")
        page.command(trace_id)
        page.command(f"http://localhost:16686/trace/{trace_id}    # where Jaeger is")


_PASS_RATE = (
    "sum by (gen_ai_evaluation_name) (rate(agenteval_evaluation_weight_total",
    '    {gen_ai_evaluation_score_label="pass"}[1m]))',
    "/ sum by (gen_ai_evaluation_name) (rate(agenteval_evaluation_weight_total",
    '    {gen_ai_evaluation_score_label=~"pass|fail"}[1m]))',
)


def tell_next_steps(page: Page, delivery: Delivery, *, replayed: bool) -> None:
    """Exact commands and lines."""
    page.heading("Next")
    page.step(
        "your handler", "from agenteval_otel import monitor", "@monitor", "async def answer(question: str) -> str: ..."
    )
    page.step("your settings", "agenteval-otel check agenteval.yaml")
    if delivery.address is None:
        page.step("your stack", "agenteval-otel demo --otlp-endpoint http://localhost:4317")
    else:
        page.step("your stack", f"export OTEL_EXPORTER_OTLP_ENDPOINT={delivery.address}")
    page.step("your alerts", "agenteval-otel provision all --settings agenteval.yaml")
    if not replayed:
        page.step("your recordings", "agenteval-otel demo --traffic conversations.jsonl")
    page.step("read on", "docs/concepts.md, docs/telemetry.md, examples/")

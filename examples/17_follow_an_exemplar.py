"""From a point on a dashboard to the answer behind it: exemplar in Prometheus -> trace in Jaeger ->
events in Loki.

uv run python examples/17_follow_an_exemplar.py [CRITERION]     (while the stack of
collector-config/compose.yaml runs)

Grafana does the same by clicks, with the data sources of collector-config/grafana; these are the
requests behind them.
"""

import json
import os
import sys
import time
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

PROMETHEUS = os.environ.get("PROMETHEUS_URL", "http://127.0.0.1:9090")
JAEGER = os.environ.get("JAEGER_URL", "http://127.0.0.1:16686")
LOKI = os.environ.get("LOKI_URL", "http://127.0.0.1:3100")
CRITERION = sys.argv[1] if len(sys.argv) > 1 else "next_step"
HOUR_S = 3600


def ask(address: str, **parameters: str | int | float) -> dict:
    with urlopen(f"{address}?{urlencode(parameters)}", timeout=10) as answer:
        return json.load(answer)


def worst_exemplar(criterion: str) -> dict | None:
    """The exemplar with the lowest score of the last hour: a point of the heatmap on the
    criterion's dashboard.
    """
    now, series = time.time(), json.dumps(criterion)
    found = ask(
        f"{PROMETHEUS}/api/v1/query_exemplars",
        query=f"gen_ai_evaluation_score_bucket{{gen_ai_evaluation_name={series}}}",
        start=now - HOUR_S,
        end=now + 60,
    )
    points = [point for one in found["data"] for point in one["exemplars"]]
    return min(points, key=lambda point: float(point["value"]), default=None)


def spans_of(trace_id: str) -> list[dict]:
    """The trace, as the application and agenteval_otel wrote it."""
    return ask(f"{JAEGER}/api/traces/{trace_id}")["data"][0]["spans"]


def events_of(trace_id: str) -> list[dict]:
    """What was found about the answer: one event for every criterion, its attributes with
    underscores.
    """
    now_ns = time.time_ns()
    found = ask(
        f"{LOKI}/loki/api/v1/query_range",
        start=now_ns - HOUR_S * 10**9,
        end=now_ns + 60 * 10**9,
        query=f'{{service_name=~".+"}} | event_name="gen_ai.evaluation.result" | trace_id="{trace_id}"',
    )
    return [
        {**stream["stream"], "line": line}
        for stream in found["data"]["result"]
        for _, line, *_ in stream["values"]
    ]


def main() -> None:
    exemplar = worst_exemplar(CRITERION)
    if exemplar is None:
        print(
            f"no exemplar of {CRITERION} in the last hour: is anything sent, and does its application trace?"
        )
        return
    trace_id = exemplar["labels"]["trace_id"]
    print(
        f"{CRITERION}: the lowest exemplar is {float(exemplar['value']):.2f}, of trace {trace_id}"
    )
    for span in sorted(spans_of(trace_id), key=lambda one: one["startTime"]):
        print(f"  span   {span['operationName']}, {span['duration'] / 1000:.0f} ms")
    for event in sorted(events_of(trace_id), key=lambda one: one["gen_ai_evaluation_name"]):
        said = event.get("gen_ai_evaluation_score_label") or event.get("error_type") or "no verdict"
        why = event.get("agenteval_evaluation_reason_code")
        print(f"  event  {event['gen_ai_evaluation_name']}: {said}{f' ({why})' if why else ''}")


try:
    main()
except HTTPError as failure:
    print(f"{failure.url}: {failure.reason}; what was sent just now may take a few seconds")
except URLError as failure:
    print(f"nobody answers ({failure.reason}). Start Prometheus, Jaeger and Loki first:")
    print("  docker compose --file collector-config/compose.yaml up --detach")
    print("  uv run agenteval-otel demo --otlp-endpoint http://127.0.0.1:4317")

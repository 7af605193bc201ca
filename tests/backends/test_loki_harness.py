"""The Loki harness: records over OTLP, metric queries, refused questions. The configuration is the shipped one."""

from __future__ import annotations

import time

import pytest

from .loki import Loki
from .process import BackendError
from .test_shipped_collector import LIMIT_S, send_logs

pytestmark = pytest.mark.backend


def test_records_are_found_by_stream_and_by_what_their_attributes_became(loki: Loki) -> None:
    """The service is a label of the stream; attributes, trace and span are with each record; the body is the line."""
    when_ns = time.time_ns()
    trace_id = send_logs(loki.otlp_endpoint, service="loki-harness", when_ns=when_ns, attributes={"a.b": "c"})

    (found,) = loki.wait_for(lambda seen: seen.query('{service_name="loki-harness"} | a_b="c"'), LIMIT_S)

    assert (found.line, found.labels["trace_id"], found.time_unix_nano) == ("relevance 0.75", trace_id, when_ns)
    assert loki.query('{service_name="loki-harness"} | a_b="d"') == []
    counted = loki.query('sum(count_over_time({service_name="loki-harness"}[1h]))')
    assert {record.line for record in counted} == {"1"}


def test_an_instance_makes_no_stream(loki: Loki) -> None:
    """Processes come and go: their ids are with the records and not among the labels of streams."""
    send_logs(loki.otlp_endpoint, service="one-of-many", resource={"service.instance.id": "4711"})

    (found,) = loki.wait_for(
        lambda seen: seen.query('{service_name="one-of-many"} | service_instance_id="4711"'), LIMIT_S
    )

    assert found.line == "relevance 0.75"
    assert "service_name" in loki.labels()
    assert "service_instance_id" not in loki.labels()


def test_a_wrong_query_is_refused_in_its_words(loki: Loki) -> None:
    """A question that is no LogQL gives Loki's own explanation."""
    with pytest.raises(BackendError, match="parse error"):
        loki.query("{service_name=")

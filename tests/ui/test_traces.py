"""The link from an answer to its trace: which program it names, what goes into it, what is refused."""

from __future__ import annotations

import pytest

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import SpanReference
from agenteval_otel.ui.traces import check_trace_url, trace_link

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = SpanReference(trace_id=TRACE, span_id="b7ad6b7169203331")
GRAFANA = (
    'http://localhost:3000/explore?schemaVersion=1&orgId=1&panes={"t":{"datasource":"tempo","queries":'
    '[{"refId":"A","queryType":"traceql","query":"{trace_id}"}]}}'
)


@pytest.mark.parametrize(
    ("url", "program", "end"),
    [
        ("http://localhost:16686/trace/{trace_id}", "Jaeger", f"/trace/{TRACE}"),
        (
            "https://t.example/trace/{trace_id}?uiFind={span_id}",
            "Jaeger",
            f"{TRACE}?uiFind={SPAN.span_id}",
        ),
        (GRAFANA, "Grafana", f'"query":"{TRACE}"}}]}}}}'),
        (
            "http://localhost:6006/redirects/traces/{trace_id}",
            "Phoenix",
            f"/redirects/traces/{TRACE}",
        ),
        ("https://apm.example/app?id={trace_id}", "trace", f"?id={TRACE}"),
    ],
)
def test_a_link_names_its_program(url: str, program: str, end: str) -> None:
    """Jaeger, Grafana and Phoenix are known by their addresses; braces of JSON stay as they are."""
    check_trace_url(url, "--trace-url")
    link = trace_link(url, SPAN)
    assert link is not None
    assert link.program == program
    assert link.address.endswith(end)


def test_an_id_stays_one_part_of_the_address() -> None:
    """What was changed by hand in a database leads nowhere else."""
    hostile = SPAN.model_copy(update={"trace_id": "../../login?next=//evil.example#'\"><b>"})
    link = trace_link("http://localhost:16686/trace/{trace_id}", hostile)
    assert link is not None
    assert link.address == (
        "http://localhost:16686/trace/"
        "..%2F..%2Flogin%3Fnext%3D%2F%2Fevil.example%23%27%22%3E%3Cb%3E"
    )


def test_without_an_address_or_a_span_there_is_no_link() -> None:
    assert trace_link(None, SPAN) is None
    assert trace_link("http://localhost:16686/trace/{trace_id}", None) is None


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("{nothing}", "expected an http address"),
        ("javascript:alert('{trace_id}')", "expected an http address"),
        ("http:///trace/{trace_id}", "expected an http address"),
        ("http://[::1/{trace_id}", "expected an http address"),
        (
            "http://localhost/{traceid}",
            r"unknown placeholder \{traceid\} \(did you mean 'trace_id'",
        ),
        ("http://localhost/{}", r"unknown placeholder \{\}"),
        ("http://localhost/trace/%7Btrace_id%7D", r"has no \{trace_id\}"),
        ("http://localhost/trace", r"has no \{trace_id\}"),
        ("http://{trace_id}.example/", "part of the host's name"),
    ],
)
def test_a_wrong_address_is_refused_with_what_is_wrong(url: str, wrong: str) -> None:
    with pytest.raises(ConfigurationError, match=wrong) as caught:
        check_trace_url(url, "--trace-url")
    assert caught.value.path == "--trace-url"

"""Names of a server on this machine."""

from __future__ import annotations

import pytest

from agenteval_otel.runtime.local_names import LocalNames


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:4328",
        "localhost.:4328",
        "127.0.0.1",
        "127.0.0.1:9",
        "10.0.0.7:80",
        "[::1]",
        "[::1]:4328",
        "sidecar",
        "Sidecar:1",
    ],
)
def test_every_address_and_its_own_names_are_right(host: str) -> None:
    """With any port, because ports are forwarded."""
    assert LocalNames(["sidecar"]).has_host(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:4328",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "evil.example:127.0.0.1",
        "localhost:4328:1",
        "::1",
        "[evil.example]",
        "[::1",
        "2130706433",
        "localhost/",
        "localhost, evil.example",
        "\u2460.0.0.1",
    ],
)
def test_any_other_name_is_foreign(host: str) -> None:
    """Also one that begins or ends with a right one, and what is neither a name nor an address."""
    assert not LocalNames(["sidecar"]).has_host(host)


def test_a_port_can_be_demanded_and_an_origin_is_a_page_of_it() -> None:
    """Pages tell their own requests by name and port, over HTTP."""
    names = LocalNames(port=8629)
    assert names.has_host("127.0.0.1:8629")
    assert not names.has_host("127.0.0.1")
    assert not names.has_host("127.0.0.1:86290")
    assert names.has_origin("http://localhost:8629")
    for origin in ("null", "http://localhost:1", "https://localhost:8629", "localhost:8629"):
        assert not names.has_origin(origin)

"""Where alerts and dashboards find the pages in the browser."""

from __future__ import annotations

from typing import Final

from agenteval_otel.provisioning.files import expect_urls

PAGES: Final = "http://127.0.0.1:8629"
"""Where `agenteval-otel ui` listens. The cookie of its token is of this name, and not of localhost."""
WITHOUT: Final = "none"


def pages_at(address: str) -> str:
    """Return the address without a slash at its end. It is empty if there are no pages.

    Raises ConfigurationError if it is no absolute address.
    """
    if address == WITHOUT:
        return ""
    expect_urls(pages=address)
    return address.rstrip("/")

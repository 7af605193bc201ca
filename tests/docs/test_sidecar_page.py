"""The requests of docs/evaluate-over-http.md to `/v1/evaluate`, sent by the shell as they stand there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from agenteval_otel import configure
from agenteval_otel.config.sidecar import SidecarSettings
from agenteval_otel.sidecar.serve import Sidecar
from tests.docs.generator import DOCS

PAGE = (DOCS / "evaluate-over-http.md").read_text()
SHOWN = "http://127.0.0.1:4328/v1/evaluate"


def requests() -> list[tuple[str, str]]:
    """Each command with `SHOWN`, and the next block, which is its reply."""
    found = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return [
        (text, found[place + 1][1])
        for place, (language, text) in enumerate(found)
        if language == "sh" and SHOWN in text
    ]


@pytest.fixture
def address() -> Iterator[str]:
    configure()
    sidecar = Sidecar(SidecarSettings(grpc_port=0, http_port=0, evaluate=True))
    yield sidecar.start().http
    sidecar.stop(5.0)


def holds(shown: Any, real: Any) -> bool:
    """Whether everything that is shown is in the real reply; fields may be left out."""
    if isinstance(shown, dict):
        return all(name in real and holds(value, real[name]) for name, value in shown.items())
    if isinstance(shown, list):
        return len(shown) == len(real) and all(map(holds, shown, real))
    return bool(shown == real)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_replies_are_those_that_the_page_shows(address: str) -> None:
    """Scores by the settings, scores by the request, and what is wrong."""
    assert len(requests()) == 3
    for command, shown in requests():
        finished = subprocess.run(
            ["sh", "-c", command.replace(SHOWN, f"{address}/v1/evaluate")],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        if shown.startswith("{"):
            assert holds(json.loads(shown), json.loads(finished.stdout)), finished.stdout
        else:
            assert finished.stdout.strip() == shown.strip()

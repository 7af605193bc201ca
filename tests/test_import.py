"""Importing the package is cheap. That it leaves the process as it was is promise A13."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.backends.process import bare_environment

HEAVY = (
    "anthropic", "jsonschema_rs", "numpy", "grpc", "sqlalchemy", "opentelemetry.exporter", "opentelemetry.sdk",
    "rapidfuzz", "fastapi", "httpx", "httpx2", "openai", "torch", "sentence_transformers",
)  # fmt: skip
IMPORTS = {
    "package": "import agenteval_otel",
    "monitor": "from agenteval_otel import monitor, annotate, configure, flush, shutdown, accounting, Settings",
    "packages": "import agenteval_otel.evaluators, agenteval_otel.sampling, agenteval_otel.storage",
    "judges": (
        "from agenteval_otel.judges import AnthropicJudge, OpenAICompatibleJudge\n"
        "AnthropicJudge(model='m', api_key='key'); OpenAICompatibleJudge(model='m', base_url='https://judge.example')"
    ),
    "embedders": "import agenteval_otel.embedders",
    "decorated": "from agenteval_otel import monitor\nhandler = monitor(str.upper)",
}
LOADED = "{}\nimport sys; print(json.dumps(list(sys.modules)))"


def run(code: str) -> Any:
    """What a fresh interpreter that runs the code prints as JSON; it writes nothing to stderr,
    warnings are errors.
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import json\n{code}"],
        capture_output=True,
        text=True,
        timeout=60,
        env=bare_environment(),
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", IMPORTS)
def test_nothing_heavy_is_imported(name: str) -> None:
    """Importing, and decorating, loads no vendor's package, no exporter and no SDK."""
    modules = run(LOADED.format(IMPORTS[name]))
    assert [
        module
        for module in modules
        if f"{module}.".startswith(tuple(f"{heavy}." for heavy in HEAVY))
    ] == []


def test_the_bare_package_loads_none_of_its_packages() -> None:
    """`import agenteval_otel` is a table of contents: packages load when a name is first used."""
    modules = run(LOADED.format(IMPORTS["package"]))
    assert [module for module in modules if module.startswith("agenteval_otel")] == [
        "agenteval_otel"
    ]

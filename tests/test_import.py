"""Importing the package is cheap. That it leaves the process as it was is promise A13."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.backends.process import bare_environment

HEAVY = (
    "anthropic", "jsonschema_rs", "numpy", "grpc", "sqlalchemy", "opentelemetry.exporter", "opentelemetry.sdk",
    "rapidfuzz", "fastapi", "httpx", "httpx2", "openai", "torch", "sentence_transformers",
)  # fmt: skip
IMPORTS = {
    "package": "import agenteval_otel",
    "monitor": "from agenteval_otel import monitor, annotate, configure, flush, shutdown, accounting, Settings",
    "decorated": "handler = monitor(str.upper)",
    "packages": "import agenteval_otel.evaluators, agenteval_otel.sampling, agenteval_otel.storage",
    "judges": (
        "from agenteval_otel.judges import AnthropicJudge, OpenAICompatibleJudge\n"
        "AnthropicJudge(model='m', api_key='key'); OpenAICompatibleJudge(model='m', base_url='https://judge.example')"
    ),
    "embedders": "import agenteval_otel.embedders",
}
"""What one process does, one after the other."""


def test_nothing_heavy_is_imported() -> None:
    """Importing, and decorating, loads no vendor's package, no exporter and no SDK.

    `import agenteval_otel` is a table of contents: packages load when a name is first used.
    Nothing is written to stderr, and warnings are errors.
    """
    code = "import json, sys\nloaded = {}\n"
    for name, step in IMPORTS.items():
        code += f"{step}\nloaded[{name!r}] = list(sys.modules)\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{code}print(json.dumps(loaded))"],
        capture_output=True,
        text=True,
        timeout=60,
        env=bare_environment(),
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    loaded = json.loads(done.stdout)
    own = [module for module in loaded["package"] if module.startswith("agenteval_otel")]
    assert own == ["agenteval_otel"]
    heavy = tuple(f"{name}." for name in HEAVY)
    for name, modules in loaded.items():
        assert [module for module in modules if f"{module}.".startswith(heavy)] == [], name

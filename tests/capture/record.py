"""Records what real client libraries give, against a provider on loopback, into ``recorded/*.json``.

    uv run python -m tests.capture.record PYTHON APPLICATION [APPLICATION ...]

The applications are functions of ``applications``. PYTHON is the one of an environment that has the
application's libraries (``applications.LIBRARIES`` lists them) and pydantic. Each application asks
for an answer and a stream, with the client's blocking and its async interface as far as it has
them. A recording holds the libraries' versions, and for each form what capture takes of the answer
(`agenteval_otel.capture.detached.take`) with the facts that have to be read of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from agenteval_otel.testing import ModelServer
from tests.capture.recordings import FOLDER
from tests.capture.support import ANSWER, CALLING
from tests.capture.wire import Provider

ROOT = Path(__file__).resolve().parents[2]
_RESULTS = ('"role": "tool"', '"tool_result"', '"function_call_output"')


def reply(body: dict[str, Any]) -> Any:
    """Call the tool, then answer with what it gave."""
    has_result = any(mark in json.dumps(body) for mark in _RESULTS)
    return ANSWER if has_result else CALLING


def record(python: str, application: str) -> Path:
    """Run one application, and write what it was given."""
    provider = Provider()
    with ModelServer([reply]) as model:
        settings = {
            "MODEL_URL": model.url,
            "PROVIDER_URL": provider.url,
            "PYTHONPATH": str(ROOT),
            "OPENAI_API_KEY": "test",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "CREWAI_DISABLE_TELEMETRY": "true",
            "CREWAI_TRACING_ENABLED": "false",
            "HAYSTACK_TELEMETRY_ENABLED": "false",
            "OTEL_SDK_DISABLED": "true",
        }
        done = subprocess.run(
            [python, "-m", "tests.capture.applications", application],
            env=os.environ | settings,
            capture_output=True,
            text=True,
            timeout=180,
        )
    provider.close()
    if done.returncode:
        raise SystemExit(f"{application}: {done.stderr[-3000:]}")
    path = FOLDER / f"{application}.json"
    recording = json.loads(done.stdout.splitlines()[-1])
    path.write_text(json.dumps(recording, indent=1, ensure_ascii=False) + "\n")
    return path


def main() -> None:
    python, *applications = sys.argv[1:]
    for application in applications:
        path = record(python, application)
        recording = json.loads(path.read_text())
        print(f"{path.name}: {', '.join(recording['forms'])}; {recording['libraries']}")


if __name__ == "__main__":
    main()

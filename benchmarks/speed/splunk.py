"""Splunk's evaluations in an environment of their own: they fail to import with an OpenTelemetry
above 1.41.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["python"]

_PACKAGES = (
    "splunk-otel-util-genai==0.1.15",
    "splunk-otel-util-genai-evals==0.1.8",
    "opentelemetry-sdk==1.41.0",
    "opentelemetry-exporter-otlp-proto-http==1.41.0",
)


def python(cache: Path | None = None) -> str:
    """The interpreter that has it; the environment is made in a cache outside the tree when it is
    missing.

    Raises:
        RuntimeError: uv is missing, or the packages cannot be installed.
    """
    folder = (cache or Path("~/.cache/agenteval-otel").expanduser()) / "splunk-0.1.15-0.1.8"
    interpreter = folder / "bin" / "python"
    complete = folder / "complete"
    if not complete.exists():
        uv = shutil.which("uv")
        if uv is None:
            raise RuntimeError(
                "uv is not installed, which makes the environment of Splunk's library"
            )
        for command in (
            [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)],
            [uv, "pip", "install", "--quiet", "--python", str(interpreter), *_PACKAGES],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(
                    f"Splunk's library could not be installed: {done.stderr.strip()[-300:]}"
                )
        complete.touch()
    return str(interpreter)

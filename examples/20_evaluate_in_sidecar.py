"""Evaluate in the sidecar: the application samples and sends its answers, a process beside it
scores them.

uv run python examples/20_evaluate_in_sidecar.py
"""

import subprocess
import sys
from pathlib import Path

from agenteval_otel import accounting, annotate, configure, flush, monitor

# Evaluators, keys of models and storage are the sidecar's. Ports of 0 are free ones; 4327 and 4328
# by default.
SETTINGS = """
evaluators:
  - ResponseHealth
  - {type: KeywordCoverage, criterion_name: next_step, expected_keywords: [ticket], threshold: 1}
storage: [console]
sidecar: {grpc_port: 0, http_port: 0}
"""


@monitor(agent="support")
def answer(question: str) -> str:
    annotate(tags={"tenant": "acme"})  # facts go along
    return "I opened a ticket." if "A-17" in question else "I cannot help with that."


def start_sidecar(file: Path) -> tuple[subprocess.Popen[str], str]:
    """Start it, and read from its first line where it listens."""
    command = [sys.executable, "-m", "agenteval_otel", "serve", "--settings", str(file)]
    sidecar = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert sidecar.stdout is not None
    address = sidecar.stdout.readline().split()[-1]
    for line in sidecar.stdout:
        if line.strip() == "ready":
            break
    return sidecar, f"http://{address}"


if __name__ == "__main__":
    file = Path("evaluators.yaml")
    file.write_text(SETTINGS, encoding="utf-8")
    sidecar, endpoint = start_sidecar(file)

    configure(evaluate_in="sidecar", endpoint=endpoint, sample_rate=1.0)
    print(answer("Where is A-17?"))
    print(answer("And the moon?"))
    print("acknowledged:", flush(10.0))  # False while the sidecar is away
    print({outcome: count for outcome, count in accounting().items() if count})

    sidecar.terminate()  # what was taken is evaluated first
    print("--- the sidecar")
    print(sidecar.communicate()[0], end="")

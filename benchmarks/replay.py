"""`agenteval-otel replay` of a Collector's file: time and memory for 100,000 answers and eight
evaluators; and the same file again, which is all read and scores nothing."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import evaluators
from benchmarks.goals import at_most
from benchmarks.harness import Bench, Figure, Numbers, Phase, Size, clean_environment, standalone
from benchmarks.mappers import gen_ai

__all__ = ["BENCH"]

_LIMIT_S = 180.0
_LIMIT_MB = 300.0
_ANSWERS_A_LINE = 20
_BEGAN_NS = 1_772_323_200_000_000_000


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        return {"arrayValue": {"values": list(map(_value, value))}}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}


def _write(path: Path, answers: int) -> None:
    """Answers of an agent, each with a model call below it and 2 KB of content, twenty in a
    request.
    """
    chance, spans = random.Random(3), gen_ai()[:2]
    shown = [
        [{"key": key, "value": _value(value)} for key, value in span.items()] for span in spans
    ]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    with path.open("w", encoding="utf-8") as file:
        for line in range(answers // _ANSWERS_A_LINE):
            began = _BEGAN_NS + line * 1_000_000_000
            times = {"startTimeUnixNano": str(began), "endTimeUnixNano": str(began + 1_000_000_000)}
            written: list[dict[str, Any]] = []
            for _ in range(_ANSWERS_A_LINE):
                trace_id, agent_id, model_id = (
                    f"{chance.getrandbits(4 * n):0{n}x}" for n in (32, 16, 16)
                )
                for id, parent, attributes in (
                    (agent_id, "", shown[0]),
                    (model_id, agent_id, shown[1]),
                ):
                    ids = {"traceId": trace_id, "spanId": id, "parentSpanId": parent}
                    written.append(
                        {
                            **ids,
                            "name": "call",
                            "kind": 1,
                            **times,
                            "attributes": attributes,
                            "status": {},
                        }
                    )
            scopes = [
                {"scope": {"name": "opentelemetry.instrumentation.genai.openai"}, "spans": written}
            ]
            file.write(
                json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": scopes}]}) + "\n"
            )


_RUN = """
import resource, sys, time
from agenteval_otel.cli import main
code = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, file=sys.stderr)
raise SystemExit(code)
"""


def _replayed(size: Size) -> Numbers:
    """Seconds, and the process's largest memory; all answers are scored."""
    answers = size.of(2_000, 100_000)
    numbers: Numbers = {"answers": float(answers)}
    with tempfile.TemporaryDirectory() as folder:
        file, settings = Path(folder, "otlp.jsonl"), Path(folder, "settings.json")
        _write(file, answers)
        loaded = [item.model_dump(mode="json", by_alias=False) for item in evaluators.eight()]
        settings.write_text(json.dumps({"evaluators": loaded}), encoding="utf-8")
        command = [
            sys.executable,
            "-c",
            _RUN,
            "replay",
            str(file),
            "--settings",
            str(settings),
            "--results",
            str(Path(folder, "results.jsonl")),
            "--report",
            "json",
            "--quiet",
        ]
        for name in ("first", "again"):
            began = time.perf_counter()
            done = subprocess.run(
                command, capture_output=True, text=True, env=clean_environment(), check=True
            )
            numbers[f"{name} s"] = time.perf_counter() - began
            numbers[f"{name} MB"] = float(done.stderr.split()[-1])
            report = json.loads(done.stdout)
            assert report["answers"] == answers, "an answer is missing"
            assert len(report["new"]["criteria"]) == 8, "a criterion is missing"
    return numbers


def _figures(measured: dict[str, Numbers]) -> list[Figure]:
    numbers = measured["replay:ours"]
    answers = f"{numbers['answers']:,.0f} answers"
    return [
        Figure(
            f"replay of {answers}, eight evaluators",
            "s",
            {"ours": numbers["first s"]},
            at_most(numbers["first s"], _LIMIT_S),
        ),
        Figure(
            f"replay of {answers}, memory",
            "MB",
            {"ours": numbers["first MB"]},
            at_most(numbers["first MB"], _LIMIT_MB),
        ),
        Figure(f"started again: {answers}, none to score", "s", {"ours": numbers["again s"]}),
        Figure(
            "started again, memory",
            "MB",
            {"ours": numbers["again MB"]},
            at_most(numbers["again MB"], _LIMIT_MB),
        ),
    ]


BENCH = Bench(
    "replay",
    "Replay of a Collector's file",
    (Phase("replay", "ours", _replayed),),
    _figures,
    rounds=1,
)

if __name__ == "__main__":
    standalone(BENCH)

"""SentenceTransformerEmbedder with the weights of all-MiniLM-L6-v2, in the environment that has
them.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.backends.fixtures import require
from tests.golden import DATA, lines

pytestmark = [pytest.mark.backend, pytest.mark.timeout(900)]
PROGRAM = "tests.embedders.real_weights"
ROOT = Path(__file__).resolve().parents[2]


def ask_process(*question: str) -> dict[str, Any]:
    """The answer of the program that runs in the environment with the weights; it needs no network."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in ("PATH", "HOME", "LANG", "TMPDIR")
    }
    done = subprocess.run(
        [require("sentence-transformers"), "-W", "error", "-m", PROGRAM, *question],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=840,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert done.stderr == "", "the program's standard error is not for our progress"
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_it_holds_the_contract_and_knows_meaning() -> None:
    """Rows hold the contract from any thread; a paraphrase is near, another topic far."""
    result = ask_process("contract")
    assert (result["shape"], result["dtype"], result["none"][0]) == ([2, 384], "float32", 0)
    assert result["paraphrase"] > 0.5 > 0.2 > result["other matter"]


def test_live_answers_use_the_worker_process() -> None:
    """The score comes, the host imports nothing, and a missing model is a failure."""
    result = ask_process("child")
    assert (result["execution"], result["imported"]) == ("process", [])
    first, again, absent, absent_again = result["results"]
    assert first["score"] > 0.5
    assert first["score"] == again["score"]
    assert first["reasoning"].endswith("(sentence_transformers)")
    for item in (absent, absent_again):
        assert (item["score"], item["error_type"]) == (None, "model_unavailable")


def test_the_prepared_process_can_fork() -> None:
    """It has one thread, the model has as many as its settings say, and a child computes the same."""
    assert ask_process("prepared") == {"threads": ["MainThread"], "model": 1, "code": 0}


def test_its_order_follows_peoples_ratings() -> None:
    """The correlation on all rated sentence pairs is the documented one."""
    pairs = lines("stsb_dev.jsonl")
    result = ask_process("ratings", str(DATA / "stsb_dev.jsonl"))
    assert result["rows"] == len(pairs)
    assert result["model"]["spearman"] > 0.86
    assert result["hashing"]["spearman"] > 0.74
    print(json.dumps(result))

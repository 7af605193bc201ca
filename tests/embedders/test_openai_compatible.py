"""The embedder behind ``/embeddings``: what is sent, what comes back, and every way in which
nothing does.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from agenteval_otel.components.loading import resolve
from agenteval_otel.embedders import Embedder, OpenAICompatibleEmbedder
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators.embedders.base import EmbedderUsage
from agenteval_otel.testing import ModelReply, ModelServer, check_component, check_embedder
from tests.embedders.asking import CANARY, TEXTS, embedded, embedding_reply, failure, hosted


def test_it_is_a_component() -> None:
    """Settings name it, its dump builds it again, and what is wrong is refused with its field."""
    embedder = OpenAICompatibleEmbedder(model="m", base_url="https://embed.example/v1")
    check_component(embedder, Embedder)
    reported = {"type": "openai_compatible", "model": "m", "base_url": "https://embed.example/v1"}
    assert resolve(Embedder, reported) == embedder
    assert embedder.is_async
    no_matter = embedder.model_copy(update={"api_key": CANARY, "deadline_s": 1.0, "batch_size": 2})
    assert embedder.fingerprint == no_matter.fingerprint
    with pytest.raises(ConfigurationError, match=r"embedder\.batch_size"):
        resolve(Embedder, {**reported, "batch_size": 0}, path="embedder")


@pytest.mark.parametrize("encoding_format", [None, "float", "base64"])
def test_it_holds_the_contract(encoding_format: str | None) -> None:
    """Rows of length 1, the same for the same text, zeros for the empty one, in both encodings."""
    with ModelServer([ModelReply()]) as server:
        check_embedder(hosted(server, encoding_format=encoding_format))


def test_a_call_is_one_request() -> None:
    """It has all texts and the settings' fields; near texts are near; tokens are counted."""
    with ModelServer([ModelReply(input_tokens=23)]) as server:
        result = embedded(hosted(server, dimensions=256, extra_body={"user": "evaluation"}))
        assert server.requests == [
            {"model": "embed-1", "input": list(TEXTS), "dimensions": 256, "user": "evaluation"}
        ]
        assert server.paths == ["/v1/embeddings"]
        assert server.headers[0]["authorization"] == f"Bearer {CANARY}"
    rows = result.vectors
    assert (rows.dtype, rows.shape) == (np.float32, (3, 256))
    assert float(rows[0] @ rows[1]) > 0.7 > 0.3 > float(rows[0] @ rows[2])
    assert result.usage == EmbedderUsage(calls=1, input_tokens=23)


def test_many_texts_are_sent_in_batches() -> None:
    """No request has more texts than allowed, their order stays, and all requests are counted."""
    texts = [f"text number {number}" for number in range(11)]
    with ModelServer([ModelReply(input_tokens=5)]) as server:
        result = embedded(hosted(server, batch_size=4), texts)
        whole = embedded(hosted(server), texts)
        assert [len(request["input"]) for request in server.requests] == [4, 4, 3, 11]
    assert (result.vectors == whole.vectors).all()
    assert result.usage == EmbedderUsage(calls=3, input_tokens=15)


def test_blank_texts_are_not_sent() -> None:
    """Their rows are zeros of the others' length, and alone they cost nothing."""
    with ModelServer([ModelReply()]) as server:
        embedder = hosted(server)
        rows = embedded(embedder, ["", "a parcel", " \n\t"]).vectors
        assert server.requests[0]["input"] == ["a parcel"]
        assert [float(np.linalg.norm(row)) for row in rows] == pytest.approx([0, 1, 0], abs=1e-6)
        alone = embedded(embedder, ["", " "])
        assert len(server.requests) == 1
    assert (alone.vectors.shape, alone.vectors.any()) == ((2, rows.shape[1]), False)
    assert alone.usage == EmbedderUsage()


def test_rows_follow_their_index() -> None:
    """A server may answer in any order where it numbers its rows; else their order counts."""

    def backwards(body: dict[str, Any]) -> ModelReply:
        rows = [
            {"index": index, "embedding": [1.0, float(index)]}
            for index in range(len(body["input"]))
        ]
        return ModelReply(body={"data": rows[::-1]})

    for reply in (backwards, embedding_reply(lambda index, _: [1.0, float(index)], indexed=False)):
        with ModelServer([reply]) as server:
            rows = embedded(hosted(server)).vectors
        assert [float(row[1] / row[0]) for row in rows] == pytest.approx([0.0, 1.0, 2.0])


def test_rows_of_any_size_have_the_length_one() -> None:
    """Numbers at the limits of floats are divided without overflow; whole numbers are numbers."""
    rows = [[1e308, -1e308], [5e-324, 0.0], [3, 4]]
    with ModelServer([embedding_reply(lambda index, _: rows[index])]) as server:
        result = embedded(hosted(server)).vectors
    assert result == pytest.approx(
        np.array([[0.5**0.5, -(0.5**0.5)], [1, 0], [0.6, 0.8]]), abs=1e-6
    )


def _text(body: str) -> ModelReply:
    return ModelReply(body=body)


def same_row(row: Any) -> Any:
    return embedding_reply(lambda index, text: row)


ROW = [1.0, 2.0]
INVALID: dict[str, Any] = {
    "too few": lambda body: ModelReply(body={"data": [{"index": 0, "embedding": ROW}]}),
    "too many": ModelReply(
        body={"data": [{"index": index, "embedding": ROW} for index in range(4)]}
    ),
    "one twice": ModelReply(body={"data": [{"index": 0, "embedding": ROW}] * 3}),
    "numbers from one on": ModelReply(
        body={"data": [{"index": index + 1, "embedding": ROW} for index in range(3)]}
    ),
    "numbers that are texts": ModelReply(body={"data": [{"index": "0", "embedding": ROW}] * 3}),
    "NaN": same_row([float("nan"), 1.0]),
    "infinity": same_row([float("inf"), 1.0]),
    "beyond every float": _text('{"data": [' + ",".join(['{"embedding": [1e999, 1]}'] * 3) + "]}"),
    "a huge whole number": _text(
        '{"data": [' + ",".join([f'{{"embedding": [{"9" * 400}, 1]}}'] * 3) + "]}"
    ),
    "NaN as text": same_row(["NaN", 1.0]),
    "numbers as texts": same_row(["0.1", "0.2"]),
    "truth values": same_row([True, False]),
    "nothing": same_row([]),
    "null": same_row(None),
    "nulls": same_row([None, 1.0]),
    "lists of lists": same_row([[1.0, 2.0]]),
    "zeros": same_row([0.0, 0.0]),
    "other lengths": embedding_reply(lambda index, _: [1.0] * (index + 1)),
    "no base64": same_row("%%%%"),
    "base64 of half a number": same_row("AAAA"),
    "base64 of NaN": same_row("AADAfwAAgD8="),
}
FAILED: dict[str, tuple[ModelReply, str, int]] = {
    "no embeddings": (ModelReply(body={"object": "list"}), "malformed_answer", 1),
    "too large": (ModelReply(padding=9_000_000, chunked=True), "malformed_answer", 1),
    "too long": (
        ModelReply(status=400, text="maximum context length is 8192 tokens"),
        "context_overflow",
        1,
    ),
    "cut": (ModelReply(cut_after=1), "connection_error", 3),
}


def test_invalid_vectors_fail() -> None:
    """Each kind is `invalid_embedding`, after one request, whose usage is counted."""
    with ModelServer(list(INVALID.values())) as server:
        embedder = hosted(server)
        for number, case in enumerate(INVALID, 1):
            result = failure(embedder)
            assert result.error_type == "invalid_embedding", case
            assert result.usage is not None
            assert result.usage.calls == 1
            assert len(server.requests) == number, case


@pytest.mark.parametrize("case", FAILED)
def test_failures_have_the_error_types_of_judges(case: str) -> None:
    """A temporary failure is retried twice, another one is not, and every attempt is counted."""
    reply, error_type, calls = FAILED[case]
    with ModelServer([reply]) as server:
        result = failure(hosted(server))
        assert len(server.requests) == calls
    assert (result.error_type, result.retryable, result.usage) == (
        error_type,
        calls > 1,
        EmbedderUsage(calls=calls),
    )


def test_a_retry_repeats_only_the_failed_batch() -> None:
    """A permanent failure keeps the tokens of the batches before it."""
    texts = [f"text {number}" for number in range(4)]
    with ModelServer(
        [ModelReply(input_tokens=3), ModelReply(status=500), ModelReply(input_tokens=3)]
    ) as server:
        result = embedded(hosted(server, batch_size=2), texts)
        assert [request["input"] for request in server.requests] == [
            texts[:2],
            texts[2:],
            texts[2:],
        ]
    assert result.usage == EmbedderUsage(calls=3, input_tokens=6)
    with ModelServer([ModelReply(input_tokens=3), ModelReply(status=400)]) as server:
        assert failure(hosted(server, batch_size=2), texts).usage == EmbedderUsage(
            calls=2, input_tokens=3
        )


def test_lengths_may_change_between_calls_only() -> None:
    """Between the batches of a call, and where `dimensions` is set, another length is a failure."""
    lengths = iter([2, 3, 2, 3])

    def of_the_next_length(body: dict[str, Any]) -> ModelReply:
        row = [1.0] * next(lengths)
        return ModelReply(body={"data": [{"embedding": row} for _ in body["input"]]})

    with ModelServer([of_the_next_length]) as server:
        changed = failure(hosted(server, batch_size=2), ["a", "b", "c"])
        assert embedded(hosted(server), ["a"]).vectors.shape == (1, 2)
        assert embedded(hosted(server), ["a"]).vectors.shape == (1, 3)
    assert (changed.error_type, "2 and 3" in str(changed)) == ("invalid_embedding", True)
    with ModelServer([embedding_reply(lambda index, _: [1.0] * 3)]) as server:
        assert failure(hosted(server, dimensions=4)).error_type == "invalid_embedding"


def test_connections_of_an_embedder_that_goes_away_are_closed() -> None:
    """They close with a loop that ends and on one that goes on, without a warning."""
    program = """
import asyncio, gc, threading
from agenteval_otel.embedders import OpenAICompatibleEmbedder
from agenteval_otel.testing import ModelReply, ModelServer

def open_connections():
    return [thread for thread in threading.enumerate() if "process_request" in thread.name]

async def all_are_closed():
    gc.collect()
    while open_connections():
        await asyncio.sleep(0.005)

async def several(embedder):
    await asyncio.gather(*(embedder.embed([f"text {number}"]) for number in range(5)))

async def one_after_another(url):
    for _ in range(3):
        await several(OpenAICompatibleEmbedder(model="m", base_url=url))
        assert open_connections()
        await all_are_closed()

with ModelServer([ModelReply()]) as server:
    asyncio.run(several(OpenAICompatibleEmbedder(model="m", base_url=server.url)))
    asyncio.run(all_are_closed())
    asyncio.run(one_after_another(server.url))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")

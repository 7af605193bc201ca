"""Providers for Langfuse, Phoenix and MLflow: what they send, and what becomes of it where the
receiver is not well.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import httpx
import pytest
from langfuse.api import LangfuseAPI, ScoreDataType
from langfuse.api.scores import CreateScoreRequest

from agenteval_otel.components.delivery import DeliveryError
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models.results import SpanReference
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.storage import (
    LangfuseStorageProvider,
    MlflowStorageProvider,
    PhoenixStorageProvider,
)
from agenteval_otel.storage.scores import ScoreStorageProvider, scores_of
from tests.backends.faults import free_ports
from tests.storage.receiver import (
    SECRET,
    SPAN,
    TRACE,
    Answer,
    Receiver,
    Request,
    of_span,
    receiving,
)
from tests.storage.samples import aggregated, failed, scored, skipped

ACCEPTED = Answer(202, {"message": "Accepted"})
ABOUT: dict[str, Any] = {
    "evaluator_id": "Tone", "evaluator_version": "v1", "reasoning": "It scolds.", "reason_code": "rude",
    "probability": 0.5, "passed": False, "label": "fail", "ended_ns": 1_700_000_000_123_000_000,
}  # fmt: skip
AT = "2023-11-14T22:13:20.123Z"
METADATA = {
    "evaluator": "Tone", "evaluator_version": "v1", "evaluator_kind": "deterministic", "sampling_probability": 0.5,
    "passed": False, "label": "fail", "reason_code": "rude", "agent": "support",
}  # fmt: skip


def langfuse(url: str, **fields: Any) -> LangfuseStorageProvider:
    return LangfuseStorageProvider(host=url, public_key="pk-lf-1", secret_key=SECRET, **fields)


def phoenix(url: str, **fields: Any) -> PhoenixStorageProvider:
    return PhoenixStorageProvider(endpoint=url, api_key=SECRET, **fields)


def mlflow(url: str, **fields: Any) -> MlflowStorageProvider:
    return MlflowStorageProvider(tracking_uri=url, token=SECRET, **fields)


ALL = pytest.mark.parametrize("make", [langfuse, phoenix, mlflow])


def put(provider: ScoreStorageProvider, *results: Any) -> None:
    async def work() -> None:
        for result in results:
            await provider.save_result(result)

    asyncio.run(work())


@contextmanager
def losses_of(provider: ScoreStorageProvider) -> Iterator[list[str]]:
    losses: list[str] = []
    provider.report_losses_to(lambda error: losses.append(str(error)))
    try:
        yield losses
    finally:
        asyncio.run(provider.close())


def sent_by(provider: ScoreStorageProvider, *results: Any) -> list[str]:
    """Have the results sent; gives what was lost."""
    with losses_of(provider) as losses:
        put(provider, *results)
        assert provider.flush(30)
    return losses


def requests_of(make: Any, *results: Any, **fields: Any) -> list[Request]:
    """What a receiver that takes everything gets of the results."""
    with receiving(Answer(body={"data": []})) as receiver:
        assert sent_by(make(receiver.url, **fields), *results) == []
    return receiver.requests


# --- what is sent


def test_langfuse_gets_scores_as_its_own_client_sends_them() -> None:
    """One list for all that waits, of scores that Langfuse's own model reads, with path and key of
    its own client.
    """
    results = (
        scored(**ABOUT),
        scored("kind", score=True),
        scored("topic", score="billing"),
        failed(),
        skipped(),
    )
    with receiving(ACCEPTED) as receiver, httpx.Client() as http:
        assert (
            sent_by(langfuse(receiver.url), of_span(*results), of_span(scored(), span_id="00" * 8))
            == []
        )
        client = LangfuseAPI(
            base_url=receiver.url, username="pk-lf-1", password=SECRET, httpx_client=http
        )
        known: dict[str, Any] = {
            "id": receiver.requests[0].body[0]["id"],
            "name": "tone",
            "value": 0.5,
            "trace_id": TRACE,
            "observation_id": SPAN,
            "comment": "It scolds.",
            "metadata": METADATA,
            "timestamp": AT,
        }
        client.scores.create(request=[CreateScoreRequest(data_type=ScoreDataType.NUMERIC, **known)])
    ours, theirs = receiver.requests
    assert (
        (ours.method, ours.path) == (theirs.method, theirs.path) == ("POST", "/api/public/scores")
    )
    assert ours.headers["authorization"] == theirs.headers["authorization"]
    tone, kind, topic, other = ours.body
    assert tone == {
        "id": tone["id"],
        "traceId": TRACE,
        "observationId": SPAN,
        "name": "tone",
        "value": 0.5,
        "dataType": "NUMERIC",
        "comment": "It scolds.",
        "timestamp": AT,
        "metadata": METADATA,
    }
    assert (kind["value"], kind["dataType"]) == (1, "BOOLEAN")
    assert (topic["value"], topic["dataType"]) == ("billing", "CATEGORICAL")
    assert len({score["id"] for score in ours.body}) == 4
    assert other["observationId"] == "00" * 8
    (same,) = theirs.body
    assert datetime.fromisoformat(same.pop("timestamp")) == datetime.fromisoformat(
        tone.pop("timestamp")
    )
    assert same == tone


def test_an_older_langfuse_gets_scores_as_events() -> None:
    """One that does not take a list of scores is sent events, from then on at once; those that it
    rejects are lost.
    """
    refused = {
        "successes": [],
        "errors": [{"id": "1", "status": 400, "message": "Invalid request data"}],
    }

    def answer(request: Request) -> Answer:
        if request.path != "/api/public/ingestion":
            return Answer(400, {"message": "Invalid request data", "error": []})
        is_bad = any(event["body"]["name"] == "bad" for event in request.body["batch"])
        return Answer(207, refused if is_bad else {"successes": [], "errors": []})

    with Receiver(answer).running() as receiver:
        provider = langfuse(receiver.url)
        with losses_of(provider) as losses:
            for result in (of_span(scored(**ABOUT)), of_span(scored("bad"))):
                put(provider, result)
                assert provider.flush(30)
    assert losses == ["langfuse: rejects scores"]
    assert [request.path for request in receiver.requests] == [
        "/api/public/scores",
        "/api/public/ingestion",
        "/api/public/ingestion",
    ]
    (event,) = receiver.requests[1].body["batch"]
    assert (event["type"], event["timestamp"]) == ("score-create", AT)
    assert event["body"] == receiver.requests[0].body[0]
    assert event["id"] != event["body"]["id"], (
        "an event is processed once, its score may be sent again"
    )


def test_phoenix_gets_annotations() -> None:
    """One request for all that waits; a category is the label, and its explanation the reasoning."""
    results = (
        scored(**ABOUT),
        scored("topic", score="billing", evaluator_kind="llm_judge"),
        failed(),
    )

    def by_its_traces(url: str) -> PhoenixStorageProvider:
        return phoenix(f"{url}/v1/traces")

    (request,) = requests_of(by_its_traces, of_span(*results), of_span(skipped()))
    assert (request.method, request.path) == ("POST", "/v1/span_annotations")
    assert request.headers["authorization"] == f"Bearer {SECRET}"
    tone, topic = request.body["data"]
    assert tone == {
        "span_id": SPAN,
        "name": "tone",
        "identifier": tone["identifier"],
        "metadata": METADATA,
        "annotator_kind": "CODE",
        "result": {"score": 0.5, "label": "fail", "explanation": "It scolds."},
    }
    assert topic["annotator_kind"] == "LLM"
    assert topic["result"] == {"score": 0.5, "label": "billing"}


def test_mlflow_gets_assessments() -> None:
    """One request for each score, at the trace as MLflow names it; a failure is an assessment with
    an error.
    """
    results = (scored(**ABOUT), failed("facts", error="no answer", error_type="timeout"), skipped())
    requests = requests_of(mlflow, of_span(*results))
    tone, facts = (request.body["assessment"] for request in requests)
    paths = {(request.method, request.path) for request in requests}
    assert paths == {("POST", f"/api/3.0/mlflow/traces/tr-{TRACE}/assessments")}
    assert tone == {
        "assessment_id": tone["assessment_id"],
        "assessment_name": "tone",
        "trace_id": f"tr-{TRACE}",
        "span_id": SPAN,
        "feedback": {"value": 0.5},
        "rationale": "It scolds.",
        "valid": True,
        "create_time": AT,
        "last_update_time": AT,
        "source": {"source_type": "CODE", "source_id": "Tone"},
        "metadata": METADATA | {"sampling_probability": "0.5", "passed": "false"},
    }
    assert facts["feedback"] == {"error": {"error_code": "timeout", "error_message": "no answer"}}


def test_mlflow_users_with_a_password() -> None:
    """User and password, also those of MLflow's variables, go before the token."""
    (request,) = requests_of(mlflow, of_span(scored()), username="ann", password="pass")
    scheme, encoded = request.headers["authorization"].split()
    assert (scheme, b64decode(encoded)) == ("Basic", b"ann:pass")


def test_an_id_is_that_of_the_result() -> None:
    """The same result has the same id; another span, evaluator, version, criterion or response has
    another.
    """
    same = [of_span(scored(**ABOUT)), of_span(scored(**ABOUT | {"score": 0.1}), agent="other")]
    others = [
        of_span(scored(**ABOUT), span_id="00" * 8),
        of_span(scored("tone2", **ABOUT)),
        of_span(scored(**ABOUT | {"evaluator_id": "B"})),
        of_span(scored(**ABOUT | {"evaluator_version": "v2"})),
        of_span(scored(**ABOUT), response_id="r"),
    ]
    (request,) = requests_of(langfuse, *same, *others)
    ids = [score["id"] for score in request.body]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 6


def test_the_environment_goes_where_langfuse_takes_it() -> None:
    """An annotated environment is the score's, unless Langfuse would refuse the name."""
    results = [of_span(scored(), environment=name) for name in ("staging", "A b")]
    (request,) = requests_of(langfuse, *results)
    assert [score.get("environment") for score in request.body] == ["staging", None]


@ALL
def test_any_text_can_be_sent(make: Any) -> None:
    """Lone surrogates, NUL and a megabyte of reasoning arrive as what a receiver can store; NaN is
    lost alone.
    """
    odd = scored("na\0me\ud800", reasoning="\udfff" + "x" * 1_000_000, score=1)
    results = [of_span(odd), of_span(scored(score=math.nan)), of_span(scored("good", score=10**30))]
    with receiving(Answer()) as receiver:
        losses = sent_by(make(receiver.url), *results)
    assert losses == [f"{make.__name__}: cannot be written (ValueError)"]
    text = json.dumps([request.body for request in receiver.requests], ensure_ascii=False)
    text.encode()
    assert "name\ufffd" in text
    assert "good" in text
    assert "\0" not in text
    assert len(text) < 25_000


# --- what is not sent


@ALL
def test_without_a_trace_nothing_is_sent(make: Any) -> None:
    """A result without a span, or of a span that is not sampled, is refused; skipped results ask
    for nothing.
    """
    provider, span = make("http://127.0.0.1:1"), SpanReference(trace_id=TRACE, span_id=SPAN)
    put(provider, aggregated(skipped()))
    with pytest.raises(DeliveryError, match="the trace of the answer is missing"):
        put(provider, aggregated(scored()))
    with pytest.raises(DeliveryError, match="the trace of the answer is not sampled"):
        put(provider, aggregated(scored(), span=span))
    assert "delivery" not in provider.__dict__, "a thread for nothing"


def test_keys_of_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Address and keys come from the vendor's variables; what is missing is named, at the start and
    by each save.
    """
    for name in list(os.environ):
        if name.startswith(("LANGFUSE_", "PHOENIX_", "MLFLOW_")):
            monkeypatch.delenv(name)
    provider = LangfuseStorageProvider()
    problem = "public_key is missing, and so is the variable LANGFUSE_PUBLIC_KEY"
    assert provider.config_problem() == problem
    with pytest.raises(DeliveryError, match=problem):
        put(provider, of_span(scored()))
    missing = (
        "endpoint is missing, and so is the variable PHOENIX_ENDPOINT or PHOENIX_COLLECTOR_ENDPOINT"
    )
    assert PhoenixStorageProvider().config_problem() == missing
    assert "MLFLOW_TRACKING_URI" in str(MlflowStorageProvider().config_problem())
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "databricks")
    assert (
        MlflowStorageProvider().config_problem()
        == "tracking_uri: expected an address such as https://host/v1"
    )
    with receiving(ACCEPTED) as receiver:
        monkeypatch.setenv("LANGFUSE_HOST", f"{receiver.url}/")
        monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", "pk-lf-1")
        monkeypatch.setenv("LANGFUSE_SECRET_KEY", SECRET)
        assert provider.config_problem() is None
        assert sent_by(provider, of_span(scored())) == []
    assert (
        b64decode(receiver.requests[0].headers["authorization"].split()[1])
        == f"pk-lf-1:{SECRET}".encode()
    )


@ALL
def test_keys_are_never_shown(make: Any) -> None:
    """Neither the provider's texts and dumps nor an error shows a key, not even one that the
    receiver repeats.
    """
    with receiving(
        Answer(401, {"message": f"bad {SECRET}", "error": SECRET}),
    ) as receiver:
        provider = make(receiver.url, headers={"x-proxy": "proxy-canary"})
        losses = sent_by(provider, of_span(scored()))
    assert losses == [f"{make.__name__}: answered with status 401"]
    assert receiver.requests[0].headers["x-proxy"] == "proxy-canary"
    shown = [
        provider,
        str(provider),
        provider.model_dump(),
        provider.model_dump_json(),
        provider.fingerprint_source(),
    ]
    assert not [text for text in map(repr, shown) if SECRET in text or "proxy-canary" in text]
    assert SECRET in provider.model_dump_json(context={"secrets": True}), (
        "worker processes build it anew"
    )


def test_an_address_with_a_password_is_refused() -> None:
    """A setting that is no address, or holds a password, is refused at the start without showing
    it.
    """
    for url in ("https://user:pass-canary@host", "localhost:6006"):
        with pytest.raises(ConfigurationError, match="endpoint: expected an address") as caught:
            PhoenixStorageProvider(endpoint=url)
        assert "pass-canary" not in str(caught.value)


# --- receivers that are not well


@ALL
def test_a_receiver_that_hangs_holds_up_no_save(make: Any) -> None:
    """Saves return at once, a flush says that they are not sent, and what was not sent when it
    closes is lost.
    """
    release = threading.Event()
    with receiving(Answer(wait=release)) as receiver:
        provider, before = make(receiver.url), MEMORY.results.used_bytes
        with losses_of(provider) as losses:
            put(provider, *(of_span(scored()) for _ in range(150)))
            assert not provider.flush(0.2)
            assert losses == []
            delivery = provider.__dict__.pop("delivery")
            asyncio.run(delivery.close(0.0))
            assert losses == [f"{make.__name__}: not sent before the end"] * 150
            assert MEMORY.results.used_bytes == before
            release.set()
            for thread in threading.enumerate():
                if thread.name == "agenteval-scores":
                    thread.join(30)
    assert len(losses) == 150, "the answer that came after all changes nothing"
    assert MEMORY.results.used_bytes == before


@ALL
def test_a_receiver_that_is_away_gets_the_scores_when_it_is_back(make: Any) -> None:
    """A refused connection is tried again; everything arrives, once."""
    (port,) = free_ports(1)
    provider = make(f"http://127.0.0.1:{port}")
    with losses_of(provider) as losses:
        put(provider, of_span(scored()), of_span(scored(), span_id="00" * 8))
        assert not provider.flush(0.3)
        receiver = Receiver(lambda _: Answer(body={"data": []}), port)
        with receiver.running():
            assert provider.flush(30)
    assert losses == []
    sent = json.dumps([request.body for request in receiver.requests])
    assert (sent.count(SPAN), sent.count("00" * 8)) == (1, 1)


@ALL
def test_an_answer_that_takes_too_long_is_asked_for_again(make: Any) -> None:
    """After the time limit the same scores are sent again, under the same ids."""
    release = threading.Event()
    with receiving(Answer(wait=release), Answer()) as receiver:
        assert sent_by(make(receiver.url, timeout_s=0.1), of_span(scored())) == []
        release.set()
    first, second = receiver.requests
    assert first.body == second.body


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (Answer(403), "answered with status 403"),
        (Answer(200, "<html>Sign in</html>"), "the response has the content type text/html"),
        (Answer(302, "", {"location": "http://127.0.0.1:1/"}), "answered with status 302"),
        (Answer(422), "answered with status 422"),
        (Answer(200, "x" * 400_000), "the response is longer than"),
    ],
)
@ALL
def test_what_is_refused_is_lost_at_once(make: Any, answer: Answer, problem: str) -> None:
    """Neither a refusal nor a page in place of an answer is a success; asking again would not help."""
    with receiving(answer) as receiver:
        (loss,) = sent_by(make(receiver.url), of_span(scored()))
    assert problem in loss
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("make", [langfuse, phoenix])
def test_one_bad_score_costs_no_other(make: Any) -> None:
    """A batch that is too large, or of which a part is refused, is sent in halves."""

    def answer(request: Request) -> Answer:
        scores = request.body["data"] if make is phoenix else request.body
        if len(scores) > 4:
            return Answer(413, "<html>too large</html>")
        return (
            Answer(422)
            if any(score["name"] == "bad" for score in scores)
            else Answer(body={"data": []})
        )

    results = [of_span(scored("bad" if number == 5 else f"good{number}")) for number in range(16)]
    with Receiver(answer).running() as receiver:
        losses = sent_by(make(receiver.url), *results)
    assert losses == [f"{make.__name__}: answered with status 422"]
    accepted = json.dumps(
        [request.body for request in receiver.requests if answer(request).status == 200]
    )
    assert all(accepted.count(f'"good{number}"') == 1 for number in range(16) if number != 5)


def test_langfuse_says_how_many_it_rejects() -> None:
    """A rejection among many is lost alone, though Langfuse does not say which it was."""

    def answer(request: Request) -> Answer:
        bad = sum(score["name"] == "bad" for score in request.body)
        body = {
            "accepted": len(request.body) - bad,
            "rejected": bad,
            "errors": [{"message": "Invalid"}] * bad,
        }
        return Answer(207, body) if bad else ACCEPTED

    with Receiver(answer).running() as receiver:
        losses = sent_by(
            langfuse(receiver.url), *(of_span(scored(name)) for name in ("a", "bad", "c", "d"))
        )
    assert losses == ["langfuse: rejects scores"]


@ALL
def test_a_receiver_is_not_asked_before_it_says_so(make: Any) -> None:
    """`Retry-After` is kept, also during a flush; one beyond the time of a result loses it at once."""
    with receiving(Answer(429, {}, {"Retry-After": "1"}), Answer()) as receiver:
        assert sent_by(make(receiver.url), of_span(scored())) == []
    first, second = receiver.requests
    assert second.at - first.at >= 1.0
    with receiving(Answer(503, {}, {"Retry-After": "3600"})) as receiver:
        provider = make(receiver.url)
        with losses_of(provider) as losses:
            put(provider, of_span(scored()))
            assert provider.flush(30)
            assert losses == [f"{make.__name__}: answered with status 503"]
            with pytest.raises(DeliveryError, match=r"asks to wait for 3[56]"):
                put(provider, of_span(scored()))
    assert len(receiver.requests) == 1


def test_mlflow_is_asked_once_where_it_lets_nothing_in() -> None:
    """After a refusal for the key the other answers of the batch are lost without asking for each."""
    with receiving(Answer(401)) as receiver:
        losses = sent_by(
            mlflow(receiver.url),
            *(of_span(scored(), span_id=f"{number:016x}") for number in range(1, 60)),
        )
    assert losses == ["mlflow: answered with status 401"] * 59
    assert len(receiver.requests) <= 8, "as many as are asked at once"


def test_mlflow_replaces_what_is_there() -> None:
    """An error of the server, for an id that it has, is a change of that; for one that it has not,
    it is an error.
    """
    there: set[str] = set()

    def answer(request: Request) -> Answer:
        name = request.body["assessment"]["assessment_id"]
        if request.method == "PATCH":
            return Answer(200 if name in there else 404)
        if name in there or len(receiver.requests) == 1:
            return Answer(500, {"error_code": "INTERNAL_ERROR"})
        there.add(name)
        return Answer()

    with Receiver(answer).running() as receiver:
        provider = mlflow(receiver.url)
        assert sent_by(provider, of_span(scored())) == []
        assert [request.method for request in receiver.requests] == ["POST", "PATCH", "POST"]
        assert sent_by(provider, of_span(scored(score=1.0))) == []
    change = receiver.requests[-1]
    assert (change.method, change.body["update_mask"]) == ("PATCH", "feedback,rationale,metadata")
    assert change.path.endswith(f"/assessments/{change.body['assessment']['assessment_id']}")
    assert change.body["assessment"]["feedback"] == {"value": 1.0}


def test_a_trace_that_is_not_there_yet_holds_up_no_other() -> None:
    """Scores of a trace that MLflow does not know wait for it, those of others arrive; what had
    arrived stays.
    """
    known = threading.Event()

    def answer(request: Request) -> Answer:
        is_late = request.body["assessment"]["span_id"] == SPAN
        return Answer(404) if is_late and not known.is_set() else Answer()

    with Receiver(answer).running() as receiver:
        provider = mlflow(receiver.url)
        with losses_of(provider) as losses:
            put(provider, of_span(scored("a"), scored("b")), of_span(scored(), span_id="00" * 8))
            assert not provider.flush(0.3)
            assert any(
                request.body["assessment"]["span_id"] == "00" * 8 for request in receiver.requests
            )
            known.set()
            assert provider.flush(30)
    assert losses == []
    names = [request.body["assessment"]["assessment_name"] for request in receiver.requests]
    assert names.count("b") == 1, "the first score of a trace asks for all"
    assert names[-2:] == ["a", "b"]


def test_what_waits_is_bounded() -> None:
    """A receiver that is away fills 8 MiB, and then saves fail; a closed provider starts again with
    the next result.
    """
    (port,) = free_ports(1)
    provider, before = phoenix(f"http://127.0.0.1:{port}"), MEMORY.results.used_bytes
    large = of_span(*(scored(f"c{number}", reasoning="x" * 10_000) for number in range(20)))
    with losses_of(provider) as losses:
        taken = 0
        with pytest.raises(DeliveryError, match="phoenix: does not keep up, 8"):  # noqa: PT012
            while taken < 1_000:
                put(provider, large)
                taken += 1
        assert 5 < taken < 50
        assert MEMORY.results.used_bytes - before <= 8 * 1024 * 1024
        asyncio.run(provider.__dict__.pop("delivery").close(0.0))
        assert len(losses) == taken
    assert MEMORY.results.used_bytes == before
    with receiving(Answer(body={"data": []})) as receiver:
        again = phoenix(receiver.url)
        for _ in range(2):
            assert sent_by(again, of_span(scored())) == []
    assert len(receiver.requests) == 2


def test_a_forked_child_sends_only_its_own() -> None:
    """What waits at a fork is sent by the parent, once."""
    with receiving(Answer(body={"data": []})) as receiver:
        provider = phoenix(receiver.url)
        with losses_of(provider) as losses:
            put(provider, of_span(scored("parents")))
            if (pid := os.fork()) == 0:
                code = 1
                try:
                    put(provider, of_span(scored("childs")))
                    code = 0 if provider.flush(20) else 2
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert provider.flush(20)
    assert losses == []
    names = sorted(score["name"] for request in receiver.requests for score in request.body["data"])
    assert names == ["childs", "parents"]


def test_what_two_people_say_are_two_scores() -> None:
    """By their user ids, and where there is none by the time; what is sent again replaces itself."""
    thumbs = {"name": "thumbs", "evaluator_kind": "human"}
    said = [of_span(scored(**thumbs), user_id=user) for user in ("ann", "bob", "ann")]
    unnamed = [of_span(scored(**thumbs, ended_ns=at_ns)) for at_ns in (2_000, 3_000, 3_000)]
    ids = [scores_of(result, with_failures=True)[0].id for result in (*said, *unnamed)]
    assert [ids.index(key) for key in ids] == [0, 1, 0, 3, 4, 4]

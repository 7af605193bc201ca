"""`POST /v1/evaluate`: the results of `run_evaluation`, and no harm by whatever a request holds."""

from __future__ import annotations

import gzip
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel import EvaluationInput, EvaluationRunConfig, run_evaluation_sync
from agenteval_otel.capture.otlp.body import Refusal, attempt
from agenteval_otel.config.process import default_pipeline
from agenteval_otel.evaluators import Evaluator, LLMJudge
from agenteval_otel.evaluators.base import Execution
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
from agenteval_otel.sidecar import evaluate, http
from agenteval_otel.sidecar.evaluate import MAX_BYTES, checked
from agenteval_otel.sidecar.requested import TYPES
from agenteval_otel.testing import ScriptedJudge
from tests.promises.served import new_trace_id, trace_request
from tests.sidecar.applications import Served, until

Serve = Callable[..., Served]
TOKEN = "token-0123456789abcdef"
SHORT = {
    "type": "RuleBased",
    "rules": [{"criterion": "short", "type": "length", "max": 80}],
}
SLOW = r"(?<![0-9])(x+x+)+y"
"""A pattern that no engine searches in linear time; `SLOW_TEXT` keeps it busy up to any limit."""
SLOW_TEXT = "x" * 3_000


def evaluating(serve: Serve, *evaluators: Any, token: str | None = None, **others: Any) -> Served:
    """A sidecar that answers requests for an evaluation."""
    return serve(
        *(evaluators or ("ResponseHealth",)), sidecar={"evaluate": True, "token": token}, **others
    )


def post(served: Served, body: Any, **headers: str) -> tuple[int, str]:
    return served.post("/v1/evaluate", body, **headers)


def traces(served: Served) -> int:
    """Send a trace, and return the status."""
    body = trace_request(new_trace_id())
    return served.post("/v1/traces", body, Content_Type="application/x-protobuf")[0]


def scores(text: str) -> dict[str, Any]:
    aggregated = AggregatedEvaluationResult.model_validate_json(text)
    return {result.criterion_name: result.score for result in aggregated.results}


def test_the_evaluators_of_the_settings_score_what_a_request_brings(serve: Serve) -> None:
    """The reply is the result of `run_evaluation`, in its JSON; nothing is stored or emitted. The
    input's agent may have evaluators of its own.
    """
    served = evaluating(serve, agents={"clerk": {"evaluators": [SHORT]}})
    status, text = post(served, {"input": {"response": "I cannot help with that."}})
    assert status == 200
    result = AggregatedEvaluationResult.model_validate_json(text)
    own = run_evaluation_sync(
        {"response": "I cannot help with that."}, evaluators=["ResponseHealth"]
    )
    assert result.overall_score == own.overall_score == 0.0
    assert result.results[0].reason_code == "refusal"
    assert result.input_snapshot == own.input_snapshot
    by_clerk = {"input": {"response": "At nine.", "agent": "clerk"}}
    assert scores(post(served, by_clerk)[1]) == {"short": True}
    assert served.results() == []
    assert served.telemetry.events() == []


CONFIGS: list[dict[str, Any]] = [
    {"evaluators": ["ResponseHealth", SHORT]},
    {"evaluators": [SHORT], "criteria": [{"name": "short", "scale": "likert5"}]},
    {"evaluators": ["ResponseHealth", SHORT], "aggregation": "minimum"},
    {"evaluators": [{**SHORT, "tags": ["a"]}, "ResponseHealth"], "tags": ["a"]},
    {
        "evaluatorConfigs": [
            {
                "type": "KeywordCoverage",
                "config": {"criterionName": "Day", "expectedKeywords": ["Tuesday", "noon"]},
            }
        ],
        "metadata": {"suite": "s"},
    },
]


def test_the_evaluators_of_a_request_score_as_run_evaluation_does(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In our form and in AgentDock's, with criteria, aggregation and tags of the request; in a
    process that has no secret of the environment.
    """
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-0123456789")
    served = evaluating(serve)
    for config in CONFIGS:
        given: dict[str, Any] = {"response": "On Tuesday."}
        if "evaluatorConfigs" in config:
            given["criteria"] = [{"name": "Day", "description": "", "scale": "numeric"}]
        status, text = post(served, {"input": given, **config})
        assert status == 200, text
        own = run_evaluation_sync(
            EvaluationInput.model_validate(given), EvaluationRunConfig.model_validate(config)
        )
        assert scores(text) == {result.criterion_name: result.score for result in own.results}
        assert json.loads(text).get("overallScore") == own.overall_score
    children = [
        pid
        for listing in Path(f"/proc/{os.getpid()}/task").glob("*/children")
        for pid in listing.read_text().split()
    ]
    assert children or not Path("/proc/self/environ").exists()
    for pid in children:
        assert b"sk-secret" not in Path(f"/proc/{pid}/environ").read_bytes()


@pytest.mark.parametrize(
    ("spend", "calls", "skipped"),
    [(None, 2, None), ({"tokens_per_day": 10}, 0, "budget_exhausted")],
)
def test_a_judge_is_asked_where_the_settings_name_it_and_within_their_limits(
    serve: Serve, spend: dict[str, int] | None, calls: int, skipped: str | None
) -> None:
    """With tokens left each request has a score; without, it is skipped and the judge not asked."""
    judge = ScriptedJudge(fallback={"score": 5, "reasoning": "polite"}, spend=spend)
    tone = LLMJudge(judge=judge, criterion_name="tone", rubric="Is it polite?", reply_form="score")
    served = evaluating(serve, tone)
    for number in range(2):
        status, text = post(served, {"input": {"prompt": "?", "response": f"Hello {number}."}})
        assert status == 200, text
        (result,) = AggregatedEvaluationResult.model_validate_json(text).results
        assert (result.skip_reason, result.error) == (skipped, None)
    assert judge.calls == calls


def test_it_is_off_unless_the_settings_switch_it_on(serve: Serve) -> None:
    """404 names the setting; with the kill switch it is 503."""
    status, text = post(serve("ResponseHealth"), {"input": {"response": "x"}})
    assert (status, "sidecar.evaluate" in text) == (404, True)
    served = evaluating(serve, enabled=False)
    assert post(served, {"input": {"response": "x"}})[0] == 503


GOOD = {"input": {"response": "On Tuesday."}}


def assert_it_evaluates(served: Served) -> None:
    """A request with an evaluator of its own has its score."""
    assert scores(post(served, {**GOOD, "evaluators": [SHORT]})[1]) == {"short": True}


RULE = {"criterion": "a", "type": "regex", "pattern": "a"}


def asking(type: str, **fields: Any) -> dict[str, Any]:
    """A request for one evaluator."""
    return {**GOOD, "evaluators": [{"type": type, **fields}]}


def rule(pattern: str) -> dict[str, Any]:
    return asking("RuleBased", rules=[{**RULE, "pattern": pattern}])


def agentdocks(type: str, **config: Any) -> dict[str, Any]:
    """The same in AgentDock's form."""
    return {**GOOD, "evaluatorConfigs": [{"type": type, "config": config}]}


HOSTILE: dict[str, tuple[Any, int, str]] = {
    "nothing": (b"", 400, "not JSON"),
    "no JSON": (b"{", 400, "line 1, column 2"),
    "a list": (b"[]", 400, "expected an object"),
    "a number": (b"7", 400, "expected an object"),
    "no input": ({}, 400, "input: required field is missing"),
    "null as input": ({"input": None}, 400, "input: expected"),
    "an unknown field of the input": ({"input": {"respons": "x"}}, 400, "input"),
    "a key twice": (b'{"input": {"response": "a", "response": "b"}}', 400, "appears twice"),
    "NaN": (b'{"input": {"response": "a", "cost": NaN}}', 400, "NaN"),
    "Infinity": (b'{"input": {"response": "a", "cost": -Infinity}}', 400, "Infinity"),
    "a number beyond floats": (b'{"input": {"response": "a", "cost": 1e999}}', 400, "too large"),
    "a number of 5,000 digits": (
        b'{"input": {"response": "a", "cost": ' + b"1" * 5_000 + b"}}",
        400,
        "not JSON",
    ),
    "no UTF-8": (b'{"input": {"response": "\xff"}}', 400, "not UTF-8, from byte 24"),
    "UTF-16": (json.dumps(GOOD).encode("utf-16"), 400, "not UTF-8"),
    "half of a character": (b'{"input": {"response": "\\ud800"}}', 400, "lone surrogate"),
    "half of a character as key": (b'{"\\udfff": 1}', 400, "lone surrogate"),
    "100 levels": (b'{"input": {"response": ' + b"[" * 100 + b"]" * 100 + b"}}", 400, "deeper"),
    "100,000 levels": (b"[" * 40_000 + b"]" * 40_000, 400, "deeper"),
    "half a million values": (b'{"input": [' + b"0," * 500_000 + b"0]}", 413, "more than 50,000"),
    "two megabytes": (b" " * (2 * MAX_BYTES), 413, "larger than 1,048,576 bytes"),
    "1,000 criteria": (
        {**GOOD, "criteria": [{"name": f"c{n}"} for n in range(1_000)]},
        400,
        "criteria: expected at most 100, found 1,000",
    ),
    "1,000 criteria of the input": (
        {"input": {"response": "x", "criteria": [{"name": f"c{n}"} for n in range(1_000)]}},
        400,
        "input.criteria: expected at most 100",
    ),
    "1,000 evaluators": ({**GOOD, "evaluators": ["ResponseHealth"] * 1_000}, 400, "at most 100"),
    "a criterion twice": ({**GOOD, "criteria": [{"name": "a"}] * 2}, 400, "criteria"),
    "evaluators that are no list": (
        {**GOOD, "evaluators": "ResponseHealth"},
        400,
        "expected a list",
    ),
    "no evaluator": ({**GOOD, "evaluators": []}, 400, "at least one"),
    "both forms": (
        {**GOOD, "evaluators": [], "evaluatorConfigs": []},
        400,
        "not both",
    ),
    "a wrong option": (asking("Contains", substring=["x"]), 400, "evaluators[0]"),
    "a judge": (
        asking("LLMJudge", judge={"type": "openai_compatible", "base_url": "http://evil.example"}),
        400,
        "evaluators[0].type: 'LLMJudge' is not for requests",
    ),
    "a judge in AgentDock's form": (agentdocks("LLMJudge"), 400, "evaluatorConfigs[0].type"),
    "a function": ({**GOOD, "evaluators": ["os:system"]}, 400, "evaluators[0].type"),
    "a function as evaluator": (asking("Func", function="os:system"), 400, "evaluators[0].type"),
    "a plugin": ({**GOOD, "plugins": ["antigravity"]}, 400, "plugins: unknown, or decided by"),
    "a storage": ({**GOOD, "storage": {"type": "json_file", "path": "/tmp/x"}}, 400, "storage"),
    "a storage provider": (
        {**GOOD, "storageProvider": {"type": "console"}},
        400,
        "storageProvider",
    ),
    "a ground truth store": (
        {**GOOD, "ground_truth": {"type": "file", "path": "/etc/passwd"}},
        400,
        "ground_truth",
    ),
    "redactors": ({**GOOD, "redactors": []}, 400, "redactors"),
    "a file with terms": (
        asking("Toxicity", criterion_name="a", terms_file="/etc/passwd"),
        400,
        "evaluators[0].terms_file: a request cannot name a file",
    ),
    "a file with terms in AgentDock's form": (
        agentdocks("Toxicity", criterionName="a", termsFile="/etc/passwd"),
        400,
        "evaluatorConfigs[0].config.termsFile",
    ),
    "a file as lexicon": (
        asking("Sentiment", criterion_name="a", lexicon="/etc/passwd"),
        400,
        "evaluators[0].lexicon",
    ),
    "no pattern": (rule("("), 400, "evaluators[0].rules[0].pattern"),
    "a pattern of 100,000 groups": (rule("(" * 100_000), 400, "pattern"),
    "an aggregation of nobody": ({**GOOD, "aggregation": "os.system"}, 400, "aggregation"),
    "an unknown field": ({**GOOD, "agent": "a"}, 400, "agent: unknown"),
}


def test_hostile_requests_are_refused_with_the_field_and_counted(serve: Serve) -> None:
    """Each has its status and says where it is wrong; an honest request after it has its result."""
    served = evaluating(serve)
    for name, (body, status, says) in HOSTILE.items():
        code, text = post(served, body)
        assert (code, says in text) == (status, True), f"{name}: {code} {text[:300]}"
    assert_it_evaluates(served)
    assert traces(served) == 200
    counts = default_pipeline().accounting
    assert counts.requests() == {"evaluated": 1, "refused": len(HOSTILE), "failed": 0}
    by_size = sum(status == 413 for _, status, _ in HOSTILE.values())
    assert counts.failures["requests:evaluate_size"] == by_size
    assert counts.failures["requests:evaluate_input"] == len(HOSTILE) - by_size


@pytest.mark.parametrize("text", [",", "[{", '",', "\\", '\\",[', "é,"])
def test_signs_inside_of_texts_are_no_values(text: str) -> None:
    """A text of 50,001 commas, brackets, quotes or backslashes is one value; as many values beside
    it are refused.
    """
    body = {"input": {"response": text * 50_001}}
    request = checked(json.dumps(body, ensure_ascii=False).encode(), "")
    assert request.evaluation_input is not None
    assert request.evaluation_input.response == text * 50_001
    many = json.dumps({"input": {"response": text, "context": [0] * 50_001}}).encode()
    assert attempt(partial(checked, many, "")) == Refusal(413, "more than 50,000 values")


@pytest.mark.parametrize("piece", [b'"', b'\\"', b"\\", b'"\\', b'",'])
def test_texts_that_do_not_end_are_refused(piece: bytes) -> None:
    """A body of 1 MiB of quotes and backslashes is looked at once, and refused."""
    body = b'["' + piece * (MAX_BYTES // 2 // len(piece)) + b"," * (MAX_BYTES // 2 - 2)
    refusal = attempt(partial(checked, body, ""))
    assert isinstance(refusal, Refusal)
    assert refusal.status in (400, 413)


def test_a_refusal_is_short_whatever_it_quotes(serve: Serve) -> None:
    """A request of 900,000 characters in a wrong place has a reply of 4,000, with the field."""
    served = evaluating(serve)
    long = "x" * 900_000
    hidden = "\x7f" * 900_000  # five characters each where it is quoted
    for body, says in (
        ({**GOOD, "tags": [long]}, "tags"),
        ({**GOOD, "tags": [long], "evaluators": [SHORT]}, "tags"),
        ({**GOOD, "tags": [hidden], "evaluators": [SHORT]}, "tags"),
        ({**GOOD, long: 1}, "xxx"),
    ):
        status, text = post(served, json.dumps(body, ensure_ascii=False).encode())
        assert (status, says in text) == (400, True), text[:300]
        assert len(text) <= 4_001


def test_bodies_are_unpacked_within_the_limit(serve: Serve) -> None:
    """A packed request is read; a bomb, another packing and another content are refused."""
    served = evaluating(serve)
    packed = gzip.compress(json.dumps(GOOD).encode())
    assert post(served, packed, Content_Encoding="gzip")[0] == 200
    bomb = gzip.compress(b" " * (16 * MAX_BYTES))
    assert post(served, bomb, Content_Encoding="gzip")[0] == 413
    assert post(served, b"x", Content_Encoding="gzip")[0] == 400
    assert post(served, packed, Content_Encoding="br")[0] == 415
    assert post(served, GOOD, Content_Type="text/plain")[0] == 415


def test_only_those_with_the_token_are_answered(serve: Serve) -> None:
    """Without it 401, with a wrong one too, and nothing is evaluated; GET is refused."""
    served = evaluating(serve, token=TOKEN)
    assert post(served, GOOD)[0] == 401
    assert post(served, GOOD, Authorization="Bearer wrong")[0] == 401
    assert post(served, GOOD, Authorization=f"Bearer {TOKEN}")[0] == 200
    with pytest.raises(HTTPError) as refusal:
        urlopen(f"{served.addresses.http}/v1/evaluate", timeout=10)
    refusal.value.close()
    assert refusal.value.code == 405
    assert default_pipeline().accounting.failures["requests:evaluate_token"] == 2


def test_a_body_that_is_half_sent_costs_its_own_client_alone(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets 408, and more of them than are evaluated at once keep no other request from its
    result.
    """
    monkeypatch.setattr(http, "PATIENCE_S", 1.0)
    served = evaluating(serve)
    host, port = served.addresses.http.removeprefix("http://").split(":")
    head = (
        b"POST /v1/evaluate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 99\r\n\r\n{"
    )
    slow = [socket.create_connection((host, int(port)), timeout=30) for _ in range(30)]
    try:
        for client in slow:
            client.sendall(head)
        assert post(served, GOOD)[0] == 200
        assert {client.recv(4096).split(b" ")[1] for client in slow} == {b"408"}
    finally:
        for client in slow:
            client.close()
    assert default_pipeline().accounting.failures["requests:evaluate_slow"] == 30


def test_spans_are_taken_while_a_pattern_of_a_request_runs(serve: Serve) -> None:
    """Twenty traces are answered before it, it ends by its limit, and the next request has its
    score.
    """
    served = evaluating(serve)
    body = {
        "input": {"response": SLOW_TEXT},
        "evaluators": [
            {"type": "RuleBased", "rules": [{**RULE, "pattern": SLOW, "limit_s": 3}]},
            "ResponseHealth",
        ],
    }
    assert_it_evaluates(served)  # the process is there
    with ThreadPoolExecutor(1) as threads:
        under_way = threads.submit(post, served, body)
        assert [traces(served) for _ in range(20)] == [200] * 20
        assert not under_way.done()
        status, text = under_way.result()
    assert status == 200
    failed, healthy = AggregatedEvaluationResult.model_validate_json(text).results
    assert (failed.error_type, healthy.passed) == ("timeout", True)
    assert_it_evaluates(served)


@pytest.mark.slow
def test_a_request_that_takes_too_much_memory_ends_alone(serve: Serve) -> None:
    """A pattern that would take a gigabyte: 413, and the next request has its score."""
    served = evaluating(serve)
    wide = "|".join(f"a{{{least},{least + 900}}}" for least in range(3_000))
    assert post(served, rule(wide)) == (413, "not evaluated: it takes too much memory\n")
    assert_it_evaluates(served)


def test_more_requests_than_are_evaluated_at_once_are_asked_to_wait(serve: Serve) -> None:
    """Of a hundred at once each has its result or 429 with Retry-After, all are counted, and spans are
    taken meanwhile.
    """
    served = evaluating(serve)
    begin = threading.Barrier(26)

    def several(number: int) -> list[int]:
        begin.wait()
        own = {} if number % 2 else {"evaluators": [SHORT]}
        return [post(served, {**GOOD, **own})[0] for _ in range(4)]

    with ThreadPoolExecutor(25) as threads:
        clients = [threads.submit(several, number) for number in range(25)]
        begin.wait()
        assert [traces(served) for _ in range(10)] == [200] * 10
        statuses = [status for client in clients for status in client.result()]
    assert set(statuses) <= {200, 429}
    assert statuses.count(200) > 0
    counts = default_pipeline().accounting
    assert counts.requests()["evaluated"] == statuses.count(200)
    assert counts.failures.get("requests:evaluate_busy", 0) == statuses.count(429)


class Blocking(Evaluator):
    """Blocks the loop that it runs on, for the response ``block``, until the test has ended."""

    def preferred_execution(self) -> Execution | None:
        return "async"

    async def evaluate(
        self, evaluation_input: EvaluationInput, criteria: Any
    ) -> list[EvaluationResult]:
        if evaluation_input.response == "block":
            FREE.wait(60)
        return [EvaluationResult(criterion_name="free", evaluator_type=self.type, score=True)]


FREE = threading.Event()


@pytest.fixture
def blocked() -> Iterator[None]:
    """Frees what blocks at the end."""
    FREE.clear()
    yield
    FREE.set()


@pytest.mark.usefixtures("blocked")
def test_an_evaluator_of_the_settings_that_blocks_stops_no_request_with_its_own(
    serve: Serve,
) -> None:
    """While it blocks, and eight requests wait for it, a request with evaluators has its score."""
    served = evaluating(serve, Blocking())
    with ThreadPoolExecutor(9) as threads:
        waiting = [threads.submit(post, served, {"input": {"response": "block"}}) for _ in range(9)]
        ended, under_way = wait(waiting, return_when=FIRST_COMPLETED)  # eight have their places
        assert [each.result()[0] for each in ended] == [429]
        assert_it_evaluates(served)
        assert not any(each.done() for each in under_way)
        FREE.set()
        assert {each.result()[0] for each in under_way} == {200}


@pytest.mark.usefixtures("blocked")
def test_a_loop_that_is_blocked_for_too_long_is_replaced(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its requests have 503 with Retry-After, the next one its score. Where four threads are
    blocked there is no fifth, until one is free again; freed threads end.
    """
    monkeypatch.setattr(evaluate, "_LIMIT_S", 1.0)
    monkeypatch.setattr(evaluate, "_GRACE_S", 0.1)
    served = evaluating(serve, Blocking())
    for number in range(4):
        assert post(served, GOOD)[0] == 200, number
        data = json.dumps({"input": {"response": "block"}}).encode()
        kind = {"Content-Type": "application/json"}
        with pytest.raises(HTTPError) as refusal:
            urlopen(Request(f"{served.addresses.http}/v1/evaluate", data, kind), timeout=30)
        refusal.value.close()
        assert (refusal.value.code, refusal.value.headers["Retry-After"]) == (503, "60")
    status, text = post(served, GOOD)
    assert (status, text) == (503, "evaluators of the settings block 4 threads\n")
    assert_it_evaluates(served)
    FREE.set()
    assert until(lambda: post(served, GOOD)[0] == 200)
    assert until(
        lambda: sum(each.name == "agenteval-evaluate" for each in threading.enumerate()) == 1
    )


def test_the_closed_list_has_no_evaluator_that_asks_reads_or_runs() -> None:
    """Each type of it is built in, calls no model, and has no field for a file, an address or an
    object of the program's.
    """
    risky = ("file", "path", "url", "host", "judge", "embedder", "function", "key", "endpoint")
    found = set()
    for name in TYPES:
        kind = Evaluator.registry[name]
        assert kind.__module__.startswith("agenteval_otel.evaluators.")
        assert kind.kind == "deterministic"
        found |= {
            f"{name}.{field}"
            for field in kind.model_fields
            if any(word in field.split("_") for word in risky)
        }
    assert found == {"Toxicity.terms_file"}  # refused, as a lexicon of Sentiment's that is a file


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    [
        "input",
        "evaluators",
        "evaluatorConfigs",
        "criteria",
        "aggregation",
        "tags",
        "metadata",
        "plugins",
    ]
)
ENTRY = st.fixed_dictionaries(
    {"type": st.sampled_from(sorted(Evaluator.registry)) | VALUES},
    optional={"config": VALUES, "rules": VALUES, "terms_file": VALUES, "lexicon": VALUES},
)


@settings(max_examples=120, deadline=None)
@given(
    st.binary(max_size=200)
    | st.dictionaries(FIELDS, VALUES | st.lists(ENTRY, max_size=3), max_size=5).map(
        lambda value: json.dumps(value).encode()
    )
)
def test_whatever_a_body_holds_it_is_a_request_or_refused(body: bytes) -> None:
    """A body is taken with the types of the closed list alone, or refused with 400 or 413."""
    request = attempt(partial(checked, body, ""))
    if isinstance(request, Refusal):
        assert request.status in (400, 413)
        return
    value = json.loads(body)
    entries = [*(value.get("evaluators") or ()), *(value.get("evaluatorConfigs") or ())]
    named = {entry if isinstance(entry, str) else entry["type"] for entry in entries}
    assert named <= TYPES
    assert (request.evaluation_input is None) == (
        "evaluators" in value or "evaluatorConfigs" in value
    )

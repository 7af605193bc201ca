"""B2: our own secrets never appear: not in what is shown, dumped, said or logged, nor in what is
exported.
"""

from __future__ import annotations

import base64
import json
import random
import string
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from agenteval_otel import Settings, monitor
from agenteval_otel.components.loading import resolve
from agenteval_otel.engine.pipeline import InlineDispatcher, Pipeline
from agenteval_otel.errors import ConfigurationError, ModelError
from agenteval_otel.evaluators import Func, LLMJudge
from agenteval_otel.judges import AnthropicJudge, OpenAICompatibleJudge
from agenteval_otel.runtime.masking import is_secret, mask, mask_known, mask_text, split_address
from agenteval_otel.storage import EvaluationStorageProvider, JsonFileStorageProvider
from agenteval_otel.testing import ModelReply, ModelServer, RecordedTelemetry
from tests.backends.faults import PostHandler, grpc_server, serving
from tests.embedders.asking import failure as embedder_failure
from tests.embedders.asking import hosted as hosted_embedder
from tests.judges.asking import GOOD, ask, failure, hosted
from tests.promises.bench import pipeline_of
from tests.promises.figures import Recorder
from tests.promises.programs import run_program

KEY = "sk-own/secret@1234567890"
"""With the characters that addresses and URL-encoding treat in their own way."""
USER = f"user:{quote(KEY, safe='')}"
BASIC = base64.b64encode(f"user:{KEY}".encode()).decode()


def forms(key: str = KEY) -> set[str]:
    """The secret as it is, encoded for an address, as JSON and as Basic authorization; and large
    parts of it.
    """
    return {
        key,
        quote(key),
        quote(key, safe=""),
        json.dumps(key)[1:-1],
        BASIC,
        key[6:18],
        key[-10:],
    }


def assert_hidden(*shown: object) -> None:
    for text in map(str, shown):
        actual = [form for form in forms() if form in text]
        assert not actual, f"{actual} in {text[:400]}"


class Echo:
    """Where a receiver listens, and the headers and bodies that came."""

    def __init__(self) -> None:
        self.port, self.bodies = 0, b""
        self.headers: list[dict[str, str]] = []

    def take(self, headers: Any, body: bytes) -> str:
        """Keep a request; gives the refusal, which quotes its headers."""
        self.headers.append({name.lower(): str(value) for name, value in headers})
        self.bodies += body
        return f"not authorized: {self.headers[-1]}".replace("\n", " ")

    def values_of(self, name: str) -> set[str]:
        return {headers[name] for headers in self.headers if name in headers}


@contextmanager
def http_echo() -> Iterator[Echo]:
    """OTLP over HTTP that answers 401; reason, headers and body quote the request's headers."""
    echo = Echo()

    class Handler(PostHandler):
        def do_POST(self) -> None:
            message = echo.take(self.headers.items(), self.body())
            self.answer(401, message.encode(), {"x-message": message}, message)

    with serving(Handler) as echo.port:
        yield echo


@contextmanager
def grpc_echo() -> Iterator[Echo]:
    """OTLP over gRPC that answers UNAUTHENTICATED, its details quoting the request's metadata."""
    echo = Echo()

    def refuse(method: str, body: bytes, context: Any) -> bytes:
        context.abort(
            grpc.StatusCode.UNAUTHENTICATED, echo.take(context.invocation_metadata(), body)
        )
        return b""

    with grpc_server(refuse) as echo.port:
        yield echo


PROGRAM = """
    import json, logging, os, sys, traceback
    logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format="%(name)s %(levelname)s %(message)s")
    how, protocol, port, key, user = sys.argv[1:6]
    from agenteval_otel import Settings, accounting, configure, flush, monitor, shutdown
    from agenteval_otel.components.loading import resolve
    from agenteval_otel.config import default_pipeline
    from agenteval_otel.storage import EvaluationStorageProvider, OtlpStorageProvider

    plain, named = f"http://127.0.0.1:{port}", f"http://{user}@127.0.0.1:{port}"
    fields = {
        "headers": {"endpoint": plain, "headers": {"Authorization": f"Bearer {key}", "x-other": key}},
        "address": {"endpoint": named}, "both": {"endpoint": named, "headers": {"X-Api-Key": key}},
    }.get(how, {})
    storage = OtlpStorageProvider(protocol=protocol, **fields)
    settings = configure(evaluators=["ResponseHealth"], storage=[storage], sample_rate=1.0)
    answer = monitor(lambda question: "an answer")
    pipeline = default_pipeline()
    emitter = storage.emitter
    for shown in (storage, settings, pipeline, pipeline.handler("a"), emitter, emitter.providers, answer):
        print("shown", repr(shown), str(shown), f"{shown}")
    print("dumped", storage.model_dump(), storage.model_dump(by_alias=True), storage.model_dump_json())
    print("dumped", settings.model_dump(), storage.fingerprint)
    for wrong in ({"headers": f"Bearer {key}"}, {"headers": {"authorization": [key]}}, {"headers": [key]},
                  {"endpoint": [f"http://{user}@h"]}, {"protocol": named}, {"api_key": key}, {"header": {"a": key}}):
        entry = {"type": "otlp", **wrong}
        for make in (lambda: OtlpStorageProvider(**wrong), lambda: resolve(EvaluationStorageProvider, entry),
                     lambda: Settings(storage=[entry]), lambda: configure(storage=entry)):
            try:
                make()
            except Exception as error:
                print("refused", "".join(traceback.format_exception(error)), repr(error), error.args, vars(error))
                logging.getLogger("host").exception("wrong settings")
            else:
                print("taken", wrong.keys())
    for _ in range(3):
        answer("question")
    print("flushed", flush(15), accounting(), default_pipeline().accounting.failures)
    shutdown(5)
    print("done", flush(1), flush=True)
"""
WAYS = (
    "headers",
    "address",
    "both",
    "variable",
    "signal variables",
    "variable address",
    "odd variable",
)


def variables(how: str, port: int) -> dict[str, str]:
    """The variables of those ways in which the secret comes from the environment."""
    address, quoted = f"127.0.0.1:{port}", quote(KEY, safe="")
    signals = ("TRACES", "LOGS", "METRICS")
    result = {
        "variable": {"OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{quoted}"},
        "signal variables": {
            f"OTEL_EXPORTER_OTLP_{signal}_HEADERS": f"x-api-key={quoted}" for signal in signals
        },
        "variable address": {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{USER}@{address}"},
        # No name: the SDK says so, and quotes it.
        "odd variable": {"OTEL_EXPORTER_OTLP_HEADERS": f"{KEY},x-api-key:{KEY}"},
    }.get(how)
    endpoint = {} if result is None else {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{address}"}
    return {"OTEL_EXPORTER_OTLP_TIMEOUT": "2", **endpoint, **(result or {})}


@pytest.fixture(params=["http/protobuf", "grpc"])
def echo(request: pytest.FixtureRequest) -> Iterator[tuple[str, Echo]]:
    with (http_echo if request.param == "http/protobuf" else grpc_echo)() as made:
        yield request.param, made


@pytest.mark.parametrize("how", WAYS)
def test_nothing_shows_the_key(
    how: str, python: str, echo: tuple[str, Echo], promise: Recorder
) -> None:
    """However the key came in: it reaches the receiver, which quotes it in its refusal, and nothing
    shows it.
    """
    protocol, receiver = echo
    finished = run_program(
        PROGRAM,
        how,
        protocol,
        str(receiver.port),
        KEY,
        USER,
        python=python,
        **variables(how, receiver.port),
    )
    assert finished.code == 0, finished.stderr[-2000:]
    assert_hidden(finished.stdout, finished.stderr)
    assert KEY.encode() not in receiver.bodies
    assert BASIC.encode() not in receiver.bodies
    assert "event='export_failed'" in finished.stdout
    assert len(finished.lines("refused")) >= 24
    assert finished.lines("taken") == []
    expected = {
        "headers": ("authorization", f"Bearer {KEY}"),
        "address": ("authorization", f"Basic {BASIC}"),
        "both": ("x-api-key", KEY),
        "variable": ("authorization", f"Bearer {KEY}"),
        "signal variables": ("x-api-key", KEY),
        "variable address": ("authorization", f"Basic {BASIC}"),
    }
    if how in expected:
        name, value = expected[how]
        assert receiver.values_of(name) == {value}, "what does not arrive is hidden for nothing"
    message = len(finished.stdout) + len(finished.stderr) + len(receiver.bodies)
    promise("B2", figure=f"{message} bytes of output, lines and telemetry: the key 0 times")


class Vault(EvaluationStorageProvider, type="vault"):
    api_key: str | None = None
    base_url: str = "http://localhost"
    options: dict[str, Any] = Field(default_factory=dict)
    max_tokens: int = 5
    pattern: str = r"https?://\S+@\S+ Bearer \w{6,}"
    mirrors: tuple[str, ...] = ()

    async def save_result(self, aggregated: Any) -> None:
        """Keep it to itself."""


def vault(**fields: Any) -> Vault:
    defaults: dict[str, Any] = {
        "api_key": KEY,
        "base_url": f"https://{USER}@host/v1?token={quote(KEY, safe='')}",
        "options": {"headers": {"x": KEY}, "auth": {"clientSecret": KEY}, "region": "eu"},
        "mirrors": (f"https://{USER}@other",),
    }
    return Vault(**{**defaults, **fields})


def test_a_users_part_is_masked_by_the_names_of_its_fields() -> None:
    """A component of the user's own shows, dumps and fingerprints without its secrets; all else
    stays as it is.
    """
    made = vault()
    dumps = [made.model_dump(), made.model_dump(mode="json"), made.model_dump(by_alias=True)]
    settings = Settings(storage=[made])
    assert_hidden(
        repr(made), str(made), *dumps, made.model_dump_json(), settings, settings.model_dump()
    )
    assert {"pattern": made.pattern, "max_tokens": 5, "type": "vault"}.items() <= dumps[0].items()
    assert dumps[0]["options"]["region"] == "eu"
    deep: Any = KEY
    for _ in range(100):
        deep = [deep]
    assert_hidden(mask(deep, "secret"), mask({"password": deep}))
    assert made.fingerprint == vault(api_key="another").fingerprint
    assert made.fingerprint != vault(max_tokens=6).fingerprint


@pytest.mark.parametrize(
    "wrong",
    [
        {"api_key": [KEY]},
        {"apiKey": {"k": KEY}},
        {"options": KEY},
        {"options": ["x", {"token": KEY}]},
        {"mirrors": f"https://{USER}@h"},
        {"max_tokens": f"https://{USER}@h"},
        {"api_key": KEY.encode() + b"\xff"},
        {"unknown_secret": KEY},
    ],
)
def test_refusals_name_the_field_and_not_the_key(wrong: dict[str, Any]) -> None:
    """What is wrong with a setting is told with its path, the key is not; nor by what the error
    came from.
    """
    for make in (
        lambda: vault(**wrong),
        lambda: resolve(EvaluationStorageProvider, {"type": "vault", **wrong}),
    ):
        with pytest.raises(ConfigurationError) as caught:
            make()
        # a bare text where a mapping belongs: nothing says that it is a key
        if wrong != {"options": KEY}:
            assert_hidden(caught.value, repr(caught.value), caught.value.problems)
            assert_hidden("".join(traceback.format_exception(caught.value)))
        assert next(iter(wrong)).split("_")[0].lower()[:3] in str(caught.value).lower()


@pytest.mark.parametrize("content", ["no_content", "span_and_event"])
def test_a_providers_error_that_quotes_the_key(
    content: Any, telemetry: RecordedTelemetry, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A user's evaluator whose provider refuses its key, quoting it, fails: no signal, file or log
    line has the key.
    """
    caplog.set_level("DEBUG")
    key = "sk-proj-" + "aB3dE6gH9jK2mN5pQ8sT" * 2
    path = tmp_path / "results.jsonl"
    with (
        ModelServer([ModelReply(text=f"Incorrect API key provided: {key}", status=401)]) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0) as client,
    ):

        def judge(evaluation_input: Any) -> Any:
            question: Any = {"role": "user", "content": "q"}
            return client.chat.completions.create(model="m", messages=[question])

        judged = Func.of(judge, criterion_name="judged")
        pipeline = evaluated(judged, telemetry=telemetry, path=path, content=content)
        assert server.requests, pipeline.accounting
    assert pipeline.accounting.results["failed"] == 1
    own = [
        record.getMessage() for record in caplog.records if record.name.startswith("agenteval_otel")
    ]
    assert_no_part(
        key[10:30],
        *shown_by(telemetry),
        path.read_text(),
        own,
        pipeline.accounting.failures,
        pipeline,
    )


def evaluated(*evaluators: Any, telemetry: RecordedTelemetry, path: Path, content: Any) -> Pipeline:
    """Have an answer evaluated whose results go to telemetry and to a file; the pipeline, ended."""
    storage = (
        telemetry.storage(detail="result", content=content),
        JsonFileStorageProvider(path=path),
    )
    pipeline = pipeline_of(*evaluators, storage=storage, dispatcher=InlineDispatcher())
    monitor(pipeline=pipeline, agent="agent")(lambda: "an answer")()
    assert pipeline.flush(20.0)
    assert pipeline.shutdown(10.0)
    return pipeline


def shown_by(telemetry: RecordedTelemetry) -> list[Any]:
    """All that spans and events carry."""
    spans = [
        (span.name, span.attributes, span.status.description, span.events)
        for span in telemetry.spans()
    ]
    return [*spans, *((event.body, event.attributes) for event in telemetry.events())]


LONG_KEY = "sk-" + "".join(random.Random(2).choices(string.ascii_letters + string.digits, k=600))
"""Longer than any length at which a message is cut."""
SHORT_KEY = LONG_KEY[100:124]
ECHOES = (
    "invalid key: {key}", "{key}", "no account for 'Authorization: Bearer {key}'", "Bearer {key}",
    "x-api-key: {key}, authorization: Basic {key}", '{{"x-api-key": "{key}"}}', "{padding}{key}",
    "{padding}x-api-key: {key}", "invalid key: {key:.100}", "invalid key: {key:.20}",
)  # fmt: skip
"""What a provider quotes of a request with a key; the last ones have cut it themselves."""


def assert_no_part(key: str, *shown: object) -> None:
    """No eight characters of the key stand in what is shown."""
    for text in map(str, shown):
        parts = [key[at : at + 8] for at in range(len(key) - 7) if key[at : at + 8] in text]
        assert not parts, f"{parts[:3]} in {text[:400]}"


@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize("key", [LONG_KEY, SHORT_KEY], ids=["long", "short"])
@pytest.mark.parametrize("place", ["api_key", "extra_headers"])
def test_no_part_of_a_judges_key_is_quoted(
    place: str,
    key: str,
    echo: str,
    telemetry: RecordedTelemetry,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """However long it is, whatever header stands before it: not eight characters are in an error,
    result or line.
    """
    caplog.set_level("DEBUG")
    path = tmp_path / "results.jsonl"
    settings: dict[str, Any] = (
        {"api_key": key}
        if place == "api_key"
        else {
            "api_key": "another",
            "extra_headers": {"x-gateway": key, "x-proxy": f"Bearer {key}"},
        }
    )
    text = echo.format(key=key, padding="x" * 190)
    with ModelServer([ModelReply(text=text, status=401)]) as server:
        judges = [
            hosted(kind, server, **settings) for kind in (AnthropicJudge, OpenAICompatibleJudge)
        ]
        errors: list[ModelError] = [failure(judge) for judge in judges]
        errors.append(embedder_failure(hosted_embedder(server, **settings)))
        assert key in str(server.headers), "what does not arrive is hidden for nothing"
        evaluators = [LLMJudge(judge=judge, criterion_name=judge.type) for judge in judges]
        pipeline = evaluated(*evaluators, telemetry=telemetry, path=path, content="span_and_event")
    assert pipeline.accounting.results["failed"] == 2
    assert_no_part(key, *errors, *("".join(traceback.format_exception(error)) for error in errors))
    assert_no_part(
        key, path.read_text(), pipeline.accounting.failures, caplog.text, *shown_by(telemetry)
    )


def test_no_key_of_the_host_goes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key of ours the real SDKs send neither keys nor headers of the environment, but
    headers of ours.
    """
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, KEY)
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", f"X-Gateway: {KEY}\nno colon\nX-Mine: theirs")
    with ModelServer([GOOD]) as server:
        keyless = {"api_key": None, "api_key_env": None}
        ask(hosted(AnthropicJudge, server, **keyless))
        ask(
            hosted(
                AnthropicJudge,
                server,
                **keyless,
                extra_headers={"Authorization": "Bearer us", "X-Mine": "ours"},
            )
        )
        ask(OpenAICompatibleJudge(model="m", base_url=f"{server.url}/v1"))
        none, ours, compatible = server.headers
    assert_hidden(none, ours, compatible)
    assert not {"x-api-key", "authorization"} & {name.lower() for name in (*none, *compatible)}
    assert (ours["authorization"], ours["x-mine"]) == ("Bearer us", "ours")
    assert "x-api-key" not in ours


SETTINGS = """
evaluators: [ResponseHealth]
storage:
  - type: otlp
    endpoint: ${TARGET}
    headers: {authorization: "Bearer ${OUR_KEY}", x-plain: %s}
"""


@pytest.mark.parametrize("text", ["right", "wrong"])
def test_the_check_command_hides_them(text: str, tmp_path: Path) -> None:
    """`agenteval-otel check` tells what will run, or what is wrong, without values of headers,
    users and variables.
    """
    file = tmp_path / "settings.yaml"
    source = SETTINGS % json.dumps(KEY)
    file.write_text(
        source
        if text == "right"
        else source + "    detail: ${OUR_KEY}\n    headersx: ['${OUR_KEY}']\n"
    )
    code = "import sys; from agenteval_otel.cli import main; sys.exit(main(sys.argv[1:]))"
    finished = run_program(
        code,
        "check",
        str(file),
        OUR_KEY=KEY,
        TARGET=f"http://{USER}@127.0.0.1:4318",
        AGENTEVAL_TELEMETRY__HEADERS=json.dumps({"x-other": KEY}),
    )
    assert finished.code == (0 if text == "right" else 1), finished.stderr
    assert ("to ***. Signals" if text == "right" else "headersx") in finished.stdout
    assert_hidden(finished.stdout, finished.stderr)


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=6, max_size=40))
def test_no_user_part_stays_in_an_address(user: str) -> None:
    """Whatever stands before the @ of an address is neither in its masked text nor in what is
    connected to.
    """
    encoded = quote(user, safe="")
    for address in (
        f"http://{encoded}@host:4317/v1",
        f"http://u:{encoded}@host",
        f"http://u:{encoded}@host/a@b",
    ):
        assert (
            encoded not in mask_text(address).removeprefix("http://***@")
            or encoded in "host:4317/v1/a@b"
        )
        plain, header = split_address(address)
        assert plain.startswith("http://host")
        assert base64.b64decode(header.split(" ")[1]).decode().endswith(user)


def test_a_name_says_whether_it_is_a_secret() -> None:
    """By its last word, in any spelling; words that only hold such a word are none."""
    secret = (
        "api_key", "apiKey", "X-Api-Key", "OPENAI_API_KEY", "password", "clientSecret",
        "aws_secret_access_key", "access_token", "headers", "Authorization",
    )  # fmt: skip
    other = ("max_tokens", "token_limit", "key", "keywords", "tokens_per_day", "secretary", "")
    assert [name for name in secret if not is_secret(name)] == []
    assert [name for name in other if is_secret(name)] == []


@given(st.text(min_size=4, max_size=30), st.text(max_size=50), st.text(max_size=50))
def test_known_secrets_are_taken_out_of_any_text(secret: str, before: str, after: str) -> None:
    """A secret that is known goes, wherever it stands."""
    assert (
        secret not in mask_known(f"{before}{secret}{after}", [secret])
        or secret in f"{before}***{after}"
    )

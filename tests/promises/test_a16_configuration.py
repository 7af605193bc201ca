"""A16: wrong settings fail at the start, never at run time; a wrong reload keeps the settings from
before.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agenteval_otel import accounting, configure, flush, monitor, reload
from agenteval_otel.config import SettingsError, build, load_settings
from agenteval_otel.config.process import build_loaded
from agenteval_otel.engine.pipeline import Pipeline
from agenteval_otel.storage import OtlpStorageProvider
from tests.config.support import load, written_settings
from tests.promises.figures import Recorder
from tests.promises.programs import together
from tests.testing.doubles import Free, Keeping

RIGHT = """
enabled: true
evaluators:
- ResponseHealth
- {type: KeywordCoverage, criterion_name: kw, expected_keywords: [a, b], threshold: 0.5,
   match_whole_word: true, sample_rate: 1.0, timeout_s: 2.5}
- type: RuleBased
  rules:
  - {criterion: short, type: length, min: 1, max: 100}
  - {criterion: word, type: regex, pattern: a+, flags: i}
  - {criterion: has, type: includes, keywords: [x], expectedOutcome: any}
- type: ToolUsage
  tool_data_source: toolCalls
  zero_when_unused: false
  rules:
  - criterion_name: looked
    expected_tool_name: find
    is_required: true
    min_calls: 1
    max_calls: 3
    checked_calls: all
    arguments_schema: {type: object}
    argument_checks:
      q: {type: string, pattern: a+, min_length: 1, one_of: [a]}
      n: {optional: true, min: 1, max: 5, equals: 2}
  - {criterion_name: safe, forbidden_tools: [drop], sequence: [find, answer]}
- {type: ToolUse, expectations: [{name: find, min_calls: 2, arguments_contain: a}]}
- {type: Contains, substrings: [a, b]}
- {type: ExactMatch, expected: a}
- {type: CostWithin, max_cost_usd: 0.5}
- {type: CompletedWithin, limit_s: 2.5}
- {type: LexicalSimilarity, criterion_name: wording, algorithm: levenshtein, ngram_size: 2,
   case_sensitive: true, normalize_whitespace: false, source_field: response, unit: utf16,
   reference_field: context.expected, max_characters: 2000, score_cutoff: 0.2,
   without_reference: skip}
- {type: Sentiment, criterion_name: tone, source_text_field: response, output_type: category,
   positive_threshold: 0.1, negative_threshold: -0.1, agentdock_tokens: false, lexicon: builtin}
- type: NLPAccuracy
  criterion_name: near
  similarity_threshold: 0.5
  without_reference: skip
  embedder: {type: hashing, dimensions: 64, max_characters: 1000, gram_weight: 0.5,
             frequent_weight: 0.5}
criteria:
  set:
  - {name: kw, weight: 2, threshold: 0.75}
  - {name: short, scale: numeric}
  default:
  - {name: response_health, objective: 0.9, minimum: 0, maximum: 1}
sampler:
  type: first_of
  samplers:
  - {type: slow, above_s: 0.5}
  - {type: error}
  - {type: ratio, ratio: 1.0}
  - {type: rate_limit, max_per_s: 50}
telemetry: {detail: auto, placement: child, signals: [traces], content: no_content}
storage:
- {type: otlp}
- {type: json_file, path: evaluations.jsonl}
ground_truth: {type: file, path: rows.csv, matching: words, min_words: 2, min_share: 0.5,
               timeout_s: 0.5}
redactors: [{type: patterns, kinds: [secrets, email]}]
dispatcher: {type: pool, linger_s: 0.0, max_items: 50, concurrency: 4, stall_s: 30.0}
agent_span: sampled
agents:
  support:
    criteria: set
    sample_rate: 1.0
    enabled: true
    evaluators:
    - ResponseHealth
    - {type: KeywordCoverage, criterion_name: kw, expected_keywords: [a]}
  stream: {sampler: {type: ratio, ratio: 1.0}, criteria: [{name: kw, weight: 0}]}
profiles:
  chosen: {sample_rate: 0.5, agents: {support: {enabled: false}}}
"""
DOCUMENT: dict[str, Any] = yaml.safe_load(RIGHT)
WORDS = [
    "type", "evaluators", "ratio", "pool", "linger_s", "stall_s", "max_items", "concurrency", "max_bytes", "timeout_s",
    "weight", "headers", "path", "clock", "stream", "function", "tracer_provider", "fingerprint", "model_config",
    "registry", "__class__", "agents", "", "a.b", "a b", "ж", "\x00", "[0]", "<<",
]  # fmt: skip
TEXTS = [
    "",
    " ",
    "no",
    "inf",
    "-inf",
    "nan",
    "1e400",
    "${",
    "${UNSET_OF_A16}",
    "${HOME}",
    "$${x}",
    "{type: pool}",
    "\x00",
    "\u202e",
    "é" * 300,
    "x" * 5000,
    "Func",
    "ResponseHealth",
    "pool",
    "inline",
    "../..",
    "(a+)+$",
    "[",
    "\\",
]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.sampled_from([0, 1, -1, 10**18, 2**63, 10**400]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([1e308, -1e308, 5e-324, 1e-9]),
    st.sampled_from(TEXTS),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=3)
    ),
    max_leaves=6,
)


_NUMBERS = st.sampled_from([0, 1e-9, 0.01, 1, 2, 60, 10**6, 10**18, 1e300, 1.5, 5e-324])
_NUDGES = {
    int: _NUMBERS,
    float: _NUMBERS,
    bool: st.booleans(),
    str: st.sampled_from([*TEXTS, *WORDS, "a", "numeric"]),
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that relative paths of the documents are in, with the file that they name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text(
        "UserPrompt,ExpectedOutput,Category,Module\na,A,,support\nIs b c?,b,,\n"
    )


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every value inside, as the dictionary or list that holds it and its key there."""
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    else:
        return []
    found = [(value, key) for key in keys]
    for key in keys:
        found += places(value[key])
    return found


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    document = copy.deepcopy(DOCUMENT)
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3, 4]))):
        if document:
            _mutate(draw, document)
    return document


def _mutate(draw: st.DrawFn, document: dict[str, Any]) -> None:
    everywhere = places(document)
    index = st.integers(0, len(everywhere) - 1)
    holder, key = everywhere[draw(index)]
    other, place = everywhere[draw(index)]
    value = holder[key]
    replacements = {
        "junk": JUNK,
        "scalar": SCALARS,
        "nudge": _NUDGES.get(type(value), SCALARS),  # to what may still be right
        "wrap": st.sampled_from([[value], {"type": value}, {"a": value}]),
        "move": st.just(other[place]),
    }
    others = ["drop", "rename", "add"] if isinstance(holder, dict) else ["drop", "repeat"]
    deed = draw(st.sampled_from([*replacements, "nudge", "nudge", *others]))
    if deed in replacements:
        holder[key] = copy.deepcopy(draw(replacements[deed]))
    elif deed == "drop":
        del holder[key]
    elif deed == "rename":
        holder[draw(st.sampled_from([*WORDS, str(key).upper(), f"{key}s"]))] = holder.pop(key)
    elif deed == "add":
        holder[draw(st.sampled_from(WORDS))] = draw(JUNK)
    else:
        holder *= 2


async def streamed(question: str) -> AsyncIterator[str]:
    yield "a "
    yield question


async def read(stream: AsyncIterator[str]) -> str:
    return "".join([chunk async for chunk in stream])


def fail(question: str) -> str:
    raise LookupError(question)


def call_all(pipeline: Pipeline) -> int:
    """Call handlers of every kind, as the host would; gives the number of calls."""
    decorate = partial(monitor, pipeline=pipeline)
    assert decorate(agent="support")(str.upper)("a") == "A"
    assert decorate(agent="other")(lambda question: {"answer": question})("b") == {"answer": "b"}
    assert asyncio.run(read(decorate(agent="stream")(streamed)("c"))) == "a c"
    with pytest.raises(LookupError, match="d"):
        decorate()(fail)("d")
    return 4


def without_network(actual: Any) -> Any:
    """The settings, but what would be sent to a strange address is not."""
    storage = tuple(
        item
        for item in actual.storage
        if not isinstance(item, OtlpStorageProvider) or item.endpoint is None
    )
    return actual.model_copy(update={"storage": storage})


def says_where(error: SettingsError, file: Path) -> None:
    """Every problem names the setting or the line, and the file; what it says can be printed."""
    assert error.located
    assert error.path
    for problem in error.located:
        assert (problem.origin or "").startswith(file.name), problem
    assert str(error).encode()


@settings(
    max_examples=300,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    document=mutated(), profile=st.sampled_from([None, None, None, "chosen"]), as_json=st.booleans()
)
def test_mutated_settings_fail_at_the_start_or_not_at_all(
    document: dict[str, Any], profile: str | None, as_json: bool, promise: Recorder, tmp_path: Path
) -> None:
    """Each file is refused where it is loaded, with the setting and the file, or every call with it
    just works.
    """
    file = tmp_path / ("settings.json" if as_json else "settings.yaml")
    text = json.dumps(document) if as_json else yaml.safe_dump(document, allow_unicode=True)
    file.write_text(text, encoding="utf-8")
    promise("A16", figure="300 mutated documents: 0 raised after the start")
    try:
        loaded = load_settings(file, profile=profile)
        made = build_loaded(loaded._replace(settings=without_network(loaded.settings)))
    except SettingsError as error:
        says_where(error, file)
        return
    try:
        calls = call_all(made)
    finally:
        made.shutdown(1.0)
    assert sum(made.accounting.outcomes().values()) == calls
    assert made.accounting.outcomes()["pipeline_failed"] == 0, made.accounting.failures


def test_the_document_that_is_mutated_is_right(tmp_path: Path) -> None:
    """Without a mutation everything is evaluated: what the mutations begin with is not refused for
    another reason.
    """
    made = build(load(tmp_path, RIGHT).settings)
    calls = call_all(made)
    assert made.flush(60)
    assert made.accounting.outcomes()["evaluated"] == calls
    assert made.accounting.failures == {}
    made.shutdown(5.0)


RELOADERS, ROUNDS = 8, 15
TEXTS_IN_TURN = [
    "sample_rate: 1.0", "sample_rate: 0.0", "enabled: false", "sampel_rate: 1", "agents: {a: {enabled: false}}", "",
    "sample_rate: 1.0\nagents: {a: {criteria: [{name: fixed, threshold: 0.9}]}}", None, "a: [",
]  # fmt: skip


def test_reloading_under_load_from_many_threads(tmp_path: Path) -> None:
    """Eight threads reload a file that changes, breaks and vanishes while handlers are called: all
    calls count.
    """
    file = written_settings(tmp_path, "sample_rate: 1.0")
    configure(file, storage=[Keeping()], evaluators=[Free()], redactors=[])
    handlers = [monitor(agent=name)(str.upper) for name in ("a", "b")]
    calls, done = itertools.count(), threading.Event()
    all_reloaded = threading.Barrier(RELOADERS, action=done.set)

    def call(handler: Callable[[str], str]) -> None:
        while not done.wait(0.001):  # so many that they can be evaluated on a busy machine
            assert handler("x") == "X"
            next(calls)

    def reload_often() -> None:
        for _ in range(ROUNDS):
            reload()
        all_reloaded.wait(60)

    def rewrite() -> None:
        for text in itertools.cycle(TEXTS_IN_TURN):
            if text is None:
                file.unlink(missing_ok=True)
            else:
                written_settings(tmp_path, text, name="next.yaml").replace(file)
            if done.wait(0.005):
                return

    callers = [partial(call, handler) for handler in handlers]
    together([*callers, *callers, *[reload_often] * RELOADERS, rewrite])
    written_settings(tmp_path, "sample_rate: 1.0")
    assert reload()
    handlers[0]("x")
    assert flush(60)
    assert sum(accounting().values()) == next(calls) + 1

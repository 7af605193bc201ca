"""Samplers that look at more than the randomness: rules, combinations, conversations."""

from __future__ import annotations

import random
from functools import cached_property
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel import monitor
from agenteval_otel.capture.annotations import hashed
from agenteval_otel.components.loading import resolve
from agenteval_otel.engine.pipeline import InlineDispatcher
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationInput
from agenteval_otel.sampling import (
    AgentSampler,
    AnnotationSampler,
    AnswerFacts,
    ConversationSampler,
    ErrorSampler,
    FirstOfSampler,
    FunctionSampler,
    PatternSampler,
    RateLimitSampler,
    RatioSampler,
    ResultSampler,
    Sampler,
    SamplingContext,
    SamplingDecision,
    SlowSampler,
)
from agenteval_otel.sampling.base import RANDOMNESS_RANGE, threshold_of
from agenteval_otel.sampling.combined import randomness_of_conversation
from agenteval_otel.sampling.key import FIXED_KEY
from agenteval_otel.testing import ManualClock, RecordedTelemetry, check_component, check_sampler
from tests.promises.bench import pipeline_of
from tests.testing.doubles import Free

FINE = AnswerFacts(0.1)
FAILED = AnswerFacts(0.1, "TimeoutError")
SLOW = AnswerFacts(9.0)
LOW, MIDDLE, HIGH = 0, RANDOMNESS_RANGE // 2, RANDOMNESS_RANGE - 1

SAMPLERS: dict[str, Sampler] = {
    "ratio": RatioSampler(ratio=0.3),
    "rate_limit": RateLimitSampler(max_per_s=5),
    "agent": AgentSampler(agents=("sup*",), ratio=0.5),
    "error": ErrorSampler(types=("TimeoutError",)),
    "slow": SlowSampler(above_s=2, ratio=0.5),
    "annotation": AnnotationSampler(name="tenant", values=("acme",), ratio=0.5),
    "pattern": PatternSampler(pattern="refund", ratio=0.5),
    "first_of": FirstOfSampler(
        samplers=(ErrorSampler(), SlowSampler(above_s=2, ratio=0.5), RatioSampler(ratio=0.05))
    ),
    "conversation": ConversationSampler(
        sampler=FirstOfSampler(samplers=(ErrorSampler(), RatioSampler(ratio=0.1)))
    ),
    "result": ResultSampler(labels=("fail",), below=0.5, ratio=0.5),
}


def last_word(
    sampler: Sampler, randomness: int, facts: AnswerFacts, text: str = ""
) -> SamplingDecision:
    """The decision in the end, asked the way a call is."""
    memo: dict[int, SamplingDecision] = {}
    decision = sampler.decide(SamplingContext("support", randomness, memo=memo))
    if not decision.settled:
        decision = sampler.decide(SamplingContext("support", randomness, facts, None, memo))
    if not decision.settled:
        built = EvaluationInput(response=text, conversation_id=facts.conversation_id)
        decision = sampler.decide(SamplingContext("support", randomness, facts, built, memo))
    return decision


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_every_registered_sampler_keeps_the_contract(sampler: Sampler) -> None:
    """Each decides for every randomness as the contract asks, and comes back from its own dump."""
    check_sampler(sampler)
    check_component(sampler, Sampler)


def test_the_table_above_is_whole() -> None:
    """Every registered sampler of the package that a file can choose is checked above."""
    ours = {
        name
        for name, kind in Sampler.registry.items()
        if kind.__module__.startswith("agenteval_otel.")
    }
    assert ours - {"function"} == set(SAMPLERS)
    check_sampler(FunctionSampler(function=lambda evaluation_input: 0.5))


def test_a_rule_samples_its_ratio_of_what_it_matches() -> None:
    """After the answer, with its own probability; it has no say on others."""
    sampler = ErrorSampler()
    assert not sampler.decide(SamplingContext("a", HIGH)).settled
    assert last_word(sampler, HIGH, FAILED) == SamplingDecision(True, 1.0, "error")
    assert not last_word(sampler, LOW, FINE).sampled
    assert not last_word(ErrorSampler(types=("ValueError",)), LOW, FAILED).sampled
    half = SlowSampler(above_s=2, ratio=0.5)
    assert last_word(half, MIDDLE - 1, SLOW) == SamplingDecision(True, 0.5, "slow")
    assert last_word(half, MIDDLE, SLOW) == SamplingDecision(False, 0.5, "slow")
    assert not last_word(half, LOW, AnswerFacts(2.0)).sampled


def test_agents_by_name_and_wildcard() -> None:
    """The agent is known before the call: nothing has to wait for the answer."""
    sampler = AgentSampler(agents=("support", "sales-*"), ratio=0.5)
    decided = {
        name: sampler.decide(SamplingContext(name, LOW))
        for name in ("support", "sales-eu", "Support", "billing")
    }
    assert {name: decision.sampled for name, decision in decided.items()} == {
        "support": True,
        "sales-eu": True,
        "Support": False,
        "billing": False,
    }
    assert all(decision.settled for decision in decided.values())


def test_patterns_and_functions_wait_for_the_input() -> None:
    """What reads the answer is decided with the evaluation input, on the background thread."""
    pattern = PatternSampler(pattern="re(fund|turn)", flags="i")
    assert not pattern.decide(SamplingContext("a", LOW, FINE)).settled
    assert last_word(pattern, HIGH, FINE, "A Refund is due").reason == "pattern"
    assert not last_word(pattern, LOW, FINE, "nothing of it").sampled
    prompt = PatternSampler(pattern="x", field="prompt")
    assert prompt.decide(
        SamplingContext("a", LOW, FINE, EvaluationInput(prompt="axb", response="-"))
    ).sampled
    by_length = FunctionSampler(
        function=lambda evaluation_input: len(evaluation_input.response_text) / 10
    )
    assert last_word(by_length, MIDDLE, FINE, "123456") == SamplingDecision(True, 0.6, "function")
    assert not last_word(by_length, MIDDLE, FINE, "1234").sampled
    output = FunctionSampler(
        function=lambda evaluation_input: "x" in evaluation_input.response_text, ratio=0.5
    )
    assert last_word(output, LOW, FINE, "x").probability == 0.5
    with pytest.raises(ConfigurationError, match="a ratio from 0 to 1, found 7"):
        last_word(FunctionSampler(function=lambda evaluation_input: 7), LOW, FINE)
    with pytest.raises(
        ConfigurationError, match="expected a boolean or a ratio from 0 to 1, found None"
    ):
        last_word(FunctionSampler(function=lambda evaluation_input: None), LOW, FINE)


@pytest.mark.parametrize(
    ("name", "values", "matches"),
    [
        ("tenant", ["acme"], True),
        ("agenteval.tag.tenant", ["ac*", "x"], True),
        ("tenant", ["ACME"], False),
        ("prompt_version", ["3"], True),
        ("gen_ai.prompt.version", ["2"], False),
        ("region", ["*"], False),
        ("user.id", [hashed("ann")], True),
    ],
)
def test_annotations_by_name_and_wildcard(name: str, values: list[str], matches: bool) -> None:
    """Named by attribute, keyword or the key of a tag; a user by the hash. What is not annotated
    matches nothing.
    """
    sampler = AnnotationSampler(name=name, values=values)
    assert not sampler.decide(SamplingContext("a", LOW, FINE)).settled
    known = EvaluationInput(
        response="-", prompt_version="3", user_id=hashed("ann"), tags={"tenant": "acme"}
    )
    assert sampler.decide(SamplingContext("a", LOW, FINE, known)).sampled is matches


def test_the_first_that_applies_decides() -> None:
    """Failures all, slow ones by half, the rest by a twentieth: each with the probability of its
    own stratum.
    """
    sampler = SAMPLERS["first_of"]
    twentieth = threshold_of(0.05)
    for facts, randomness, sampled, probability, reason in (
        (FAILED, HIGH, True, 1.0, "error"),
        (SLOW, MIDDLE - 1, True, 0.5, "slow"),
        (SLOW, MIDDLE, False, 0.5, "slow"),
        (FINE, twentieth - 1, True, 0.05, "ratio"),
        (FINE, twentieth, False, 0.05, "ratio"),
    ):
        result = last_word(sampler, randomness, facts)
        assert (result.sampled, result.probability, result.reason) == (sampled, probability, reason)
    result = last_word(
        FirstOfSampler(samplers=(ErrorSampler(), AgentSampler(agents=("other",)))), LOW, FINE
    )
    assert (result.sampled, result.outcome, result.probability) == (False, "not_sampled", None), (
        "none applies"
    )


def test_what_is_sure_is_known_before_the_answer() -> None:
    """A call below every ratio that may decide is known to be evaluated before it runs."""
    before = [
        SAMPLERS["first_of"].decide(SamplingContext("a", randomness, memo={}))
        for randomness in (LOW, HIGH)
    ]
    assert [(decision.sampled, decision.settled) for decision in before] == [
        (True, False),
        (False, False),
    ]
    assert before[0].applies


def test_a_rate_limit_inside_counts_a_call_once() -> None:
    """However often a combination is asked about one call, its rate limit hands out one ticket."""
    limit = RateLimitSampler(max_per_s=5, clock=ManualClock())
    sampler = FirstOfSampler(samplers=(ErrorSampler(), PatternSampler(pattern="never"), limit))
    decisions = [last_word(sampler, LOW, FINE) for _ in range(8)]
    assert [decision.sampled for decision in decisions] == [True] * 5 + [False] * 3
    assert {decision.outcome for decision in decisions[5:]} == {"rate_limited"}
    assert last_word(sampler, LOW, FAILED) == SamplingDecision(True, 1.0, "error")


class EveryOther(Sampler, type="every_other"):
    """A user's own limiter: takes every other call that it is asked about."""

    counts_calls: ClassVar[bool] = True

    def decide(self, context: SamplingContext) -> SamplingDecision:
        self.asked.append(context.randomness)
        return SamplingDecision(len(self.asked) % 2 == 1, None, "every_other")

    @cached_property
    def asked(self) -> list[int]:
        return []


def test_a_counting_sampler_of_the_users_is_asked_once_a_call() -> None:
    """A combination asks a member that declares `counts_calls` once a call, however often it is
    asked itself.
    """
    own = EveryOther()
    sampler = FirstOfSampler(samplers=(ErrorSampler(), PatternSampler(pattern="never"), own))
    assert [last_word(sampler, LOW, FINE).sampled for _ in range(4)] == [True, False, True, False]
    assert len(own.asked) == 4


def test_conversations_are_sampled_whole() -> None:
    """Every turn of a conversation is decided alike, and about the asked share of conversations is
    taken.
    """
    sampler = ConversationSampler(ratio=0.3)
    numbers = random.Random(5)
    taken = 0
    for number in range(2_000):
        facts = AnswerFacts(0.1, conversation_id=f"conversation-{number}")
        turns = {last_word(sampler, numbers.getrandbits(64), facts) for _ in range(4)}
        (decision,) = turns
        assert (decision.probability, decision.reason) == (0.3, "conversation")
        taken += decision.sampled
    assert abs(taken / 2_000 - 0.3) < 3 * (0.3 * 0.7 / 2_000) ** 0.5
    assert last_word(sampler, LOW, FINE) == SamplingDecision(True, 0.3, "ratio"), (
        "by the trace, without a conversation"
    )


@pytest.mark.parametrize(
    ("mapping", "path", "message"),
    [
        (
            {"type": "first_of", "samplers": [{"type": "error"}, {"type": "slow"}]},
            "sampler.samplers[1].above_s",
            "missing",
        ),
        ({"type": "first_of", "samplers": []}, "sampler.samplers", "at least 1"),
        (
            {"type": "first_of", "samplers": {"type": "error"}},
            "sampler.samplers",
            "expected a list",
        ),
        (
            {"type": "first_of", "samplers": [{"type": "often"}]},
            "sampler.samplers[0]",
            "Known: agent, annotation",
        ),
        (
            {"type": "conversation", "sampler": {"type": "ratio", "ratio": 2}},
            "sampler.sampler.ratio",
            "found 2",
        ),
        (
            {"type": "first_of", "samplers": [{"type": "error"}, {"type": "conversation"}]},
            "sampler.samplers[1]",
            "has its own randomness, and probabilities of different ones do not nest: put the first_of inside of it",
        ),
        ({"type": "agent"}, "sampler.agents", "missing"),
        (
            {"type": "annotation", "name": "prompt_verison", "values": ["3"]},
            "sampler.name",
            "(did you mean 'prompt_version'?). Known: gen_ai.prompt.name, ",
        ),
        (
            {"type": "annotation", "name": "a b", "values": ["3"]},
            "sampler.name",
            "no annotation 'a b'",
        ),
        ({"type": "pattern", "pattern": "("}, "sampler.pattern", "found '('"),
        (
            {"type": "pattern", "pattern": "a", "flags": "x"},
            "sampler.flags",
            "at most once, found 'x'",
        ),
        (
            {
                "type": "first_of",
                "samplers": [{"type": "first_of", "samplers": [{"type": "error", "ratio": -1}]}],
            },
            "sampler.samplers[0].samplers[0].ratio",
            "found -1",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_whole_path(
    mapping: dict[str, Any], path: str, message: str
) -> None:
    """However deep a member stands, its error names the place in the configuration."""
    with pytest.raises(ConfigurationError) as caught:
        resolve(Sampler, mapping, path="sampler")
    assert caught.value.path == path
    assert message in str(caught.value)


_leaves = st.one_of(
    st.builds(lambda ratio: RatioSampler(ratio=ratio), st.floats(0, 1)),
    st.builds(lambda ratio: ErrorSampler(ratio=ratio), st.floats(0, 1)),
    st.builds(
        lambda ratio, over: SlowSampler(ratio=ratio, above_s=over),
        st.floats(0, 1),
        st.sampled_from([1.0, 5.0]),
    ),
    st.builds(lambda ratio: AgentSampler(agents=("support",), ratio=ratio), st.floats(0, 1)),
    st.builds(lambda ratio: AgentSampler(agents=("other",), ratio=ratio), st.floats(0, 1)),
    st.builds(lambda ratio: PatternSampler(pattern="x", ratio=ratio), st.floats(0, 1)),
)
_trees = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, min_size=1, max_size=4).map(
        lambda members: FirstOfSampler(samplers=tuple(members))
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(
    _trees,
    st.sampled_from([FINE, FAILED, SLOW]),
    st.sampled_from(["x", "-"]),
    st.integers(0, RANDOMNESS_RANGE - 1),
)
def test_the_recorded_probability_is_the_true_one(
    tree: Sampler, facts: AnswerFacts, text: str, randomness: int
) -> None:
    """Of any tree of samplers: a response is sampled exactly when its randomness lies below the
    recorded probability.

    So the probability of inclusion, over uniform randomness, is the recorded one; and what was
    foreseen comes true.
    """
    result = last_word(tree, randomness, facts, text)
    again = last_word(tree, LOW, facts, text)
    probability = again.probability if again.sampled else 0.0
    assert probability is not None
    assert result.sampled == (randomness < round(probability * RANDOMNESS_RANGE))
    if result.sampled:
        assert result.probability == probability
    before = tree.decide(SamplingContext("support", randomness, memo={}))
    if before.sampled and before.applies:
        assert result.sampled


# --- samplers of the user's own ---

UNSETTLED = SamplingDecision(True, None, "later", settled=False)


class Late(Sampler, type="test_late"):
    """Decides on the background thread, with whatever it was given."""

    decision: Any

    def decide(self, context: SamplingContext) -> Any:
        return UNSETTLED if context.evaluation_input is None else self.decision


@pytest.mark.parametrize(
    "decision", [None, 5, SamplingDecision(False, None, "x", "no_such_outcome")], ids=str
)
def test_an_invalid_decision_is_counted(decision: Any) -> None:
    """What cannot be understood on the background thread fails the call, which is not lost to the
    count.
    """
    pipeline = pipeline_of(Free(), sampler=Late(decision=decision), dispatcher=InlineDispatcher())
    assert monitor(pipeline=pipeline)(str.upper)("a") == "A"
    assert {name: count for name, count in pipeline.accounting.outcomes().items() if count} == {
        "pipeline_failed": 1
    }
    assert pipeline.accounting.failures == {"sampler": 1}


@pytest.mark.parametrize("claimed", [float("nan"), 2.5, 0.0, -1.0, "0.5"])
def test_an_invalid_probability_is_unknown(claimed: Any, telemetry: RecordedTelemetry) -> None:
    """The answer is evaluated, and its scores have no weight: one that is no number would spoil
    every sum for good.
    """
    sampler = Late(decision=SamplingDecision(True, claimed, "odd"))
    pipeline = pipeline_of(
        Free(), sampler=sampler, storage=[telemetry.storage()], dispatcher=InlineDispatcher()
    )
    monitor(pipeline=pipeline)(str.upper)("a")
    (event,) = telemetry.events()
    assert "agenteval.sampling.probability" not in event.attributes
    assert pipeline.accounting.outcomes()["evaluated"] == 1


def test_a_very_long_conversation_id_is_cut() -> None:
    """Whole or cut, such an id has the same randomness."""
    whole, cut, kept, other = (
        randomness_of_conversation("c" * length, FIXED_KEY)
        for length in (10_000_000, 600, 512, 511)
    )
    assert whole == cut < RANDOMNESS_RANGE
    assert kept != other


def test_a_conversations_id_counts_for_the_queue() -> None:
    """What the queue holds of a call is bounded, and the id is part of it."""
    sizes: list[int] = []

    class Weighing(InlineDispatcher):
        def submit(self, call: object, size_bytes: int) -> bool:
            sizes.append(size_bytes)
            return super().submit(call, size_bytes)

    pipeline = pipeline_of(
        Free(), sampler=FunctionSampler(function=lambda given: True), dispatcher=Weighing()
    )
    for conversation_id in ("c", "c" * 1_000_000):
        monitor(pipeline=pipeline)(lambda prompt, conversation_id: prompt)("a", conversation_id)
    assert sizes[1] - sizes[0] == 999_999

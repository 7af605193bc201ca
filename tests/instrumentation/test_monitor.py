"""`monitor`: the kill switch, what is counted, evaluators' own calls, and settings that are
refused.
"""

from __future__ import annotations

from typing import Any

import pytest

from agenteval_otel import accounting, configure, monitor
from agenteval_otel.engine.pipeline import InlineDispatcher
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.models import EvaluationInput
from agenteval_otel.sampling import RatioSampler
from tests.instrumentation.support import Seen
from tests.testing.doubles import Free, Keeping


def test_configure_reaches_handlers_that_were_decorated_before(seen: Seen) -> None:
    """A handler follows the configured pipeline, except one with its own; earlier outcomes stay in
    the accounting.
    """
    first, second = Keeping(), Keeping()
    configure(
        storage=[first],
        dispatcher=InlineDispatcher(),
        sample_rate=1.0,
        evaluators=[Free(criterion_name="one")],
    )

    @monitor
    def handler(question: str) -> str:
        return question

    own = monitor(evaluators=[Free(criterion_name="own")])(str.upper)
    elsewhere = seen.monitor(str.upper)
    handler("a")
    own("a")
    configure(
        storage=[second],
        dispatcher=InlineDispatcher(),
        sample_rate=1.0,
        evaluators=[Free(criterion_name="two")],
    )
    handler("b")
    own("b")
    elsewhere("b")
    assert [result.criterion_name for result in first.results] == ["one", "own"]
    assert [result.criterion_name for result in second.results] == ["two", "own"]
    assert (accounting()["evaluated"], seen.outcomes) == (4, {"evaluated": 1})


def test_own_settings_go_before_the_pipelines(seen: Seen) -> None:
    """Evaluators, sampler and storage of the decorator replace those of the pipeline, in all their
    forms.
    """
    kept = Keeping()

    def short(evaluation_input: EvaluationInput) -> bool:
        return True

    mapping = {"type": "KeywordCoverage", "criterion_name": "kw", "expected_keywords": ["a"]}
    handler = seen.monitor(
        evaluators=["ResponseHealth", mapping, short, Free()], storage=kept, sample_rate=1.0
    )(str.upper)
    handler("a")
    assert [result.criterion_name for result in kept.results] == [
        "response_health",
        "kw",
        "short",
        "fixed",
    ]
    assert seen.inputs == []
    never = seen.monitor(sampler={"type": "ratio", "ratio": 0})(str.upper)
    never("a")
    assert seen.outcomes == {"evaluated": 1, "not_sampled": 1}


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({"evaluators": []}, "evaluators"),
        ({"evaluators": "ResponseHealth"}, "evaluators"),
        ({"evaluators": ["Nope"]}, "evaluators[0]"),
        ({"evaluators": [ResponseHealth(), 7]}, "evaluators[1]"),
        ({"evaluators": [{"type": "KeywordCoverage"}]}, "evaluators[0].criterion_name"),
        ({"evaluators": [Free(criterion_name="not a slug")]}, "evaluators[0]"),
        ({"evaluators": [Free(criterion_name="n\ud800")]}, "evaluators[0]"),
        ({"sample_rate": 2}, "sample_rate"),
        ({"sample_rate": "often"}, "sample_rate"),
        ({"sample_rate": 0.5, "sampler": RatioSampler()}, "sampler"),
        ({"sampler": 7}, "sampler"),
        ({"sampler": {"type": "nope"}}, "sampler"),
        ({"sampler": {"type": "ratio", "rate": 1}}, "sampler.rate"),
        ({"storage": 7}, "storage[0]"),
        ({"storage": [Keeping(), {"type": "nope"}]}, "storage[1]"),
        ({"storage": {"type": "json_file"}}, "storage[0].path"),
        ({"agent": " "}, "agent"),
        ({"agent": 7}, "agent"),
        ({"capture": 7}, "capture"),
    ],
)
def test_wrong_arguments_are_refused_at_decoration(
    seen: Seen, arguments: dict[str, Any], path: str
) -> None:
    """What is wrong is told when the handler is decorated, with the place where it stands; nothing
    is monitored.
    """
    with pytest.raises(ConfigurationError) as caught:
        seen.monitor(**arguments)(str.upper)
    assert caught.value.path == path
    assert seen.outcomes == {}


@pytest.mark.parametrize(
    ("handler", "hint"),
    [
        (7, "found int"),
        ("name", "agent='name'"),
        (Free, "decorate its method"),
        (property(str), "put @monitor below it"),
        (monitor(str.upper), "monitored already"),
    ],
)
def test_what_is_no_handler_is_refused(handler: Any, hint: str) -> None:
    """Something that cannot be called is no handler, nor is a class, a property, or what is one
    already.
    """
    with pytest.raises(ConfigurationError, match=hint) as caught:
        monitor(handler)
    assert caught.value.path == "handler"

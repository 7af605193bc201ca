"""D7: messages arrive or are counted, and places that misbehave hold nothing up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from agenteval_otel.engine.pipeline import PoolDispatcher
from agenteval_otel.testing import RecordedTelemetry
from tests.backends.faults import LOOPBACK, black_hole, refused_port, serving
from tests.notify.support import breach, notifying, place_of, recover
from tests.notify.test_places import BY_MAIL, Endless, HalfWay, drip, leave, talking
from tests.promises.figures import Recorder
from tests.storage.receiver import Answer, receiving

AGENTS = 3
ANSWERS = AGENTS * 260
END_S = 2.5
Fault = Callable[[], AbstractContextManager[dict[str, Any]]]


def answering(*answers: Answer) -> Fault:
    @contextmanager
    def fault() -> Iterator[dict[str, Any]]:
        with receiving(*answers) as receiver:
            yield {"type": "slack", "url": receiver.url}

    return fault


@contextmanager
def hanging() -> Iterator[dict[str, Any]]:
    with black_hole() as hole:
        yield {"type": "slack", "url": hole.endpoint}


@contextmanager
def away() -> Iterator[dict[str, Any]]:
    with refused_port() as port:
        yield {"type": "webhook", "url": f"http://{LOOPBACK}:{port}"}


def broken(handler: Any) -> Fault:
    @contextmanager
    def fault() -> Iterator[dict[str, Any]]:
        with serving(handler) as port:
            yield {"type": "slack", "url": f"http://{LOOPBACK}:{port}"}

    return fault


def mailing(talk: Any) -> Fault:
    @contextmanager
    def fault() -> Iterator[dict[str, Any]]:
        with talking(talk) as port:
            yield {
                "type": "smtp",
                "host": LOOPBACK,
                "port": port,
                "tls": "none",
                "timeout_s": 3,
                **BY_MAIL,
            }

    return fault


FAULTS: dict[str, Fault] = {
    "hangs": hanging,
    "is away": away,
    "redirects": answering(Answer(302, {}, {"location": "http://127.0.0.1:1/"})),
    "fails": answering(Answer(500)),
    "asks to wait": answering(Answer(429, {}, {"retry-after": "3600"})),
    "lies": answering(Answer(200, "<html>Sign in")),
    "answers half": broken(HalfWay),
    "answers without an end": broken(Endless),
    "drips mail": mailing(drip),
    "leaves mail": mailing(leave),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_place_that_misbehaves_holds_nothing_up(
    fault: str, telemetry: RecordedTelemetry, promise: Recorder
) -> None:
    """Answers are evaluated and delivered, another place has every message, the process ends in
    time, and what the broken one did not take is counted.
    """
    with FAULTS[fault]() as fields, receiving(Answer(204)) as well:
        places = (place_of(**{"timeout_s": 60, **fields}), place_of("webhook", url=well.url))
        with notifying(telemetry, *places, dispatcher=PoolDispatcher()) as (pipeline, ask):
            for number in range(AGENTS):
                breach(ask, agent=f"agent {number}")
                recover(ask, agent=f"agent {number}")
            assert pipeline.dispatcher.flush(60.0)
            assert pipeline.export(30.0)
            evaluated = pipeline.accounting.outcomes()["evaluated"]
            arrived = 0
            while arrived < 2 * AGENTS:
                assert well.arrived.wait(30.0)
                well.arrived.clear()
                arrived = sum(len(request.body["notices"]) for request in well.requests)
            began = time.monotonic()
            pipeline.shutdown(2.0)
            ended_s = time.monotonic() - began
            lost = pipeline.accounting.failures[f"notify:{fields['type']}"]
    promise(
        "D7",
        figure=f"{evaluated} of {ANSWERS} answers evaluated, {arrived} notices elsewhere, "
        f"{lost} of {2 * AGENTS} counted, end after {ended_s:.2f} s",
    )
    assert (evaluated, arrived, lost) == (ANSWERS, 2 * AGENTS, 2 * AGENTS)
    assert ended_s <= END_S

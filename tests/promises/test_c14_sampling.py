"""C14: a decision belongs to its response, not to the process that makes it; and what is recorded
of it is true.
"""

from __future__ import annotations

import json
import math
import random

import pytest
from opentelemetry.trace import SpanContext, TraceFlags
from opentelemetry.trace.span import TraceState

from agenteval_otel.sampling import RatioSampler, SamplingContext
from agenteval_otel.sampling.key import SamplingKey
from agenteval_otel.sampling.trace import Trust, randomness_of
from tests.backends.faults import BlackHole
from tests.promises.figures import Recorder
from tests.promises.programs import run_program
from tests.promises.receiver import Receiver

IDS = 100_000
RATIOS = (0.001, 0.01, 0.1, 0.5, 0.9)
RULES = (
    {"type": "error", "ratio": 0.6},
    {"type": "slow", "above_s": 1.0, "ratio": 0.4},
    {"type": "agent", "agents": ["sup*"], "ratio": 0.3},
    {"type": "conversation", "ratio": 0.25},
    {
        "type": "first_of",
        "samplers": [{"type": "error", "ratio": 0.9}, {"type": "ratio", "ratio": 0.05}],
    },
    {
        "type": "conversation",
        "sampler": {
            "type": "first_of",
            "samplers": [
                {"type": "error"},
                {"type": "slow", "above_s": 1.0, "ratio": 0.3},
                {"type": "ratio", "ratio": 0.2},
            ],
        },
    },
)


# Random ids, those in a row, and those that differ in their high bits alone.
ORDERS = {"random": 0, "in a row": 1, "by high bits": 1 << 108}


@pytest.mark.parametrize(
    ("state", "trust", "order"),
    [
        *((None, (), order) for order in ORDERS),
        ("rv", (), "random"),
        (None, ("trace_id",), "random"),
        ("th:0", ("tracestate",), "random"),
        ("rv", ("tracestate",), "random"),
    ],
)
@pytest.mark.parametrize("ratio", RATIOS)
def test_the_share_is_the_ratio_everywhere(
    ratio: float, state: str | None, trust: tuple[Trust, ...], order: str, promise: Recorder
) -> None:
    """Of 100,000 trace ids the share that is taken is within three standard errors, in each class
    of ids too.
    """
    # By chi-squared over the id's upper half, which does not decide.
    numbers, ids = random.Random(f"{ratio} {state}"), random.Random(round(ratio * 1000))
    key, step, first = SamplingKey(b"of this test"), ORDERS[order], ids.getrandbits(128)
    sampler, taken, classes = RatioSampler(ratio=ratio), 0, [0] * 64
    for number in range(IDS):
        trace_id = (first + number * step) % (1 << 128) if step else ids.getrandbits(128)
        entry = f"th:0;rv:{numbers.getrandbits(56):014x}" if state == "rv" else state
        trace_state = None if entry is None else TraceState([("ot", entry)])
        context = SpanContext(trace_id, 1, False, TraceFlags(1), trace_state)
        if sampler.decide(SamplingContext("agent", randomness_of(context, key, trust))).sampled:
            taken += 1
            classes[64 * number // IDS if step else trace_id >> 122] += 1
    error = math.sqrt(ratio * (1 - ratio) / IDS)
    promise("C14", figure=f"{IDS} ids: off by {abs(taken / IDS - ratio) / error:.2f} sigma")
    assert abs(taken / IDS - ratio) <= 3 * error
    expected = taken / 64
    # 119.9 is the 0.99999 quantile of chi-squared with 63 degrees of freedom; with few in a class
    # it is no longer that.
    if expected >= 20:
        assert sum((actual - expected) ** 2 / expected for actual in classes) < 119.9


DECIDES = """
    import json, os, random, sys
    random.seed(0)
    before = random.getstate()
    from opentelemetry.trace import SpanContext, TraceFlags
    import agenteval_otel.config
    from agenteval_otel.components.loading import resolve
    from agenteval_otel.models import EvaluationInput
    from agenteval_otel.sampling import Sampler, SamplingContext
    from agenteval_otel.sampling.trace import randomness_of
    from agenteval_otel.sampling.base import AnswerFacts
    from agenteval_otel.sampling.key import SamplingKey
    key = SamplingKey(b"of all processes")

    def decisions():
        every = []
        for fields in json.loads(sys.argv[1]):
            sampler = resolve(Sampler, fields)
            for number in range(300):
                trace_id = (number * 0x9E3779B97F4A7C15F39CC0605CEDC835 + 1) % (1 << 128)
                draw = randomness_of(SpanContext(trace_id, 1, False, TraceFlags(1)), key)
                answer = AnswerFacts(number % 3, "E" if number % 4 == 0 else None, None, f"conversation {number % 50}")
                decision = sampler.decide(SamplingContext("support", draw, answer, key=key))
                every.append([decision.sampled, decision.probability, decision.reason])
        return json.dumps(every)

    if sys.argv[2] == "forked":
        decisions()
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.write(writing, str(hash(decisions())).encode() + b"\\n")
            os._exit(0)
        os.wait()
        assert int(os.read(reading, 100)) == hash(decisions()), "the child decides otherwise"
    print("decisions", decisions(), flush=True)
    draws = [randomness_of(None, key) for _ in range(3)]
    print("draws", json.dumps(draws), flush=True)
    print("state", random.getstate() == before, flush=True)
"""


def test_every_process_decides_alike(python: str) -> None:
    """The same responses get the same decision in other processes with the same key, after
    restarts, in forks, under every hash seed.
    """
    value = json.dumps([{"type": "ratio", "ratio": ratio} for ratio in RATIOS] + list(RULES))
    runs = [
        run_program(DECIDES, value, how, python=python, PYTHONHASHSEED=seed)
        for how, seed in (("plain", "0"), ("plain", "1"), ("forked", "random"))
    ]
    assert {finished.code for finished in runs} == {0}, runs[-1].stderr
    decisions = {finished.lines("decisions")[0] for finished in runs}
    assert len(decisions) == 1
    assert len(json.loads(decisions.pop())) == 300 * (len(RATIOS) + len(RULES))
    assert len({finished.lines("draws")[0] for finished in runs}) == 3, (
        "a host's seed makes all processes draw alike"
    )
    assert {finished.lines("state")[0] for finished in runs} == {"True"}


PRIVATE = """
    import logging, os, random, sys
    logging.disable(logging.CRITICAL)
    from agenteval_otel import configure, flush, monitor
    from agenteval_otel.storage import OtlpStorageProvider
    configure(
        evaluators=["ResponseHealth"], sample_rate=0.5,
        storage=[OtlpStorageProvider(endpoint=sys.argv[1], protocol=sys.argv[2], detail="result")],
    )
    answer = monitor(lambda: "an answer")
    random.seed(0)
    before = random.getstate()
    for _ in range(200):
        answer()
    flush(0.2)
    print("state", random.getstate() == before, flush=True)
    os._exit(0)
"""


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_the_hosts_generator_stays_where_it_was(
    protocol: str, receiver: Receiver, hole: BlackHole
) -> None:
    """Monitored calls with spans of our own and a private exporter take nothing out of the host's
    random numbers.
    """
    # No export fails: the SDK draws the pauses between its tries from the host's numbers.
    endpoint = hole.endpoint if protocol == "grpc" else receiver.endpoint
    finished = run_program(PRIVATE, endpoint, protocol)
    assert finished.lines("state") == ["True"], finished.stderr

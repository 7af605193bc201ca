"""A5: memory is bounded by items and by bytes, whatever the answers look like and however long the
judge stalls.
"""

from __future__ import annotations

import pytest

from agenteval_otel.engine.pipeline import PoolDispatcher
from tests.promises.figures import Recorder, sized
from tests.promises.programs import run_program

CALLS, FEW = sized(20_000, 100_000), 400
MARGIN = 32 * 1024 * 1024
PROGRAM = """
    import asyncio, collections, dataclasses, json, os, sys, threading
    kind, calls = sys.argv[1], int(sys.argv[2])
    from agenteval_otel import accounting, annotate, configure, monitor
    from agenteval_otel.storage import JsonFileStorageProvider
    from agenteval_otel.engine.pipeline import PoolDispatcher
    from pydantic import BaseModel
    from tests.promises.programs import rss

    async def stalled(value):
        await asyncio.Event().wait()

    dispatcher = PoolDispatcher()
    configure(evaluators=[stalled], storage=[JsonFileStorageProvider(path="/dev/null")], sample_rate=1.0,
              dispatcher=dispatcher, load_shedding={"enabled": False})  # the queue is to be full

    class Text(str): pass
    class Plain:
        def __init__(self, text): self.text = text
    class Slotted:
        __slots__ = ("text",)
        def __init__(self, text): self.text = text
    @dataclasses.dataclass(slots=True)
    class Data: text: str
    class Part(BaseModel): text: str
    class Message(BaseModel): content: list[Part]
    class Choice(BaseModel): message: Message
    class Completion(BaseModel): choices: list[Choice]
    Pair = collections.namedtuple("Pair", "text score")

    SHAPES = {
        "text": lambda text: text, "bytes": str.encode, "bytearray": lambda text: bytearray(text.encode()),
        "list of dicts": lambda text: [{"role": "assistant", "content": text}],
        "object": Plain, "slotted object": Slotted, "slotted dataclass": Data, "subclass of str": Text,
        "vendor's response": lambda t: Completion(choices=[Choice(message=Message(content=[Part(text=t)]))]),
        "named tuple": lambda text: Pair(text, 1), "ordered dict": lambda t: collections.OrderedDict(text=t),
        "set": lambda text: {text}, "deque": lambda text: collections.deque([text]), "key": lambda text: {text: 1},
        "late in a list": lambda text: ["a"] * 40 + [text], "nested lists": lambda t: [[[[[t]]]]],
    }

    @monitor
    def answer(number, prompt=None):
        return SHAPES[kind](new_text(number))
    @monitor
    def facts(number):
        annotate(metadata={"documents": [new_text(number)]})
        return "short"
    @monitor
    def prompt_only(prompt):
        return "short"
    @monitor
    def stream(number):
        text = new_text(number)
        for start in range(0, len(text), 65536):
            yield text[start : start + 65536]
    @monitor
    def stream_of_objects(number):
        for part in range(8):
            yield {"delta": {"content": new_text(number)[: 131072]}}

    def new_text(number):
        return f"{number:08d}" * 131072

    def drain(running):
        for _ in running:
            pass

    RUN = {"stream": lambda n: drain(stream(n)), "stream of objects": lambda n: drain(stream_of_objects(n)),
           "long conversation": lambda n: prompt_only(prompt=[
               {"role": "user", "content": new_text(n)[part : part + 280_000]} for part in range(4)]),
           "facts": facts, "prompt": lambda n: prompt_only(prompt=[{"role": "user", "content": new_text(n)}])}
    run = RUN.get(kind, answer)
    run(0)
    threading.Event().wait(0.3)  # what its first answer loads is not growth
    before, peak = rss(), 0
    for number in range(1, calls):
        run(number)
        if not number % 16:
            peak = max(peak, rss())
    print("report", json.dumps({"growth": max(peak, rss()) - before, **accounting(), **dispatcher.state()}), flush=True)
    os._exit(0)
"""
SHAPES = (
    "bytes", "bytearray", "list of dicts", "object", "slotted object", "slotted dataclass", "subclass of str",
    "vendor's response", "named tuple", "ordered dict", "set", "deque", "key", "nested lists", "facts", "prompt",
    "stream", "stream of objects", "long conversation",
)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "calls"),
    [pytest.param("text", CALLS, marks=pytest.mark.sized), *((kind, FEW) for kind in SHAPES)],
)
def test_memory_is_bounded_by_bytes(kind: str, calls: int, promise: Recorder) -> None:
    """While the judge stalls, calls of 1 MB take no more than the queue's bytes, whatever holds the
    text.
    """
    # What is held is measured, not what the allocator keeps for later.
    report = run_program(
        PROGRAM, kind, str(calls), timeout_s=300, MALLOC_MMAP_THRESHOLD_="65536"
    ).report()
    bound = PoolDispatcher().max_bytes + MARGIN
    grown, allowed = report["growth"] / 2**20, bound / 2**20
    promise(
        "A5",
        figure=f"{calls} calls of 1 MB: growth {grown:.0f} MB of {allowed:.0f} MB, every drop counted",
    )
    assert report["growth"] <= bound, report
    # Over minutes the stalled judge runs into its time limit, and makes room for a few.
    dropped = report["dropped_queue_full"]
    assert dropped + report["evaluated"] + report["size"] == calls, report
    assert dropped > 0.9 * (calls - 1_000), report
    assert report["bytes"] <= PoolDispatcher().max_bytes

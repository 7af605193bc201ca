"""One run of the demo, from the options to the exit code."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Coroutine, Iterator
from types import FrameType
from typing import Any

from rich.console import Console

from agenteval_otel.cli.demo.agent import SLOW_S, SupportAgent
from agenteval_otel.cli.demo.criteria import demo_evaluators
from agenteval_otel.cli.demo.guidance import Delivery
from agenteval_otel.cli.demo.ledger import Ledger
from agenteval_otel.cli.demo.outlet import Outlet, check_endpoint, quiet_exporters
from agenteval_otel.cli.demo.progress import tell
from agenteval_otel.cli.demo.recording import Recording
from agenteval_otel.cli.demo.replay import ReplayTraffic
from agenteval_otel.cli.demo.script import CALLS_PER_S, plan_turns
from agenteval_otel.cli.demo.state import RunState
from agenteval_otel.cli.demo.summary import print_summary
from agenteval_otel.cli.demo.traffic import LiveTraffic, Traffic
from agenteval_otel.cli.demo.view import watch
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.pipeline import Pipeline
from agenteval_otel.pipeline.load_shedding import LoadSheddingSettings
from agenteval_otel.sampling import ErrorSampler, FirstOfSampler, RatioSampler, Sampler, SlowSampler

__all__ = ["run_demo"]

INTERRUPTED = 130
_SECONDS = 20.0
_LIFELIKE_FROM_S = 10.0
_MAX_CHARACTERS, _MAX_RECORDED_CHARACTERS = 320, 1_200
_REST_RATIO = 0.5
_EVALUATE_S, _EXPORT_S, _EXPORT_TO_NOBODY_S, _SPANS_S = 30.0, 3.0, 2.0, 0.5


def run_demo(arguments: argparse.Namespace) -> int:
    """Run it; gives the exit code: 0 accounted for and delivered, 1 not, 130 after Ctrl-C.

    Raises:
        ConfigurationError: A file that cannot be replayed, or an endpoint that is none.
    """
    check_endpoint(arguments.otlp_endpoint)
    if arguments.traffic is not None and arguments.seconds is not None:
        raise ConfigurationError("a replay takes as long as it takes; --calls ends it earlier", path="--seconds")
    recording = Recording(arguments.traffic) if arguments.traffic is not None else None
    with quiet_exporters():
        run = _Run(arguments, recording)
        try:
            return run.to_its_end()
        finally:
            run.close()


class _Run:
    """The parts of a run, put together."""

    def __init__(self, arguments: argparse.Namespace, recording: Recording | None) -> None:
        self._arguments, self._recording = arguments, recording
        self._console = Console(highlight=False)
        calls, seconds = _extent(arguments)
        self._calls, self._seconds = calls, seconds
        self._pace = min(1.0, seconds / _LIFELIKE_FROM_S)
        self._outlet = Outlet(arguments.otlp_endpoint)
        self._ledger = Ledger(time.time_ns())
        self.pipeline = Pipeline(
            sampler=self._sampler(),
            evaluators=demo_evaluators(max_characters=_MAX_RECORDED_CHARACTERS if recording else _MAX_CHARACTERS),
            storage=(self._ledger, *self._outlet.storage),
            load_shedding=LoadSheddingSettings(enabled=False),  # nobody else works in this process
        )

    def close(self) -> None:
        """Let everything go, within a second."""
        self.pipeline.shutdown(0.5)
        self._outlet.close(0.5)

    def to_its_end(self) -> int:
        """Traffic, the last evaluations, delivery, summary."""
        listens = self._outlet.address is None or self._outlet.listens()
        state = asyncio.run(self._take_place(listens))
        evaluated = self.pipeline.dispatcher.flush(_EVALUATE_S)
        delivery = self._deliver()
        planted = self._recording is None and not self._arguments.no_drop and state.traffic.done > 0.5
        print_summary(
            state, self._console, delivery=delivery, recording=self._recording, evaluated=evaluated, planted=planted
        )
        adds_up = evaluated and sum(state.outcomes.values()) == state.traffic.calls
        # Jaeger takes spans and nothing else: that is delivered.
        undelivered = delivery.address is not None and not (delivery.complete or delivery.spans)
        if not adds_up or (undelivered and not state.interrupted):
            return 1
        return INTERRUPTED if state.interrupted else 0

    async def _take_place(self, listens: bool) -> RunState:
        traffic = self._traffic()
        address = self._outlet.address
        waiting = "" if listens else " (nobody listens there yet)"
        state = RunState(
            self.pipeline, self._ledger, traffic, seconds=None if self._recording else self._seconds,
            sampling="everything" if self._recording else f"errors, slow: all; rest: p = {_REST_RATIO:.2f}",
            outlet=None if address is None else f"to {address}{waiting}",
        )  # fmt: skip
        live = self._console.is_terminal and not self._console.is_dumb_terminal and not self._arguments.no_live
        shown = asyncio.create_task(_shown(watch(state, self._console) if live else tell(state, self._console)))
        try:
            with _ctrl_c(state):
                state.begin()
                await traffic.run()
                state.end()
        finally:
            shown.cancel()
            await asyncio.gather(shown, return_exceptions=True)
        return state

    def _traffic(self) -> Traffic:
        if self._recording is not None:
            return ReplayTraffic(
                self.pipeline, self._recording, limit=self._arguments.calls, tracer=self._outlet.tracer
            )
        turns = plan_turns(
            calls=self._calls, seconds=self._seconds, seed=self._arguments.seed, drop=not self._arguments.no_drop
        )
        agent = SupportAgent(self.pipeline, self._outlet.tracer, pace=self._pace)
        return LiveTraffic(agent, turns, self._seconds)

    def _sampler(self) -> Sampler:
        if self._recording is not None:
            return RatioSampler()
        slow = SlowSampler(over_s=SLOW_S * self._pace)
        return FirstOfSampler(samplers=(ErrorSampler(), slow, RatioSampler(ratio=_REST_RATIO)))

    def _deliver(self) -> Delivery:
        """Export what is still held; to an endpoint where nobody listens it is not tried for long."""
        outlet = self._outlet
        if outlet.address is None:
            return Delivery(None, complete=False, listens=False, disabled=outlet.disabled)
        listens = outlet.listens()
        complete = self.pipeline.flush(_EXPORT_S if listens else _EXPORT_TO_NOBODY_S)
        spans = listens and outlet.spans_arrived(_EXPORT_S if complete else _SPANS_S)
        return Delivery(
            outlet.address, complete=complete and (spans or outlet.tracer is None), listens=listens, spans=spans
        )


def _extent(arguments: argparse.Namespace) -> tuple[int, float]:
    """How many calls, over how many seconds: what is not given follows from the other."""
    if arguments.seconds is None and arguments.calls is None:
        return int(_SECONDS * CALLS_PER_S), _SECONDS
    seconds = arguments.seconds or max(0.5, arguments.calls / CALLS_PER_S)
    return arguments.calls or max(1, int(seconds * CALLS_PER_S)), seconds


async def _shown(showing: Coroutine[Any, Any, None]) -> None:
    """A view that breaks (a terminal that went away) does not end the run."""
    try:
        await showing
    except OSError as error:
        print(f"the view ended: {error}", file=sys.stderr)


@contextlib.contextmanager
def _ctrl_c(state: RunState) -> Iterator[None]:
    """The first Ctrl-C ends the traffic, the next one the program."""
    before = signal.getsignal(signal.SIGINT)
    loop = asyncio.get_running_loop()

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        state.interrupted = True
        loop.call_soon_threadsafe(state.traffic.stop)

    try:
        signal.signal(signal.SIGINT, stop)
    except ValueError:  # not the main thread: there Ctrl-C never arrives
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

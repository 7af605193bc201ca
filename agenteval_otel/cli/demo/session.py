"""One run of the demo, from the options to the exit code."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console

from agenteval_otel import annotate, monitor
from agenteval_otel import semconv as names
from agenteval_otel.cli.demo.agent import NO_TRACER, SupportAgent, plan_turns
from agenteval_otel.cli.demo.replay import RecordedTurn, recorded_turns
from agenteval_otel.cli.demo.scores import Scores, demo_criteria, demo_evaluators
from agenteval_otel.cli.demo.screen import Delivery, Run, print_progress, print_summary, show_live
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.pipeline import Pipeline
from agenteval_otel.pipeline.load_shedding import LoadSheddingSettings
from agenteval_otel.sampling import ErrorSampler, FirstOfSampler, RatioSampler, SlowSampler
from agenteval_otel.storage import OtlpStorageProvider
from agenteval_otel.telemetry.target import is_endpoint

__all__ = ["extent", "run_demo"]

_SECONDS, _CALLS_PER_S, _REALISTIC_FROM_S, _SLOW_S = 20.0, 30, 10.0, 1.0
_MAX_CHARACTERS, _MAX_RECORDED_CHARACTERS = 320, 1_200
_EVALUATE_S, _EXPORT_S, _GRACE_S = 30.0, 3.0, 2.0
_MAX_QUEUED, _MAX_QUEUED_BYTES = 256, 16 * 1024 * 1024
_VARIABLES = tuple(f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT" for signal in ("", "TRACES_", "LOGS_", "METRICS_"))


def run_demo(arguments: argparse.Namespace) -> int:
    """Run it; gives the exit code: 0 accounted for and delivered, 1 not, 130 after Ctrl-C.

    Raises:
        ConfigurationError: A wrong file or endpoint.
    """
    if arguments.otlp_endpoint is not None and not is_endpoint(arguments.otlp_endpoint):
        raise ConfigurationError(f"found {arguments.otlp_endpoint!r}, expected http://HOST:PORT such as "
                                 "http://localhost:4317", path="--otlp-endpoint")  # fmt: skip
    if arguments.traffic is not None and arguments.seconds is not None:
        raise ConfigurationError("a replay runs as fast as it can; --calls ends it earlier", path="--seconds")
    recorded = None if arguments.traffic is None else sum(1 for _ in recorded_turns(arguments.traffic))
    if recorded == 0:
        raise ConfigurationError(f"no conversation in {arguments.traffic!r}", path="--traffic")
    # The summary reports delivery; exporters' log lines would break the view.
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        return _Demo(arguments, recorded).run()
    finally:
        logging.disable(disabled)


def extent(calls: int | None, seconds: float | None) -> tuple[int, float]:
    """How many calls, over how many seconds: each follows from the other."""
    if seconds is None:
        seconds = _SECONDS if calls is None else max(0.5, calls / _CALLS_PER_S)
    return calls or max(1, int(seconds * _CALLS_PER_S)), seconds


class _Demo:
    """The parts of a run."""

    def __init__(self, arguments: argparse.Namespace, recorded: int | None) -> None:
        self._arguments, self._console = arguments, Console(highlight=False)
        calls, seconds = extent(arguments.calls, arguments.seconds)
        self._pace = min(1.0, seconds / _REALISTIC_FROM_S)
        self._delivery = Delivery()
        self._telemetry = self._exporting(arguments.otlp_endpoint)
        address = self._delivery.address
        scores, live = Scores(), recorded is None
        slow = SlowSampler(above_s=_SLOW_S * self._pace)
        pipeline = Pipeline(
            sampler=FirstOfSampler(samplers=(ErrorSampler(), slow, RatioSampler(ratio=0.5 if live else 1.0))),
            evaluators=demo_evaluators(max_characters=_MAX_CHARACTERS if live else _MAX_RECORDED_CHARACTERS),
            criteria=demo_criteria(), storage=(scores,), telemetry=self._telemetry, objectives=scores.objectives,
            load_shedding=LoadSheddingSettings(enabled=False),  # nothing else runs in this process
        )  # fmt: skip
        self._run = Run(
            pipeline, scores, "errors, slow: all; rest: p = 0.50" if live else "everything",
            total=calls if recorded is None else min(recorded, arguments.calls or recorded),
            seconds=seconds if live else None, destination=address and f"to {address}",
        )  # fmt: skip
        self._tracer = (self._telemetry and self._telemetry.providers.tracer()) or NO_TRACER

    def run(self) -> int:
        """Traffic, the last evaluations, delivery, summary."""
        run, delivery = self._run, self._delivery
        try:
            asyncio.run(self._take_place())
            evaluated = run.pipeline.dispatcher.flush(_EVALUATE_S)
            self._deliver()
            planted = run.seconds is not None and not self._arguments.no_drop and run.release == 2
            print_summary(run, self._console, delivery, evaluated=evaluated, planted=planted)
        finally:
            run.pipeline.shutdown(0.5)
        adds_up = evaluated and sum(run.pipeline.accounting.outcomes().values()) == run.calls
        # Jaeger takes only spans: that is not a failure.
        delivered = delivery.address is None or delivery.complete or delivery.spans
        if not adds_up or not (delivered or run.interrupted):
            return 1
        return 130 if run.interrupted else 0

    async def _take_place(self) -> None:
        run, console, loop = self._run, self._console, asyncio.get_running_loop()
        stopped = asyncio.Event()

        def stop() -> None:
            loop.remove_signal_handler(signal.SIGINT)  # the next Ctrl-C ends the program
            run.interrupted = True
            stopped.set()

        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):  # Windows, other threads
            loop.add_signal_handler(signal.SIGINT, stop)
        live = console.is_terminal and not console.is_dumb_terminal and not self._arguments.no_live
        shown = asyncio.create_task(show_live(run, console) if live else print_progress(run, console))
        run.started = time.monotonic()
        try:
            await (self._replay(stopped) if run.seconds is None else self._serve(run.seconds, stopped))
            run.ended = time.monotonic()
        finally:
            shown.cancel()
            await asyncio.gather(shown, return_exceptions=True)  # a terminal that went away does not end the run
            loop.remove_signal_handler(signal.SIGINT)

    async def _serve(self, seconds: float, stopped: asyncio.Event) -> None:
        run, requests = self._run, set[asyncio.Task[None]]()
        agent = SupportAgent(run.pipeline, self._tracer, pace=self._pace)
        drop = not self._arguments.no_drop
        for turn in plan_turns(calls=run.total, seconds=seconds, seed=self._arguments.seed, drop=drop):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), max(0.0, run.started + turn.at_s - time.monotonic()))
            if stopped.is_set():
                break
            run.calls, run.release = run.calls + 1, turn.release
            requests.add(request := asyncio.create_task(agent.serve(turn)))
            request.add_done_callback(requests.discard)
        if requests:
            _, late = await asyncio.wait(requests, timeout=_GRACE_S if stopped.is_set() else None)
            for request in late:
                request.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _replay(self, stopped: asyncio.Event) -> None:
        """Replay as fast as the queue takes it."""
        run, queue = self._run, self._run.pipeline.dispatcher.state
        answer = monitor(agent="recorded", pipeline=run.pipeline)(_recorded_answer)
        for turn in recorded_turns(self._arguments.traffic):
            while (state := queue())["size"] >= _MAX_QUEUED or state["bytes"] >= _MAX_QUEUED_BYTES:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            if stopped.is_set() or run.calls == run.total:
                return
            run.calls += 1
            attributes = {names.OPERATION_NAME: names.OPERATION_INVOKE_AGENT, names.AGENT_NAME: "recorded",
                          names.CONVERSATION_ID: turn.conversation}  # fmt: skip
            with self._tracer.start_as_current_span("invoke_agent recorded", attributes=attributes):
                await answer(turn.messages, turn)
            await asyncio.sleep(0)

    def _exporting(self, endpoint: str | None) -> OtlpStorageProvider | None:
        """The exporter, where an endpoint is known, with a service name and frequent metrics for a short run."""
        address = endpoint or next((os.environ[name] for name in _VARIABLES if os.environ.get(name)), None)
        self._delivery.disabled = bool(address) and os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        if address is None or self._delivery.disabled:
            return None
        if "service.name=" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
            os.environ.setdefault("OTEL_SERVICE_NAME", "agenteval-demo")
        os.environ.setdefault("OTEL_METRIC_EXPORT_INTERVAL", "2000")
        self._delivery.address = address
        self._delivery.service = os.environ.get("OTEL_SERVICE_NAME") or "of OTEL_RESOURCE_ATTRIBUTES"
        return OtlpStorageProvider(endpoint=endpoint)

    def _deliver(self) -> None:
        """Export what is left, and note what became of it."""
        delivery = self._delivery
        delivery.complete = self._run.pipeline.flush(_EXPORT_S)
        if self._telemetry is not None and delivery.address is not None:
            lost = {signal for signal, _ in self._telemetry.providers.lost}
            delivery.spans = delivery.complete or (bool(lost) and "traces" not in lost)
            delivery.listens = delivery.complete or _listens(delivery.address)


async def _recorded_answer(messages: list[dict[str, Any]], turn: RecordedTurn) -> str:
    annotate(model="recorded", conversation_id=turn.conversation, tool_calls=turn.tool_calls)
    return turn.answer


def _listens(address: str) -> bool:
    """Whether the address accepts connections; waits for at most half a second."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 4317)
        with socket.create_connection((parts.hostname or "localhost", port), 0.5):
            return True
    except (OSError, ValueError):
        return False

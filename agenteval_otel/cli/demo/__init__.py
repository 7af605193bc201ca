"""``agenteval-otel demo``: a monitored support agent under live traffic.

The quality of its answers drops half-way.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import os
import re
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from agenteval_otel.cli.demo.agent import Agent, DemoTurn, plan_turns, recorded_turns
from agenteval_otel.cli.demo.scores import Scores, demo_criteria, demo_evaluators
from agenteval_otel.cli.demo.screen import (
    DemoDelivery,
    DemoRun,
    print_progress,
    print_summary,
    show_live,
)
from agenteval_otel.cli.evaluate import fields_of_settings
from agenteval_otel.cli.figures import number_between, whole_number
from agenteval_otel.config.capabilities import of_every_pipeline
from agenteval_otel.engine.handlers import Handlers
from agenteval_otel.engine.load_shedding import LoadSheddingSettings
from agenteval_otel.engine.pipeline import Pipeline
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models.value import copy_with
from agenteval_otel.sampling import ErrorSampler, FirstOfSampler, RatioSampler, SlowSampler
from agenteval_otel.semconv import PROMPT_VERSION
from agenteval_otel.storage import OtlpStorageProvider, SqlStorageProvider
from agenteval_otel.telemetry.target import is_endpoint, sdk_disabled

DESCRIPTION = (
    "Watch a support agent's live traffic being scored, and its quality drop. The agent (tools, streams, slow "
    "answers, failures, conversations of several turns) takes it through @monitor, and real evaluators score it in "
    "the background. Half-way a worse prompt is released: watch the scores drop and the objectives raise the alarm. "
    "No server, no key. Nothing leaves this process unless --otlp-endpoint or OTEL_EXPORTER_OTLP_* names a Collector. "
    "Exit code 0: every call is accounted for and the telemetry, or at least its spans, was delivered. Exit code 1: "
    "not. Exit code 2: wrong use. Exit code 130: interrupted by Ctrl-C."
)
_SECONDS = 20.0
_CALLS_PER_S = 30
_REALISTIC_FROM_S = 10.0
_SLOW_S = 1.0
_MAX_RECORDED_CHARACTERS = 1_200
_MAX_QUEUED = 256
_EVALUATE_S = 30.0
_EXPORT_S = 3.0
_VARIABLES = tuple(
    f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT" for signal in ("", "TRACES_", "LOGS_", "METRICS_")
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    seconds = number_between(0.5, 3600, "a number of seconds between 0.5 and 3600")
    parser.add_argument("--seconds", type=seconds, help="how long the traffic lasts (default: 20)")
    parser.add_argument(
        "--calls", type=whole_number, help="number of calls, over --seconds (default: 30 a second)"
    )
    parser.add_argument(
        "--no-drop", action="store_true", help="release a prompt that is as good as the first"
    )
    parser.add_argument(
        "--otlp-endpoint",
        metavar="URL",
        help="also send it to a Collector: http://localhost:4317 (gRPC) or :4318",
    )
    parser.add_argument(
        "--storage",
        metavar="FILE.db",
        help="also keep the results in this SQLite file, with the "
        "invented texts, for `agenteval-otel ui FILE.db` and `agenteval-otel compare FILE.db --by prompt_version`. "
        "Needs the extra ui, or for compare alone sql",
    )
    parser.add_argument(
        "--traffic",
        metavar="FILE.jsonl",
        help='replay recorded conversations instead: lines of {"messages": [...]}, or the inputs that evaluate reads, '
        'such as {"prompt": ..., "response": ...}',
    )
    parser.add_argument(
        "--settings",
        metavar="FILE",
        help="score --traffic by the evaluators, criteria and objectives "
        "of this file (default: AGENTEVAL_SETTINGS, else the demo's own). Its storage, sampling and telemetry do not "
        "apply",
    )
    parser.add_argument("--profile", metavar="NAME", help="a profile of the settings file")
    parser.add_argument(
        "--agent", metavar="NAME", help="use the evaluators and criteria of this agent"
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.otlp_endpoint is not None and not is_endpoint(arguments.otlp_endpoint):
        expected = f"found {arguments.otlp_endpoint!r}, expected http://HOST:PORT such as http://localhost:4317"
        raise ConfigurationError(expected, path="--otlp-endpoint")
    for option in ("settings", "profile", "agent"):
        if arguments.traffic is None and getattr(arguments, option) is not None:
            raise ConfigurationError(
                "only applies to --traffic: the demo's agent has its own", path=f"--{option}"
            )
    if arguments.traffic is None:
        seconds = arguments.seconds or _SECONDS
        calls = arguments.calls or int(seconds * _CALLS_PER_S)
        turns = plan_turns(calls=calls, seconds=seconds, drop=not arguments.no_drop)
    elif arguments.seconds is not None:
        raise ConfigurationError(
            "a replay runs as fast as it can. --calls ends it earlier", path="--seconds"
        )
    else:
        seconds = None
        turns = list(recorded_turns(arguments.traffic))[: arguments.calls]
        if not turns:
            raise ConfigurationError(f"no conversation in {arguments.traffic!r}", path="--traffic")
    parts = _parts(arguments)
    # The summary reports delivery; exporters' log lines would break the view.
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        return _run(arguments, turns, seconds, parts)
    finally:
        logging.disable(disabled)


def _parts(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the parts that score the answers, such as evaluators and criteria.

    For recorded answers they are those of the settings, if there is a settings file. Otherwise
    they are the demo's own.
    """
    if arguments.traffic is None:
        return {
            "evaluators": demo_evaluators(),
            "criteria": demo_criteria(),
            "metric_dimensions": {PROMPT_VERSION: 8},
        }
    fields, loaded = fields_of_settings(arguments)
    if loaded.file is None:
        return {
            "evaluators": demo_evaluators(max_characters=_MAX_RECORDED_CHARACTERS),
            "criteria": demo_criteria(),
        }
    has_breach = "breach" in loaded.settings.model_fields_set
    return {**fields, "breach": loaded.settings.breach} if has_breach else fields


def _run(
    arguments: argparse.Namespace,
    turns: Sequence[DemoTurn],
    seconds: float | None,
    parts: dict[str, Any],
) -> int:
    # Hours of traffic pass in seconds: failures that follow each other closely have many causes.
    parts["criteria"] = [copy_with(item, {"independent": True}) for item in parts["criteria"]]
    scores = Scores(parts["criteria"], parts.pop("breach", None))
    console = Console(highlight=False)
    delivery = _delivery(arguments.otlp_endpoint)
    telemetry = _telemetry(arguments, delivery)
    stored = []
    if arguments.storage is not None:
        stored.append(SqlStorageProvider(path=arguments.storage))
    pace = 0.0 if seconds is None else min(1.0, seconds / _REALISTIC_FROM_S)
    slow = SlowSampler(above_s=_SLOW_S * (pace or 1.0))
    rest = RatioSampler(ratio=0.5 if seconds else 1.0)
    redactors = parts.pop("redactors", None)
    handlers = Handlers(
        sampler=FirstOfSampler(samplers=(ErrorSampler(), slow, rest)),
        **parts,
        storage=(scores, *stored),
        telemetry=telemetry,
    )
    pipeline = Pipeline(
        handlers,
        redactors=redactors,
        capabilities=of_every_pipeline(scores.breach, on_breach=scores.on_breach),
        load_shedding=LoadSheddingSettings(enabled=False),  # nothing else runs in this process
    )
    sampling = "all errors and slow answers, the rest at p = 0.50" if seconds else "everything"
    destination = delivery.address and f"to {delivery.address}"
    show = DemoRun(
        pipeline,
        scores,
        sampling,
        len(turns),
        seconds,
        destination,
        has_settings=redactors is not None,
    )
    name = "support" if seconds else "recorded"
    tracer = None
    if telemetry is not None and delivery.address:
        tracer = telemetry.emitter.providers.agent_tracer()
    agent = Agent(name, pipeline, tracer, pace=pace)
    try:
        try:
            asyncio.run(_serve_and_show(show, console, agent, turns))
        except KeyboardInterrupt:
            show.interrupted = True
        evaluated = _flushed(pipeline)
        delivery.complete = pipeline.flush(_EXPORT_S)
        if telemetry is not None and delivery.address:
            lost = {signal for signal, _ in telemetry.emitter.providers.lost}
            delivery.spans = delivery.complete or (bool(lost) and "traces" not in lost)
        planted = seconds is not None and not arguments.no_drop and show.release == 2
        print_summary(
            show, console, delivery, arguments.storage, evaluated=evaluated, planted=planted
        )
    finally:
        pipeline.shutdown(0.5)
    adds_up = evaluated and sum(pipeline.accounting.outcomes().values()) == show.calls
    # Jaeger takes only spans
    delivered = delivery.address is None or delivery.complete or delivery.spans
    failed = not adds_up or not (delivered or show.interrupted)
    if failed:
        return 1
    return 130 if show.interrupted else 0


def _telemetry(arguments: argparse.Namespace, delivery: DemoDelivery) -> OtlpStorageProvider | None:
    """Return where telemetry is sent.

    The result is None without an address, except if the demo's own answers are stored.

    Texts are stored only for the demo's own answers, which are invented.
    """
    if arguments.storage is not None and arguments.traffic is None:
        if delivery.address is None:
            return OtlpStorageProvider(signals=frozenset(), content="span_and_event")
        return OtlpStorageProvider(endpoint=arguments.otlp_endpoint, content="span_and_event")
    return OtlpStorageProvider(endpoint=arguments.otlp_endpoint) if delivery.address else None


def _flushed(pipeline: Pipeline) -> bool:
    """Tell whether all answers were evaluated. Waits as long as the queue gets shorter."""
    left = math.inf
    while not pipeline.dispatcher.flush(_EVALUATE_S):
        before = left
        left = pipeline.dispatcher.state()["size"]
        if left >= before:
            return False
    return True


def _delivery(endpoint: str | None) -> DemoDelivery:
    """Return where telemetry is sent. Sets a service name and frequent metrics, for a short run."""
    named_addresses = (os.environ[name] for name in _VARIABLES if os.environ.get(name))
    address = endpoint or next(named_addresses, None)
    if address is None or sdk_disabled():
        return DemoDelivery()
    os.environ.setdefault("OTEL_METRIC_EXPORT_INTERVAL", "2000")
    attributes = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    named = re.search(r"(?:^|,)\s*service\.name=([^,]+)", attributes)
    if named and "OTEL_SERVICE_NAME" not in os.environ:
        return DemoDelivery(address, named[1])
    return DemoDelivery(address, os.environ.setdefault("OTEL_SERVICE_NAME", "agenteval-demo"))


async def _serve_and_show(
    run: DemoRun, console: Console, agent: Agent, turns: Sequence[DemoTurn]
) -> None:
    """Serve the turns and show what becomes of them, until they are over or Ctrl-C cancels them."""
    live = console.is_terminal and not console.is_dumb_terminal
    shown = asyncio.create_task(show_live(run, console) if live else print_progress(run, console))
    run.started = time.monotonic()
    try:
        async with asyncio.TaskGroup() as requests:
            for turn in turns:
                if run.seconds is not None:
                    await asyncio.sleep(max(0.0, run.started + turn.at_s - time.monotonic()))
                request = requests.create_task(_serve(run, agent, turn))
                # recorded turns follow each other as fast as the queue takes them
                if run.seconds is None:
                    await request
                    state = run.pipeline.dispatcher.state
                    while state()["size"] >= _MAX_QUEUED:  # noqa: ASYNC110
                        await asyncio.sleep(0.005)
    finally:
        run.ended = time.monotonic()
        shown.cancel()
        # a terminal that went away does not end the run
        await asyncio.gather(shown, return_exceptions=True)


async def _serve(run: DemoRun, agent: Agent, turn: DemoTurn) -> None:
    run.calls += 1
    run.release = turn.release
    await agent.serve(turn)

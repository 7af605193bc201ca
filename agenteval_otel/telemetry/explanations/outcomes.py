"""Outcomes: what became of a call."""

from __future__ import annotations

from typing import Final

from agenteval_otel import semconv as names
from agenteval_otel.telemetry.explanations.base import SLOW, Explanation

__all__ = ["NO_CALLS", "OUTCOMES"]

OUTCOMES: Final[dict[str, Explanation]] = {
    names.EVALUATED: Explanation(
        "was evaluated, and its result was offered to every storage provider",
        (
            "no score although evaluated: the evaluators failed (`agenteval.evaluation.errors`, `error.type`) or had "
            "nothing to say (a skip emits nothing)",
            "a score that is not seen: a storage provider failed (`storage:<type>`), or the export did",
        ),
        ("Look at the errors by `error.type`.", "Call `flush(5.0)`: True says that all of it is saved and exported."),
        True,
    ),
    names.NOT_SAMPLED: Explanation(
        "was passed over by the sampler",
        (
            "the rate is below 1, or the default limit of ten evaluated responses a second is reached",
            "a rule (`error`, `slow`, `agent`, `pattern`, `function`) stands alone and did not match",
        ),
        (
            "Raise `sample_rate`, or put rules for what must not be missed before the ratio: docs/sampling.md.",
            "Nothing, where the share is the one you asked for: means stay honest under sampling.",
        ),
        True,
    ),
    names.SHED: Explanation(
        "was sampled, but not evaluated because load shedding had reduced sampling; the others carry its weight",
        (
            "the queued answers needed more than ten seconds to be evaluated: " + SLOW,
            "the host's event loop was late while answers were evaluated",
        ),
        (
            "Look at `agenteval.sampling.level` and at the log line `sampling_reduced`: it names the measure.",
            "Sample less, or give expensive evaluators a `sample_rate` of their own.",
            "Raise `max_drain_s` or `max_loop_lag_s`, or switch load shedding off: docs/load-shedding.md.",
        ),
    ),
    names.DISABLED: Explanation(
        "came while evaluation was switched off",
        (
            "`AGENTEVAL_ENABLED=false` in the environment",
            "`enabled=False` in the settings, for all or for this agent; or `disable()` was called",
            "`OTEL_SDK_DISABLED=true`, or all of `OTEL_{TRACES,METRICS,LOGS}_EXPORTER=none`, without a storage",
        ),
        ("Switch it on again; the outcomes count on from where they stand.",),
        True,
    ),
    names.DROPPED_QUEUE_FULL: Explanation(
        "found the queue full, by bytes (default 32 MiB; 64 MiB for all that waits in the process), and was dropped",
        (
            SLOW,
            "a burst larger than the queue",
            "very large answers, prompts, or facts given to `annotate`",
            "an evaluator blocks the background thread: it is `inline` or `async`, and does not await",
        ),
        (
            "Compare `agenteval.queue.bytes` with `agenteval.queue.max_bytes`; look at `agenteval.queue.drain_time`.",
            "Sample less, limit the rate, or give the expensive evaluators a `sample_rate` of their own.",
            "Give slow evaluators a shorter `timeout_s`, or the dispatcher a higher `concurrency`.",
            "Raise the dispatcher's `max_bytes` for bursts; it is memory of your process.",
        ),
    ),
    names.RATE_LIMITED: Explanation(
        "came above the limit per second before the ratio could adjust; a loss, not a sample",
        (
            "a burst: the ratio of one second is made from the traffic of the second before",
            "the default limit of ten a second, in a process with little and uneven traffic",
        ),
        (
            "Nothing, where it is a small share.",
            "Set `sample_rate` (it takes the limit away), or raise `max_per_s` of `rate_limit`.",
        ),
    ),
    names.DROPPED_SHUTDOWN: Explanation(
        "came after `shutdown`, or was not done when the time to stop ran out",
        (
            "the process ended while evaluations were under way: at exit they have two seconds together",
            "calls go on after `shutdown()`",
            "an evaluator or a storage provider hangs",
        ),
        (
            "Call `flush(timeout_s)` before the process ends, in serverless functions before each return.",
            "Call `shutdown(timeout_s)` with more time, as the last thing.",
        ),
    ),
    names.CAPTURE_FAILED: Explanation(
        "had an answer without text that can be had",
        (
            "the handler returned a stream for its caller to read (a client's, an iterator, a `StreamingResponse`)",
            "a `capture=` function raised, or gave something that is not a mapping",
            "nothing can be read of the answer: a future, a lock, a function, a database row whose fields are expired, "
            "an object of a class that is no plain data and has no known text field",
        ),
        (
            "Look for the log line `part_failed` with `part='capture'`: `said` names the answer's type and the reason.",
            "Of a stream, monitor the generator that makes its pieces instead of the function that hands it on.",
            "Return text, a dictionary, a dataclass, a pydantic model or an object with `content`, or say it: "
            "`annotate(response=...)`, `capture=`.",
        ),
    ),
    names.PIPELINE_FAILED: Explanation(
        "met something of ours, or the sampler, that broke",
        (
            "a sampler raised: a `function` sampler, or a `pattern` that took longer than 0.1 s",
            "something held the background thread, and another took over: a call that could not go on counts here",
            "no thread can be started: the process is at its limit, or its interpreter is ending",
        ),
        (
            "Look at `failures` and at the log line `part_failed`: they name the part.",
            "Give an evaluator that blocks `execution: thread` or `process`: it has a time limit there.",
        ),
    ),
}

NO_CALLS: Final = Explanation(
    "No call of a monitored handler was counted.",
    (
        "the handler that answers is not the decorated one: decorate it where it is defined",
        "another process answers: every worker counts its own calls",
        "a generator that nobody reads: a stream counts from its first chunk",
    ),
    ("Call the handler once and print `accounting()` in the same process.",),
)

"""Failures: which part broke, as the accounting counts it."""

from __future__ import annotations

from typing import Final

from agenteval_otel.telemetry.explanations.base import Explanation

__all__ = ["FAILURES", "LOST_REASONS", "explanation_of_failure"]

FAILURES: Final[dict[str, Explanation]] = {
    "sampler": Explanation(
        "The sampler raised; the call counts as `pipeline_failed`.",
        ("a sampler of your own, a `function`, or a `pattern` that took longer than 0.1 s",),
        ("Check the sampler with `agenteval_otel.testing.check_sampler`.",),
    ),
    "capture": Explanation(
        "Something that the handler gave could not be read.",
        (
            "a part of the answer that is no plain data: it is left out, and the rest is evaluated",
            "an answer that cannot be read at all, or a `capture=` function that raised: the call counts as "
            "`capture_failed`",
        ),
        ("See `capture_failed`.",),
    ),
    "ground_truth": Explanation(
        "The ground-truth store failed; the answer was evaluated without ground truth, or with rows from before.",
        (
            "a file that was changed and cannot be used: the rows from before stay",
            "a store of your own that raised, or took longer than its `timeout_s`",
        ),
        ("Look for the log line `part_failed` of the part `ground_truth`: for a file it has the line that is wrong.",),
    ),
    "aggregation:<type>": Explanation(
        "The strategy that makes the overall score raised; the results were saved without an overall score.",
        ("an `aggregation` of your own that raised, or gave what cannot be compared with a number",),
        ("Look for the log line `part_failed`: `part` names the strategy, `error_type` what was raised.",),
    ),
    "storage:<type>": Explanation(
        "A storage provider failed to save or to close, or took longer than 10 s; the others still saved.",
        ("a full disk, a missing right, a database that is away", "a Collector is never the cause: exports come later"),
        ("Look for the log line `storage_failed`: `part` is the provider's type, `error_type` what was raised.",),
    ),
    "annotate:<fact>": Explanation(
        "A fact given to `annotate` or by `capture=` was left out: its name is unknown or its value does not fit.",
        (
            "a misspelled name; one that is no identifier is told as `other`",
            "a value of another type than the field's",
            "more than 1,000 tool calls: those beyond are left out",
        ),
        ("Look at the log line `fact_left_out`, and compare with the facts that `annotate` knows: `help(annotate)`.",),
    ),
    "redaction:<type>": Explanation(
        "A redactor failed; `[redaction failed]` left the process instead of the text.",
        ("a redactor of your own that raised", "an own pattern that searched longer than its `limit_s`"),
        ("Look for the log line `part_failed`: `part` names the redactor, `error_type` what was raised.",),
    ),
    "export:<signal>": Explanation(
        "Spans, events or metrics were made and did not reach the backend; `agenteval.export.lost` has the reasons.",
        (
            "the receiver was away for so long that `export.max_bytes` was full, or until the process ended",
            "the receiver refused: a redirect, a login page, a wrong key, `partial_success`",
            "the application has shut its own provider down, or that raises",
        ),
        (
            "Look for the log line `export_failed`: `status` is what the receiver answered.",
            "Bring the receiver back, correct the endpoint or the key, or raise `export.max_bytes`.",
        ),
    ),
    "on_breach": Explanation(
        "The function that is told of an objective that is not held failed, or was not called; the event went out.",
        (
            "it raised, or ran longer than `breach.timeout_s`",
            "four of its calls hang, and too many wait; or the process was ending",
        ),
        ("Look for the log line `part_failed` of the part `on_breach`: `error_type` is what was raised.",),
    ),
    "on_recovery": Explanation(
        "The function that is told of an objective that is held again failed, or was not called; the event went out.",
        ("as for `on_breach`",),
        ("As for `on_breach`.",),
    ),
    "objectives": Explanation(
        "Whether a criterion holds its objective is not watched, or could not be told as an event.",
        (
            "more than 1,024 criteria of agents with an objective",
            "a logger provider of your application that raises",
        ),
        ("Look for the log line `part_failed` of the part `objectives`.",),
    ),
    "telemetry": Explanation(
        "Emitting results failed; they were evaluated, stored and watched all the same.",
        ("a provider, processor or exporter of the application's that raises",),
        ("Look for the log line `part_failed` of the part `telemetry`: `error_type` is what was raised.",),
    ),
    "agent_span": Explanation(
        "The agent span could not be ended; its call is evaluated all the same.",
        ("a processor of the application's that raises when a span ends",),
        ("Look for the log line `part_failed` of the part `agent_span`: `error_type` is what was raised.",),
    ),
    "span_left_out": Explanation(
        "A run span was left out: your application's own spans filled its span processor. Events and metrics went out.",
        ("a burst of spans, or an exporter of your application's that is slow",),
        ("Give your `BatchSpanProcessor` a larger queue, or a faster exporter.",),
    ),
    "load_shedding": Explanation(
        "The queued work could not be measured; sampling is full, and only the queue's bounds limit it.",
        ("a dispatcher of your own whose `state` raises or lacks `size`, `bytes` or `max_bytes`",),
        ("Check the dispatcher with `agenteval_otel.testing.check_dispatcher`.",),
    ),
    "dispatcher": Explanation(
        "A call could not be handed to the dispatcher; it counts as `pipeline_failed`.",
        ("a dispatcher of your own that raised", "the caller's stack is exhausted"),
        ("Check the dispatcher with `agenteval_otel.testing.check_dispatcher`.",),
    ),
    "pipeline": Explanation(
        "Something between the input and the result broke; the call counts as `pipeline_failed`.",
        ("a defect of this package, or of a tracer provider that raises",),
        ("Please report it with the log line `part_failed`.",),
    ),
    "background_thread": Explanation(
        "Something held the background thread for `stall_s`; another thread took over, with what was under way. A "
        "call in whose `capture=`, sampler or redactor it happened counts as `pipeline_failed`.",
        (
            "an `async def` evaluator that blocks, such as one that calls a client without `await`",
            "a `capture=`, a sampler, a redactor, a ground-truth store or a storage provider that blocks",
        ),
        (
            "Look for the log line `background_thread_replaced`: `part` is what held it, where it is known.",
            "Have it wait with `await`, or on its own thread: the third time within ten minutes it is quarantined.",
        ),
    ),
    "scope": Explanation(
        "The call could not be made the current one, or be undone; the handler and its evaluation were not touched.",
        ("a context that was left from another task or thread than it was entered in",),
        ("Nothing; `annotate` may have missed the call.",),
    ),
    "reload": Explanation(
        "Settings that changed while the process runs could not be used; those from before stay in force.",
        ("the file is wrong, or gone", "a part that it names is not there"),
        ("Look for the log line `reload_failed`: it has every problem with its place.",),
    ),
    "exit": Explanation(
        "Delivering what was pending broke while the process ended.",
        ("a storage provider or a telemetry provider that raised at the interpreter's exit",),
        ("Call `shutdown(timeout_s)` yourself, before the process ends.",),
    ),
}
"""By the part that broke, as `Accounting.failures` counts it; what stands in ``<>`` differs."""

LOST_REASONS: Final[dict[str, str]] = {
    "no_room": "The receiver was away for so long that `export.max_bytes` was full; the oldest were dropped.",
    "rejected": "The receiver refused: a redirect, a login page, a wrong key or path, or `partial_success`.",
    "too_large": "A single item was larger than the receiver takes (413).",
    "unencodable": "The SDK could not encode the item.",
    "shutdown": "The receiver was away, and the process ended.",
    "provider_shut_down": "The application had shut its own provider down.",
    "provider_raised": "The application's own provider raised when it was handed the item.",
    "host_queue_full": "The application's own spans filled its span processor, so that ours were left out.",
}
"""By `agenteval.export.reason`: why something did not reach the backend."""


def explanation_of_failure(part: str) -> Explanation | None:
    """The explanation of a part as it was counted, such as ``storage:json_file``; None for an unknown one."""
    found = FAILURES.get(part)
    if found is not None:
        return found
    kind = part.partition(":")[0]
    return next((text for known, text in FAILURES.items() if known.partition(":")[0] == kind), None)

"""What all evaluations of one engine share."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Mapping

from opentelemetry.util.types import AttributeValue

from agenteval_otel.capture.redaction.outgoing import Redaction
from agenteval_otel.engine.capability import Capabilities
from agenteval_otel.engine.load_shedding import LoadShedder
from agenteval_otel.engine.sampled import SamplingRecord
from agenteval_otel.engine.task import Task
from agenteval_otel.errors import ConfigurationError, GroundTruthError
from agenteval_otel.runtime.log import log
from agenteval_otel.telemetry import Accounting
from agenteval_otel.telemetry.emitter import Emitter
from agenteval_otel.telemetry.spans import add_to_agent_span, end_agent_span

_LOOK_AGAIN_S = 0.002


class EngineParts:
    """Holds what all evaluations of one engine share. Background thread.

    Attributes:
        broken: Counts and logs what breaks, by the part's name.
        emitters: Of all handlers.
        present: The task whose evaluators are being started.
        finishing: The task whose results are being emitted.
    """

    def __init__(
        self,
        *,
        accounting: Accounting,
        redaction: Redaction,
        shedding: LoadShedder,
        sampled: SamplingRecord,
        broken: Callable[[str, BaseException], None],
        capabilities: Capabilities,
    ) -> None:
        self.capabilities = capabilities
        self.accounting = accounting
        self.redaction = redaction
        self.shedding = shedding
        self.sampled = sampled
        self.broken = broken
        self.emitters: set[Emitter] = set()
        self.present: Task | None = None
        self.finishing: Task | None = None
        self._waiting: deque[Callable[[], object]] = deque()

    def has_room(self) -> bool:
        """Tell whether the host's span and log processors take the next answer.

        What waited for that is emitted first.
        """
        while self._waiting:
            if not self.emitters_have_room():
                return False
            self._waiting.popleft()()
        return self.emitters_have_room()

    def emitters_have_room(self) -> bool:
        """Tell whether the host's span and log processors take more."""
        return all([emitter.providers.has_room() for emitter in self.emitters])

    def wait_for_room(self, finish: Callable[[], object]) -> None:
        """Call `finish` once there is room."""
        self._waiting.append(finish)
        if len(self._waiting) == 1:
            self._look_again()

    def _look_again(self) -> None:
        if not self.has_room() and self._waiting:
            asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, self._look_again)

    def end_span(self, task: Task, results: Mapping[str, AttributeValue] | None = None) -> bool:
        """End the task's own span, if it still is this process's to end.

        Return whether the results went with it. Raises nothing.
        """
        span = task.take_span()
        if span is None or task.pid != os.getpid():
            return False
        are_taken = False
        try:
            emitter = task.settings.emitter
            if emitter is not None and span.is_recording() and emitter.providers.is_gone("TRACES"):
                # counted as lost: its processors would drop it, each with a line of the SDK's
                return results is not None
            try:
                are_taken = add_to_agent_span(span, task.span_attributes, results)
            finally:
                end_agent_span(span, ended_ns=task.ended_ns, error_type=task.error_type)
        except Exception as error:
            self.broken("agent_span", error)
        return are_taken

    def ground_truth_failed(self, error: BaseException) -> None:
        part = "ground_truth"
        if isinstance(error, GroundTruthError):
            part = f"ground_truth:{error.reason}"
        self.accounting.fail(part)
        # An error about a file names its line and no content; other errors may quote the
        # conversation.
        details: dict[str, str] = {}
        if isinstance(error, ConfigurationError | GroundTruthError):
            details["problem"] = str(error)
        log.warning("part_failed", part=part, error_type=type(error).__name__, **details)

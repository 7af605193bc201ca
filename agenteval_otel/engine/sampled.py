"""How the answers of one pipeline are sampled: by which key, and with what probabilities."""

from __future__ import annotations

from opentelemetry.trace import get_tracer_provider

from agenteval_otel.engine.handler import HandlerSettings
from agenteval_otel.engine.task import AnswerSampling, Task
from agenteval_otel.models.scoring.probability import Sampled, probability_of
from agenteval_otel.runtime.log import log
from agenteval_otel.sampling.key import PROCESS_KEY, SamplingKey
from agenteval_otel.sampling.trace import (
    NOTHING_KNOWN,
    CallsPerTrace,
    SamplingSettings,
    Upstream,
    believed,
    head_ratio_of,
    upstream_of,
)
from agenteval_otel.semconv import UPSTREAM_TOO_SMALL
from agenteval_otel.telemetry.accounting import Accounting


class SamplingRecord:
    """Knows how the answers of one pipeline are sampled.

    It knows by which key, with what probability, and among which answers.
    """

    def __init__(self, settings: SamplingSettings, accounting: Accounting) -> None:
        self.settings = settings
        self._accounting = accounting
        self.key = PROCESS_KEY
        if settings.key is not None:
            # a variable may hold bytes that are no UTF-8
            secret = settings.key.encode("utf-8", "surrogatepass")
            self.key = SamplingKey(secret, is_set=True)
        self.calls = CallsPerTrace()
        self._has_looked = False

    def of(self, task: Task, keep: float | None = None) -> AnswerSampling:
        """Return how a task was sampled.

        `keep` is the share that load shedding lets through, None if it sheds nothing. An upstream
        probability that is not believed is counted, and makes the probability unknown.
        """
        decision = task.decision
        by_trace = self.settings.unit == "trace"
        probability = probability_of(decision) if decision else None
        sampled = task.sampled
        if sampled is not None:  # by the application that sent the answer
            upstream = Upstream(sampled.upstream, sampled.same_randomness)
            is_clustered = sampled.clustered
        else:
            # A decision with randomness of its own (a conversation's) is independent of what the
            # trace's decided.
            nests = by_trace and (decision is None or decision.randomness is None)
            upstream = upstream_of(
                task.target,
                self.settings,
                task.upstream,
                by_trace=nests,
                head_ratio=task.head_ratio,
            )
            is_clustered = nests and self._is_clustered(task)
            self._compare_with_head_sampling(task)
        if upstream.unknown:
            self._note_unknown(upstream.unknown)
            probability = None
            upstream = NOTHING_KNOWN
        least = self._least_of(task.settings, upstream, keep) if sampled is None else sampled.least
        reason = decision.reason if decision else None
        return AnswerSampling(probability, upstream, reason, is_clustered, least)

    @staticmethod
    def _least_of(
        settings: HandlerSettings, upstream: Upstream, keep: float | None
    ) -> float | None:
        least = settings.least_probability
        if least is None:
            return None
        return upstream.applied(least * (keep or 1.0))

    def as_forwarded(self, sampled: Sampled) -> Sampled:
        """Return how an application sampled the answer that it sent, as far as that is believed."""
        least = self.settings.upstream_least
        if sampled.least is not None and sampled.least < least:
            sampled = sampled._replace(least=None)
        if sampled.probability is None:
            return sampled
        # the smallest of its numbers: the share here, the share before, and both together
        together = Upstream(sampled.upstream, sampled.same_randomness).applied(sampled.probability)
        numbers = (sampled.probability, sampled.upstream, together)
        smallest = min(number for number in numbers if number is not None)
        if not believed(Upstream(smallest), self.settings).unknown:
            return sampled
        self._note_unknown(UPSTREAM_TOO_SMALL)
        return sampled._replace(probability=None, upstream=None, least=None)

    def _note_unknown(self, reason: str) -> None:
        """Count an answer whose probability others stated and that is not believed."""
        self._accounting.fail(f"probability:{reason}")
        log.warning("probability_unknown", part=reason)

    def _compare_with_head_sampling(self, task: Task) -> None:
        """Log once if most of the evaluated answers have no recorded trace."""
        if self._has_looked or task.target is None or task.target.is_remote:
            return
        if task.input is not None:
            return  # it was read from spans, which are recorded
        self._has_looked = True
        settings = self.settings
        if settings.only_recorded or "trace_id" in settings.trust:
            return
        ratio = head_ratio_of(get_tracer_provider())
        if ratio is not None and ratio < 1.0:
            log.warning("head_sampling_ignored", part="sampling", ratio=ratio)

    def _is_clustered(self, task: Task) -> bool:
        """Tell whether the handler had many calls in one trace. Log the first time that it had."""
        if task.target is not None and self.calls.add(task.agent, task.target.trace_id):
            log.warning(
                "handler_repeats_in_trace",
                part=task.agent,
                why="all calls of a trace are sampled together, so intervals are too narrow: set sampling.unit: call",
            )
        return task.agent in self.calls.repeating

"""Capability: what stands around the route, such as conversations, objectives or judge health.

A pipeline has a list of them, goes through it at fixed moments, and knows none by name.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any, Final, NamedTuple, Self, TypeAlias, TypeVar, cast

from agenteval_otel.capture.assembly.conversations import End
from agenteval_otel.capture.redaction.outgoing import Redaction
from agenteval_otel.components.loading import import_function, load_each
from agenteval_otel.engine.handler import HandlerSettings
from agenteval_otel.engine.response import EvaluatedResponse
from agenteval_otel.engine.run import RunOutcome
from agenteval_otel.engine.signals import Signal, StateChange
from agenteval_otel.engine.task import AnswerSampling, Subject, Task
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators.base import Schedule
from agenteval_otel.models import EvaluationInput, EvaluationResult
from agenteval_otel.sampling.key import SamplingKey
from agenteval_otel.storage.erasure import Erasure
from agenteval_otel.telemetry import Accounting

C = TypeVar("C", bound="Capability")
ENTRY_POINTS: Final = "agenteval_otel.capabilities"


class Evaluated(NamedTuple):
    """Holds a task whose results are emitted.

    Attributes:
        outcome: What its evaluators gave, as they gave it.
        response: The same, redacted, as it is emitted.
        is_counted: Its results are counted. They are not if they were given in place of
            evaluators, or if the task was settled before, as a dropped one is.
    """

    task: Task
    input: EvaluationInput
    outcome: RunOutcome
    response: EvaluatedResponse
    sampling: AnswerSampling
    is_counted: bool


class Host(NamedTuple):
    """Holds what a pipeline gives to its capabilities, when it makes them.

    Attributes:
        submit: Takes a task and about how many bytes it keeps alive. Returns False if there is no
            room.
        broken: Counts and logs what breaks, by the part's name.
        key: The key of sampling, which makes numbers and marks of ids.
        sampling_of: Returns how an answer was sampled. Call it once for each answer.
        settings_of: Returns the settings of the handler that apply to an agent, by its name.
        announce: Passes a change on to every capability that hears of changes. Any thread.
    """

    submit: Callable[[Task, int], bool]
    broken: Callable[[str, BaseException], None]
    accounting: Accounting
    redaction: Redaction
    key: SamplingKey
    sampling_of: Callable[[Task], AnswerSampling]
    settings_of: Callable[[str], HandlerSettings]
    announce: Callable[[StateChange], None]


class Capability:
    """Does what an answer's route does not.

    Override the hooks that are needed. All others are empty.

    Hooks run on the background thread unless another is named, and must not block there. What one
    raises is counted, and the next capability is called.

    Attributes:
        name: What is counted and logged where a hook raises.
    """

    name = "capability"
    schedule: Schedule = "immediate"
    """The schedule of evaluators that it runs, beside those that run at once."""
    subject: Subject = "answer"
    """What it has evaluated, beside single answers."""

    takes_answers = False
    """It takes all answers over, so that no evaluator is needed here."""

    sends_later = False
    """It sends beside the delivery of answers, which does not wait for it."""

    @property
    def uses_results(self) -> bool:
        """Tell whether results are of use to it where they are neither exported nor stored."""
        return False

    @property
    def exporters(self) -> Sequence[Any]:
        """Return what it sends with. It is closed as storage is: when no pipeline uses it any more."""
        return ()

    @property
    def waiting(self) -> int:
        """Return how many answers wait in it that are counted when they have left."""
        return 0

    def start(self) -> None:
        """Begin to work: the pipeline is the one of its process now. Any thread."""

    def bind(self, settings: HandlerSettings) -> None:
        """Take the settings of a handler, or of one whose settings changed. Any thread.

        Raises:
            ConfigurationError: They ask for what the capability cannot do.
        """

    def on_answer(self, task: Task, evaluation_input: EvaluationInput) -> bool:
        """Take note of an answer before it is evaluated.

        Return False to take it over: it is not evaluated here, and the capability has its
        outcome counted (`Task.take_end`, `Task.finish`).
        """
        return True

    def after_list(self) -> None:
        """Do what has to wait until a list of tasks is worked on, such as submitting others."""

    def on_results(
        self, settings: HandlerSettings, results: list[EvaluationResult]
    ) -> list[EvaluationResult]:
        """Return the results of a task, changed or not, before they are redacted."""
        return results

    def on_response(self, evaluated: Evaluated) -> None:
        """Take note of a task whose results are emitted and are about to be stored."""

    def on_signal(self, signal: Signal) -> str | None:
        """Take what is said of an answer, and return what has become of it.

        Return None if it is not for this capability, or waits for an answer that has not
        come. Any thread.
        """
        return None

    def on_change(self, change: StateChange) -> None:
        """Take note that something which another capability watches is bad, or well again.

        Any thread. Must not block.
        """

    def expire(self) -> None:
        """Give up what has waited for too long.

        The thread of feedback calls it about once a second, once there is feedback.
        """

    def erase(self, erasure: Erasure) -> Mapping[str, int]:
        """Delete what waits and matches, and return how much, by what it is. Any thread. May block.

        Raises:
            StorageError: A place cannot be changed.
        """
        return {}

    def drain(self, reason: End) -> bool:
        """Hand what waits to the queue, which is worked off after this.

        Return whether there was any. Any thread.
        """
        return False

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that was taken is written or called back. Return whether it is. Any thread."""
        return True

    def retire(self) -> None:
        """Take nothing new: another pipeline took over. Calls under way still come. Returns at once."""

    def close(self, timeout_s: float) -> bool:
        """End threads and files within the time, count what is lost, and return whether nothing is.

        Any thread.
        """
        return True

    def take_over(self, before: Self) -> None:
        """Continue with what the same capability of the pipeline before has seen. Any thread."""


MakeCapability: TypeAlias = Callable[[Host], Capability]
"""Makes a capability for a pipeline: a function, or a class that takes the `Host` alone."""


def load_capabilities(values: object) -> tuple[MakeCapability, ...]:
    """Return what makes each: it is given, or named as ``module:name`` or as an entry point.

    Raises:
        ConfigurationError: One cannot be found or called. The error has the path.
    """
    if not isinstance(values, list | tuple):
        values = [values]
    return load_each(_load_maker, values, path="capabilities")


def _load_maker(value: object, path: str) -> MakeCapability:
    maker = value
    if isinstance(value, str):
        points = [
            point for point in metadata.entry_points(group=ENTRY_POINTS) if point.name == value
        ]
        if points:
            maker = points[0].load()
        elif ":" in value:
            maker = import_function(value, path=path)
        else:
            known = sorted(point.name for point in metadata.entry_points(group=ENTRY_POINTS))
            raise ConfigurationError(
                f"expected 'module:name' or an entry point of {ENTRY_POINTS} "
                f"({', '.join(known) or 'none is installed'}), found {value[:80]!r}",
                path=path,
            )
    if not callable(maker):
        wrong = f"expected what makes a capability of a Host, found {type(maker).__name__}"
        raise ConfigurationError(wrong, path=path)
    return cast(MakeCapability, maker)


class Capabilities:
    """Holds the capabilities of one pipeline, in the order in which their hooks are called.

    Args:
        broken: Counts and logs what a hook raised, by the capability's name.
    """

    def __init__(
        self, members: Iterable[Capability], broken: Callable[[str, BaseException], None]
    ) -> None:
        self._broken = broken
        self._members: tuple[Capability, ...] = ()
        self._set_members(members)

    def __repr__(self) -> str:
        return f"<Capabilities {', '.join(member.name for member in self._members)}>"

    def __iter__(self) -> Iterator[Capability]:
        return iter(self._members)

    def add(self, member: Capability) -> None:
        """Add one behind the others, before a handler is bound."""
        self._set_members((*self._members, member))

    def _set_members(self, members: Iterable[Capability]) -> None:
        self._members = tuple(members)
        for index, member in enumerate(self._members):
            if not isinstance(member, Capability):
                raise ConfigurationError(
                    f"expected a Capability, found {type(member).__name__} as number {index + 1}",
                    path="capabilities",
                )
        self._on_signal = self._hooks("on_signal")
        self._on_answer = self._hooks("on_answer")
        self._after_list = self._hooks("after_list")
        self._on_results = self._hooks("on_results")
        self._on_response = self._hooks("on_response")
        self._on_change = self._hooks("on_change")

    def _hooks(self, name: str) -> tuple[Callable[..., Any], ...]:
        """Return the hook of each member that overrides it.

        The empty hooks of the others are not called for each answer.
        """
        empty = getattr(Capability, name)
        return tuple(
            getattr(member, name)
            for member in self._members
            if getattr(type(member), name) is not empty
        )

    def of(self, kind: type[C]) -> C | None:
        """Return the first of this class, or None if there is none."""
        return next((member for member in self._members if isinstance(member, kind)), None)

    @property
    def schedules(self) -> set[Schedule]:
        """Return the schedules of evaluators that are run."""
        return {"immediate", *(member.schedule for member in self._members)}

    @property
    def subjects(self) -> set[Subject]:
        """Return what is evaluated."""
        return {"answer", *(member.subject for member in self._members)}

    @property
    def use_results(self) -> bool:
        """Tell whether results are of use to any, where they are neither exported nor stored."""
        return any(member.uses_results for member in self._members)

    @property
    def take_answers(self) -> bool:
        """Tell whether one takes all answers over."""
        return any(member.takes_answers for member in self._members)

    @property
    def exporters(self) -> list[Any]:
        """Return what all of them send with."""
        exporters: list[Any] = []
        for member in self._members:
            exporters.extend(member.exporters)
        return exporters

    @property
    def waiting(self) -> int:
        """Return how many answers wait in all of them."""
        waiting = 0
        for member in self._members:
            try:
                waiting += member.waiting
            except Exception as error:
                self._broken(member.name, error)
        return waiting

    def start(self) -> None:
        """Let all begin to work."""
        for member in self._members:
            self._safely(member, member.start)

    def bind(self, settings: HandlerSettings) -> None:
        """Give all of them the settings of a handler. Raises `ConfigurationError`."""
        for member in self._members:
            member.bind(settings)

    def on_answer(self, task: Task, evaluation_input: EvaluationInput) -> bool:
        """Tell all of an answer, until one takes it over. Return whether none does."""
        for on_answer in self._on_answer:
            try:
                if on_answer(task, evaluation_input) is False:
                    return False
            except Exception as error:
                self._count(on_answer, error)
        return True

    def after_list(self) -> None:
        """Tell all that a list of tasks is worked on."""
        for after_list in self._after_list:
            try:
                after_list()
            except Exception as error:
                self._count(after_list, error)

    def on_results(
        self, settings: HandlerSettings, results: list[EvaluationResult]
    ) -> list[EvaluationResult]:
        """Return the results as the capabilities change them."""
        for on_results in self._on_results:
            try:
                changed = on_results(settings, results)
                if not isinstance(changed, list):
                    raise TypeError(f"expected results, found {type(changed).__name__}")
                results = changed
            except Exception as error:
                self._count(on_results, error)
        return results

    def on_response(self, evaluated: Evaluated) -> None:
        """Let all take note of a task whose results are emitted. Raises nothing."""
        for on_response in self._on_response:
            try:
                on_response(evaluated)
            except Exception as error:
                self._count(on_response, error)

    @property
    def hear_signals(self) -> bool:
        """Tell whether any has a use for signals."""
        return bool(self._on_signal)

    def on_signal(self, signal: Signal) -> str | None:
        """Pass a signal on, and return what the first that takes it has made of it."""
        for on_signal in self._on_signal:
            try:
                became: str | None = on_signal(signal)
            except Exception as error:
                self._count(on_signal, error)
                continue
            if became is not None:
                return became
        return None

    def on_change(self, change: StateChange) -> None:
        """Tell all of a change. Raises nothing."""
        for on_change in self._on_change:
            try:
                on_change(change)
            except Exception as error:
                self._count(on_change, error)

    def expire(self) -> None:
        """Have all give up what has waited for too long."""
        for member in self._members:
            self._safely(member, member.expire)

    def erase(self, erasure: Erasure) -> dict[str, int]:
        """Have all delete what matches. Return how much, by what it is. Raises `StorageError`."""
        counts: Counter[str] = Counter()
        for member in self._members:
            counts.update(member.erase(erasure))
        return dict(counts)

    def drain(self, reason: End) -> bool:
        """Have all hand what waits to the queue. Return whether there was any."""
        had_any = False
        for member in self._members:
            # The call comes first in `or`: each is drained, also after one that had some.
            had_any = bool(self._safely(member, member.drain, reason)) or had_any
        return had_any

    def retire(self) -> None:
        """Have all take nothing new, in reverse order."""
        for member in reversed(self._members):
            self._safely(member, member.retire)

    def flush(self, deadline: float, share: float = 1.0) -> bool:
        """Wait for what belongs to answers until the deadline. Return whether all is written.

        The deadline is by the monotonic clock. Each has at most `share` of the time that is left.
        """
        members = [member for member in self._members if not member.sends_later]
        return self._each_in_time("flush", members, deadline, share)

    def flush_later(self, deadline: float) -> None:
        """Wait for those that `flush` leaves out. Each has at most half of the time that is left."""
        members = [member for member in self._members if member.sends_later]
        self._each_in_time("flush", members, deadline, share=0.5)

    def close(self, deadline: float) -> bool:
        """End what belongs to answers in reverse order. Each has at most half of the time left."""
        members = [member for member in self._members[::-1] if not member.sends_later]
        return self._each_in_time("close", members, deadline, share=0.5)

    def close_later(self, deadline: float) -> None:
        """End those that `close` leaves out. Each has at most half of the time that is left."""
        members = [member for member in self._members[::-1] if member.sends_later]
        self._each_in_time("close", members, deadline, share=0.5)

    def take_over(self, before: Capabilities) -> None:
        """Let each continue with what the one of its class has seen in the pipeline before."""
        for member in self._members:
            for other in before:
                if type(other) is type(member):
                    self._safely(member, member.take_over, other)

    def _each_in_time(
        self, hook: str, members: Sequence[Capability], deadline: float, share: float = 1.0
    ) -> bool:
        are_all_done = True
        for member in members:
            left_s = max(0.0, deadline - time.monotonic()) * share
            is_done = self._safely(member, getattr(member, hook), left_s)
            if not is_done:
                are_all_done = False
        return are_all_done

    def _count(self, hook: Callable[..., Any], error: Exception) -> None:
        member = getattr(hook, "__self__", Capability)  # a static method has no `__self__`
        self._broken(member.name, error)

    def _safely(self, member: Capability, hook: Callable[..., Any], *arguments: Any) -> Any:
        """Return what the hook returns, or None if it raises."""
        try:
            return hook(*arguments)
        except Exception as error:
            self._broken(member.name, error)
            return None

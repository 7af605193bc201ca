"""The conversation with one template: what it was told, what it owes, and whether it still speaks."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence

from agenteval_otel.models import EvaluationCriteria, EvaluationInput
from agenteval_otel.runner.child.answers import cut_short
from agenteval_otel.runner.child.frames import (
    ANSWER,
    CRITERIA,
    DEFINE,
    HELLO,
    INPUT,
    LOADED,
    STATUS,
    TASK,
    Frames,
    TaskOrder,
    frame,
)
from agenteval_otel.runner.child.jobs import Job
from agenteval_otel.runner.child.process import Unavailable
from agenteval_otel.runner.child.recipes import NotPortable

__all__ = ["Conversation", "Lost"]

_HELLO_S = 60.0
_LOADING_S = 120.0
_SILENCE_S = 20.0
_MAX_ATTEMPTS = 3
_CRASHED = "its process ended while it was evaluating"

Answer = tuple[Job, bytes | Exception]


class Lost(Exception):
    """The template is gone, or says nothing although it should."""


class Conversation:
    """Turns jobs into frames and frames into answers. Only the thread of the child process touches it."""

    def __init__(self) -> None:
        self.under_way: dict[int, Job] = {}
        self._number = 0
        self.cpu_s = 0.0
        self.begin()

    def begin(self) -> None:
        """A new template, which knows nothing."""
        self.out = bytearray()
        self._frames = Frames()
        self._defined: set[int] = set()
        self._loading: list[int] = []
        self._criteria: dict[bytes, int] = {}
        self._known: tuple[Sequence[EvaluationCriteria], int] = ((), 0)
        self.greeted, self.answered, self._ended = False, False, False
        self._heard = time.monotonic()

    def take(self, jobs: deque[Job]) -> list[Answer]:
        """Write down all that waits; what cannot be written down is refused."""
        batch: list[Job] = []
        while jobs:
            job = jobs.popleft()
            if not job.given_up:
                batch.append(job)
        if batch and not self.under_way:
            self._heard = time.monotonic()  # from now on it owes something
        left = Counter(id(job.input) for job in batch)
        inputs: dict[int, int] = {}
        refused: list[Answer] = []
        for job in batch:
            left[id(job.input)] -= 1
            try:
                self._define(job)
                number = self._input(job.input, inputs)
                order = TaskOrder(job.evaluator, number, self._asked(job), job.limit_s, left[id(job.input)] == 0)
            except Exception as error:
                refused.append((job, error if isinstance(error, NotPortable) else Unavailable(type(error).__name__)))
                continue
            self._number += 1
            self.under_way[self._number] = job
            self.out += frame(TASK, self._number, order.encoded())
        return refused

    def send(self, channel: socket.socket) -> None:
        """Send what can be sent without waiting."""
        while self.out:
            try:
                del self.out[: channel.send(self.out)]
            except BlockingIOError:
                return
            except OSError:
                self._ended = True
                return

    def receive(self, channel: socket.socket) -> list[Answer]:
        """The answers that came."""
        answers: list[Answer] = []
        while not self._ended:
            try:
                data = channel.recv(1 << 18)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self._ended = True
                break
            self._heard = time.monotonic()
            for kind, number, payload in self._frames.feed(data):
                answers += self._heard_of(kind, number, payload)
        return answers

    def check(self) -> None:
        """See to it that it still speaks.

        Raises:
            Lost: It does not.
        """
        silent_s = time.monotonic() - self._heard
        limit_s = _SILENCE_S if self.greeted else _HELLO_S
        owes = self.under_way or not self.greeted
        if self._ended or (owes and silent_s > (_LOADING_S if self._loading else limit_s)):
            raise Lost

    def thaw(self, stood_still_s: float) -> None:
        """Time passed in which nobody could run."""
        self._heard += stood_still_s

    def blame(self) -> list[Answer]:
        """The template died; what died with it three times has failed.

        Held against the evaluator that it was loading, where there is one: its module may end the process. Else nobody
        is to blame: the template does not evaluate, and somebody killed it, such as a kernel that was out of memory.
        """
        failed: list[Answer] = []
        loading = self._loading[0] if self._loading else None
        for number, job in list(self.under_way.items()):
            job.attempts += loading in (None, job.evaluator)
            if job.attempts >= _MAX_ATTEMPTS:
                del self.under_way[number]
                failed.append((job, cut_short(_CRASHED, "crashed", to_blame=loading is not None)))
        return failed

    def again(self) -> list[Job]:
        """The jobs that were under way, last one first; they are no longer."""
        jobs = [job for job in reversed(self.under_way.values()) if not job.given_up]
        self.under_way = {}
        return jobs

    def forget_given_up(self) -> None:
        """Nobody waits for these any more."""
        for number in [number for number, job in self.under_way.items() if job.given_up]:
            del self.under_way[number]

    def _heard_of(self, kind: int, number: int, payload: bytes) -> list[Answer]:
        if kind == ANSWER:
            self.answered = True
            job = self.under_way.pop(number, None)
            return [] if job is None else [(job, payload)]
        if kind == STATUS:
            self.cpu_s = number / 1e6
        elif kind == HELLO:
            if json.loads(payload)[:2] != list(sys.version_info[:2]):
                raise Lost
            self.greeted = True
        elif kind == LOADED:
            self._loading.remove(number)
            if payload:
                return self._not_loaded(number, payload.decode())
        return []

    def _not_loaded(self, evaluator: int, error_type: str) -> list[Answer]:
        its = [number for number, job in self.under_way.items() if job.evaluator == evaluator]
        reason = f"it cannot be loaded in another process ({error_type})"
        return [(self.under_way.pop(number), NotPortable(reason)) for number in its]

    def _define(self, job: Job) -> None:
        if job.evaluator not in self._defined:
            self.out += frame(DEFINE, job.evaluator, job.recipe())
            self._defined.add(job.evaluator)
            self._loading.append(job.evaluator)

    def _input(self, given: EvaluationInput, inputs: dict[int, int]) -> int:
        number = inputs.get(id(given))
        if number is None:
            written = given.__pydantic_serializer__.to_json(given, exclude_unset=True)
            self._number += 1
            number = inputs[id(given)] = self._number
            self.out += frame(INPUT, number, written)
        return number

    def _asked(self, job: Job) -> int:
        if job.criteria is job.input.criteria:
            return 0
        if job.criteria is self._known[0]:
            return self._known[1]
        written = json.dumps([one.model_dump(mode="json") for one in job.criteria]).encode()
        number = self._criteria.get(written)
        if number is None:
            number = self._criteria[written] = len(self._criteria) + 1
            self.out += frame(CRITERIA, number, written)
        self._known = job.criteria, number
        return number

"""The host's end of the child process: one daemon thread that sends what waits and hands back what comes.

`Child.submit` appends to a deque and, only when the thread sleeps, wakes it. All that waits goes out together, each
input written down once, however many evaluators it is for. Answers come back together too, one call into each loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import select
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence

from agenteval_otel.dispatch.own import OwnThread
from agenteval_otel.runner.child.conversation import Answer, Conversation, Lost
from agenteval_otel.runner.child.jobs import Job, settle
from agenteval_otel.runner.child.process import Template, Unavailable

__all__ = ["Child"]

_LINGER_S = 1.0
_MAX_PAUSE_S = 30.0
_MAX_STILLBORN = 2


class Child:
    """The child process of one pipeline. Nothing is started before the first job."""

    def __init__(self, unavailable: Callable[[str], None]) -> None:
        self._unavailable = unavailable
        self._reset()
        _CHILDREN.add(self)

    def _reset(self) -> None:
        self._jobs: deque[Job] = deque()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._wake: tuple[int, int] | None = None
        self._template: Template | None = None
        self._talk = Conversation()
        self._sleeping, self._closing, self._came_late = False, False, False
        self._stillborn, self._losses, self._not_before = 0, 0, 0.0
        self._cpu_s, self._thread_s = 0.0, 0.0
        self.broken = False

    def __repr__(self) -> str:
        state = "not started" if self._template is None else "running"
        return f"<Child {state} waiting={len(self._jobs)} under_way={len(self._talk.under_way)}>"

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the child's processes and of the thread that speaks with them, as far as they are known."""
        return self._cpu_s + self._talk.cpu_s + self._thread_s

    @property
    def waiting(self) -> int:
        """Evaluations that were submitted and not answered."""
        return len(self._jobs) + len(self._talk.under_way)

    def submit(self, job: Job) -> None:
        """Take a job, on the thread of its loop.

        Raises:
            RuntimeError: No thread can be started.
        """
        self._came_late = self._came_late or self._closing
        self._jobs.append(job)
        if self._thread is None:
            self._start()
        self.wake()

    def wake(self) -> None:
        """Have the thread look; from any thread."""
        if self._sleeping and self._wake is not None:
            self._sleeping = False
            with contextlib.suppress(OSError):
                os.write(self._wake[1], b"\0")

    def close(self) -> None:
        """End when nothing is owed to anybody any more; returns at once. What comes afterwards is still done."""
        self._closing = True
        self.wake()

    def forget(self) -> None:
        """In a forked child of the host: the thread and the processes are the parent's."""
        wake, template = self._wake, self._template
        self._reset()
        if template is not None:
            template.forget()
        for descriptor in wake or ():
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _start(self) -> None:
        with self._starting:
            if self._thread is not None:
                return
            wake = os.pipe()
            for descriptor in wake:
                os.set_blocking(descriptor, False)
            thread = OwnThread(target=contextvars.Context().run, args=(self._work, wake), name="agenteval-child")
            self._wake, self._thread = wake, thread
            try:
                thread.start()
            except BaseException:
                self._wake, self._thread = None, None
                self._jobs.clear()
                for descriptor in wake:
                    os.close(descriptor)
                raise

    def _work(self, wake: tuple[int, int]) -> None:
        idle_since = time.monotonic()
        while True:
            if self.waiting:
                idle_since = time.monotonic()
            elif self._closing and self._idle_enough(time.monotonic() - idle_since) and self._leave():
                break
            try:
                self._turn(wake)
            except Exception:
                self._lose_template()  # a defect of ours costs this process, not the evaluations
                if self.broken:  # not even waiting works, as where `select` was patched: the thread must not spin
                    self._refuse_all()
                    if self._leave():
                        break
            self._thread_s = time.thread_time()
        self._end_template()
        for descriptor in wake:
            os.close(descriptor)

    def _idle_enough(self, idle_s: float) -> bool:
        return idle_s >= (_LINGER_S if self._came_late else 0.0)  # where some came after the end, more may come

    def _leave(self) -> bool:
        """Whether the thread may end: nothing came in the moment between."""
        with self._starting:
            thread, self._thread = self._thread, None  # first: who sees it append a job afterwards starts another
            if self._jobs:
                self._thread = thread
                return False
            self._wake, self._sleeping = None, False
            return True

    def _turn(self, wake: tuple[int, int]) -> None:
        now = time.monotonic()
        if self._template is None and self.waiting and now >= self._not_before and not self.broken:
            self._begin_template()
        self._send()
        self._wait(wake, now)
        template = self._template
        if template is None:
            return
        try:
            answers = self._talk.receive(template.channel)
            self._deliver(answers)
            if self._closing:
                self._talk.forget_given_up()
            self._talk.check()
        except Lost:
            self._lose_template()

    def _send(self) -> None:
        if self.broken:
            self._refuse_all()
        elif self._template is not None:
            refused = self._talk.take(self._jobs)
            self._deliver(refused)
            self._talk.send(self._template.channel)

    def _wait(self, wake: tuple[int, int], now: float) -> None:
        poll = select.poll()
        poll.register(wake[0], select.POLLIN)
        due_s = 3600.0
        if self._template is not None:
            poll.register(self._template.channel, select.POLLIN | (select.POLLOUT if self._talk.out else 0))
            due_s = 1.0 if self.waiting else due_s
        elif self.waiting:
            due_s = max(0.01, self._not_before - now)
        if self._closing:
            due_s = min(due_s, 0.25)
        self._sleeping = True
        ready_now = bool(self._jobs) and self._template is not None
        poll.poll(0 if ready_now else due_s * 1000)
        self._sleeping = False
        late_s = time.monotonic() - now - due_s
        if late_s > 1.0:
            self._talk.thaw(late_s)
        with contextlib.suppress(BlockingIOError):
            os.read(wake[0], 4096)

    def _begin_template(self) -> None:
        try:
            self._template = Template()
        except Unavailable as unavailable:
            self._give_up(str(unavailable))
        except OSError:
            self._not_before = time.monotonic() + 1.0
            self._stillborn += 1
            if self._stillborn > _MAX_STILLBORN:
                self._give_up("no process can be started")
        else:
            self._talk.begin()
            for job in self._talk.again():
                self._jobs.appendleft(job)

    def _lose_template(self) -> None:
        """The template died, or does not speak any more: another one, but not one after the other."""
        talk = self._talk
        self._end_template(at_once=True)
        self._stillborn = 0 if talk.greeted else self._stillborn + 1
        self._losses = 0 if talk.answered else self._losses + 1
        self._not_before = time.monotonic() + min(_MAX_PAUSE_S, 0.1 * 2 ** min(self._losses, 10))
        self._deliver(talk.blame())
        if self._stillborn >= _MAX_STILLBORN:
            self._give_up("the child process does not come up")

    def _end_template(self, *, at_once: bool = False) -> None:
        template, self._template = self._template, None
        if template is None:
            return
        self._cpu_s += self._talk.cpu_s
        self._talk.cpu_s = 0.0
        if at_once:
            template.kill()
        template.end()

    def _give_up(self, why: str) -> None:
        self.broken = True
        self._unavailable(why)
        self._refuse_all()

    def _refuse_all(self) -> None:
        jobs = [*self._talk.again(), *self._jobs]
        self._jobs.clear()
        self._deliver([(job, Unavailable("there is no child process")) for job in jobs])

    def _deliver(self, answers: Sequence[Answer]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[Answer]] = {}
        for job, answer in answers:
            by_loop.setdefault(job.loop, []).append((job, answer))
        for loop, its in by_loop.items():
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle, its, context=contextvars.Context())


_CHILDREN: weakref.WeakSet[Child] = weakref.WeakSet()


def _forget_in_child() -> None:
    for child in list(_CHILDREN):
        child.forget()


os.register_at_fork(after_in_child=_forget_in_child)

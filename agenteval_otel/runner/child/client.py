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
from collections import deque
from collections.abc import Callable, Sequence

from agenteval_otel.dispatch.own import OwnThread
from agenteval_otel.runner.child.conversation import Answer, Conversation, Lost
from agenteval_otel.runner.child.jobs import Job, settle
from agenteval_otel.runner.child.process import Template, Unavailable
from agenteval_otel.runtime.fork import reset_in_child

__all__ = ["Child"]

_LINGER_S = 1.0
_MAX_PAUSE_S = 30.0
_MAX_STILLBORN = 2


class Child:
    """The child process of one pipeline. Nothing is started before the first job."""

    def __init__(self, unavailable: Callable[[str], None]) -> None:
        self._unavailable = unavailable
        self._reset()
        reset_in_child(self.forget)

    def _reset(self) -> None:
        self._jobs: deque[Job] = deque()
        self._thread: threading.Thread | None = None
        self._starting = threading.RLock()  # a handler of signals may close what its own thread is about to wake
        self._wake: tuple[int, int] | None = None
        self._template: Template | None = None
        self._talk = Conversation()
        self._sleeping, self._closing, self._came_late = False, False, False
        self._stillborn, self._losses, self._unstarted, self._not_before = 0, 0, 0, 0.0
        self._said_unavailable = False
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
            Unavailable: No thread or no pipe can be had now; this job was not taken.
        """
        self._came_late = self._came_late or self._closing
        self._jobs.append(job)
        if self._thread is None:
            try:
                self._start()
            except Exception as error:
                try:
                    self._jobs.remove(job)
                except ValueError:
                    return  # another loop had better luck, and its thread took the job
                raise Unavailable(type(error).__name__) from None
        self.wake()

    def wake(self) -> None:
        """Have the thread look; from any thread."""
        if not self._sleeping:
            return
        with self._starting:  # else the pipe may be closed meanwhile, and its number somebody else's file
            if self._wake is not None:
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
                if self._stillborn >= _MAX_STILLBORN:
                    self.broken = (
                        True  # not even waiting works, as where `select` was patched: the thread must not spin
                    )
                    self._refuse_all()
                    if self._leave():
                        break
            self._thread_s = time.thread_time()
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
            template = self._taken_template()  # inside: the next thread must not speak with it too
        if template is not None:
            template.end()
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

    @property
    def _refuses(self) -> bool:
        """Whether what waits is better off on the lane's thread."""
        # Of one that follows two that did not come up nothing is asked until it says hello.
        doubtful = self._stillborn >= _MAX_STILLBORN and not self._talk.greeted
        return self.broken or doubtful or (self._template is None and self._unstarted > 0)

    def _send(self) -> None:
        if self._refuses:
            self._refuse_all()
        elif self._template is not None:
            refused = self._talk.take(self._jobs)
            self._deliver(refused)
            self._talk.send(self._template.channel)

    def _wait(self, wake: tuple[int, int], now: float) -> None:
        poll = select.poll()
        poll.register(wake[0], select.POLLIN)
        self._sleeping = True  # before looking at what there is: who submits from here on wakes us
        due_s = 3600.0
        if self._template is not None:
            poll.register(self._template.channel, select.POLLIN | (select.POLLOUT if self._talk.out else 0))
            due_s = 1.0 if self.waiting else due_s
        elif self.waiting:
            due_s = max(0.01, self._not_before - now)
        if self._closing:
            due_s = min(due_s, 0.25)
        ready_now = bool(self._jobs) and (self._template is not None or self._refuses)
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
        except OSError as error:  # the machine is short of something, which passes; what waits need not wait for it
            self._not_before = time.monotonic() + min(_MAX_PAUSE_S, 2.0 ** min(self._unstarted, 10))
            self._unstarted += 1
            self._say(f"no process can be started at present ({type(error).__name__})")
        else:
            self._unstarted = 0
            self._talk.begin()
            for job in self._talk.again():
                self._jobs.appendleft(job)

    def _lose_template(self) -> None:
        """The template died, or does not speak any more: another one, but not one after the other."""
        talk = self._talk
        template = self._taken_template()
        if template is not None:
            template.kill()
            template.end()
        self._stillborn = 0 if talk.greeted else self._stillborn + 1
        self._losses = 0 if talk.answered else self._losses + 1
        self._not_before = time.monotonic() + min(_MAX_PAUSE_S, 0.1 * 2 ** min(self._losses, 10))
        self._deliver(talk.blame())
        if self._stillborn >= _MAX_STILLBORN:
            self._say("the child process does not come up")
            self._refuse_all()

    def _taken_template(self) -> Template | None:
        template, self._template = self._template, None
        self._cpu_s += self._talk.cpu_s
        self._talk.cpu_s = 0.0
        return template

    def _give_up(self, why: str) -> None:
        self.broken = True
        self._say(why)
        self._refuse_all()

    def _say(self, why: str) -> None:
        if not self._said_unavailable:
            self._said_unavailable = True
            self._unavailable(why)

    def _refuse_all(self) -> None:
        jobs = self._talk.again()[::-1]
        while self._jobs:  # one by one: what another thread adds meanwhile is refused too, and not forgotten
            jobs.append(self._jobs.popleft())
        self._deliver([(job, Unavailable("there is no child process")) for job in jobs])

    def _deliver(self, answers: Sequence[Answer]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[Answer]] = {}
        for job, answer in answers:
            by_loop.setdefault(job.loop, []).append((job, answer))
        for loop, its in by_loop.items():
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle, its, context=contextvars.Context())

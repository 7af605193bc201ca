"""Records: what is known of each evaluator while it runs: where it may run, what it was seen to do, what was said."""

from __future__ import annotations

import itertools
import json
import time
import weakref

from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.base import Evaluator
from agenteval_otel.runner.child.recipes import NotPortable, recipe_of
from agenteval_otel.runner.lanes.share import CPU_SHARE, Share
from agenteval_otel.runner.lanes.turns import Turns
from agenteval_otel.runtime.log import log

__all__ = ["FREE_S", "MAX_STUCK", "Record", "Records"]

MAX_STUCK = 3
FREE_S = 0.005
"""CPU seconds of one evaluation of the lane ``free`` from which on it counts as holding the interpreter."""
_OFTEN = 3
_LONG_S, _FAR_TOO_LONG_S = 0.05, 0.5
_WITHIN_S = 60.0
_NUMBERS = itertools.count(1)


class Record:
    """What is known of one evaluator."""

    def __init__(self, evaluator: Evaluator, gone: weakref.ref[Evaluator]) -> None:
        self.number = next(_NUMBERS)
        self.label = evaluator.label
        self.stuck = 0
        self.stays: str | None = None
        """Why it cannot go to the child process."""
        self.moved, self.awaits = False, False
        self.share = Share()
        self.turns = Turns(self.share)
        self._evaluator = gone
        self._recipe: bytes | None = None
        self._points, self._since = 0, 0.0
        self._said: set[str] = set()

    def recipe(self) -> bytes:
        """How another process makes an equal evaluator.

        Raises:
            NotPortable: It cannot.
        """
        if self._recipe is None:
            evaluator = self._evaluator()
            if evaluator is None:
                raise NotPortable("it is gone")
            self._recipe = json.dumps(recipe_of(evaluator)).encode()
        return self._recipe

    def check(self) -> None:
        """See whether it may run at all.

        Raises:
            EvaluationError: (``quarantined``) It got stuck, or ended its process, too often.
        """
        if self.stuck >= MAX_STUCK:
            said = "quarantined: it overran its time limit or ended its process too often"
            raise EvaluationError(said, error_type="quarantined")

    def got_stuck(self) -> None:
        """It overran its limit and would not stop, or it ended its process."""
        self.stuck += 1
        if self.stuck == MAX_STUCK:
            self.say(
                "evaluator_quarantined", f"it overran its limit, held its thread or ended its process {MAX_STUCK} times"
            )

    def held_thread(self) -> None:
        """It held the background thread until that was replaced: from the lane ``free`` it moves out, as `held_up`."""
        self.moved = True
        self.got_stuck()

    def held_up(self, cpu_s: float, *, awaits: bool = False) -> None:
        """In the lane ``free`` it held the interpreter for so long. Often within a minute, or for very long, moves it.

        Not once: a collection of the host's garbage may fall into anybody's turn.

        Args:
            cpu_s: CPU seconds.
            awaits: Whether it went on to wait for something, which only the lane ``model`` can do.
        """
        self.awaits = self.awaits or awaits
        now = time.monotonic()
        if now - self._since > _WITHIN_S:
            self._points, self._since = 0, now
        self._points += 1 if cpu_s < _LONG_S else 2 if cpu_s < _FAR_TOO_LONG_S else _OFTEN
        if self._points >= _OFTEN and not self.moved:
            self.moved = True
            lane = "model" if self.awaits else "cpu"
            self.say(
                "lane_changed",
                f"it took {cpu_s * 1000:.0f} ms in the lane free and runs in the lane {lane} from now on",
            )

    def held(self, why: str) -> None:
        """It has to rest, because it runs in this process, for the reason given, and uses more than its share."""
        self.say("lane_held", f"{why}: held to {CPU_SHARE:.0%} of a processor; see docs/lanes.md")

    def say(self, event: str, said: str) -> None:
        """Write it into the log, once."""
        if event not in self._said:
            self._said.add(event)
            log.warning(event, part=self.label, said=said)


class Records:
    """The records of one pipeline's evaluators; an evaluator that is gone takes its own along."""

    def __init__(self) -> None:
        self.by_id: dict[int, Record] = {}

    def of(self, evaluator: Evaluator) -> Record:
        """The evaluator's record, made when it is first asked for."""
        key = id(evaluator)
        record = self.by_id.get(key)
        if record is None:
            record = self.by_id[key] = Record(evaluator, weakref.ref(evaluator, lambda _: self.by_id.pop(key, None)))
        return record

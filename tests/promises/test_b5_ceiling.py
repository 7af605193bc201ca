"""B5: what judges may cost has a hard ceiling: past a limit by the calls that are in flight, and by
no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.errors import EvaluationSkipped
from agenteval_otel.evaluators.judges.base import Guarded
from agenteval_otel.evaluators.judges.budget import NANO, BudgetLimiter
from agenteval_otel.evaluators.judges.ledger import Amount, LedgerEntry, LedgerKey, MemoryLedger
from agenteval_otel.judges import (
    AnthropicJudge,
    Judge,
    JudgeUsage,
    OpenAICompatibleJudge,
    SpendLimits,
)
from agenteval_otel.testing import ModelReply, ModelServer
from tests.judges.asking import GOOD, QUESTION, hosted
from tests.judges.doubles import CountingJudge, request_of, verdict
from tests.promises.figures import Recorder, sized
from tests.promises.programs import run_program, started_program

AT_ONCE, DAY_S, NOON = 64, 86_400.0, 20_000 * 86_400.0 + 43_200.0
PRICES = {"small-*": {"input": 1.0, "output": 5.0}}
BOTH = pytest.mark.parametrize("kind", [AnthropicJudge, OpenAICompatibleJudge])


def budget_of(path: Path | None = None, **limits: Any) -> tuple[BudgetLimiter, list[float]]:
    """A limiter that keeps its books in this file or in the process, and its clock."""
    clock, ledger = [NOON], None if path else MemoryLedger()
    fields: dict[str, Any] = {"prices": PRICES, "path": path, "patience_s": 10, **limits}
    settings = SpendLimits(**fields)
    return BudgetLimiter(settings, ledger=ledger, clock=lambda: clock[0], draw=lambda: 0.0), clock


@pytest.fixture(params=["memory", "file"])
def books(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """Where the books are kept."""
    return tmp_path / "spend.db" if request.param == "file" else None


def _cost(read: int, answered: int) -> int:
    """Billionths of a dollar."""
    return read * 1_000 + answered * 5_000


class Spender:
    """Calls that may use more than anybody foresaw, fail or be cancelled; keeps what they cost and
    how many ran.
    """

    def __init__(self, dice: random.Random, dearest: tuple[int, int], *, together: int = 0) -> None:
        self.dice, self.dearest, self.together = dice, dearest, together
        self.spent = self.tokens = self.calls = self.flying = self.most_flying = 0
        self.many = asyncio.Event()

    async def ask(self, budget: BudgetLimiter) -> bool:
        """One call as `Guarded` makes it; False where it was not let through."""
        try:
            reservation = await budget.reserve(request_of("a" * 300, most=100), "small-1")
        except EvaluationSkipped:
            self.many.set()
            return False
        self.calls, self.flying = self.calls + 1, self.flying + 1
        self.most_flying = max(self.most_flying, self.flying)
        if self.flying > self.together:
            self.many.set()
        read, answered = (self.dice.randrange(1, most + 1) for most in self.dearest)
        how = self.dice.randrange(10)
        try:
            # the first ones for each other: a file takes longer to ask than these calls take
            await self.many.wait()
            for _ in range(self.dice.randrange(4)):
                await asyncio.sleep(0)
        finally:
            self.spent, self.tokens = (
                self.spent + _cost(read, answered),
                self.tokens + read + answered,
            )
            self.flying -= 1
            word = "refusal" if how < 2 else None
            budget.settle(
                reservation, JudgeUsage(input_tokens=read, output_tokens=answered), error_type=word
            )
        return True


async def _until_refused(budget: BudgetLimiter, spender: Spender) -> None:
    async def work() -> None:
        # A limit that does not hold ends somewhere too, with more than it allows.
        while spender.calls < 5_000 and await spender.ask(budget):
            pass

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


@pytest.mark.parametrize("seed", range(5))
def test_64_at_once_that_are_dearer_than_foreseen(
    books: Path | None, seed: int, promise: Recorder
) -> None:
    """Calls of up to three times what was reserved: past the limit by the calls in flight, of the
    dearest kind.
    """
    dearest = (400, 300)
    spender = Spender(random.Random(seed), dearest, together=AT_ONCE // 4)
    budget, _ = budget_of(books, usd_per_day=0.05, soft_limit=0.5)
    asyncio.run(_until_refused(budget, spender))
    over = spender.spent - 0.05 * NANO
    most = spender.most_flying * _cost(*dearest)
    promise(
        "B5",
        figure=f"{spender.most_flying} at once: over the limit by {max(0, over) / most:.2f} of calls in flight",
    )
    assert over <= most
    assert spender.most_flying > AT_ONCE // 4
    assert spender.spent > 0.5 * 0.05 * NANO


def test_reservations_keep_within_the_limit() -> None:
    """Calls that use no more than was reserved for them do not pass the limit at all, however many
    are under way.
    """
    spender = Spender(random.Random(3), (100, 100))
    budget, _ = budget_of(usd_per_day=0.05)
    asyncio.run(_until_refused(budget, spender))
    assert 0 < spender.spent <= 0.05 * NANO


class Never:
    """A pause without an end, and without a loop."""

    def wait(self) -> Never:
        return self

    def __await__(self) -> Iterator[None]:
        yield


def test_a_ledger_never_waits_for_its_own_lock() -> None:
    """The garbage collector ends an abandoned call while its thread reserves another one: both are
    entered.
    """
    ledger = MemoryLedger()
    limits = SpendLimits(prices=PRICES, usd_per_day=1.0)
    guarded = Guarded(
        CountingJudge(pause=Never()),
        budget=BudgetLimiter(limits, ledger=ledger, clock=lambda: NOON),
    )
    key = LedgerKey("", "day", int(NOON // DAY_S))

    def collects(totals: Any, share: float) -> bool:
        assert totals[key].tokens == 238, "the call is reserved"
        return gc.collect() > 0

    def work() -> None:
        call = guarded.judge(request_of("a" * 300, most=100))
        call.send(None)
        cycle: list[Any] = [call]
        cycle.append(cycle)
        del call, cycle
        reserved.append(
            asyncio.run(
                ledger.reserve(
                    LedgerEntry("another", (key,), Amount(1, 1), NOON + 900), collects, NOON
                )
            )
        )

    reserved: list[bool] = []
    thread = threading.Thread(target=work, daemon=True)
    gc.disable()
    try:
        thread.start()
        thread.join(20.0)
        assert not thread.is_alive(), "it waits for a lock that it has itself"
    finally:
        gc.enable()
    assert reserved == [True]
    assert ledger.known([key])[key].tokens == 238 + 1


@pytest.mark.parametrize(
    "prices",
    [{}, {"another": {"input": 1.0, "output": 1.0}}, {"Small-1": {"input": 0, "output": 0}}],
)
def test_without_a_price_tokens_are_capped(prices: Any, promise: Recorder) -> None:
    """A model that the table does not know is held to tokens where dollars are limited, the default
    cap included.
    """
    for most in (20_000, None):
        fields = {} if most is None else {"unpriced_tokens_per_day": most}
        budget, _ = budget_of(prices=prices, usd_per_day=1.0, **fields)
        spender = Spender(random.Random(5), (4_000, 1_000) if most is None else (150, 100))
        asyncio.run(_until_refused(budget, spender))
        cap = most or 1_000_000
        assert cap // 2 < spender.tokens <= cap + AT_ONCE * sum(spender.dearest)
    promise("B5", figure=f"no price: {spender.tokens} tokens where 1000000 are allowed")


def test_a_cheap_name_is_no_cheaper_price() -> None:
    """What counts is the model that was asked for: a provider that answers under a cheaper name
    changes no price.
    """
    prices = {"judge-1": {"input": 10.0, "output": 50.0}, "free": {"input": 0, "output": 0}}
    with ModelServer(
        [ModelReply(text=GOOD, model="free", input_tokens=100, output_tokens=10)]
    ) as server:
        for kind in (AnthropicJudge, OpenAICompatibleJudge):
            judge = hosted(
                kind,
                server,
                spend=SpendLimits(prices=prices, usd_per_day=1.0, account=kind.__name__),
            )
            outcome = asyncio.run(judge.guarded().judge(QUESTION))
            assert (outcome.model, outcome.cost_usd) == ("free", pytest.approx(1_500e-6))


STEPS: dict[str, Callable[[random.Random], float]] = {
    "a day forward and back": lambda dice: dice.choice([DAY_S, -DAY_S]),
    "a second back": lambda dice: -1.0,
    "anywhere": lambda dice: dice.uniform(-40 * DAY_S, 40 * DAY_S),
    "around midnight": lambda dice: dice.choice([0.5, -0.5]) * DAY_S,
}


@pytest.mark.parametrize("step", STEPS)
def test_a_clock_that_steps_gives_no_second_day(
    books: Path | None, step: str, promise: Recorder
) -> None:
    """Every day that the clock shows has its limit once, however often the clock leaves it and
    comes back.
    """
    dice = random.Random(7)
    budget, clock = budget_of(books, usd_per_day=0.01)
    spent: dict[int, int] = {}

    async def spend() -> None:
        day = int(clock[0] // DAY_S)
        spender = Spender(dice, (100, 100))
        await spender.ask(budget)
        spent[day] = spent.get(day, 0) + spender.spent

    async def work() -> None:
        for _ in range(60):
            await asyncio.gather(*(spend() for _ in range(AT_ONCE // 4)))
            clock[0] += STEPS[step](dice)

    asyncio.run(work())
    assert max(spent.values()) <= 0.01 * NANO + AT_ONCE * _cost(100, 100)
    share = max(spent.values()) / (0.01 * NANO)
    promise(
        "B5",
        figure=f"clock steps: at most {share:.2f} of a day's limit on any of {len(spent)} days",
    )


HOSTILE: tuple[dict[str, Any], ...] = (
    {"input_tokens": -(10**9), "output_tokens": 1},
    {"input_tokens": -5, "output_tokens": -5, "cache_read_tokens": -(10**18)},
    {"input_tokens": 2**53, "output_tokens": 2**53, "cache_write_tokens": 2**63},
    {"input_tokens": 2**2000},
    {"input_tokens": 0, "output_tokens": 0},
)


@pytest.mark.parametrize("usage", HOSTILE, ids=str)
@pytest.mark.parametrize("cost_usd", [None, -1e9, float("nan"), float("inf"), 1e308])
def test_usage_that_makes_no_sense_gives_no_money(
    usage: dict[str, Any], cost_usd: float | None, books: Path | None
) -> None:
    """A judge that tells of negative, absurd or infinite use neither grows the budget nor breaks
    the books.
    """
    budget, clock = budget_of(books, usd_per_day=0.05, tokens_per_day=100_000)
    lies = verdict().model_copy(
        update={
            "usage": JudgeUsage.model_construct(**{**JudgeUsage().model_dump(), **usage}),
            "cost_usd": cost_usd,
        }
    )
    judge = Guarded(CountingJudge(model="small-1", answer=lambda _: lies), budget=budget)

    async def work() -> int:
        calls = 0
        with contextlib.suppress(EvaluationSkipped):
            while calls < 1_000:
                actual = await judge.judge(request_of())
                assert actual.cost_usd is None or 0.0 <= actual.cost_usd < 1e9
                calls += 1
        clock[0] += DAY_S  # the next day is another one, whatever was told of the last
        await judge.judge(request_of())
        return calls

    assert 1 <= asyncio.run(work()) <= 0.05 * NANO / _cost(1, 0)
    left = budget.remaining_usd()["day"]
    assert 0.0 <= left <= 0.05
    if books:
        assert budget.ledger.store.failures == 0


@BOTH
def test_the_real_clients_at_64_at_once(kind: type[Judge], promise: Recorder) -> None:
    """What the provider on loopback has answered, at its own prices: past the limit by calls in
    flight at most.
    """
    reply = ModelReply(text=GOOD, input_tokens=900, output_tokens=300, delay_s=0.02)
    cost, most = 900 * 1e-6 + 300 * 5e-6, 0.2
    with ModelServer([reply]) as server:
        limits = SpendLimits(
            prices={"judge-*": PRICES["small-*"]}, usd_per_day=most, account=f"real {kind.__name__}"
        )
        guarded = hosted(kind, server, spend=limits).guarded()

        async def ask() -> None:
            with contextlib.suppress(EvaluationSkipped):
                while True:
                    await guarded.judge(QUESTION)

        async def work() -> None:
            await asyncio.gather(*(ask() for _ in range(AT_ONCE)))

        asyncio.run(work())
        spent = len(server.requests) * cost
    promise(
        "B5",
        figure=f"real clients, {AT_ONCE} at once: {spent:.3f} dollars where {most} are allowed",
    )
    assert 0.5 * most < spent <= most + AT_ONCE * cost


_PROGRAM = """
import asyncio, contextlib, json, os, resource, sys
from agenteval_otel.errors import EvaluationSkipped
from agenteval_otel.judges import JudgeRequest
from agenteval_otel.testing import ScriptedJudge

path, most, at_once, calls, largest = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
if largest:
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
judge = ScriptedJudge.load({
    "model": "small-1", "fallback": {"score": True}, "input_tokens": 130, "output_tokens": 90, "delay_s": 0.002,
    "spend": {"prices": {"small-*": {"input": 1, "output": 5}}, "usd_per_day": most, "path": path, "patience_s": 10},
})
calls = os.open(calls, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

async def ask():
    with contextlib.suppress(EvaluationSkipped):
        while True:
            await judge.guarded().judge(JudgeRequest(prompt="a" * 300, max_tokens=100))
            if not largest: os.write(calls, b".")

async def work():
    await asyncio.gather(*(ask() for _ in range(at_once)))
    ledger = judge.guarded().budget.ledger
    report = {"calls": judge.calls, "failures": ledger.store.failures, "flushed": ledger.store.close(10)}
    print("report", json.dumps(report))

asyncio.run(work())
"""
_COST = _cost(130, 90)


def _arguments(folder: Path, most: float, at_once: int = AT_ONCE, largest: int = 0) -> list[str]:
    return [
        _PROGRAM,
        str(folder / "spend.db"),
        str(most),
        str(at_once),
        str(folder / "calls"),
        str(largest),
    ]


@pytest.mark.sized
def test_two_processes_kills_and_restarts_on_one_file(tmp_path: Path, promise: Recorder) -> None:
    """Two processes with sixty-four calls each, killed and started again: one limit, over by what
    was in flight.
    """
    reported, most, kills, pause = tmp_path / "calls", 0.4, sized(2, 6), threading.Event()
    program = _arguments(tmp_path, most)
    reported.touch()
    for number in range(kills):
        goal = (number + 1) * most * NANO / _COST / (kills + 2)
        # both are killed at its end
        with started_program(*program) as first, started_program(*program) as second:
            while reported.stat().st_size < goal and first.poll() is None and second.poll() is None:
                pause.wait(0.002)
    with ThreadPoolExecutor(2) as pool:
        ended = [
            finished.report()
            for finished in pool.map(lambda _: run_program(*program, timeout_s=120.0), range(2))
        ]
    assert [(item["failures"], item["flushed"]) for item in ended] == [(0, True)] * 2
    spent = reported.stat().st_size * _COST
    in_flight = (kills + 1) * 2 * AT_ONCE
    assert 0.5 * most * NANO <= spent <= most * NANO + in_flight * _COST
    assert run_program(*program, timeout_s=120.0).report()["calls"] <= AT_ONCE // 2, (
        "a restart finds what was spent"
    )
    with contextlib.closing(sqlite3.connect(tmp_path / "spend.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    promise(
        "B5",
        figure=f"2 processes, {2 * kills} kills, restarts: {spent / (most * NANO):.2f} of the limit spent",
    )


def test_a_disk_that_is_full_neither_stops_nor_frees(tmp_path: Path, promise: Recorder) -> None:
    """Where the file can no longer grow, a tenth of the limit may be spent, as long as that lasts."""
    most = 0.2
    ended = run_program(
        *_arguments(tmp_path, most, at_once=16, largest=8_192), timeout_s=120.0
    ).report()
    assert ended["failures"] > 0
    assert 0 < ended["calls"] * _COST <= 0.1 * most * NANO + 16 * 2 * _COST
    promise(
        "B5",
        figure=f"no room on the disk: {ended['calls'] * _COST / (most * NANO):.2f} of the limit spent",
    )


@pytest.mark.parametrize(
    "damage", ["not a database", "cut", "another schema", "a folder's", "empty"]
)
def test_a_file_that_was_tampered_with_gives_no_money(damage: str, tmp_path: Path) -> None:
    """Whatever stands in the file: no more than the limit is spent, and no call waits or raises for
    it.
    """
    path = tmp_path / "spend.db"
    limits = SpendLimits(prices=PRICES, usd_per_day=0.02, path=path, patience_s=1, account=damage)
    first = BudgetLimiter(limits, clock=lambda: NOON, draw=lambda: 0.0)
    asyncio.run(Spender(random.Random(1), (100, 100)).ask(first))
    assert first.ledger.store.close(5.0)  # type: ignore[attr-defined]
    _damaged(path, damage)
    spender = Spender(random.Random(2), (100, 100))
    asyncio.run(
        _until_refused(BudgetLimiter(limits, clock=lambda: NOON, draw=lambda: 0.0), spender)
    )
    assert spender.calls < 1_000
    assert 0 < spender.spent <= 0.02 * NANO


def _damaged(path: Path, damage: str) -> None:
    if damage == "not a database":
        path.write_bytes(os.urandom(8_192))
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:5_000])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "a folder's":
        path.unlink()
        path.mkdir()
    else:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("DROP TABLE amounts")
            connection.execute("CREATE TABLE amounts (x)")

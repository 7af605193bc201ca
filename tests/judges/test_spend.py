"""Spend: prices, limits and the budget that reserves before each call."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.components.database.sqlite_store import SqliteStore
from agenteval_otel.errors import EvaluationSkipped, JudgeError
from agenteval_otel.evaluators.judges import ledger as ledgers
from agenteval_otel.evaluators.judges.adapter import as_judge
from agenteval_otel.evaluators.judges.base import Guarded
from agenteval_otel.evaluators.judges.budget import (
    BudgetLimiter,
    Price,
    PurposeLimits,
    Reservation,
    SpendLimits,
    ledger_of,
    price_of,
)
from agenteval_otel.evaluators.judges.ledger import SCHEMA, MemoryLedger, SqliteLedger
from agenteval_otel.judges import JudgeUsage
from agenteval_otel.testing import ManualClock
from tests.judges.doubles import CountingJudge, request_of, usage_of
from tests.testing.doubles import enter_and_wait

SMALL = Price(input=1.0, output=5.0)
NOON = 1_800_014_400.0  # a day's number that nobody has to think about


def limiter_of(
    clock: Any = None, draw: float = 0.0, ledger: Any = None, **limits: Any
) -> BudgetLimiter:
    made = SpendLimits(**({"prices": {"small-*": SMALL}} | limits))
    ledger = ledger or MemoryLedger()
    return BudgetLimiter(made, ledger=ledger, clock=clock or ManualClock(NOON), draw=lambda: draw)


@contextlib.contextmanager
def file_of(path: Path, **settings: Any) -> Iterator[SqliteLedger]:
    ledger = SqliteLedger(path, "judges", patience_s=0.2, **settings)
    yield ledger
    assert ledger.store.close(5.0)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program writes into the file for as long as it is open."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("COMMIT")


def reserve(budget: BudgetLimiter, request: Any = None, model: str = "small-1") -> Reservation:
    return asyncio.run(budget.reserve(request or request_of(), model))


def calls_until_refused(budget: BudgetLimiter, usage: JudgeUsage, model: str = "small-1") -> int:
    """How many calls are made, of a thousand at most, until one does not fit."""
    for made in range(1_000):
        try:
            reservation = reserve(budget, model=model)
        except EvaluationSkipped:
            return made
        budget.settle(reservation, usage)
    raise AssertionError("no limit")


def tokens_in(path: Path) -> list[int]:
    """What the file holds of the day: one row where all that was reserved is settled."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return [
            row[0] for row in connection.execute("SELECT tokens FROM amounts WHERE period = 'day'")
        ]


def skip_of(budget: BudgetLimiter, request: Any = None, model: str = "small-1") -> str:
    with pytest.raises(EvaluationSkipped) as caught:
        reserve(budget, request, model)
    return str(caught.value)


def test_a_call_costs_its_tokens_prices() -> None:
    """Each kind of token has its price, a cache's by default a high one; the sum is rounded up to a
    billionth.
    """
    price = Price(input=0.10, output=0.50, cache_read=0.01, cache_write=0.125)
    usage = JudgeUsage(
        input_tokens=1500, output_tokens=150, cache_read_tokens=1000, cache_write_tokens=200
    )
    assert price.nano_usd(usage) == 150_000 + 75_000 + 10_000 + 25_000
    assert Price(input=0.0001, output=0).nano_usd(usage_of(1, 0)) == 1
    cached = JudgeUsage(cache_read_tokens=100, cache_write_tokens=100)
    assert Price(input=1.0, output=5.0).nano_usd(cached) == 100_000 + 200_000


def test_the_longest_name_wins() -> None:
    """The exact name, else the longest prefix with a star."""
    table = {
        name: Price(input=number, output=0)
        for number, name in enumerate(("big", "big-*", "big-2*", "*x"))
    }
    assert price_of(table, "big") is table["big"]
    assert price_of(table, "big-1-20260101") is table["big-*"]
    assert price_of(table, "big-2.5") is table["big-2*"]
    assert price_of(table, "bigger") is None
    assert price_of(table, "") is None


@pytest.mark.parametrize(
    ("limits", "scope"),
    [
        ({"usd_per_day": 0.002}, "day"),
        ({"tokens_per_day": 700}, "day"),
        ({"usd_per_minute": 0.002}, "minute"),
        ({"tokens_per_minute": 700}, "minute"),
        ({"purposes": {"correctness": {"usd_per_day": 0.002}}}, "day"),
        ({"each_purpose": {"tokens_per_minute": 700}}, "minute"),
    ],
)
def test_each_limit_holds(limits: dict[str, Any], scope: str) -> None:
    """Dollars and tokens, per minute and day, in total and for a purpose; the next window is free."""
    clock = ManualClock(NOON)
    budget = limiter_of(clock, **limits)
    reserve(budget)
    with contextlib.suppress(EvaluationSkipped):
        for _ in range(2):
            reserve(budget)
    assert skip_of(budget) == "budget_exhausted"
    clock.advance(60)
    if scope == "day":
        assert skip_of(budget) == "budget_exhausted"
        clock.advance(86_400)
    reserve(budget)


def test_purposes_and_accounts_have_their_own_limits() -> None:
    """A purpose at its limit does not stop others; the total of an account stops all of its judges."""
    account = ledger_of(SpendLimits(account="of this test"))
    budget = limiter_of(
        ledger=account, purposes={"a": PurposeLimits(tokens_per_day=300)}, tokens_per_day=600
    )
    reserve(budget, request_of(purpose="a"))
    assert skip_of(budget, request_of(purpose="a")) == "budget_exhausted"
    reserve(budget, request_of(purpose="b"))
    another_judge = limiter_of(ledger=account, tokens_per_day=600)
    assert skip_of(another_judge, request_of(purpose="b")) == "budget_exhausted"


@pytest.mark.parametrize("path", [None, "spend.db"], ids=["memory", "file"])
def test_judges_of_one_account_share_a_ledger(path: str | None, tmp_path: Path) -> None:
    """In memory, and in a file that settings lead to; other accounts have another one."""
    mine, others = (
        SpendLimits(account=f"{name} of {path}", path=tmp_path / path if path else None)
        for name in ("mine", "others")
    )
    assert isinstance(ledger_of(mine), SqliteLedger if path else MemoryLedger)
    assert ledger_of(mine) is ledger_of(mine)
    assert ledger_of(others) is not ledger_of(mine)


@pytest.mark.parametrize(
    ("usage", "word", "charged"),
    [
        (usage_of(10, 5), "refusal", 15),
        (None, "rate_limited", 0),
        (None, "overloaded", 0),
        (None, "authentication", 0),
        (JudgeUsage(calls=2), "server_error", 0),
        (None, "timeout", 238),
        (None, "connection_error", 238),
        (None, None, 238),
        (JudgeUsage(), None, 238),
        (JudgeUsage(), "timeout", 238),
    ],
)
def test_failures_are_charged_their_possible_cost(usage: Any, word: Any, charged: int) -> None:
    """The provider's count; nothing for refused requests; the whole reservation where the usage is
    unknown.
    """
    budget = limiter_of(tokens_per_day=1_000)
    reservation = reserve(budget)
    assert reservation.entry is not None
    assert reservation.entry.amount.tokens == 238
    budget.settle(reservation, usage, error_type=word)
    assert (
        sum(total.tokens for total in budget.ledger.known(reservation.entry.keys).values())
        == charged
    )


def test_a_model_without_a_price_is_held_to_tokens(caplog: pytest.LogCaptureFixture) -> None:
    """The log names it once; a model with a price goes on."""
    budget = limiter_of(usd_per_day=1.0, unpriced_tokens_per_day=1_000)
    with caplog.at_level(logging.WARNING, "agenteval_otel"):
        made = calls_until_refused(budget, usage_of(60, 40), model="nobody-knows")
    assert 7 <= made <= 9
    (message,) = caplog.messages
    assert "[event='judge_model_has_no_price' part='nobody-knows'" in message
    reserve(budget)


def test_a_limit_below_one_call_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """It would silence a judge."""
    with caplog.at_level(logging.WARNING, "agenteval_otel"):
        budget = limiter_of(usd_per_minute=0.0001)
        assert [skip_of(budget) for _ in range(3)] == ["budget_exhausted"] * 3
    [line] = caplog.messages
    assert line.endswith("[event='judge_limit_below_one_call' part='total a minute']")


@pytest.mark.parametrize(
    ("spent", "draw", "probability"), [(7_900, 0.99, 1.0), (9_000, 0.4, 0.5), (9_000, 0.6, None)]
)
def test_the_draw_decides_near_the_limit(
    spent: int, draw: float, probability: float | None
) -> None:
    """All calls are made below four fifths of a limit; at nine tenths a draw of 0.4 passes and one
    of 0.6 is a sampled skip.
    """
    budget = limiter_of(draw=draw, tokens_per_day=10_000)
    budget.settle(reserve(budget), usage_of(spent, 0))
    if probability is None:
        assert skip_of(budget) == "budget"
    else:
        assert reserve(budget).probability == pytest.approx(probability)


@pytest.mark.parametrize("text", ["", "a" * 200, "京" * 200, "\U0001f600" * 200, "\ud800" * 200])
def test_at_least_a_third_of_the_letters_and_the_longest_answer_are_reserved(text: str) -> None:
    """No script's tokens are longer than that."""
    reservation = reserve(limiter_of(tokens_per_day=10_000), request_of(text, most=100))
    assert reservation.entry is not None
    assert reservation.entry.amount.tokens >= len(text) / 3 + 100


def test_the_remaining_dollars_can_be_read() -> None:
    """By period, also before the first call and in a new window."""
    clock = ManualClock(NOON)
    budget = limiter_of(clock, usd_per_day=1.0, usd_per_minute=0.5)
    assert budget.remaining_usd() == {"minute": 0.5, "day": 1.0}
    budget.settle(reserve(budget), usage_of(100_000, 0))
    assert budget.remaining_usd() == pytest.approx({"minute": 0.4, "day": 0.9})
    clock.advance(60)
    assert budget.remaining_usd() == pytest.approx({"minute": 0.5, "day": 0.9})


class Refused(Exception):
    """As clients raise what the provider answered."""

    status_code = 429


@pytest.mark.parametrize(
    ("error", "left"), [(ValueError(), 62), (ConnectionError(), 62), (Refused(), 300)]
)
def test_what_an_object_of_the_programs_raises_may_have_been_paid(
    error: Exception, left: int
) -> None:
    """The whole reservation counts, except where the provider has refused the call."""

    def raises(prompt: str) -> str:
        raise error

    ledger = MemoryLedger()
    budget = limiter_of(ledger=ledger, tokens_per_day=300)
    with pytest.raises(JudgeError):
        asyncio.run(Guarded(as_judge(raises), budget=budget).judge(request_of()))
    (spent,) = ledger.known([limit.key(NOON) for limit in budget.limits.limits("")]).values()
    assert 300 - spent.tokens == left


def test_a_cancelled_call_settles() -> None:
    """It leaves no reservation behind, and is charged."""
    ledger = MemoryLedger()
    budget = limiter_of(ledger=ledger, tokens_per_day=1_000)

    async def work() -> None:
        guarded = Guarded(CountingJudge(pause=asyncio.Event()), budget=budget)
        task = asyncio.ensure_future(guarded.judge(request_of()))
        await asyncio.sleep(0.01)
        assert repr(ledger) == "<MemoryLedger 1 reserved>"
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(work())
    assert repr(ledger) == "<MemoryLedger 0 reserved>"


def test_reservations_of_killed_processes_expire(tmp_path: Path) -> None:
    """What the killed process may have used counts as spent, as the provider may have charged for
    the call.
    """
    with file_of(tmp_path / "spend.db") as ledger:
        clock = ManualClock(NOON)
        budget = limiter_of(clock, ledger=ledger, tokens_per_day=300)
        reserve(budget)
        clock.advance(901)
        assert skip_of(budget) == "budget_exhausted"
    assert tokens_in(tmp_path / "spend.db") == [238]


def test_the_oldest_minutes_leave_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many are kept as in memory; days stay."""
    monkeypatch.setattr(ledgers, "_MAX_WINDOWS", 2)
    monkeypatch.setattr(ledgers, "_PRUNE_EVERY", 1)
    clock, path = ManualClock(NOON), tmp_path / "spend.db"
    with file_of(path) as ledger:
        budget = limiter_of(clock, ledger=ledger, tokens_per_minute=1_000, tokens_per_day=10_000)
        for tokens in range(1, 6):
            budget.settle(reserve(budget), usage_of(tokens, 0))
            clock.advance(60)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT period, tokens FROM amounts ORDER BY period, number"
        ).fetchall()
    assert rows == [("day", 15), ("minute", 3), ("minute", 4), ("minute", 5)]


def test_a_locked_file_neither_stops_nor_frees_evaluation(tmp_path: Path) -> None:
    """A tenth of each limit may be spent meanwhile; that, and calls settled meanwhile, are written
    when it is back.
    """
    clock, path = ManualClock(), tmp_path / "spend.db"
    with file_of(path, clock=clock) as ledger:
        budget = limiter_of(ledger=ledger, tokens_per_day=10_000)
        reservation = reserve(budget)
        with locked(path):
            budget.settle(reservation, usage_of(100, 0))
            assert not ledger.store.close(5.0)
            failures = ledger.store.failures
            made = calls_until_refused(budget, usage_of(50, 50))
        assert 5 <= made <= 10
        assert ledger.store.failures == failures > 0
        clock.advance(11)
        budget.settle(reserve(budget), usage_of(1, 0))
    assert tokens_in(path) == [100 + 100 * made + 1]


def test_a_cancelled_reservation_leaves_nothing(tmp_path: Path) -> None:
    """It is released, whenever it reaches the file."""
    path = tmp_path / "spend.db"
    with file_of(path) as ledger:
        budget = limiter_of(ledger=ledger, tokens_per_day=10_000)
        budget.settle(reserve(budget), usage_of(1, 0))

        async def work() -> None:
            for delay in range(20):
                task = asyncio.ensure_future(budget.reserve(request_of(), "small-1"))
                await asyncio.sleep(delay * 0.0001)
                if task.cancel():
                    with pytest.raises(asyncio.CancelledError):
                        await task
                else:
                    budget.settle(task.result(), JudgeUsage(input_tokens=1))

        asyncio.run(work())
        assert ledger.store.close(5.0)
    assert len(tokens_in(path)) == 1


def test_a_new_file_waits_for_another_writer(tmp_path: Path) -> None:
    """SQLite itself refuses the write-ahead log at once there."""
    path = tmp_path / "spend.db"
    with locked(path):
        database = SqliteStore(path, SCHEMA, event="unusable", patience_s=30)
        request_of = database.submit(lambda connection: connection.execute("SELECT 1").fetchone())
        with pytest.raises(TimeoutError):
            request_of.result(0.2)
    assert request_of.result(30) == (1,)
    assert database.close(10)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_goes_on_with_the_file(tmp_path: Path) -> None:
    """Parent and child have their own connections, and the file has what both spent."""
    path = tmp_path / "spend.db"
    with file_of(path) as ledger:
        budget = limiter_of(ledger=ledger, tokens_per_day=100_000)
        budget.settle(reserve(budget), usage_of(1, 0))
        child = os.fork()
        for _ in range(20):
            budget.settle(reserve(budget), usage_of(1, 0))
        if child == 0:
            os._exit(0 if ledger.store.close(10.0) and ledger.store.failures == 0 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert ledger.store.close(5.0)
        assert ledger.store.failures == 0
    assert tokens_in(path) == [41]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_during_a_write_leaves_the_file_alone(tmp_path: Path) -> None:
    """SQLite's locks do not cross a fork: the child uses its own ledger."""
    path = tmp_path / "spend.db"
    with file_of(path) as ledger:
        budget = limiter_of(ledger=ledger, tokens_per_day=100_000)
        budget.settle(reserve(budget), usage_of(1, 0))
        assert ledger.store.close(5.0)
        is_writing, forked = threading.Event(), threading.Event()
        ledger.store.submit(lambda _: enter_and_wait(is_writing, forked))
        assert is_writing.wait(20.0)
        child = os.fork()
        if child == 0:
            made = reserve(budget)
            os._exit(0 if made.entry is not None and ledger.store.failures == 1 else 1)
        assert os.waitpid(child, 0)[1] == 0
        forked.set()
        budget.settle(reserve(budget), usage_of(1, 0))

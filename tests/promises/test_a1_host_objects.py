"""A1: what a handler returns stays the host's: none of its code runs for us, and nothing of it
waits in our queue.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlmodel
from sqlalchemy import create_engine, event
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from agenteval_otel import annotate, monitor
from agenteval_otel.engine.pipeline import Pipeline, PoolDispatcher
from tests.instrumentation.support import Seen
from tests.promises.bench import pipeline_of
from tests.promises.figures import Recorder
from tests.promises.programs import run_program
from tests.testing.doubles import Free

CHECKOUT_S = 0.01
REQUESTS = 60


class Base(DeclarativeBase):
    pass


class Row(Base):
    __tablename__ = "rows"
    id: Mapped[int] = mapped_column(primary_key=True)
    content: Mapped[str]
    note: Mapped[str] = mapped_column(default="a note")


class Message(sqlmodel.SQLModel, table=True):
    id: int | None = sqlmodel.Field(default=None, primary_key=True)
    content: str
    note: str = "a note"


class Database:
    """A database whose connections are slow to get, and which thread asked it for what."""

    def __init__(self, path: Path) -> None:
        self.foreign: list[str] = []
        self.engine = create_engine(f"sqlite:///{path}", connect_args={"check_same_thread": False})
        Base.metadata.create_all(self.engine)
        sqlmodel.SQLModel.metadata.create_all(self.engine, tables=[Message.__table__])  # type: ignore[attr-defined]
        host = threading.get_ident()

        def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
            if threading.get_ident() != host:
                self.foreign.append(statement)

        event.listen(self.engine, "checkout", lambda *_: threading.Event().wait(CHECKOUT_S))
        event.listen(self.engine, "before_cursor_execute", note)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(tmp_path / "rows.db")
    yield made
    made.engine.dispose()


@pytest.fixture
def pipeline() -> Iterator[Pipeline]:
    made = pipeline_of(Free(), dispatcher=PoolDispatcher(linger_s=0.0))
    yield made
    assert made.shutdown(20.0)


@pytest.mark.parametrize("kind", [Row, Message])
@pytest.mark.parametrize("form", ["alone", "in a list"])
def test_mapped_rows_are_never_fetched(
    kind: Any, form: str, database: Database, pipeline: Pipeline, promise: Recorder
) -> None:
    """A host that returns expired rows keeps its session: no statement on our thread, no error, no
    transaction.
    """

    def store(session: Session, content: str) -> Any:
        row = kind(content=content)
        session.add(row)
        session.commit()  # expires every field
        return row

    @monitor(pipeline=pipeline)
    def handler(prompt: Any, session: Session) -> Any:
        row = store(session, "said")
        return row if form == "alone" else [row]

    for number in range(REQUESTS):
        with Session(database.engine) as session:
            answer = handler(store(session, f"question {number}"), session)
            if number % 4:
                row = answer if form == "alone" else answer[0]
                assert row.content == "said"
            else:
                assert pipeline.flush(20.0)
                assert not session.in_transaction()
    assert pipeline.flush(20.0)
    assert database.foreign == []
    assert database.engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    promise(
        "A1",
        figure=f"{REQUESTS} requests with mapped rows: 0 statements on our thread, 0 errors of the host",
    )


CALLED: list[str] = []


def trap(name: str) -> Any:
    def method(self: Any, *args: Any) -> Any:
        CALLED.append(name)
        raise RuntimeError(name)

    return method


class Trap:
    """Notes every method that runs; its fields are stored as anybody's are."""

    def __init__(self) -> None:
        self.text = "stored"

    content, output = property(trap("property")), functools.cached_property(trap("cached property"))
    output.__set_name__(None, "output")  # type: ignore[arg-type]
    for _name in (
        "getattr",
        "getattribute",
        "iter",
        "len",
        "repr",
        "str",
        "eq",
        "hash",
        "bool",
        "getitem",
        "contains",
        "format",
        "sizeof",
        "index",
        "dir",
        "reduce",
        "copy",
        "deepcopy",
        "call",
        "await",
    ):
        locals()[f"__{_name}__"] = trap(_name)


class LazyTrap(Trap):
    """The same, as an object that a library makes lazily: nothing is stored."""

    def __init__(self) -> None:
        pass


def _argument(prompt: Any) -> str:
    return "ok"


def _chunk(value: Any) -> Iterator[Any]:
    yield "ok"
    yield value


def _fact(value: Any) -> str:
    annotate(metadata={"x": value}, context=[value], model=value)
    return "ok"


PLACES: dict[str, Callable[[Any], Any]] = {
    "answer": lambda value: value,
    "list": lambda value: ["ok", value],
    "dictionary": lambda value: {"answer": "ok", "docs": value},
    "tuple": lambda value: ("ok", (value,)),
    "key": lambda value: {"answer": "ok", value: 1},
    "argument": _argument,
    "chunk": _chunk,
    "fact": _fact,
}


@pytest.mark.parametrize("make", [Trap, LazyTrap])
@pytest.mark.parametrize("place", PLACES)
def test_no_method_of_an_unknown_object_runs(make: Callable[[], Any], place: str) -> None:
    """No property, descriptor or special method of an object that we do not know runs, wherever it
    stands.
    """
    seen, value = Seen(), make()
    type.__setattr__(Trap, "__hash__", object.__hash__ if place == "key" else trap("hash"))
    CALLED.clear()
    handler = seen.monitor(PLACES[place])
    answer = handler(value)
    if place == "chunk":
        assert len(list(answer)) == 2
    assert seen.pipeline.flush(5.0)
    assert CALLED == []
    assert sum(seen.outcomes.values()) == 1
    if place != "answer":
        assert seen.outcomes == {"evaluated": 1}
        assert "ok" in seen.last.response
    seen.pipeline.shutdown(5.0)


FILES = """
    import json, resource, threading
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    from agenteval_otel import EvaluationInput, configure, monitor, shutdown

    go = threading.Event()

    async def judge(evaluation_input: EvaluationInput) -> bool:
        import asyncio
        while not go.is_set():
            await asyncio.sleep(0.01)
        return True

    configure(evaluators=[judge], sample_rate=1.0, storage=[])

    class Answer:
        def __init__(self):
            self.content, self.source = "ok", open("/dev/null")

    @monitor
    def bare(prompt):
        return Answer()

    @monitor
    def nested(prompt):
        return {"answer": "ok", "sources": [open("/dev/null")]}

    @monitor
    def streamed(prompt):
        yield Answer()

    errors = 0
    for number in range(600):
        try:
            for _ in (bare, nested)[number % 2]("q"), *streamed("q"):
                pass
        except OSError:
            errors += 1
    go.set()
    print("report", errors)
    shutdown(10.0)
"""


def test_open_files_do_not_wait_in_our_queue(promise: Recorder) -> None:
    """Answers that hold open files are closed when the host lets them go, though hundreds wait for
    their judge.
    """
    assert run_program(FILES, timeout_s=120.0).report() == 0
    promise("A1", figure="600 answers that hold open files, 256 descriptors: 0 errors of the host")

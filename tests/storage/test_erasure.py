"""Erasing from files and databases: no content is left in their bytes, scores stay, and writers go
on meanwhile.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import EvaluationInput
from agenteval_otel.capture.annotations import hashed
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import AggregatedEvaluationResult, SpanReference
from agenteval_otel.models.value import copy_with
from agenteval_otel.storage import (
    ConsoleStorageProvider,
    JsonFileStorageProvider,
    SqlStorageProvider,
)
from agenteval_otel.storage.erasure import Erasure
from agenteval_otel.storage.read import database_of
from agenteval_otel.storage.sql_erasure import erase_rows
from tests.storage.samples import aggregated, failed, lines_of, scored, skipped
from tests.storage.samples import save as save_as_it_is

CANARY = "canary-7f3a"
DAY_NS = 86_400 * 10**9
NOW_NS = 1_700_000_000 * 10**9


def answer(
    conversation: str | None,
    *,
    user: str | None = None,
    text: str = CANARY,
    days_ago: float = 0,
    **fields: Any,
) -> AggregatedEvaluationResult:
    """A result with content wherever a result can have some."""
    results = fields.pop("results", None) or (
        scored(
            "tone",
            reasoning=f"because {text}",
            metadata={"quote": text},
            score=0.25,
            normalized=0.25,
        ),
        failed("length", error=f"timeout: {text}"),
        skipped("facts"),
    )
    user = user and hashed(user)
    return aggregated(
        *results,
        conversation_id=conversation,
        user_id=user,
        response_id=f"response {text}",
        session_id=None,
        tags={"plate": text},
        metadata={"note": text},
        ended_ns=NOW_NS - int(days_ago * DAY_NS),
        span=SpanReference(trace_id="0af7651916cd43dd8448eb211c80319c", span_id="b7ad6b7169203331"),
        input_snapshot=EvaluationInput(prompt=f"q {text}", response=f"a {text}", user_id=user),
        model="m-1",
        **fields,
    )


@pytest.fixture(
    params=["json_file", "sqlite", pytest.param("postgresql", marks=pytest.mark.backend)]
)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "json_file":
        return JsonFileStorageProvider(path=tmp_path / "results.jsonl")
    if request.param == "sqlite":
        return SqlStorageProvider(path=tmp_path / "results.db")
    return SqlStorageProvider(url=request.getfixturevalue("postgresql").url)


def save(storage: Any, *results: AggregatedEvaluationResult) -> None:
    """Save the results with an overall score each, which says their order: keys of one millisecond
    have none.
    """
    save_as_it_is(
        storage,
        *(copy_with(result, {"overall_score": at / 1_000}) for at, result in enumerate(results)),
    )


def stored(storage: Any) -> list[AggregatedEvaluationResult]:
    """All evaluations that are stored, in the order in which they were saved, by the overall score
    that `save` sets.
    """
    if isinstance(storage, JsonFileStorageProvider):
        return [AggregatedEvaluationResult.model_validate(line) for line in lines_of(storage.path)]
    values = [value for _, value in database_of(storage.target).results()]
    return sorted(values, key=lambda value: value.overall_score or 0.0)


def test_scores_stay_and_content_goes(storage: Any) -> None:
    """Criterion, score, verdict, time and weight are as before; text, ids, tags, trace and metadata
    are gone.
    """
    other = answer("c-2", text="kept")
    save(storage, answer("c-1", sampling_probability=0.5), other)
    assert storage.erase(Erasure(conversations=["c-1"]), dry_run=True)[1:4] == (1, 0, "")
    assert [value.conversation_id for value in stored(storage)] == ["c-1", "c-2"]
    assert storage.erase(Erasure(conversations=["c-1"]))[1:4] == (1, 0, "")
    actual, untouched = stored(storage)
    assert untouched == copy_with(other, {"overall_score": 0.001})
    assert CANARY not in actual.model_dump_json()
    names = (
        "conversation_id",
        "response_id",
        "user_id",
        "session_id",
        "span",
        "tags",
        "input_snapshot",
    )
    assert {getattr(actual, name) for name in names} == {None}
    assert (actual.agent, actual.model, actual.ended_ns, actual.sampling_probability) == (
        "support",
        "m-1",
        NOW_NS,
        0.5,
    )
    tone, length, facts = actual.results
    assert (tone.score, tone.normalized, tone.passed, tone.label) == (0.25, 0.25, True, "pass")
    assert (tone.reasoning, tone.metadata) == (None, None)
    assert (length.status, length.error, facts.skip_reason) == (
        "failed",
        "timeout",
        "no ground truth",
    )
    assert storage.erase(Erasure(conversations=["c-1"])).removed == 0


def test_a_word_that_is_no_category_goes(storage: Any) -> None:
    """A score or a label in words stays where it reads like a category, as in telemetry."""
    sentence = "Ann of 12 Long Lane said that it was cold"
    save(
        storage,
        answer(
            "c",
            results=(scored("mood", score=sentence, label=sentence), scored("kind", score="good")),
        ),
    )
    storage.erase(Erasure(conversations=["c"]))
    assert [(result.score, result.label) for result in stored(storage)[0].results] == [
        ("_other", "_other"),
        ("good", "pass"),
    ]


def test_a_user_is_erased_with_the_conversations_that_they_took_part_in(storage: Any) -> None:
    """Their answers, feedback, and the turns of their conversations that do not name them; not what
    they only rated.
    """
    rated = (scored("user_feedback", evaluator_kind="human", reasoning=f"my {CANARY}"),)
    save(
        storage,
        answer("c-1"),
        answer("c-1", user="ann"),
        answer("c-2", user="bob", text="kept"),
        answer("c-2", user="ann", results=rated),
    )
    erasure = Erasure(users=["ann"])
    storage.erase(erasure, dry_run=True)  # finds their conversations
    assert erasure.conversations == {"c-1"}
    assert storage.erase(erasure).removed == 3
    values = stored(storage)
    assert [CANARY in value.model_dump_json() for value in values] == [False] * 4
    assert [value.conversation_id for value in values] == [None, None, "c-2", None]


@pytest.mark.parametrize("salt", [None, "salt"])
def test_a_user_is_known_by_their_id_and_by_its_hashes(storage: Any, salt: str | None) -> None:
    """Stored plain, hashed, or hashed with the salt of the settings; asked for by the id or by what
    is stored.
    """
    save(
        storage,
        *(
            aggregated(scored(), user_id=id)
            for id in ("ann", hashed("ann"), hashed("ann", "salt"), "bob")
        ),
    )
    assert storage.erase(Erasure(users=["ann"], salts=[salt])).removed == 2 + (salt is not None)
    assert storage.erase(Erasure(users=[hashed("ann", "salt")])).removed == (salt is None)
    assert [value.user_id for value in stored(storage)][-1] == "bob"


def test_the_turns_of_a_conversation_name_its_users(storage: Any) -> None:
    """A whole conversation is one result, whose users stand in its turns."""
    turns = [
        EvaluationInput(prompt=CANARY, response="a", user_id=hashed(name))
        for name in ("ann", "bob")
    ]
    save(
        storage,
        aggregated(
            scored(), user_id=hashed("bob"), input_snapshot=EvaluationInput(conversation=turns)
        ),
    )
    assert storage.erase(Erasure(users=["ann"])).removed == 1
    assert CANARY not in stored(storage)[0].model_dump_json()


def test_what_is_older_goes(storage: Any) -> None:
    """By the end of its evaluation; the moment itself stays, and a second run has nothing to do."""
    save(storage, answer("old", days_ago=2), answer("edge", days_ago=1), answer("new"))
    moment = datetime.fromtimestamp(NOW_NS / 1e9, UTC) - timedelta(days=1)
    assert storage.erase(Erasure(before=moment)).removed == 1
    assert [value.conversation_id for value in stored(storage)] == [None, "edge", "new"]
    assert storage.erase(Erasure(before=moment)).removed == 0


@pytest.mark.parametrize(
    "id", ['a"b', "100%_x", "zwölf\u2028\U0001f600", "back\\slash", "x' OR '1'='1"]
)
def test_ids_are_taken_as_they_are(storage: Any, id: str) -> None:
    """Quotes, wildcards, line separators and SQL in an id are text; a similar id is another one."""
    turn = EvaluationInput(response=CANARY, user_id=id)
    save(
        storage,
        aggregated(scored(), conversation_id=id),
        aggregated(scored(), conversation_id=f"{id}!"),
        aggregated(scored(), input_snapshot=EvaluationInput(conversation=[turn])),
    )
    assert storage.erase(Erasure(conversations=[id])).removed == 1
    assert storage.erase(Erasure(users=[id])).removed == 1
    assert [value.conversation_id for value in stored(storage)] == [None, f"{id}!", None]


def test_many_rows_in_several_transactions(storage: Any) -> None:
    """More than 200 rows of the erased conversation, which is a batch, among others."""
    save(
        storage,
        *(
            aggregated(scored(), conversation_id="gone" if number % 10 else "stays")
            for number in range(250)
        ),
    )
    assert storage.erase(Erasure(conversations=["gone"])).removed == 225
    left = [value.conversation_id for value in stored(storage)]
    assert (left.count(None), left.count("stays")) == (225, 25)


def test_nothing_is_stored_yet(tmp_path: Path) -> None:
    """A file that is not there is no error, and is not made."""
    for storage in (
        JsonFileStorageProvider(path=tmp_path / "a"),
        SqlStorageProvider(path=tmp_path / "b"),
    ):
        assert storage.erase(Erasure(conversations=["c"]), dry_run=True)[1:4] == (0, 0, "")
    assert not [*tmp_path.iterdir()]


def test_no_byte_of_it_is_left_in_an_sqlite_file(tmp_path: Path) -> None:
    """Neither in free pages, those of an earlier deletion among them, nor in the log; while a
    writer is connected.
    """
    path = tmp_path / "results.db"
    storage = SqlStorageProvider(path=path)
    long = f"{CANARY} " * 2_000  # many pages, of which overflow chains are made
    save(storage, *(answer("c", text=long), answer("other", text="kept " * 500)) * 5)
    # a version without `secure_delete` has deleted these
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA secure_delete = OFF")
        other.execute("DELETE FROM agenteval_results WHERE criterion = 'length'")
        other.commit()
        assert storage.erase(Erasure(conversations=["c"])).problem == ""
        left = [file.name for file in tmp_path.iterdir() if CANARY.encode() in file.read_bytes()]
    assert left == []
    assert [value.conversation_id for value in stored(storage)].count("other") == 5


def test_a_reader_that_keeps_the_log_is_named(tmp_path: Path) -> None:
    """While it reads an older state, that is in the log; the next run empties it."""
    path = tmp_path / "results.db"
    storage = SqlStorageProvider(path=path)
    save(storage, answer("c"))
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM agenteval_evaluations").fetchone()
        erasure = Erasure(conversations=["c"])
        place = erase_rows(storage.target, erasure, dry_run=False, wait_s=0.2)
        assert "run this again" in place.problem
    assert storage.erase(Erasure(conversations=["c"])).problem == ""
    assert not [file for file in tmp_path.iterdir() if CANARY.encode() in file.read_bytes()]


def test_rotated_files_and_damaged_lines(tmp_path: Path) -> None:
    """All rotated files are rewritten, those beyond `keep` too; lines that cannot be read go;
    others stay as bytes.
    """
    path = tmp_path / "results.jsonl"
    storage = JsonFileStorageProvider(path=path, max_bytes=4_096, keep=3)
    save(
        storage,
        *(
            answer("c" if number % 2 else "d", text=CANARY if number % 2 else "kept")
            for number in range(6)
        ),
    )
    far = tmp_path / "results.jsonl.17"
    theirs, others, torn = (
        b'{"agent": "x",  "conversationId": "c"}',
        b'{"agent":"y",  "results":[]}',
        b'{"agent": "to',
    )
    far.write_bytes(b"\n".join([theirs, others, b"", torn]))
    far.chmod(0o640)
    (tmp_path / "results.jsonl.txt").write_text(CANARY)
    place = storage.erase(Erasure(conversations=["c"]))
    assert (place.removed, place.unreadable) == (4, 1)
    files = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert {name for name, data in files.items() if CANARY.encode() in data} == {
        "results.jsonl.txt"
    }
    assert files["results.jsonl.17"].endswith(b"\n" + others + b"\n\n")
    assert json.loads(files["results.jsonl.17"].splitlines()[0])["metadata"] == {"erased": True}
    assert far.stat().st_mode & 0o777 == 0o640
    assert not [name for name in files if name.endswith(".erasing")]


def test_a_file_behind_a_link_is_rewritten_and_what_a_killed_run_left_goes(tmp_path: Path) -> None:
    """The link stays a link."""
    (tmp_path / "there").mkdir()
    file, link = tmp_path / "there" / "real.jsonl", tmp_path / "link.jsonl"
    link.symlink_to(file)
    storage = JsonFileStorageProvider(path=link)
    save(storage, answer("c"))
    left = tmp_path / "there" / "real.jsonl.erasing"
    left.write_text(CANARY)
    assert storage.erase(Erasure(conversations=["none"])).removed == 0
    assert not left.exists()
    assert storage.erase(Erasure(conversations=["c"])).removed == 1
    assert link.is_symlink()
    assert CANARY not in file.read_text()


WRITER = """
import asyncio, sys
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage import JsonFileStorageProvider, SqlStorageProvider
path, kind, total = sys.argv[1], sys.argv[2], int(sys.argv[3])
if kind == "json_file":
    storage = JsonFileStorageProvider(path=path, max_bytes=4_096, keep=1_000)
else:
    storage = SqlStorageProvider(path=path)
async def work():
    for number in range(total):
        conversation = "gone" if number % 3 == 0 else "stays"
        await storage.save_result(AggregatedEvaluationResult(
            agent=str(number), conversation_id=conversation, metadata={"text": "long " * 20}))
    await storage.close()
asyncio.run(work())
"""


@pytest.mark.parametrize("kind", ["json_file", "sql"])
def test_writers_lose_nothing(tmp_path: Path, kind: str) -> None:
    """Another process saves, and rotates, while this one erases again and again: every line is
    there, once.
    """
    path, total = tmp_path / "results", 200
    writer = subprocess.Popen([sys.executable, "-c", WRITER, path, kind, str(total)])
    kinds: dict[str, Any] = {"json_file": JsonFileStorageProvider, "sql": SqlStorageProvider}
    storage = kinds[kind](path=path)
    runs = 0
    while writer.poll() is None:
        if path.exists():
            storage.erase(Erasure(conversations=["gone"]))
            runs += 1
        time.sleep(0.01)
    assert (writer.returncode, runs > 0) == (0, True)
    storage.erase(Erasure(conversations=["gone"]))
    if kind == "json_file":
        values = [line for file in tmp_path.glob("results*") for line in lines_of(file)]
        actual = sorted((int(value["agent"]), value.get("conversationId")) for value in values)
    else:
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute(
                "SELECT agent, conversation_id FROM agenteval_evaluations"
            ).fetchall()
        actual = sorted((int(agent), conversation) for agent, conversation in rows)
    assert actual == [(number, None if number % 3 == 0 else "stays") for number in range(total)]


def test_others_say_that_they_cannot() -> None:
    """A provider that erases nothing says so by its type."""
    place = ConsoleStorageProvider().erase(Erasure(conversations=["c"]))
    assert (place.place, place.removed) == ("console", 0)
    assert "erase it there" in place.problem


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "conversation"),
        ({"users": "x"}, "expected"),
        ({"user": 7}, "found int"),
        ({"user": " "}, "found str"),
        ({"before": "yesterday"}, "2026-05-01"),
        ({"before": 5}, "found int"),
        ({"user": "a", "conversation": "b"}, "expected one of"),
        (["user"], "expected"),
        ({"user": []}, "expected one"),
    ],
)
def test_what_is_asked_for_is_checked(fields: Any, message: str) -> None:
    """The field, what was found and what is expected are named, and no id is."""
    with pytest.raises(ConfigurationError, match=message):
        Erasure.of(fields)

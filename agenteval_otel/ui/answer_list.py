"""The list of answers: which are in it, in which order, and what a row shows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
from agenteval_otel.semconv import OTHER
from agenteval_otel.storage.places import FoundAnswers, Place, Tag
from agenteval_otel.storage.words import WantedWord, places_of, wanted_words
from agenteval_otel.ui.columns import FAILED, SCORED, SKIPPED, By, ResultColumns, Rows
from agenteval_otel.ui.notes import LOOKED, looked_rows
from agenteval_otel.ui.text import brief, shown
from agenteval_otel.ui.views import Window, rows_in

OUTCOMES: Final = ("scored", "pass", "fail", "skipped", "evaluator failed")
"""What a result of an answer may have come to."""
_STATUS: Final = {"scored": SCORED, "skipped": SKIPPED, "evaluator failed": FAILED}
ORDERS: Final = ("newest", "oldest", "lowest", "highest")
PER_PAGE: Final = 25
_LAST_PAGE: Final = 10**9
_MOST_DIGITS: Final = 12
_LONGEST: Final = 160
_LONGEST_TEXT: Final = 400
_WORDS_OF_FILTERS: Final = {"text": "words", "looked": "looked at"}
_ID: Final = "S16"
_WORDS_READ: Final = 1_000
_SEARCHED_CHARS: Final = 5_000
_BEFORE_WORD: Final = 50
_READ_AT_ONCE: Final = 100
_ID_BYTES: Final = 16


class ListQuery(NamedTuple):
    """Which answers are listed: those with a result that has all of it.

    Attributes:
        names: Of the columns of names, one each: ``criterion``, ``agent`` and so on.
        outcome: One of `OUTCOMES`. Empty: any.
        text: Words that its prompt and answer have, all of them.
        tag: The name and the value of a tag, as ``name=value``.
        user: As the id is stored: hashed, unless the settings said otherwise.
        conversation: Its id.
        low: Normalized scores from this one on, 0 to 1.
        high: Normalized scores below this one. 1 and above include 1.
        looked: One of `LOOKED`. Empty: any.
        order: One of `ORDERS`.
        page: From 1 on.
    """

    window: Window = Window()
    names: Mapping[str, str] = {}
    outcome: str = ""
    text: str = ""
    tag: str = ""
    user: str = ""
    conversation: str = ""
    low: float | None = None
    high: float | None = None
    looked: str = ""
    order: str = ORDERS[0]
    page: int = 1

    @classmethod
    def read(
        cls, query: Mapping[str, str], window: Window, dimensions: Collection[str]
    ) -> ListQuery:
        """Return what an address asks for. What it says wrongly is as if it were not there.

        So is a name that metrics have for all beyond their limit: results are stored with their own.
        """
        names: dict[str, str] = {}
        for column in ("criterion", *dimensions):
            name = query.get(column)
            # An erased reason is stored by this word.
            is_of_others = name == OTHER and column != "reason"
            if name and not is_of_others:
                names[column] = name
        outcome = query.get("outcome", "")
        order = query.get("order", "")
        looked = query.get("looked", "")
        return cls(
            window=window,
            names=names,
            outcome=outcome if outcome in OUTCOMES else "",
            text=query.get("text", "").strip()[:_LONGEST_TEXT],
            tag=query.get("tag", "").strip(),
            user=query.get("user", "").strip(),
            conversation=query.get("conversation", "").strip(),
            low=_share(query.get("low")),
            high=_share(query.get("high")),
            looked=looked if looked in LOOKED else "",
            order=order if order in ORDERS else ORDERS[0],
            page=whole_number(query.get("page"), most=_LAST_PAGE) or 1,
        )

    def address(self, **changes: Any) -> dict[str, Any]:
        """Return what an address of this list has besides the window, with these changes.

        It is that of page 1.
        """
        own = {
            **self.names,
            "outcome": self.outcome,
            "text": self.text,
            "tag": self.tag,
            "user": self.user,
            "conversation": self.conversation,
            "low": self.low,
            "high": self.high,
            "looked": self.looked,
            "order": "" if self.order == ORDERS[0] else self.order,
        }
        return {**own, **changes}

    @property
    def words(self) -> list[WantedWord]:
        """Return what the text is searched for. It may have no word at all."""
        return wanted_words(self.text)

    def filters(self) -> list[Filter]:
        """Return what is chosen, with the order and the page left out."""
        chosen = {**self.names, "outcome": self.outcome, "text": self.text, "tag": self.tag}
        chosen |= {"user": self.user, "conversation": self.conversation, "looked": self.looked}
        filters = []
        for name, value in chosen.items():
            if value:
                words = _WORDS_OF_FILTERS.get(name, name.replace("_", " "))
                filters.append(Filter(words, value, {name: None}))
        if self.low is not None or self.high is not None:
            high = 1.0 if self.high is None else self.high
            scores = f"{self.low or 0.0:.2f} to {high:.2f}"
            filters.append(Filter("score", scores, {"low": None, "high": None}))
        return filters


class Filter(NamedTuple):
    """Names one thing by which answers are chosen.

    Attributes:
        without: What an address changes to do without it.
    """

    name: str
    value: str
    without: Mapping[str, None]


class Matching(NamedTuple):
    """Holds the answers that have the words, the tag, the user and the conversation of a list.

    Attributes:
        ids: Sets of ids, 16 bytes each. An answer is in all of them.
        unsearched: How many older answers were not searched for the words.
        is_cut: More answers match: the newest were taken.
    """

    ids: Sequence[bytes] = ()
    unsearched: int = 0
    is_cut: bool = False


class ListedAnswer(NamedTuple):
    """A row of the list.

    Attributes:
        moment: In seconds since the epoch.
        prompt: Its first words. Empty if it is not stored.
        failed: The criteria that did not pass.
        passed: How many criteria passed.
        other: How many have no verdict, were skipped, or could not be evaluated.
    """

    key: str
    moment: int
    agent: str
    model: str
    prompt: str
    answer: str
    error: str
    failed: Sequence[str]
    passed: int
    other: int


def matching(place: Place, wanted: ListQuery) -> Matching:
    """Look up in a place what its columns do not have. Blocks."""
    sets: list[bytes] = []
    answers = FoundAnswers()
    tag = _tag_in(wanted.tag)
    words = wanted.words
    if (wanted.text and not words) or (wanted.tag and tag is None):
        return Matching([b""])  # no answer matches a search without words
    if words or tag is not None:
        answers = place.find_texts(words, tag)
        sets.append(answers.ids)
    is_cut = answers.is_cut
    annotated: list[tuple[Literal["conversation_id", "user_id"], str]] = [
        ("user_id", wanted.user),
        ("conversation_id", wanted.conversation),
    ]
    for column, value in annotated:
        if value:
            of_value = place.find_annotated(column, value)
            sets.append(of_value.ids)
            is_cut |= of_value.is_cut
    return Matching(sets, answers.unsearched, is_cut)


def find(
    columns: ResultColumns,
    wanted: ListQuery,
    matched: Matching | None = None,
    *,
    present: str | None = None,
) -> Rows:
    """Return the first row of each answer that is wanted, in the order that is asked for.

    Without `matched` its place is asked. The answer `present` stays in the list when it is marked
    as looked at.
    """
    rows = rows_in(columns, wanted.window, wanted.names)
    rows = rows[_is_wanted(columns, rows, wanted)]
    if wanted.looked:
        rows = looked_rows(columns, rows, wanted.looked, present)
    if not len(rows):
        return np.empty(0, np.int32)
    if matched is None:
        matched = matching(columns.place, wanted)
    begins = columns.begins(rows)
    if matched.ids:
        is_in = _is_in_all(columns["evaluation_id"][rows[begins]].view(_ID), matched.ids)
        kept = is_in[begins.cumsum() - 1]
        rows = rows[kept]
        begins = begins[kept]
        if not len(rows):
            return np.empty(0, np.int32)
    firsts: Rows = rows[begins]
    moments = columns.seconds(firsts, wanted.window.by)
    if wanted.order == "oldest":
        order = np.argsort(moments, kind="stable")
    elif wanted.order == "newest":
        order = np.argsort(-moments, kind="stable")
    else:
        scores = _scores(columns["normalized"][rows], np.flatnonzero(begins), wanted.order)
        order = np.lexsort((-moments, scores))
    ordered: Rows = firsts[order]
    return ordered


def _is_in_all(ids: NDArray[Any], sets: Sequence[bytes]) -> NDArray[np.bool_]:
    """Return of each id whether it is in every set. The smallest set leaves the fewest to look up."""
    left = np.arange(len(ids))
    for chosen in sorted(sets, key=len):
        left = left[_are_among(ids[left], chosen)]
    is_in = np.zeros(len(ids), np.bool_)
    is_in[left] = True
    return is_in


def _are_among(ids: NDArray[Any], chosen: bytes) -> NDArray[np.bool_]:
    """Return of each id whether it is chosen: in a tenth of the time of `numpy.isin`.

    Both are in the order of time or nearly so, which sorting and searching make use of.
    """
    if not chosen:
        return np.zeros(len(ids), np.bool_)
    ordered = np.sort(np.frombuffer(chosen, _ID)[::-1], kind="stable")
    places = np.minimum(np.searchsorted(ordered, ids), len(ordered) - 1)
    are_among: NDArray[np.bool_] = ordered[places] == ids
    return are_among


def _scores(scores: NDArray[Any], starts: NDArray[Any], order: str) -> NDArray[Any]:
    """Return by what answers are sorted: their lowest score, or their highest one with a minus.

    Those without a score are last.
    """
    if order == "lowest":
        lowest: NDArray[Any] = np.minimum.reduceat(np.nan_to_num(scores, nan=2.0), starts)
        return lowest
    highest: NDArray[Any] = np.maximum.reduceat(np.nan_to_num(scores, nan=-1.0), starts)
    return -highest


def _is_wanted(columns: ResultColumns, rows: Rows, wanted: ListQuery) -> NDArray[Any]:
    """Return for each row whether it has what is wanted besides window and names."""
    kept: NDArray[Any] = ~columns["is_human"][rows]
    if wanted.outcome in _STATUS:
        kept &= columns["status"][rows] == _STATUS[wanted.outcome]
    elif wanted.outcome:
        kept &= columns["passed"][rows] == (wanted.outcome == "pass")
    if wanted.low is not None or wanted.high is not None:
        scores = columns["normalized"][rows]
        kept &= scores >= (wanted.low or 0.0)
        if wanted.high is not None and wanted.high < 1.0:
            kept &= scores < wanted.high
    return kept


class PlaceInList(NamedTuple):
    """Where an answer stands in a list.

    Attributes:
        number: From 1 on, of `total`.
        previous: The id of the answer before it. None at the beginning.
        following: The id of the answer behind it. None at the end.
    """

    wanted: ListQuery
    number: int
    total: int
    previous: str | None
    following: str | None

    @property
    def page(self) -> int:
        """Return the page of the list that has the answer."""
        return (self.number - 1) // PER_PAGE + 1


def place_of(columns: ResultColumns, wanted: ListQuery, key: str) -> PlaceInList | None:
    """Return where the answer with this id stands in a list. None if it is not in it."""
    try:
        wanted_id = np.void(bytes.fromhex(key))
    except ValueError:
        return None
    if wanted_id.nbytes != _ID_BYTES:
        return None
    rows = find(columns, wanted, present=key)
    places = np.flatnonzero(columns["evaluation_id"][rows] == wanted_id)
    if not len(places):
        return None
    at = int(places[0])
    previous = columns.id_of(rows[at - 1]) if at > 0 else None
    following = columns.id_of(rows[at + 1]) if at + 1 < len(rows) else None
    return PlaceInList(wanted, at + 1, len(rows), previous, following)


def page_of(rows: Rows, number: int) -> Rows:
    """Return the rows of a page. Beyond the last page there are none."""
    return rows[(number - 1) * PER_PAGE : number * PER_PAGE]


def pages_of(rows: Rows) -> int:
    """Return how many pages there are, at least 1."""
    return max(1, -(-len(rows) // PER_PAGE))


def moments_of(columns: ResultColumns, rows: Rows, by: By) -> dict[str, int]:
    """Return the moments of these answers by their ids, in the order of the rows."""
    return {columns.id_of(row): int(columns[by][row]) for row in rows}


def listed(
    place: Place, moments: Mapping[str, int], words: Sequence[WantedWord] = ()
) -> Iterator[ListedAnswer]:
    """Yield what the list shows of these answers: parts of their texts that have the words.

    Blocks while the texts are read.
    """
    for key, evaluation in evaluations_of(place, moments):
        yield _listed(key, moments[key], evaluation, words)


def evaluations_of(
    place: Place, keys: Iterable[str]
) -> Iterator[tuple[str, AggregatedEvaluationResult]]:
    """Yield these evaluations with their ids. Blocks while they are read, a hundred at a time."""
    ids = iter(keys)
    while part := list(islice(ids, _READ_AT_ONCE)):
        stored = place.find_evaluations(part)
        for key in part:
            if key in stored:  # else it was erased a moment ago
                yield key, stored[key]


def _listed(
    key: str, moment: int, evaluation: AggregatedEvaluationResult, words: Sequence[WantedWord]
) -> ListedAnswer:
    passed = 0
    failed = []
    for result in evaluation.results:
        if result.passed is True:
            passed += 1
        elif result.passed is False:
            failed.append(result.criterion_name)
    prompt, answer, error = _texts(evaluation, words)
    return ListedAnswer(
        key=key,
        moment=moment,
        agent=evaluation.agent or "",
        model=evaluation.model or "",
        prompt=prompt,
        answer=answer,
        error=error,
        failed=failed,
        passed=passed,
        other=len(evaluation.results) - passed - len(failed),
    )


def worst_first(results: Sequence[EvaluationResult]) -> list[EvaluationResult]:
    """Return results in the order of a reader: failures, broken evaluators, the rest, skips."""
    return sorted(results, key=_urgency)


def _urgency(result: EvaluationResult) -> int:
    if result.passed is False:
        return 0
    if result.status == "failed":
        return 1
    return 2 if result.status == "scored" else 3


def _texts(
    evaluation: AggregatedEvaluationResult, words: Sequence[WantedWord]
) -> tuple[str, str, str]:
    """Return the first words of prompt and answer, and why there is no answer."""
    snapshot = evaluation.input_snapshot
    if snapshot is None:
        return "", "", ""
    answer = snapshot.response_text or snapshot.response
    prompt = _first_words(snapshot.prompt, words)
    return prompt, _first_words(answer, words), snapshot.error_type or ""


def _first_words(value: object, wanted: Sequence[WantedWord]) -> str:
    """Return the first words, or those around the first wanted word if it is not among them."""
    text = shown(value, _SEARCHED_CHARS if wanted else _WORDS_READ).text
    places = places_of(text, wanted) if wanted else []
    if places and places[0][0] > _LONGEST - _BEFORE_WORD:
        first = places[0][0]
        space = text.find(" ", first - _BEFORE_WORD, first)
        return brief(f"…{text[first if space < 0 else space + 1 :]}", _LONGEST)
    return brief(text, _LONGEST)


def _tag_in(text: str) -> Tag | None:
    """Return the tag of an address. None if it is not one."""
    name, equals, value = text.partition("=")
    return (name.strip(), value.strip()) if equals and name.strip() else None


def whole_number(text: str | None, *, most: int) -> int | None:
    """Return a whole number of an address, from 0 to `most`."""
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > _MOST_DIGITS:
        return None
    number = int(text)
    return number if number <= most else None


def _share(text: str | None) -> float | None:
    """Return a number of an address between 0 and 1."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0.0 <= value <= 1.0 else None

"""``agenteval-otel truth review``: turn corrections into reference answers.

Corrections that people recorded are decided on one by one.
"""

from __future__ import annotations

import argparse
import getpass
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from agenteval_otel.cli.figures import json_for_terminals
from agenteval_otel.components.explained import known_choices
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators.ground_truth.additions import Known, add, read_known
from agenteval_otel.evaluators.ground_truth.index import TableRow
from agenteval_otel.offline.reports.figures import count_of
from agenteval_otel.runtime.masking import printable
from agenteval_otel.storage.corrections import Correction, read_corrections
from agenteval_otel.storage.files import lock_of, open_locked

DESCRIPTION = (
    "Review corrections that people recorded, and add the right ones to the reference answers. Corrections are in "
    "storage, by record_feedback(correction=...). `ground_truth: {type: file}` reads the reference answers. On a "
    "terminal each is shown with its question and its answer: accept, edit, reject, skip or quit. In a script, --list "
    "shows them, and --accept, --edit and --reject decide by their ids. Each accepted row keeps where it comes from. "
    "What was decided is not asked again. Nothing enters the file without a decision. Exit code 0: done. Exit code 1: "
    "something was not added, because the file has another answer to its question (see --replace). Exit code 2: could "
    "not run."
)
_SHOWN: Final = 2_000
_HELP: Final = "[a]ccept  [e]dit  [r]eject  [s]kip  [q]uit"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("review",), help="what to do")
    parser.add_argument(
        "--from",
        dest="places",
        metavar="PLACE",
        action="append",
        required=True,
        help="an SQLite file, a file of JSON lines, or postgresql://... (several times for several places)",
    )
    parser.add_argument(
        "--to",
        dest="file",
        metavar="FILE",
        type=Path,
        required=True,
        help="reference answers, .csv or .jsonl",
    )
    parser.add_argument(
        "--list", action="store_true", help="show what is to be reviewed, and decide nothing"
    )
    parser.add_argument("--json", action="store_true", help="show it as JSON")
    parser.add_argument(
        "--accept",
        metavar="ID",
        nargs="+",
        action="extend",
        default=[],
        help="add these as they are",
    )
    parser.add_argument(
        "--edit",
        metavar=("ID", "ANSWER"),
        nargs=2,
        action="append",
        default=[],
        help="add it with this answer",
    )
    parser.add_argument(
        "--reject",
        metavar="ID",
        nargs="+",
        action="extend",
        default=[],
        help="leave these out, for good",
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="accepted ones take the place of another answer in the file",
    )
    parser.epilog = "The id of what was rejected is kept in FILE.rejected, but content is not."


def run(arguments: argparse.Namespace) -> int:
    review = Review(arguments.file, arguments.places)
    edits = {id: answer for id, answer in arguments.edit}
    decided = [*arguments.accept, *edits, *arguments.reject]
    if decided:
        return _decide(review, arguments, edits)
    if arguments.list or arguments.json or not sys.stdin.isatty():
        _show(review, as_json=arguments.json)
        return 0
    return _ask(review, replaces=arguments.replace)


class Review:
    """The corrections that are not decided on yet, and the file that accepted ones go to."""

    def __init__(self, file: Path, places: Sequence[str]) -> None:
        self.file = file
        self._rejected = file.with_name(f"{file.name}.rejected")
        known = read_known(file)
        decided = {str(row.provenance.get("correction")) for row in known}
        decided.update(self._rejected_ids())
        self.pending: dict[str, Correction] = {}
        for correction in read_corrections(places, decided):
            if not _is_in_reference_file(correction, known):
                self.pending[correction.id] = correction

    def present(self, correction: Correction) -> Any:
        """Return the file's current answer to the question of the correction.

        None means that it has none.
        """
        rows = (row.row.answer for row in read_known(self.file) if self._is_of(row, correction))
        return next(rows, None)

    def accept(self, correction: Correction, answer: str) -> None:
        """Add the answer to the file, in place of another answer to its question."""
        assert correction.prompt is not None
        with open_locked(lock_of(self.file)):
            replaced = self.present(correction)
            row = TableRow(correction.prompt, answer, None, correction.module)
            source = {
                "correction": correction.id,
                "recordedAt": _moment(correction.recorded_ns),
                **_review(),
                "agent": correction.agent,
                "userId": correction.user_id,
                "traceId": correction.trace_id,
                "spanId": correction.span_id,
                "responseId": correction.response_id,
                "conversationId": correction.conversation_id,
                "edited": answer != correction.text or None,
                "replaced": replaced,
            }
            provenance = {name: value for name, value in source.items() if value is not None}
            add(self.file, row, provenance)
        del self.pending[correction.id]

    def reject(self, correction: Correction) -> None:
        line = json.dumps({"correction": correction.id, **_review()})
        with open_locked(lock_of(self.file)), open(self._rejected, "a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        del self.pending[correction.id]

    def _is_of(self, row: Known, correction: Correction) -> bool:
        return correction.prompt is not None and row.answers(correction.prompt, correction.module)

    def _rejected_ids(self) -> Iterator[str]:
        if not self._rejected.exists():
            return
        for line in self._rejected.read_text("utf-8").splitlines():
            try:
                yield str(json.loads(line)["correction"])
            except (ValueError, KeyError, TypeError):
                continue  # cut off


def _is_in_reference_file(correction: Correction, known: Sequence[Known]) -> bool:
    """Tell whether the file already has the correction as the answer to its question."""
    prompt = correction.prompt
    if prompt is None:
        return False
    of_question = (row for row in known if row.answers(prompt, correction.module))
    return any(row.row.answer == correction.text for row in of_question)


def _decide(review: Review, arguments: argparse.Namespace, edits: dict[str, str]) -> int:
    """Apply --accept, --edit and --reject. All decisions are checked before any is applied."""
    accepted: dict[str, str] = {}
    for id in arguments.accept:
        if id in review.pending:
            accepted[id] = review.pending[id].text
    accepted |= edits
    problems: list[tuple[str | None, str]] = []
    for id in (*arguments.accept, *edits, *arguments.reject):
        problem = _problem_of_decision(id, review, accepted, arguments.reject)
        if problem is not None:
            problems.append((id, problem))
    if problems:
        raise ConfigurationError.of(problems)
    left = 0
    for id, answer in accepted.items():
        correction = review.pending[id]
        present = review.present(correction)
        if present is not None and not arguments.replace:
            left += 1
            print(f"not added: {id}: the file has another answer to its question: {_line(present)}")
            continue
        review.accept(correction, answer)
        print(f"added: {id}")
    for id in dict.fromkeys(arguments.reject):
        review.reject(review.pending[id])
        print(f"rejected: {id}")
    return 1 if left else 0


def _problem_of_decision(
    id: str, review: Review, accepted: Mapping[str, str], rejected: Sequence[str]
) -> str | None:
    if id not in review.pending:
        return f"no correction to review has this id{known_choices(id, list(review.pending))}"
    if id not in accepted:
        return None
    if id in rejected:
        return "accepted and rejected"
    if review.pending[id].prompt is None:
        return "its question is not stored: answers are stored with content capture alone"
    if not accepted[id].strip():
        return "the answer is blank"
    return None


def _show(review: Review, *, as_json: bool) -> None:
    corrections = list(review.pending.values())
    if as_json:
        shown = [
            {
                "id": each.id,
                "recordedAt": _moment(each.recorded_ns),
                "agent": each.agent,
                "prompt": each.prompt,
                "answer": each.answer,
                "correction": each.text,
                "comment": each.comment,
                "traceId": each.trace_id,
                "inFile": review.present(each),
            }
            for each in corrections
        ]
        print(json_for_terminals(shown))
        return
    for each in corrections:
        _print(review, each)
    print(f"{count_of(len(corrections), 'correction')} to review")


def _ask(review: Review, *, replaces: bool) -> int:
    """Ask for one correction after the other, on the terminal.

    A decision is carried out at once.
    """
    waiting = list(review.pending.values())
    try:
        for number, correction in enumerate(waiting, 1):
            print(f"\n{number} of {len(waiting)}")
            _print(review, correction)
            is_decided = False
            while not is_decided:
                choice = input(f"{_HELP}: ").strip().lower()[:1]
                is_decided = _decided(review, correction, choice, replaces=replaces)
    except EOFError:  # quit, by a letter or by the end of the input
        pass
    print(f"\n{count_of(len(review.pending), 'correction')} left to review")
    return 0


def _decided(review: Review, correction: Correction, choice: str, *, replaces: bool) -> bool:
    """Apply a choice. Return False if the prompt has to be repeated. Raises `EOFError` to quit."""
    if choice == "q":
        raise EOFError
    if choice == "s":
        return True
    if choice == "r":
        review.reject(correction)
        return True
    if choice not in ("a", "e"):
        return False
    if correction.prompt is None:
        print("its question is not stored: reject or skip it")
        return False
    answer = correction.text if choice == "a" else input("answer: ").strip()
    if not answer:
        return False
    is_other = review.present(correction) is not None and not replaces
    if is_other and input("replace the answer that the file has? [y/N]: ").strip().lower() != "y":
        return False
    review.accept(correction, answer)
    return True


def _print(review: Review, correction: Correction) -> None:
    print(f"{correction.id}  {_moment(correction.recorded_ns)}  {_line(correction.agent or '')}")
    fields = {
        "question": correction.prompt,
        "answer": correction.answer,
        "correction": correction.text,
        "comment": correction.comment,
        "in file": review.present(correction),
    }
    for name, value in fields.items():
        if value is not None:
            print(f"  {name:<10} {_line(value)}")


def _line(value: object) -> str:
    """Return the beginning of the content on one line, without terminal control characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    shown = " ".join(text[:_SHOWN].split())
    return printable(shown if len(text) <= _SHOWN else f"{shown} ...")


def _review() -> dict[str, str]:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        user = "unknown"
    return {"reviewedAt": datetime.now(UTC).isoformat(timespec="seconds"), "reviewedBy": user}


def _moment(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat(timespec="seconds")

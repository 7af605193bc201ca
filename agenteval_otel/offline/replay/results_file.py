"""The results file of a replay, one JSON line per answer, from which an interrupted replay resumes.

Answers in the file count as scored. ``<file>.state`` next to it identifies the replay, and records
how many bytes of results have reached the telemetry receiver. Both survive the end of the process,
`SIGKILL` included.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final, Self

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationInput
from agenteval_otel.storage.base import without_objects
from agenteval_otel.storage.files import lock_of, open_locked
from agenteval_otel.storage.rows import parse_result

REPLAY: Final = "replay"
"""The key in a result's metadata below which its answer's key and the recorded results stand."""
_LEFT_OUT: Final = {"input_snapshot": True}
_LINE_BREAKS: Final = {0x2028: "\\u2028", 0x2029: "\\u2029"}


class ResultsFile:
    """Appends results, and the inputs of failing answers to a second file. One process at a time.

    `open` first reads what an earlier process has left: half a line is cut off, and so are inputs
    of the dataset whose results are not there.

    Attributes:
        keys: Of the answers whose results are there, or will be: `Replay` adds those that it takes.

    Args:
        options: All that decides what is scored, and how. Results of other options are refused.
        window: The time window. A resumed replay keeps the original one, since "the last hour"
            would have moved.
    """

    def __init__(
        self,
        path: Path,
        options: object,
        window: tuple[int | None, int | None],
        dataset: Path | None,
    ) -> None:
        self.path = path
        self._dataset_path = dataset
        self._state_path = path.with_name(f"{path.name}.state")
        options_json = json.dumps([options, str(dataset)], sort_keys=True, default=str)
        self._state: dict[str, Any] = {
            "options": hashlib.sha256(options_json.encode()).hexdigest(),
            "window": list(window),
            "delivered": 0,
        }
        self._open = contextlib.ExitStack()
        self.keys: set[str] = set()
        self._read_state()

    @property
    def window(self) -> tuple[int | None, int | None]:
        since_ns, until_ns = self._state["window"]
        return since_ns, until_ns

    @property
    def has_dataset(self) -> bool:
        return self._dataset_path is not None

    @property
    def delivered(self) -> int:
        """Return the number of bytes of the file whose results have reached the receiver."""
        return int(self._state["delivered"])

    @property
    def size(self) -> int:
        return os.fstat(self._results.fileno()).st_size

    def __enter__(self) -> Self:
        self._open.enter_context(open_locked(lock_of(self.path), wait=False))
        self._results = self._appended(self.path)
        self._dataset = None if self._dataset_path is None else self._appended(self._dataset_path)
        self._write_state()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        lock_of(self.path).unlink(missing_ok=True)

    def earlier(self) -> Iterator[tuple[int, AggregatedEvaluationResult]]:
        """Yield the results of an earlier process, each after the byte at which it begins.

        Their keys are added to `keys`. After the last one the files are cut: an incomplete line, and
        inputs without a result. So the iterator must be read to its end.
        """
        at = 0
        with self.path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                result = _result_of(line, self.path)
                self.keys.add(result.metadata[REPLAY]["key"])
                yield at, result
                at += len(line)
        os.truncate(self.path, at)
        if self._dataset_path is not None:
            known_bytes = _known_bytes(self._dataset_path, self.keys)
            os.truncate(self._dataset_path, known_bytes)

    def add(
        self, key: str, result: AggregatedEvaluationResult, failing: EvaluationInput | None
    ) -> None:
        """Append a result, and the input of an answer that fails.

        Both are with the system when this returns.
        """
        if failing is not None and self._dataset is not None:
            metadata = {**(failing.metadata or {}), REPLAY: key}
            fields = failing.model_dump(
                mode="json", by_alias=True, exclude_defaults=True, exclude={"metadata"}
            )
            line = json.dumps({**fields, "metadata": metadata}, default=str)
            self._dataset.write(line.encode("utf-8", "replace") + b"\n")
            self._dataset.flush()
        self._results.write(line_of(result))
        self._results.flush()

    def note_delivered(self, size: int) -> None:
        if size != self.delivered:
            self._state["delivered"] = size
            self._write_state()

    def _appended(self, path: Path) -> IO[bytes]:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._open.enter_context(os.fdopen(descriptor, "ab"))

    def _read_state(self) -> None:
        """Load the state of the replay whose results are there, if any. Refuse files of others."""
        outputs = {"--results": self.path, "--dataset": self._dataset_path}
        written = [
            option
            for option, path in outputs.items()
            if path and path.exists() and path.stat().st_size
        ]
        if not written:
            return
        try:
            state = json.loads(self._state_path.read_text())
            begun = {name: state[name] for name in self._state}
        except (OSError, ValueError, KeyError, TypeError):
            wrong = f"{outputs[written[0]]} exists, and is of no replay that began here: name another file"
            raise ConfigurationError(wrong, path=written[0]) from None
        if begun["options"] != self._state["options"]:
            wrong = (
                f"{self.path} has the results of a replay with other sources, evaluators or options: name another "
                f"file, or delete it and {self._state_path.name}"
            )
            raise ConfigurationError(wrong, path="--results")
        self._state = begun

    def _write_state(self) -> None:
        written = self._state_path.with_name(f"{self._state_path.name}.new")
        descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(json.dumps(self._state))
        written.replace(self._state_path)


def line_of(result: AggregatedEvaluationResult) -> bytes:
    """Return a result as a line of JSON, without its input."""
    try:
        line = result.model_dump_json(by_alias=True, exclude_none=True, exclude=_LEFT_OUT)
    except ValueError:  # an evaluator's metadata may contain objects that JSON cannot represent
        line = without_objects(result).model_dump_json(
            by_alias=True, exclude_none=True, exclude=_LEFT_OUT
        )
    if not line.isascii():
        line = line.translate(_LINE_BREAKS)
    return line.encode("utf-8", "replace") + b"\n"


def _result_of(line: bytes, path: Path) -> AggregatedEvaluationResult:
    try:
        result = parse_result(line)
        _ = result.metadata[REPLAY]["key"]
    except (ValueError, KeyError, TypeError):
        raise ConfigurationError(
            f"{path} was changed by hand: a line is no result of a replay", path="--results"
        ) from None
    return result


def _known_bytes(path: Path, keys: set[str]) -> int:
    """Return the length of the dataset up to the first input that has no result."""
    at = 0
    with path.open("rb") as dataset:
        for line in dataset:
            try:
                metadata: Mapping[str, Any] = json.loads(line)["metadata"]
                is_known = metadata[REPLAY] in keys
            except (ValueError, KeyError, TypeError):
                is_known = False
            if not is_known or not line.endswith(b"\n"):
                break
            at += len(line)
    return at

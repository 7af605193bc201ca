"""C5: a JSON line that was saved is there after any process is killed, and what a kill cuts off
costs no other line.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.promises.figures import sized
from tests.promises.killed import killed_writers


def read(paths: Iterable[Path]) -> tuple[Counter[str], int, int]:
    """How often each result stands in the files, how many lines are cut off and how many are empty."""
    actual: Counter[str] = Counter()
    torn = empty = 0
    for path in paths:
        text = path.read_bytes()
        for line in text.removesuffix(b"\n").split(b"\n") if text else ():
            try:
                actual[json.loads(line)["responseId"]] += 1
            except ValueError:
                torn, empty = torn + bool(line), empty + (not line)
    return actual, torn, empty


@pytest.mark.sized
@pytest.mark.parametrize(
    ("rotation", "longest"),
    [
        pytest.param({}, 200_000, id="one file"),
        pytest.param({"max_bytes": 2_000_000, "keep": 1000}, 200_000, id="rotating"),
        # So long that nearly every seventh kill cuts one off.
        pytest.param({}, 12_000_000, id="long lines", marks=pytest.mark.full),
    ],
)
def test_no_saved_line_is_lost(
    rotation: dict[str, Any], longest: int, tmp_path: Path, promise: Callable[..., None]
) -> None:
    """Every line that was reported as saved is there, once and whole; a kill leaves one cut-off
    line at most.
    """
    path = tmp_path / "results.jsonl"
    options = {"type": "json_file", "path": str(path), **rotation}
    report = killed_writers(options, kills=sized(20, 100), longest=longest)
    files = [file for file in tmp_path.iterdir() if not file.name.endswith(".lock")]
    actual, torn, empty = read(files)
    lost = set(report.saved) - set(actual)
    twice = [name for name, count in actual.items() if count > 1]
    size = sum(file.stat().st_size for file in files)
    how = "rotating, " if rotation else "long lines, " if longest > 1e6 else ""
    promise(
        "C5",
        figure=(
            f"{how}{report.killed} kills of 4 writers, {len(report.saved)} lines of up to "
            f"{longest / 1e6:g} MB saved in "
            f"{size / 1e6:.0f} MB and {len(files)} files: {len(lost)} lost, {len(twice)} double, {torn} cut off"
        ),
    )
    assert len(report.saved) > report.killed
    assert lost == set()
    assert twice == []
    assert torn <= report.killed
    # where a new writer took a line that was being written for a cut-off one
    assert empty <= report.killed
    assert (len(files) > 1) == bool(rotation)
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in tmp_path.iterdir())

"""B11: oversized and deeply nested settings files are refused before they cost anything: at most 50
ms and 20 MB.
"""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import pytest

from agenteval_otel import configure
from agenteval_otel.config import SettingsError, current_pipeline
from tests.promises.figures import Recorder

# Eight times the promise: of "deep lists" the scanner takes 0.1 s on one day of such a machine, and
# 0.2 on another.
PASS_S, SLACK, PASS_BYTES = 0.05, 8, 20 * 1024 * 1024
DEPTH = 5000


def _aliases(width: int, levels: int) -> str:
    lines = [f"l0: &l0 [{', '.join('x' * width)}]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines)


BOMBS: dict[str, tuple[str, str]] = {
    "alias bomb": ("b.yaml", _aliases(9, 9)),
    "alias bomb of mappings": (
        "b.yaml",
        "a: &a {x: 1, y: 1}\n"
        + "\n".join(
            f"{name}: &{name} {{p: *{below}, q: *{below}, r: *{below}}}"
            for below, name in zip("abcdefghij", "bcdefghijk", strict=True)
        ),
    ),
    "merge bomb": (
        "b.yaml",
        "a: &a {x: {y: 1}}\n"
        + "\n".join(
            f"{name}: &{name} {{<<: [{', '.join([f'*{below}'] * 20)}]}}"
            for below, name in zip("abcdefg", "bcdefgh", strict=True)
        ),
    ),
    "itself inside": ("b.yaml", "a: &a [*a, *a]"),
    "deep lists": ("b.yaml", "a: " + "[" * DEPTH + "]" * DEPTH),
    "deep mappings": ("b.yaml", "{a: " * DEPTH),
    "deep dashes": ("b.yaml", "- " * DEPTH + "a"),
    "deep questions": ("b.yaml", "? " * DEPTH + "a"),
    "deep blocks": ("b.yaml", "\n".join(f"{' ' * n}a:" for n in range(600))),
    "deep anchors": ("b.yaml", "".join(f"&a{n} [" for n in range(DEPTH))),
    "deep toml": ("b.toml", "a = " + "[" * DEPTH + "]" * DEPTH),
    "deep toml tables": ("b.toml", "a = " + "{a = " * DEPTH + "1" + "}" * DEPTH),
    "deep toml keys": ("b.toml", ".".join(["a"] * DEPTH) + " = 1"),
    "deep toml headers": ("b.toml", "[" + " . ".join(["a"] * DEPTH) + "]"),
    "deep json": ("b.json", '{"a":' * DEPTH + "1" + "}" * DEPTH),
    "deep json lists": ("b.json", "[" * DEPTH),
    "a key twice": ("b.yaml", "sample_rate: 1\nsample_rate: 0\n"),
    "a key twice, toml": ("b.toml", "sample_rate = 1\nsample_rate = 0\n"),
    "a key twice, json": ("b.json", '{"sample_rate": 1, "sample_rate": 0}'),
    "10 MB": ("b.yaml", "sample_rate: 1 # " + "x" * 10_000_000),
    "10 MB toml": ("b.toml", "a = '" + "x" * 10_000_000),
    "10 MB json": ("b.json", '{"a": "' + "x" * 10_000_000 + '"}'),
    "tag": ("b.yaml", "a: !!python/object/apply:os.system ['true']"),
    "a number without end": ("b.json", '{"a": ' + "9" * 200_000 + "}"),
}


@pytest.fixture(autouse=True, scope="module")
def _readers_are_loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Importing the parsers, and the first settings of a process, are not what is measured."""
    for name, text in (
        ("a.yaml", "agent_span: x"),
        ("a.toml", "agent_span = 'x'"),
        ("a.json", '{"agent_span": "x"}'),
    ):
        file = tmp_path_factory.mktemp("warm") / name
        file.write_text(text)
        with pytest.raises(SettingsError):
            configure(file)


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_are_refused_in_time_and_space(bomb: str, tmp_path: Path, promise: Recorder) -> None:
    """Each is refused with the file's name, within the time and the memory, and changes nothing."""
    name, text = BOMBS[bomb]
    file = tmp_path / name
    file.write_text(text)
    began = time.thread_time()
    with pytest.raises(SettingsError, match=r"b\.(yaml|toml|json)"):
        configure(file)
    took_s = time.thread_time() - began
    assert took_s <= PASS_S * SLACK
    tracemalloc.start()
    try:
        with pytest.raises(SettingsError):
            configure(file)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    promise("B11", figure=f"refused in {took_s * 1e3:.0f} ms of CPU, {peak / 2**20:.1f} MB")
    assert peak <= PASS_BYTES
    assert current_pipeline() is None

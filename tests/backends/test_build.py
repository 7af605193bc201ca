"""The builder of the real programs: cache, failure, command line. No program is built here; small scripts stand in."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from . import build as building
from .build import PROGRAMS, BuildError, Program, Step, build, go_program, installed, main
from .fixtures import REQUIRE_VARIABLE, require

WRITES_A_PROGRAM = "import pathlib; pathlib.Path('made').write_text('program'); print('made it')"


def program(script: str = WRITES_A_PROGRAM, **changes: object) -> Program:
    """A program whose one build step is a Python script."""
    made = Program(
        name="tool",
        version="1.0",
        executable="made",
        needs=(sys.executable,),
        steps=(Step("the tool", (sys.executable, "-c", script)),),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache that the environment names."""
    monkeypatch.setenv("AGENTEVAL_BACKENDS", str(tmp_path))
    return tmp_path


def test_a_program_is_built_once(cache: Path) -> None:
    """The second build finds the first one's result; nothing temporary is left."""
    said: list[str] = []

    first = build(program(), say=said.append)
    second = build(program(), say=said.append)

    assert first == second
    assert first.read_text() == "program"
    assert "built in" in said[-2]
    assert "already built" in said[-1]
    assert [entry.name for entry in cache.iterdir()] == [program().key]


def test_the_key_follows_version_steps_and_recipe(tmp_path: Path) -> None:
    """Whatever decides the result changes the key, so a stale program is never taken for the present one."""
    recipe = tmp_path / "recipe"
    recipe.write_text("one")
    keys = [program().key, program("pass").key, program(version="2.0").key, program(recipe=recipe).key]
    recipe.write_text("two")
    keys.append(program(recipe=recipe).key)

    assert len(set(keys)) == len(keys)


def test_a_failed_build_shows_the_log_and_leaves_nothing(cache: Path) -> None:
    """A failing step ends in one line with the exit code; the log's tail is shown, the log kept, no result left."""
    said: list[str] = []
    broken = program("print('no such module'); raise SystemExit(3)")

    with pytest.raises(BuildError, match=r"^tool 1\.0, step 1 of 1: the tool failed: exit code 3; whole log: \S+$"):
        build(broken, say=said.append)

    assert "no such module" in said[-1]
    assert [entry.name for entry in cache.iterdir()] == [f"{broken.key}.failed.log"]


def test_a_step_over_its_limit_is_ended(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that does not finish says that it is at work, and is then given up."""
    monkeypatch.setattr(building, "PROGRESS_EVERY_S", 0.05)
    monkeypatch.setattr(building, "STEP_LIMIT_S", 0.2)
    said: list[str] = []

    with pytest.raises(BuildError, match="not finished after"):
        build(program("import threading; threading.Event().wait(60)"), say=said.append)

    assert any("still at work" in line for line in said)


def test_steps_without_a_result_are_a_failure(cache: Path) -> None:
    """Steps that succeed but leave no program are reported, not cached."""
    with pytest.raises(BuildError, match="left no made"):
        build(program("pass"), say=print)


def test_the_build_that_came_first_is_kept(cache: Path) -> None:
    """When another process finished the same build meanwhile, its result stays and counts."""
    # The build folder is named for the key, so the step can play the other process.
    meanwhile = (
        "import pathlib; here = pathlib.Path.cwd(); there = here.parent / here.name[1:].rsplit('-', 1)[0]; "
        "there.mkdir(); (there / 'made').write_text('first'); "
    )

    assert build(program(meanwhile + WRITES_A_PROGRAM), say=print).read_text() == "first"


def test_a_program_may_keep_what_is_around_it(cache: Path) -> None:
    """Of a program that names a folder the whole folder is kept, with the program where it was in it."""
    script = (
        "import pathlib; kept = pathlib.Path('kept/bin'); kept.mkdir(parents=True); (kept / 'made').write_text('p'); "
    )
    script += "(kept.parent / 'library').write_text('l')"

    made = build(program(script, executable="kept/bin/made", keeps="kept"), say=print)

    assert made.read_text() == "p"
    assert (made.parents[1] / "library").read_text() == "l"
    assert made.parents[2] == cache


def test_a_missing_compiler_is_one_clear_line(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a needed command the build says which, before it does anything."""
    monkeypatch.setattr(building, "PROGRAMS", (program(needs=("no-such-compiler",)),))

    assert main([]) == 1

    error = capsys.readouterr().err
    assert error == "error: tool 1.0: cannot build, not on the PATH: no-such-compiler\n"


def test_check_tells_and_builds_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--check` and `--path` name the command that builds what is missing; afterwards they name the path."""
    monkeypatch.setattr(building, "PROGRAMS", (program(),))

    assert main(["--check"]) == 1
    assert building.BUILD_COMMAND in capsys.readouterr().out
    assert main(["--path", "tool"]) == 1
    assert building.BUILD_COMMAND in capsys.readouterr().err
    assert main([]) == 0
    assert main(["--check"]) == 0
    assert str(installed("tool")) in capsys.readouterr().out
    assert main(["--path", "tool"]) == 0
    assert capsys.readouterr().out == f"{installed('tool')}\n"


def test_a_missing_program_skips_or_fails_with_the_command(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests skip with the one command, and fail where the environment requires every backend."""
    monkeypatch.delenv(REQUIRE_VARIABLE, raising=False)
    with pytest.raises(pytest.skip.Exception, match=re.escape(building.BUILD_COMMAND)):
        require("collector")
    monkeypatch.setenv(REQUIRE_VARIABLE, "1")
    with pytest.raises(pytest.fail.Exception, match=re.escape(building.BUILD_COMMAND)):
        require("collector")


def test_a_go_program_is_of_its_version() -> None:
    """A program of a Go module is required in the version that its key names, and built with its tags."""
    made = go_program("tool", version="1.2.3", package="example.org/cmd/tool", tags="small")

    commands = [" ".join(made.command(step)) for step in made.steps]

    assert commands[1] == "go get -tool example.org/cmd/tool@v1.2.3"
    assert commands[2] == "go build -ldflags=-s -w -tags=small -o tool example.org/cmd/tool"
    assert made.key.startswith("tool-1.2.3-")
    assert made.key != go_program("tool", version="1.2.3", package="example.org/cmd/tool").key


def test_the_manifest_is_of_one_version() -> None:
    """Every component of the Collector's manifest has the version that the cache key names."""
    (collector,) = (entry for entry in PROGRAMS if entry.name == "collector")
    assert collector.recipe is not None
    text = collector.recipe.read_text()

    versions = re.findall(r"^  - gomod: \S+ v(\S+)$", text, re.MULTILINE)

    assert len(versions) == text.count("gomod:")
    assert {*versions, *re.findall(r"^  version: (\S+)$", text, re.MULTILINE)} == {collector.version}

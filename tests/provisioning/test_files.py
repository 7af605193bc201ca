"""Generated files: written whole, compared exactly, never over what somebody wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.provisioning.files import MARK, differing, write, yaml_text

SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=40)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=20), inner, max_size=3)
    ),
)


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(tree=TREES)
def test_yaml_reads_back_as_it_was(tree: object) -> None:
    """Whatever names and texts are in it: quotes, colons, line breaks, other scripts, words that
    look like values.
    """
    text = yaml_text(tree, command="prometheus", head="Rules.")
    assert yaml.safe_load(text) == tree
    assert text.startswith(f"# Rules.\n# {MARK} prometheus`.\n")


def test_expressions_of_several_lines_stay_readable() -> None:
    """A text with line breaks is a block, a repeated value is written out again, lists are
    indented.
    """
    shared = ["a"]
    text = yaml_text({"expr": "a\n/ b\n", "one": shared, "two": shared}, command="all", head="x")
    assert "expr: |\n  a\n  / b\n" in text
    assert "one:\n  - a\ntwo:\n  - a\n" in text


def test_only_what_differs_is_written(tmp_path: Path) -> None:
    """A second time nothing is; a file that was changed or is gone comes back."""
    files = {"a/one.yaml": f"# {MARK} x\n1\n", "two.yaml": f"# {MARK} x\nzwei: ü\n"}
    assert write(tmp_path, files) == ["a/one.yaml", "two.yaml"]
    assert write(tmp_path, files) == []
    (tmp_path / "two.yaml").write_text(f"# {MARK} x\nother\n")
    (tmp_path / "a/one.yaml").unlink()
    assert differing(tmp_path, files) == ["a/one.yaml", "two.yaml"]
    assert write(tmp_path, files) == ["a/one.yaml", "two.yaml"]
    assert (tmp_path / "two.yaml").read_text(encoding="utf-8") == files["two.yaml"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "one.yaml", "two.yaml"], (
        "nothing else is left"
    )


def test_a_folder_in_the_place_of_a_file_is_told(tmp_path: Path) -> None:
    """Even with force, and with the path in the message."""
    (tmp_path / "a.yaml").mkdir()
    with pytest.raises(ConfigurationError, match=r"a\.yaml: cannot be written"):
        write(tmp_path, {"a.yaml": f"# {MARK} x\n"}, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["a.yaml"], (
        "what was written beside it is gone"
    )

"""Reading settings files: three equivalent formats, and everything that is refused, with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.config.files import MAX_BYTES, read_file
from agenteval_otel.errors import ConfigurationError
from tests.config.support import written_settings

SAME = {
    "settings.yaml": """
        sample_rate: 0.5
        evaluators:
          - ResponseHealth
          - {type: KeywordCoverage, expected_keywords: [a, "1"], case_sensitive: true}
        agent_span: never
        """,
    "settings.toml": """
        sample_rate = 0.5
        agent_span = "never"
        evaluators = [
          "ResponseHealth",
          {type = "KeywordCoverage", expected_keywords = ["a", "1"], case_sensitive = true},
        ]
        """,
    "settings.json": """
        {"sample_rate": 0.5, "agent_span": "never", "evaluators": ["ResponseHealth",
         {"type": "KeywordCoverage", "expected_keywords": ["a", "1"], "case_sensitive": true}]}
        """,
}


def read(folder: Path, text: str, name: str = "settings.yaml") -> Any:
    return read_file(written_settings(folder, text, name=name)).values


@pytest.mark.parametrize("name", SAME)
def test_the_formats_are_equivalent(name: str, tmp_path: Path) -> None:
    """YAML, TOML and JSON give equal values; a byte order mark and an upper-case suffix do not
    matter.
    """
    expected = {
        "sample_rate": 0.5,
        "agent_span": "never",
        "evaluators": [
            "ResponseHealth",
            {"type": "KeywordCoverage", "expected_keywords": ["a", "1"], "case_sensitive": True},
        ],
    }
    assert read(tmp_path, SAME[name], name) == expected
    assert read(tmp_path, "\ufeff" + SAME[name].lstrip("\n"), name.upper()) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("off", "off"),
        ("Yes", "Yes"),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("none", "none"),
        ("12", 12),
        ("-3", -3),
        ("012", 12),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        (".inf", ".inf"),
        ("1e999", "1e999"),
        ("0x10", "0x10"),
        ("'12'", "12"),
        ('"\\u00e9"', "é"),
        ("|\n  two\n  lines", "two\nlines\n"),
        ("=", "="),
        ("9" * 60, int("9" * 60)),
    ],
)
def test_yaml_means_what_yaml_1_2_says(text: str, value: Any, tmp_path: Path) -> None:
    """``no``, dates and times of day are text; only finite numbers are numbers."""
    actual = read(tmp_path, f"a: {text}\n")["a"]
    assert actual == value
    assert type(actual) is type(value)


def test_anchors_and_merges(tmp_path: Path) -> None:
    """Anchors, aliases and merge keys work; explicit keys win over merged ones."""
    result = read(tmp_path, "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: {<<: [*a, {z: 4}]}\nd: *a\n")
    assert result["b"] == {"x": 1, "y": 3}
    assert result["c"] == {"x": 1, "y": 2, "z": 4}
    assert result["d"] == result["a"]


REFUSED = {
    "no such suffix": ("settings.ini", "a", "ends in .yaml, .yml, .toml, .json", "settings.ini"),
    "empty": ("s.yaml", "", "is empty", "s.yaml"),
    "comments only": ("s.yaml", "# a\n", "is empty", "s.yaml"),
    "empty toml": ("s.toml", "", "is empty", "s.toml"),
    "empty json": ("s.json", " \n", "is empty", "s.json"),
    "a list": ("s.yaml", "- a\n", "found a list", "s.yaml"),
    "a word": ("s.json", '"a"', "found str 'a'", "s.json"),
    "a key twice": ("s.yaml", "a: 1\nb: 2\na: 3\n", "'a' is here and in line 1", "s.yaml:3"),
    "a key twice, inside": (
        "s.yaml",
        "a:\n  b: 1\n  'b': 2\n",
        "'b' is here and in line 2",
        "s.yaml:3",
    ),
    "a key twice, toml": ("s.toml", "a = 1\na = 2\nb = 3\n", "overwrite", "s.toml:2"),
    "a key twice, json": ("s.json", '{"a": 1, "a": 2}', "'a' appears twice", "s.json"),
    "a number for a key": ("s.yaml", "a:\n  1: b\n", "Write '1'", "s.yaml:2"),
    "a list for a key": ("s.yaml", "[a]: b\n", "a key must be text", "s.yaml:1"),
    "a tag": ("s.yaml", "a: !!python/object:os.system b\n", "tags are not allowed", "s.yaml:1"),
    "a tag that is harmless": ("s.yaml", "a: !!str b\n", "tags are not allowed", "s.yaml:1"),
    "two documents": ("s.yaml", "a: 1\n---\nb: 2\n", "another document", "s.yaml:2"),
    "merging text": ("s.yaml", "a:\n  <<: b\n", "'<<' takes mappings", "s.yaml:2"),
    "an unknown alias": ("s.yaml", "a: *b\n", "undefined alias 'b'", "s.yaml:1"),
    "itself inside": ("s.yaml", "a: &a [*a]\n", "an alias is inside of its own anchor", "s.yaml:1"),
    "unclosed": ("s.yaml", "a: [1,\nb: 2\n", "expected ',' or ']'", "s.yaml:3"),
    "a tab": ("s.yaml", "a:\n\t- b\n", "cannot start any token", "s.yaml:2"),
    "a control character": ("s.yaml", "a: \x01\n", "not YAML", "s.yaml"),
    "no toml": ("s.toml", "a = 1\nb = \n", "not TOML: Invalid value", "s.toml:2"),
    "no json": ("s.json", '{"a": 1,\n "b" 2}', "not JSON: Expecting ':' delimiter", "s.json:2"),
    "half a character": ("s.yaml", 'a: ["\\ud800"]\n', "half of a character", "s.yaml"),
    "half a character in a key": (
        "s.json",
        '{"a": {"\\udfff": 1}}',
        "half of a character",
        "s.json",
    ),
    "a number without end": ("s.json", '{"a": ' + "9" * 5000 + "}", "not JSON", "s.json"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str, tmp_path: Path) -> None:
    """The error names the file, the line where the parser knows it, and the problem."""
    name, text, message, where = REFUSED[case]
    with pytest.raises(ConfigurationError) as caught:
        read_file(written_settings(tmp_path, text, name=name))
    assert message in str(caught.value)
    assert (caught.value.path or "").endswith(where)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file, a folder, a file that is too large or not UTF-8, and a path with NUL are
    refused.
    """
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "latin.yaml").write_bytes(b"a: 1\nb: \xe9\n")
    (tmp_path / "large.yaml").write_bytes(b"#" * (MAX_BYTES + 1))
    for name, message in {
        "missing.yaml": "No such file",
        "folder.yaml": "Is a directory",
        "latin.yaml": "latin.yaml:2: not UTF-8",
        "large.yaml": f"at most {MAX_BYTES}",
        "nul\0.yaml": "cannot be read: embedded null byte",
    }.items():
        with pytest.raises(ConfigurationError, match=message):
            read_file(tmp_path / name)


def test_the_origin_of_values(tmp_path: Path) -> None:
    """The path of an error leads to a line: keys with dots, camelCase, and missing values."""
    tree = read_file(
        written_settings(
            tmp_path,
            """\
            agents:
              shop.support:
                sample_rate: 1
              shop: {enabled: true}
            evaluators:
              - ResponseHealth
              - type: KeywordCoverage
                expectedKeywords: [a]
            """,
        )
    )
    for path, line in {
        "agents.shop.support.sample_rate": 3,
        "agents.shop.enabled": 4,
        "evaluators[1]": 7,
        "evaluators[1].expected_keywords[0]": 8,
        "evaluators[1].missing": 7,
        "evaluators[9]": 5,
        "agents": 1,
    }.items():
        assert tree.origin_of(path) == f"settings.yaml:{line}", path
    assert tree.origin_of("sampler") is None
    assert tree.origin_of(None) is None

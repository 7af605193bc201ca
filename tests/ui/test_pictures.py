"""The pictures in the documents show what the pages show now: compared by their words, without a
browser.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs.generator import DOCS, load_script


@pytest.fixture(scope="module", name="pictures")
def _pictures() -> Any:
    return load_script("ui_pictures")


def differences(pictures: Any, folder: Path) -> list[str]:
    """What the pages say now and did not when their pictures were made (+), and the other way round
    (-).
    """
    kept, now = pictures.kept_words(), pictures.words(pictures.Stored(folder))
    return [
        f"{name}: {line}"
        for name in now.keys() | kept.keys()
        for line in difflib.ndiff(kept.get(name, "").split("\n"), now.get(name, "").split("\n"))
        if line.startswith(("+", "-"))
    ]


def test_the_pictures_are_of_todays_pages(pictures: Any, tmp_path: Path) -> None:
    """The words of each page are those of its picture; a difference is named, with the command for
    new pictures.
    """
    changed = differences(pictures, tmp_path)
    assert changed == [], (
        f"pictures of the pages are out of date, make them again: {pictures.COMMAND}"
    )


def test_each_page_is_pictured_in_both_themes(pictures: Any) -> None:
    """Every page has its two pictures, which a document shows; no picture is left over."""
    expected = {f"ui-{name}-{theme}.png" for name in pictures.PAGES for theme in pictures.THEMES}
    assert {path.name for path in pictures.IMAGES.glob("ui-*.png")} == expected
    pages = [(DOCS / name).read_text() for name in ("ui.md", "labelling.md")]
    assert set(re.findall(r"images/(ui-[\w-]+\.png)", "".join(pages))) == expected

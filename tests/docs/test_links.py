"""Links of documents lead to files, and to headings that these have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.generator import DOCS

ROOT = DOCS.parent
DOCUMENTS = sorted({*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("*/*.md")})


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as they are commonly made: lower case, hyphens, without
    punctuation.
    """
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    """A relative link leads to a file or folder of the project; what stands behind its # is a
    heading there.
    """
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", document.read_text()):
        if "://" not in target:
            there = (document.parent / target).resolve() if target else document
            assert there.exists(), target
            assert not anchor or anchor in anchors(there), f"{target}#{anchor}"

"""README's commands for the browser give the page of its picture."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.backends.process import bare_environment
from tests.docs.generator import load_script
from tests.promises.programs import PROJECT
from tests.ui.served import Structure, client_of, served

pytestmark = pytest.mark.slow


def objectives_on(text: str) -> dict[str, str]:
    """The objectives of the criteria that a page names."""
    return dict(re.findall(r"^(\w+)$\s+^objective ([\d.]+ %):", text, re.MULTILINE))


def longest_trend(html: str) -> int:
    """How many steps the longest of a page's lines has."""
    lines = re.findall(r'class="trend" points="([^"]+)"', html)
    return max(len(line.split()) for line in lines)


@pytest.fixture(scope="module", name="pictures")
def _pictures() -> Any:
    return load_script("ui_pictures")


def test_the_demo_and_ui_show_what_the_picture_shows(pictures: Any, tmp_path: Path) -> None:
    """The same criteria with their objectives, trends of as many steps, and the release in the chart:
    without settings or another option.
    """
    command = [sys.executable, "-m", "agenteval_otel", "demo", "--storage", "agenteval.db"]
    environment = bare_environment(PYTHONPATH=str(PROJECT))
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    (tmp_path / "pictured").mkdir()
    pictured = pictures.pages_of(pictures.Stored(tmp_path / "pictured"))
    with served(tmp_path / "agenteval.db") as address, client_of(address) as client:
        overview = client.get("/").text
        criterion = client.get("/criterion?name=next_step").text
    texts = [Structure(page.replace("<", "\n<")).text for page in (overview, pictured["overview"])]
    assert len(objectives_on(texts[0])) == 6
    assert objectives_on(texts[0]) == objectives_on(texts[1])
    assert abs(longest_trend(overview) - longest_trend(pictured["overview"])) <= 3
    assert longest_trend(overview) >= 15
    for page in (overview, pictured["overview"], criterion, pictured["criterion"]):
        assert 'class="mark"' in page
        assert "prompt version 2 from" in page
        assert 'class="objective"' in page

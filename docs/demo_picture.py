"""Write the picture of README, docs/images/demo.svg: what a real run of ``agenteval-otel demo``
prints at its end.

uv run python docs/demo_picture.py
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rich.console import Console

from agenteval_otel.cli import demo, main

_FILE = Path(__file__).parent / "images" / "demo.svg"


def write() -> None:
    console = Console(highlight=False, record=True, width=100, color_system="truecolor")
    print_summary = demo.print_summary

    def summary_alone(*arguments: Any, **options: Any) -> None:
        console.export_text()  # forgets what was printed before
        print_summary(*arguments, **options)

    demo.Console, demo.print_summary = lambda **_: console, summary_alone  # type: ignore[assignment,misc]
    assert main(["demo"]) == 0
    svg = console.export_svg(title="agenteval-otel demo", unique_id="demo")
    # Without the fonts that a reader's browser would load from elsewhere.
    _FILE.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    write()

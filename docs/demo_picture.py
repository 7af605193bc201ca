"""Write the picture of README, docs/images/demo.svg: the summary that a real run of ``agenteval-otel demo`` prints.

uv run python docs/demo_picture.py
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from agenteval_otel.cli import demo, main

_FILE = Path(__file__).parent / "images" / "demo.svg"

if __name__ == "__main__":
    console = Console(highlight=False, record=True, width=100, force_terminal=False, color_system="truecolor")
    demo.Console = lambda **_: console  # type: ignore[attr-defined]
    assert main(["demo"]) == 0
    _FILE.write_text(console.export_svg(title="agenteval-otel demo", unique_id="demo"), encoding="utf-8")

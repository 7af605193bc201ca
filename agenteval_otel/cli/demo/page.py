"""The last page's paper: sections, indented by two, as wide as the terminal."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from agenteval_otel.cli.demo.tables import glyphs_of

__all__ = ["Page"]

_WIDE, _LABEL = 78, 18


class Page:
    """Prints in sections."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.width, self.glyphs = console.width, glyphs_of(console)

    def heading(self, text: str, style: str = "bold") -> None:
        """Begin a section."""
        self._console.print()
        self._console.print(Text(text, style=style))

    def line(self, text: str | Text, *, indent: int = 2, style: str = "") -> None:
        """A line, or a paragraph that is wrapped and stays indented."""
        self.show(Text(text, style=style) if isinstance(text, str) else text, indent=indent)

    def command(self, text: str, *, indent: int = 4) -> None:
        """Something to be copied: never broken, however narrow the terminal."""
        self._console.print(Text(" " * indent + text, style="cyan"), soft_wrap=True)

    def step(self, name: str, *commands: str) -> None:
        """Something to do: its name beside the commands, above them where the terminal is narrow."""
        beside = self.width >= _WIDE
        for number, command in enumerate(commands):
            label = name if number == 0 else ""
            if label and not beside:
                self.line(label)
            start = f"  {label:<{_LABEL}}" if beside else "    "
            self._console.print(Text.assemble(start, (command, "cyan")), soft_wrap=True)

    def show(self, shown: RenderableType, *, indent: int = 2) -> None:
        """Anything that can be printed."""
        self._console.print(Padding(shown, (0, 0, 0, indent), expand=False))

"""GeneratedFiles: the texts of a target, written into a folder or compared with it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import yaml

from agenteval_otel.errors import ConfigurationError

GeneratedFiles = Mapping[str, str]
"""Text by path, relative to the folder. ``/`` separates."""

MARK = "Written by `agenteval-otel provision"
"""Stands in every generated file: a file without it is the user's, and is not overwritten."""

_URL = re.compile(r"https?://[^\s/]+\S*\Z")


class _Dumper(yaml.SafeDumper):
    """Writes no alias, lists indented under their key, and long texts as blocks."""

    def ignore_aliases(self, data: object) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    # Some readers take NEL, LS and PS for line breaks, and return spaces. Double quotes escape them.
    odd = any(not char.isprintable() and char not in " \n" for char in value)
    style: str | None = None
    if odd:
        style = '"'
    elif "\n" in value:
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def yaml_text(tree: object, *, command: str, head: str) -> str:
    """Return a tree as YAML, in its own order.

    A comment above it has the head and the command that writes the file.
    """
    comment = "".join(f"# {line}\n" for line in (*head.splitlines(), f"{MARK} {command}`."))
    body = yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return f"{comment}\n{body}"


def expect_urls(**options: str | None) -> None:
    """Raise ConfigurationError if an option that is set is no absolute address."""
    for name, value in options.items():
        if value is not None and not _URL.match(value):
            raise ConfigurationError(
                "must be an address that begins with http:// or https://", path=name
            )


def differing(folder: Path, files: GeneratedFiles) -> list[str]:
    return [name for name, text in files.items() if _read(folder / name) != text]


def left_over(folder: Path, files: GeneratedFiles) -> list[str]:
    """Return the obsolete files: generated ones in the subfolders of these.

    Other targets may write into the folder itself.
    """
    parents = [os.path.dirname(name) for name in files]
    subfolders = dict.fromkeys(parent for parent in parents if parent)
    obsolete = []
    for subfolder in subfolders:
        for path in sorted((folder / subfolder).glob("*")):
            name = f"{subfolder}/{path.name}"
            if name in files:
                continue
            text = _read(path)
            if text is not None and MARK in text:
                obsolete.append(name)
    return obsolete


def write(folder: Path, files: GeneratedFiles, *, force: bool = False) -> list[str]:
    """Write what differs, each file whole or not at all. Return the paths that were written.

    Raises:
        ConfigurationError: A file that differs was not generated and `force` is not set (then
            nothing is written), or a file cannot be written.
    """
    changed = differing(folder, files)
    if not force:
        for name in changed:
            text = _read(folder / name)
            if text is not None and MARK not in text:
                raise ConfigurationError(
                    "was not generated. --force writes over it", path=str(folder / name)
                )
    for name in changed:
        _replace(folder / name, files[name])
    return changed


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError):
        return ""  # something else is there


def _replace(path: Path, text: str) -> None:
    scratch = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            scratch.write_text(text, encoding="utf-8", newline="\n")
            scratch.replace(path)
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigurationError(f"cannot be written: {error.strerror}", path=str(path)) from error

"""Reading a settings file: YAML, TOML or JSON, chosen by its suffix, bounded before anything is parsed.

A file that is wrong, whatever is wrong with it, gives a `ConfigurationError`, within milliseconds and megabytes.
"""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any, NoReturn

from agenteval_otel.config.tree import MAX_DEPTH, MAX_VALUES, Items, Section
from agenteval_otel.errors import ConfigurationError

__all__ = ["MAX_BYTES", "read_file"]

MAX_BYTES = 256 * 1024
_LINE = re.compile(r" \(at line (\d+), column \d+\)")
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{2 * MAX_DEPTH}}}")


def read_file(path: str | os.PathLike[str]) -> Section:
    """The file's mapping, each value with where it stands (the line, where the format's parser tells it).

    Blocks for as long as the file system takes; what is no regular file is not opened for reading.

    Raises:
        ConfigurationError: Not there, not readable, too large, not of its format, empty, no mapping, or nested too
            deeply; the path is the file with its line.
    """
    file = Path(path)
    loader = _LOADERS.get(file.suffix.lower())
    if loader is None:
        raise ConfigurationError(f"expected a file that ends in {', '.join(_LOADERS)}", path=str(file))
    text = _text_of(file)
    try:
        document = loader(text, file.name)
    except RecursionError:
        raise ConfigurationError(f"nested deeper than {MAX_DEPTH} levels", path=file.name) from None
    if document is None:
        raise ConfigurationError("the file is empty; settings that change nothing are {}", path=file.name)
    if not isinstance(document, Section):
        raise ConfigurationError(f"expected a mapping of settings, found {_word_for(document)}", path=file.name)
    _check_size(document, file.name)
    return document


def _text_of(file: Path) -> str:
    try:
        # Without waiting: a pipe that nobody writes to would hold the process up.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ConfigurationError("expected a regular file", path=str(file))
            if status.st_size > MAX_BYTES:
                raise ConfigurationError(f"{status.st_size} bytes, at most {MAX_BYTES} are read", path=str(file))
            content = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror or error}", path=str(file)) from None
    except ValueError:  # a NUL in the path
        raise ConfigurationError("is no path", path=repr(file)) from None
    if len(content) > MAX_BYTES:
        raise ConfigurationError(f"grew beyond {MAX_BYTES} bytes while it was read", path=str(file))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigurationError("not UTF-8", path=f"{file.name}:{line}") from None


def _load_yaml(text: str, name: str) -> Any:
    from agenteval_otel.config.bounded_yaml import load_yaml  # only who has a YAML file needs PyYAML

    return load_yaml(text, name)


def _load_toml(text: str, name: str) -> Any:
    if _LONG_KEY.search(text):  # takes its parser time that grows with the square of the length
        raise ConfigurationError(f"nested deeper than {MAX_DEPTH} levels", path=name)
    import tomllib  # only who has a TOML file needs it

    try:
        found = tomllib.loads(text)
    except ValueError as error:
        line = _LINE.search(str(error))
        where = f"{name}:{line[1]}" if line else name
        raise ConfigurationError(f"not TOML: {_LINE.sub('', str(error))[:80]}", path=where) from None
    return _with_origins(found, name, 0) if found else None


def _load_json(text: str, name: str) -> Any:
    if not text.strip():
        return None
    try:
        found = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"not JSON: {error.msg}", path=f"{name}:{error.lineno}") from None
    except ValueError as error:
        raise ConfigurationError(f"not JSON: {str(error)[:80]}", path=name) from None
    return _with_origins(found, name, 0)


_LOADERS = {".yaml": _load_yaml, ".yml": _load_yaml, ".toml": _load_toml, ".json": _load_json}


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:40]!r} stands there twice")
        found[key] = value
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _with_origins(value: Any, name: str, depth: int) -> Any:
    """The same value with its file's name as where it was said; dates and times as text, as in YAML."""
    if depth > 2 * MAX_DEPTH:
        raise RecursionError
    if isinstance(value, dict):
        section = Section()
        for key, item in value.items():
            if not key:
                raise ConfigurationError("a key is empty", path=name)
            section.put(key, _with_origins(item, name, depth + 1), name)
        return section
    if isinstance(value, list):
        return Items([_with_origins(item, name, depth + 1) for item in value], [name] * len(value))
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _check_size(document: Section, name: str) -> None:
    """Bound depth and number of values: what works on the tree later may then walk it without care."""
    level: list[Any] = [[document]]
    values = 0
    for _ in range(MAX_DEPTH + 2):
        level = [inner for value in level for inner in _inside(value)]
        values += len(level)
        if not all(map(_is_whole, level)):
            raise ConfigurationError("a text holds half of a character (a lone surrogate)", path=name)
        if values > MAX_VALUES:
            raise ConfigurationError(f"more than {MAX_VALUES} values, aliases unfolded", path=name)
        if not level:
            return
    raise ConfigurationError(f"nested deeper than {MAX_DEPTH} levels", path=name)


def _is_whole(value: Any) -> bool:
    """Nothing that cannot be shown or stored: escapes may say what no file can hold."""
    texts = list(value) if isinstance(value, Section) else [value] if isinstance(value, str) else []
    return not any("\ud800" <= char <= "\udfff" for text in texts if not text.isascii() for char in text)


def _inside(value: Any) -> list[Any]:
    if isinstance(value, Section):
        return list(value.values())
    return list(value) if isinstance(value, list) else []


def _word_for(value: Any) -> str:
    return "a list" if isinstance(value, Items) else f"{type(value).__name__} {str(value)[:40]!r}"

"""Reads a settings file: YAML, TOML or JSON, by its suffix, with limits of size and depth."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from agenteval_otel.config.tree import MAX_DEPTH, MAX_VALUES, Items, Section
from agenteval_otel.errors import ConfigurationError

__all__ = ["MAX_BYTES", "read_file"]

MAX_BYTES = 256 * 1024
_LINE = re.compile(r" \(at line (\d+), column \d+\)")
_SURROGATE = re.compile("[\ud800-\udfff]")
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{2 * MAX_DEPTH}}}")


def read_file(path: str | os.PathLike[str]) -> Section:
    """The file's mapping, each value with its origin (with the line, in YAML). Blocks for the file system.

    Raises:
        ConfigurationError: Missing, not readable, too large, not of its format, empty, no mapping, or nested too
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
        raise ConfigurationError(f"expected a mapping of settings, found {_kind_of(document)}", path=file.name)
    _check_size(document, file.name)
    return document


def _text_of(file: Path) -> str:
    try:
        if file.exists() and not (file.is_file() or file.is_dir()):
            raise ConfigurationError("expected a regular file", path=str(file))  # opening a pipe would wait
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror or error}", path=str(file)) from None
    except ValueError:  # a NUL in the path
        raise ConfigurationError("is no path", path=repr(file)) from None
    if len(content) > MAX_BYTES:
        raise ConfigurationError(f"too large, at most {MAX_BYTES} bytes are read", path=str(file))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigurationError("not UTF-8", path=f"{file.name}:{line}") from None


def _load_yaml(text: str, name: str) -> Any:
    from agenteval_otel.config.yaml_files import load_yaml  # loads PyYAML

    return load_yaml(text, name)


def _load_toml(text: str, name: str) -> Any:
    if _LONG_KEY.search(text):  # the parser takes a time that grows with the square of the length
        raise ConfigurationError(f"nested deeper than {MAX_DEPTH} levels", path=name)
    import tomllib

    try:
        document = tomllib.loads(text)
    except ValueError as error:
        line = _LINE.search(str(error))
        where = f"{name}:{line[1]}" if line else name
        raise ConfigurationError(f"not TOML: {_LINE.sub('', str(error))[:80]}", path=where) from None
    return _with_origins(document, name, 0) if document else None


def _load_json(text: str, name: str) -> Any:
    if not text.strip():
        return None
    try:
        document = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"not JSON: {error.msg}", path=f"{name}:{error.lineno}") from None
    except ValueError as error:
        raise ConfigurationError(f"not JSON: {str(error)[:80]}", path=name) from None
    return _with_origins(document, name, 0)


_LOADERS = {".yaml": _load_yaml, ".yml": _load_yaml, ".toml": _load_toml, ".json": _load_json}


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise ValueError(f"the key {key[:40]!r} stands there twice")
        mapping[key] = value
    return mapping


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _with_origins(value: Any, name: str, depth: int) -> Any:
    """The same value with the file's name as its origin; dates and times as text, as in YAML."""
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
    """Limit depth and number of values, so that later code may walk the tree freely."""
    level: list[Any] = [Items([document])]
    values = 0
    for _ in range(MAX_DEPTH + 2):
        level = [inner for value in level for inner in _inside(value)]
        values += len(level)
        texts = [text for value in level for text in (value if isinstance(value, Section) else [value])]
        if any(_SURROGATE.search(text) for text in texts if isinstance(text, str)):
            raise ConfigurationError("a text holds half of a character (a lone surrogate)", path=name)
        if values > MAX_VALUES:
            raise ConfigurationError(f"more than {MAX_VALUES} values", path=name)
        if not level:
            return
    raise ConfigurationError(f"nested deeper than {MAX_DEPTH} levels", path=name)


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, Section) else value if isinstance(value, Items) else ()


def _kind_of(value: Any) -> str:
    return "a list" if isinstance(value, Items) else f"{type(value).__name__} {str(value)[:40]!r}"

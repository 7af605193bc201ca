"""Files that a configuration names: read once at load, bounded, and never waited for."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from agenteval_otel.errors import ConfigurationError

__all__ = ["json_of", "text_of"]


def text_of(path: str | os.PathLike[str], *, max_bytes: int) -> str:
    """The text of a UTF-8 file, without a byte order mark. Blocks for as long as the file system takes.

    Raises:
        ConfigurationError: Not there, not readable, no regular file, larger than `max_bytes`, or not UTF-8.
    """
    try:
        # Without waiting: a pipe that nobody writes to would hold the process up.
        descriptor = os.open(Path(path).expanduser(), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigurationError(f"{path}: expected a regular file")
            content = opened.read(max_bytes + 1)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError:  # a NUL in the path
        raise ConfigurationError(f"{str(path)!r} is no path") from None
    if len(content) > max_bytes:
        raise ConfigurationError(f"{path}: more than {max_bytes} bytes, which is all that is read")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(f"{path}:{line}: not UTF-8") from None


def json_of(path: str | os.PathLike[str], *, max_bytes: int) -> Any:
    """What stands in a JSON file.

    Raises:
        ConfigurationError: As `text_of`; not JSON, or nested too deeply.
    """
    text = text_of(path, max_bytes=max_bytes)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: not JSON: {str(error)[:80]}") from None

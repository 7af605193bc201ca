"""Serves the pages on this machine with uvicorn, until the process is interrupted."""

from __future__ import annotations

import contextlib
import errno
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any, Final

from agenteval_otel.components.database.target import Target, database_at, is_sqlite
from agenteval_otel.errors import ConfigurationError, StorageError
from agenteval_otel.runtime.log import log
from agenteval_otel.storage.places import Place
from agenteval_otel.storage.read import database_of
from agenteval_otel.storage.sql_database import add_answer_texts, add_missing_indices
from agenteval_otel.ui.runs import opened_runs

LOOPBACK: Final = "127.0.0.1"
_STOP_S: Final = 3.0
_PAUSE_S: Final = 0.05


def opened(place: str) -> tuple[Place, Target | None]:
    """Return the place of a file or a URL, and the database in which labels can be stored.

    The database is None for a file of JSON lines.

    Raises:
        ConfigurationError: A wrong address, or a file without results.
    """
    try:
        target = database_at(place)
    except ValueError as error:
        raise ConfigurationError(str(error), path="PLACE") from None
    path = target.path
    if path is None or not path.is_file() or not path.stat().st_size or is_sqlite(path):
        return database_of(target), target
    return opened_runs([place]).place, None


def prepare(target: Target) -> list[str]:
    """Create a missing database's tables, and columns and indices that an older database lacks.

    Return the names of the indices. Raises `ConfigurationError` for a database that has other
    tables only: nothing is created in it.
    """
    path = target.path
    if path is None or (path.is_file() and path.stat().st_size):
        try:
            database_of(target).count_results()
        except StorageError as error:
            wrong = "cannot be read, or nothing of agenteval-otel was ever stored there"
            raise ConfigurationError(f"{wrong}: {error}", path="PLACE") from None
    try:
        return add_missing_indices(target)
    except (StorageError, OSError):  # a right to read is enough for the pages
        return []


def listener(port: int, option: str = "--port") -> socket.socket:
    """Return a socket of 127.0.0.1 for the port, 0 for a free one.

    Raises `ConfigurationError` if the port is taken or cannot be used.
    """
    try:
        return socket.create_server((LOOPBACK, port))
    except OSError as error:
        reason = (
            "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
        )
        wrong = f"{LOOPBACK}:{port} {reason}: choose another port with {option}, 0 for a free one"
        raise ConfigurationError(wrong, path=option) from None


def serve(
    app: Callable[..., Any], listening: socket.socket, on_start: Callable[[], object]
) -> None:
    """Answer until SIGINT or SIGTERM.

    `on_start` is called before the server runs: the socket listens already.
    """
    server = _server(app)
    before = {
        number: signal.signal(number, server.handle_exit)
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    on_start()  # the socket listens already
    try:
        server.run(sockets=[listening])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def serve_beside(app: Callable[..., Any], listening: socket.socket) -> Callable[[], None]:
    """Serve on a separate thread, and return a function that stops it."""
    server = _server(app)
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listening]}, name="agenteval-pages", daemon=True
    )
    thread.start()

    def stop() -> None:
        server.should_exit = True
        thread.join(_STOP_S)

    return stop


def index_beside(target: Target, *, retry_s: float = 10.0) -> Callable[[], None]:
    """Add stored answers to the index of their words, on a thread that ends when it has all.

    Return a function that stops it. What fails is tried again, and the first failure logged.

    Args:
        retry_s: After which time it is tried again.
    """
    stopping = threading.Event()

    def add() -> None:
        is_logged = False
        pause_s = 0.0
        while not stopping.wait(pause_s):
            pause_s = _PAUSE_S  # gives writers of the file their turn
            try:
                if not add_answer_texts(target):
                    return
            except StorageError as error:
                pause_s = retry_s
                if not is_logged:
                    log.warning("words_not_added", part="pages", reason=str(error))
                is_logged = True

    thread = threading.Thread(target=add, name="agenteval-index", daemon=True)
    thread.start()

    def stop() -> None:
        stopping.set()
        thread.join(_STOP_S)

    return stop


def _server(app: Callable[..., Any]) -> Any:
    import uvicorn

    # Without an access log: the first address has the token.
    config = uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
        timeout_keep_alive=75,
    )
    server = uvicorn.Server(config)
    # uvicorn's handlers raise the signal again at the end, which could skip our cleanup.
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    return server

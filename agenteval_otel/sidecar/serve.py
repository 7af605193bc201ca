"""The sidecar as a whole.

It has its receivers on one event loop, the intake, and the settings file that is watched.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from agenteval_otel.capture.otlp.body import BodyError, Decoding, Full
from agenteval_otel.capture.otlp.files import requests_in
from agenteval_otel.config.process import default_pipeline, reload, shutdown
from agenteval_otel.config.sidecar import SidecarSettings
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.sidecar.evaluate import Evaluations
from agenteval_otel.sidecar.grpc import GrpcReceiver, cannot_bind
from agenteval_otel.sidecar.http import EventLoop, HttpReceiver, HttpServer
from agenteval_otel.sidecar.intake import Intake

_START_S: Final = 30.0
_FILES_S: Final = 86_400.0
"""How long evaluating files may take: judges are slow, and no client waits."""
_STOP_S: Final = 4.0
_BACKLOG: Final = 1_024
_KEY_CHARS: Final = 16


class Addresses(NamedTuple):
    """Where it listens, as text."""

    grpc: str
    http: str


class Sidecar:
    """Receives, evaluates and emits, with the process's pipeline. `start` and `stop` block."""

    def __init__(self, settings: SidecarSettings) -> None:
        _check_certificates(settings)
        self._settings = settings
        self.intake = Intake(settings)
        self._is_ready = False
        self._addresses: Future[Addresses] = Future()
        self._end: Callable[[], object] = bool  # does nothing until the event loop runs
        self._thread = threading.Thread(target=self._run, name="agenteval-receivers", daemon=True)

    def __repr__(self) -> str:
        return f"<Sidecar {'ready' if self._is_ready else 'not ready'} {self.intake!r}>"

    def start(self) -> Addresses:
        """Listen. Raises `ConfigurationError`. The sidecar is ready with `read_left`."""
        self.intake.start()
        self._thread.start()
        return self._addresses.result(_START_S)

    def read_left(self, ending: threading.Event) -> int:
        """Take what an earlier process has left, and be ready. Return how many requests were taken.

        Blocks, up to `ending`.
        """
        count = self.intake.read_left(ending)
        self._is_ready = not ending.is_set()
        return count

    def stop(self, timeout_s: float) -> bool:
        """Take no further request, evaluate and export what was taken.

        Return False if something was left.
        """
        deadline = time.monotonic() + timeout_s
        self._is_ready = False
        # RuntimeError: the event loop is closed, because the receivers have ended by themselves.
        with contextlib.suppress(RuntimeError):
            self._end()
        self._thread.join(min(_STOP_S + 1, timeout_s))
        drained = self.intake.close(max(0.0, deadline - time.monotonic()))
        return shutdown(max(0.5, deadline - time.monotonic())) and drained

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=EventLoop) as runner:
                runner.run(self._serve())
        except Exception as error:
            if not self._addresses.done():
                self._addresses.set_exception(error)

    async def _serve(self) -> None:
        settings = self._settings
        ending = asyncio.Event()
        decoding = Decoding(settings.max_request_bytes)
        self.intake.decoding = decoding
        self._end = partial(asyncio.get_running_loop().call_soon_threadsafe, ending.set)
        grpc = GrpcReceiver(self.intake, settings, decoding, self._why_not)
        evaluations = Evaluations() if settings.evaluate else None
        receiver = HttpReceiver(self.intake, settings, decoding, evaluations, self._why_not)
        http = HttpServer(receiver, settings)
        listener = _listener(settings)
        grpc_port = await grpc.start()
        serving = asyncio.create_task(http.serve(listener))
        scheme = "http" if settings.certificate is None else "https"
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        self._addresses.set_result(
            Addresses(f"{host}:{grpc_port}", f"{scheme}://{host}:{listener.getsockname()[1]}")
        )
        await asyncio.wait(
            {serving, asyncio.create_task(ending.wait())}, return_when=asyncio.FIRST_COMPLETED
        )
        http.stop()
        await asyncio.gather(serving, grpc.stop(_STOP_S))
        decoding.close()
        if evaluations is not None:
            evaluations.close()

    def _why_not(self) -> str | None:
        """Return why the sidecar takes no requests at present.

        The result is None if it takes them.
        """
        problem = self.intake.problem()
        if problem is None and not self._is_ready:
            problem = "the sidecar starts or ends"
        return problem


def _check_certificates(settings: SidecarSettings) -> None:
    """Raise `ConfigurationError` for an unusable file.

    The servers would raise less helpful errors later.
    """
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def read_key(file: str) -> object:
        return Path(file).read_bytes()

    def load_certificate(file: str) -> None:
        # Without the password it would ask for one on a terminal.
        context.load_cert_chain(file, settings.key, lambda: b"")

    def load_client_ca(file: str) -> None:
        context.load_verify_locations(file)

    uses: list[tuple[str, str | None, Callable[[str], object]]] = [
        ("key", settings.key, read_key),
        ("certificate", settings.certificate, load_certificate),
        ("client_ca", settings.client_ca, load_client_ca),
    ]
    for field, file, use in uses:
        try:
            if file is not None:
                use(file)
        except ssl.SSLError:
            wrong = "with its key no chain in PEM" if field == "certificate" else "not in PEM"
            raise ConfigurationError(f"{file} is {wrong}", path=f"sidecar.{field}") from None
        except OSError as error:
            raise ConfigurationError(
                f"{file} cannot be read: {error.strerror}", path=f"sidecar.{field}"
            ) from None


def _listener(settings: SidecarSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server(
            (settings.host, settings.http_port), family=family, backlog=_BACKLOG
        )
    except OSError:
        raise cannot_bind("http_port", f"{settings.host}:{settings.http_port}") from None


def kept_key(folder: Path) -> str:
    """Return the key of sampling that is kept beside the journal. A missing key is made.

    So what is read again after a crash is decided as before.

    Raises:
        ConfigurationError: The file cannot be written, or has no key.
    """
    file = folder / "sampling.key"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            # under another name first: a kill in between would leave an empty file
            unfinished = folder / f"sampling.key.{os.getpid()}"
            unfinished.unlink(missing_ok=True)
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w", encoding="ascii") as written:
                written.write(secrets.token_hex(32))
            try:
                os.link(unfinished, file)
            finally:
                unfinished.unlink()
        key = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{file} cannot be used: {type(error).__name__}", path="sidecar.durable"
        ) from None
    if len(key) < _KEY_CHARS:
        raise ConfigurationError(
            f"{file} has no key: delete it, and a new one is made", path="sidecar.durable"
        )
    return key


class SettingsWatch:
    """Reads the settings file again when its content changes.

    This works also where the file is swapped by a link, as a ConfigMap is.
    """

    def __init__(self, path: Path, settings: SidecarSettings) -> None:
        self._path = path
        self._settings = settings
        self._digest = _digest(path)

    def look(self) -> str | None:
        """Return what became of a change. The result is None without a change."""
        digest = _digest(self._path)
        if digest is None or digest == self._digest:
            return None
        self._digest = digest
        if reload():
            return "in force"
        return "wrong, the ones from before are kept. `agenteval-otel check` says why"


def _digest(path: Path) -> bytes | None:
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:  # between the old file and the new one
        return None


def evaluate_files(settings: SidecarSettings, files: list[str]) -> bool:
    """Take files with OTLP instead of requests, then end the pipeline.

    Blocks until their answers are evaluated. Return False if something was not delivered within
    `drain_s`.

    Raises `ConfigurationError` for a file that `requests_in` cannot read, and for a line that is
    wrong.
    """
    intake = Intake(settings.model_copy(update={"durable": None}))  # the files are there
    intake.start()
    try:
        for name in files:
            for kind, request in requests_in(name, intake.messages, _wrong):
                _take(intake, kind, request, name, settings.drain_s)
        intake.drain(_FILES_S, last=True)
        default_pipeline().dispatcher.flush(_FILES_S)
    finally:
        drained = intake.close(settings.drain_s)
    return shutdown(settings.drain_s) and drained


def _wrong(place: str, problem: str) -> NoReturn:
    raise ConfigurationError(problem, path=place)


def _take(intake: Intake, kind: int, request: Any, name: str, drain_s: float) -> None:
    """Take a request, once there is room for it."""
    while True:
        try:
            intake.take(kind, request)
            return
        except Full:
            intake.drain(drain_s)
        except BodyError as error:
            raise ConfigurationError(str(error), path=name) from None

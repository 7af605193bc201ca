"""What the harnesses of the real programs share: started on free loopback ports, waited for,
stopped by process id.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, ClassVar, Self, TypeVar
from urllib.parse import urlencode

from .faults import LOOPBACK, free_ports

T = TypeVar("T")
_Texts = Mapping[str, str]

POLL_EVERY_S = 0.05
STOP_LIMIT_S = 10.0
START_TRIES = 3
LOG_TAIL_CHARACTERS = 3000


class BackendError(Exception):
    """A program did not start, ended by itself, or answered with an error; the message ends with
    its log.
    """


class BackendProcess(ABC):
    """One process of a real program in a folder of its own, which can be stopped and started on the
    same ports.
    """

    title: ClassVar[str]
    port_names: ClassVar[tuple[str, ...]]
    """Each is an attribute of `ports`, where it listens on loopback."""
    start_limit_s: ClassVar[float] = 60.0

    def __init__(self, binary: Path, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.ports: Any = self._free_ports()
        self._binary = binary
        self._folder = folder
        self._log = folder / f"{type(self).__name__.lower()}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        return f"{self.title} ({'running' if self.running else 'stopped'}, {self.ports})"

    @abstractmethod
    def _arguments(self) -> list[str]:
        """The command line behind the program's name; writes the files that it names."""

    @abstractmethod
    def _health(self) -> tuple[int, str]:
        """Port and path that answer 200 once the program can be used."""

    def _free_ports(self) -> SimpleNamespace:
        return SimpleNamespace(
            **dict(zip(self.port_names, free_ports(len(self.port_names)), strict=True))
        )

    def _environment(self) -> dict[str, str]:
        return {}

    def _as_user(self) -> dict[str, Any]:
        """Arguments of `Popen` that say whom it runs as; whoever runs the tests when left out."""
        return {}

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Starts the process and returns when it is healthy; other ports are tried when one was
        snatched.
        """
        for attempt in range(1, START_TRIES + 1):
            try:
                self._start_once()
                return self
            except BackendError as error:
                if "address already in use" not in str(error) or attempt == START_TRIES:
                    raise
                self.ports = self._free_ports()
        raise AssertionError("unreachable")

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def wait_for(self, predicate: Callable[[Self], T], timeout_s: float = 10.0) -> T:
        """What the predicate gives as soon as that is true; raises when the time or the process is
        over before.
        """
        deadline = time.monotonic() + timeout_s
        never = Event()
        while True:
            alive = self.running
            if actual := predicate(self):
                return actual
            if not alive:
                raise BackendError(f"{self.title} is not running; {self._log_tail()}")
            if time.monotonic() >= deadline:
                raise TimeoutError(f"not seen within {timeout_s:g} s by {self!r}")
            never.wait(POLL_EVERY_S)

    def wait_until_settled(
        self, count: Callable[[Self], int], *, looks: int, at_least: int = 0, timeout_s: float
    ) -> None:
        """Wait until there are that many, and so many looks in a row have seen no more."""
        counts: list[int] = []

        def is_settled(seen: Self) -> bool:
            counts.append(count(seen))
            return counts[-1] >= at_least and counts[-looks:].count(counts[-1]) == looks

        self.wait_for(is_settled, timeout_s)

    def _start_once(self) -> None:
        command = [str(self._binary), *self._arguments()]
        log_start = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self._folder,
                env={**os.environ, **self._environment()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                **self._as_user(),
            )
        deadline = time.monotonic() + self.start_limit_s
        never = Event()
        while not self._healthy():
            late = time.monotonic() >= deadline
            if late or not self.running:
                self.stop()
                what = (
                    f"not healthy after {self.start_limit_s:g} s"
                    if late
                    else "ended while starting"
                )
                raise BackendError(f"{self.title} {what}; {self._log_tail(log_start)}")
            never.wait(POLL_EVERY_S)

    def _healthy(self) -> bool:
        port, path = self._health()
        try:
            status, _ = http_get(port, path, timeout_s=1)
        except (OSError, http.client.HTTPException):
            return False
        # Somebody else may answer on a port that was snatched: the own process has ended then.
        return self.running and status == http.client.OK

    def _log_tail(self, start: int = 0) -> str:
        text = self._log.read_bytes()[start:].decode(errors="replace") if self._log.exists() else ""
        return f"end of its log:\n{text[-LOG_TAIL_CHARACTERS:]}"

    def _get(
        self, port: int, path: str, parameters: _Texts | None = None, headers: _Texts | None = None
    ) -> str:
        requests = f"{path}?{urlencode(parameters)}" if parameters else path
        status, body = http_get(port, requests, headers)
        if status != http.client.OK:
            raise BackendError(
                f"{self.title} gave status {status} for {requests}: {body[:500]}; {self._log_tail()}"
            )
        return body

    def _get_json(self, port: int, path: str, parameters: Mapping[str, str] | None = None) -> Any:
        return json.loads(self._get(port, path, parameters))


class OtlpBackend(BackendProcess):
    """One that takes OTLP on its HTTP port, and is a program of Python, which imports for a while."""

    start_limit_s = 180.0

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.ports.http}"

    @property
    def traces_endpoint(self) -> str:
        return f"{self.address}/v1/traces"


def bare_environment(**variables: str) -> dict[str, str]:
    """For a program under test: the inherited variables without anybody's `OTEL_*` and
    `AGENTEVAL_*`, and these.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OTEL_", "AGENTEVAL_"))
    }
    return {**kept, **variables}


def http_get(
    port: int, path: str, headers: Mapping[str, str] | None = None, *, timeout_s: float = 10.0
) -> tuple[int, str]:
    """Status and body of one GET on loopback, whatever proxies the environment names."""
    with closing(http.client.HTTPConnection(LOOPBACK, port, timeout=timeout_s)) as connection:
        connection.request("GET", path, headers=dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.read().decode()

"""A real PostgreSQL for tests: a cluster of its own on a free loopback port, started, paused,
stopped by process id.

It refuses to run as root: then an unprivileged user starts it, from a folder that this user may
enter.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .faults import LOOPBACK
from .process import BackendError, BackendProcess

if TYPE_CHECKING:
    import psycopg


USER, PASSWORD, DATABASE = "agenteval", "pass/w@rd-canary", "results"


class PostgreSQL(BackendProcess):
    """One PostgreSQL server with an empty database and a user with a password."""

    title = "PostgreSQL"
    port_names = ("sql",)

    def __init__(self, binary: Path, folder: Path) -> None:
        super().__init__(binary, folder)
        # Not below the test's folder, which nobody but its owner may enter.
        self._home = Path(tempfile.mkdtemp(prefix="agenteval-postgresql-"))
        self._owner = _owner()
        self._binary = self._reachable(binary)
        self._make_cluster()

    @property
    def url(self) -> str:
        """The address of the database, as users write it: special characters of the password are
        quoted.
        """
        return f"postgresql://{USER}:pass%2Fw%40rd-canary@{LOOPBACK}:{self.ports.sql}/{DATABASE}"

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a statement; none for one that gives none."""
        with self._connected(DATABASE) as connection:
            result = connection.execute(statement)  # type: ignore[call-overload]
            return list(result.fetchall()) if result.description else []

    def empty(self) -> None:
        self.query("DROP SCHEMA public CASCADE")
        self.query("CREATE SCHEMA public")

    def hang_up(self) -> None:
        """End every other connection to the database, as a restart or an administrator does."""
        self.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'agenteval-otel'"
        )

    def pause(self) -> None:
        """Stop the processes of the server and of its connections, without an end: whoever asks
        waits.
        """
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the server and its connections at once, in good order."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(10.0)
            except subprocess.TimeoutExpired:
                pass
        super().stop()

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def _arguments(self) -> list[str]:
        settings = {
            "listen_addresses": LOOPBACK,
            "port": self.ports.sql,
            "unix_socket_directories": "",
            "fsync": "off",
            "jit": "off",
            "max_connections": 50,
        }
        return [
            "-D",
            str(self._home / "data"),
            *(f"--{name}={value}" for name, value in settings.items()),
        ]

    def _environment(self) -> dict[str, str]:
        if _is_installed(self._binary):
            return {}
        tree = _tree_of(self._binary)
        libraries = [
            str(path) for folder in ("lib", "usr/lib") for path in (tree / folder).glob("*-linux-*")
        ]
        return {"LD_LIBRARY_PATH": os.pathsep.join(libraries)}

    def _as_user(self) -> dict[str, Any]:
        if self._owner is None:
            return {}
        return {"user": self._owner.pw_uid, "group": self._owner.pw_gid, "extra_groups": []}

    def _health(self) -> tuple[int, str]:
        raise AssertionError("it speaks no HTTP")

    def _healthy(self) -> bool:
        import psycopg

        try:
            with self._connected("postgres") as connection:
                result = connection.execute(
                    "SELECT 1 FROM pg_database WHERE datname = 'results'"
                ).fetchone()
                if result is None:
                    connection.execute("CREATE DATABASE results")
        except psycopg.OperationalError:
            return False
        return self.running

    def _connected(self, database: str) -> psycopg.Connection[tuple[Any, ...]]:
        import psycopg  # only where a server is asked for

        return psycopg.connect(
            host=LOOPBACK,
            port=self.ports.sql,
            user=USER,
            password=PASSWORD,
            dbname=database,
            autocommit=True,
            connect_timeout=5,
            application_name="tests",
        )

    def _make_cluster(self) -> None:
        password = self._home / "password"
        password.write_text(PASSWORD)
        if self._owner is not None:
            for path in (self._home, password):
                os.chown(path, self._owner.pw_uid, self._owner.pw_gid)
        done = subprocess.run(
            [
                str(self._binary.with_name("initdb")),
                "-D",
                str(self._home / "data"),
                "-U",
                USER,
                "-A",
                "scram-sha-256",
                f"--pwfile={password}",
                "--no-sync",
                "-E",
                "UTF8",
                "--locale=C",
            ],
            cwd=self._home,
            env={**os.environ, **self._environment()},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=120,
            **self._as_user(),
        )
        if done.returncode:
            raise BackendError(
                f"{self.title}: initdb gave {done.returncode}: {done.stderr[-2000:]}"
            )

    def _reachable(self, binary: Path) -> Path:
        """The program where the unprivileged user may enter: a copy, where the cache is its owner's
        alone.
        """
        result = binary.resolve()
        if self._owner is None or _is_installed(result):
            return result
        tree = _tree_of(result)
        shutil.copytree(tree, self._home / "program", symlinks=True)
        os.chmod(self._home, 0o755)
        return self._home / "program" / result.relative_to(tree)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        children = (
            Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        )
        for pid in (self._process.pid, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):  # a child that has just ended
                os.kill(pid, number)


def _is_installed(binary: Path) -> bool:
    return str(binary).startswith("/usr/lib/")


def _tree_of(binary: Path) -> Path:
    """Where Debian's packages were unpacked: above ``usr/lib/postgresql/<version>/bin/postgres``."""
    return binary.parents[5]


def _owner() -> pwd.struct_passwd | None:
    """Whom the server runs as: None for whoever runs the tests."""
    if os.getuid() != 0:
        return None
    return pwd.getpwnam("nobody")  # PostgreSQL does not run as root

"""``agenteval-otel serve``: what its arguments change, and what it says where it cannot run."""

from __future__ import annotations

import gzip
import re
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from agenteval_otel.runtime.reentrancy import PROCESS
from tests.cli.conftest import CommandLine

SETTINGS = "evaluators: [ResponseHealth]\nsidecar: {insecure: true, quiet_s: 0.5}"
TOKEN = "0123456789abcdef"


@pytest.fixture(autouse=True)
def _named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command sets them for its own process, which here is that of the tests."""
    monkeypatch.setattr(PROCESS, "rests", True)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "agenteval-sidecar")
    monkeypatch.setenv("GRPC_VERBOSITY", "NONE")


def errors_of(*arguments: object) -> str:
    """What a process of its own prints before it ends with 2: one that has begun to listen leaves
    much behind.
    """
    command = [sys.executable, "-m", "agenteval_otel", "serve", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    return done.stderr


def test_pages_without_a_database_name_the_setting(cli: CommandLine) -> None:
    """`--ui` without a database is refused: there is nothing to show."""
    cli.file("agenteval.yaml", SETTINGS)
    cli("serve --settings agenteval.yaml --ui 0", code=2)
    assert "--ui: the pages show what is stored in a database" in cli.err


@pytest.fixture(name="taken")
def taken_fixture() -> Iterator[int]:
    """A port on which another program listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize("option", ["grpc-port", "http-port"])
def test_a_taken_port_is_an_error_that_names_the_fix(taken: int, option: str) -> None:
    """The setting, the address, and the option that chooses another; no line of a library beside
    it.
    """
    ports = {"grpc-port": 0, "http-port": 0, option: taken}
    errors = errors_of(*(f"--{name}={port}" for name, port in ports.items()))
    setting = f"sidecar.{option.replace('-', '_')}"
    assert errors.startswith(f"agenteval-otel serve: {setting}: 127.0.0.1:{taken} cannot be bound")
    assert f"--{option}" in errors
    assert errors.count("\n") == 1


def test_arguments_add_to_the_file_and_to_variables(
    cli: CommandLine, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the token of a variable and `insecure` of the file, `--host` alone is enough; each of
    them is needed.
    """
    cli.settings(SETTINGS)
    words = f"--settings settings.yaml --host=0.0.0.0 --http-port={taken} --grpc-port=0"
    cli(f"serve {words}", code=2)
    assert "sidecar.host: 0.0.0.0 can be reached from other machines: set token" in cli.err
    monkeypatch.setenv("AGENTEVAL_SIDECAR__TOKEN", TOKEN)
    assert "cannot be bound" in errors_of(*words.split())  # so the rest is right
    monkeypatch.setenv("AGENTEVAL_SIDECAR__INSECURE", "false")
    cli(f"serve {words}", code=2)
    assert "without TLS" in cli.err


def test_a_short_token_is_refused_without_being_shown(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable is named, and what makes a better one."""
    monkeypatch.setenv("AGENTEVAL_SIDECAR__TOKEN", "short-token")
    cli("serve", code=2)
    assert (
        "variable AGENTEVAL_SIDECAR__TOKEN: sidecar.token: expected at least 16 printable characters"
        in cli.err
    )
    assert "short-token" not in cli.err


def test_a_file_of_tls_that_cannot_be_used_is_named(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing, no certificate, no authority: each error has the setting and the file."""
    command = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=a -days 2"
    subprocess.run(
        [*command.split(), "-keyout", "key.pem", "-out", "a.pem"], check=True, timeout=60
    )
    cli.file("wrong.pem", "wrong")
    missing = "none.pem cannot be read: No such file"
    for certificate, key, authority, error in (
        ("a.pem", "none.pem", "a.pem", f"sidecar.key: {missing}"),
        ("none.pem", "key.pem", "a.pem", f"sidecar.certificate: {missing}"),
        (
            "wrong.pem",
            "key.pem",
            "a.pem",
            "sidecar.certificate: wrong.pem is with its key no chain in PEM",
        ),
        ("a.pem", "key.pem", "wrong.pem", "sidecar.client_ca: wrong.pem is not in PEM"),
    ):
        monkeypatch.setenv("AGENTEVAL_SIDECAR__CERTIFICATE", certificate)
        monkeypatch.setenv("AGENTEVAL_SIDECAR__KEY", key)
        monkeypatch.setenv("AGENTEVAL_SIDECAR__CLIENT_CA", authority)
        cli("serve", code=2)
        assert error in cli.err


def test_files_that_hold_no_otlp_are_refused(cli: CommandLine) -> None:
    """What is no request at all, JSON of something else, and a file that is cut off; the
    Collector's metrics beside spans are passed over.
    """
    for text in ("hello", '{"a": 1}'):
        cli.file("wrong.json", text)
        cli("serve --once wrong.json", code=2)
        assert re.search(r"wrong\.json(:1)?: is no OTLP", cli.err)
    cli.file("right.json", '{"resourceMetrics": [{}]}\n{"resourceSpans": []}\n')
    assert cli("serve --once right.json") == "0 answers\n"
    packed = bytearray(gzip.compress(b'{"resourceSpans": []}\n' * 1_000))
    packed[20:40] = bytes(20)
    (cli.folder / "damaged.json.gz").write_bytes(packed)
    cli("serve --once damaged.json.gz", code=2)
    assert "damaged.json.gz: ends early" in cli.err


def test_files_are_evaluated_without_the_journal(cli: CommandLine) -> None:
    """With `durable` in the settings too: the files are there, and the folder may be the running
    sidecar's.
    """
    cli.settings(SETTINGS.replace("quiet_s: 0.5", "quiet_s: 0.5, durable: kept"))
    cli.file("right.json", '{"resourceSpans": []}\n')
    assert cli("serve --settings settings.yaml --once right.json") == "0 answers\n"
    assert not (cli.folder / "kept").exists()

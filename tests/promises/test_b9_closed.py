"""B9: the sidecar listens to this machine alone, and what opens it to others demands who they are."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
import trustme

from agenteval_otel.config.sidecar import SidecarSettings
from agenteval_otel.errors import ConfigurationError
from tests.promises.figures import Recorder
from tests.promises.served import LOGS, PROTOBUF, TRACES, Served, new_trace_id, trace_request
from tests.promises.sidecars import answer, end, refuses_to_start, settings_with

TOKEN = "correct-horse-battery-staple"
HEAD = (
    "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-protobuf\r\n"
    "Content-Length: 50000000\r\n{more}\r\n"
)
WRONG_TOKENS = (
    None,
    "",
    "Bearer",
    "Bearer ",
    f"Bearer {TOKEN[:-1]}",
    f"Bearer {TOKEN}x",
    f"bearer {TOKEN}",
    f"Basic {TOKEN}",
    TOKEN,
    f"Bearer {TOKEN.upper()}",
    "Bearer \u00e4\u00f6\u00fc" + TOKEN,
    f"Bearer  {TOKEN}",
    "x" * 4_000,
)

OPEN: dict[str, dict[str, Any]] = {
    "another address, nothing else": {"host": "0.0.0.0"},
    "another address, insecure alone": {"host": "0.0.0.0", "insecure": True},
    "another address, token without TLS": {"host": "0.0.0.0", "token": TOKEN},
    "another address, TLS without token": {"host": "0.0.0.0", "certificate": "a", "key": "b"},
    "all of IPv6": {"host": "::"},
    "loopback in IPv6's clothes": {"host": "::ffff:10.0.0.1"},
    "a name": {"host": "sidecar.example"},
    "no address": {"host": ""},
    "a short token": {"token": "short"},
    "a token with a space": {"token": "correct horse battery"},
    "a token beyond ASCII": {"token": "\u00e4" * 20},
    "a token with a line break": {"token": f"{TOKEN}\n"},
    "a certificate without a key": {"certificate": "a"},
    "a key without a certificate": {"key": "a"},
    "client certificates without one of its own": {"client_ca": "a"},
}


@pytest.mark.parametrize("name", OPEN)
def test_settings_that_leave_it_open_are_wrong(name: str) -> None:
    """It does not start, and the error never quotes the token."""
    with pytest.raises(ConfigurationError) as caught:
        SidecarSettings(**OPEN[name])
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"host": "::1"},
        {"host": "localhost"},
        {"host": "127.1.2.3"},
        {"token": TOKEN},
        {"host": "0.0.0.0", "token": TOKEN, "insecure": True},
        {"host": "::", "token": TOKEN, "certificate": "a", "key": "b"},
        {"host": "0.0.0.0", "client_ca": "c", "certificate": "a", "key": "b"},
    ],
)
def test_settings_that_are_closed_are_right(fields: dict[str, Any]) -> None:
    """This machine alone, or a token or client certificates, with TLS unless `insecure` says
    otherwise.
    """
    assert TOKEN not in repr(SidecarSettings(**fields))


def listening(pid: int) -> set[str]:
    """The addresses on which a process listens, as the kernel writes them."""
    numbers = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            numbers.add(os.readlink(file).removeprefix("socket:[").removesuffix("]"))
    rows = [
        row.split()
        for name in ("tcp", "tcp6")
        for row in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    # An address of IPv4 on a socket of IPv6 is written with zeros and FFFF in front.
    return {row[1].partition(":")[0][-8:] for row in rows if row[3] == "0A" and row[9] in numbers}


def test_without_settings_it_listens_to_this_machine_alone(
    tmp_path: Path, promise: Recorder
) -> None:
    """Both ports are on 127.0.0.1, and it is the kernel that says so."""
    with Served(tmp_path, settings=None) as served:
        assert listening(served.process.pid) == {"0100007F"}
        answer(served)
    promise("B9", figure="no settings: 127.0.0.1 alone")


def test_an_open_address_ends_it_before_it_listens(tmp_path: Path) -> None:
    """Exit code 2, and a line that says which settings are missing."""
    for arguments, words in (
        (("--host=0.0.0.0",), ("AGENTEVAL_SIDECAR__TOKEN", "certificate and key")),
        (("--host=203.0.113.9",), ("other machines",)),
    ):
        served = Served(tmp_path, *arguments)
        refuses_to_start(served, *words)


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def test_a_token_is_demanded_before_the_body_is_read(tmp_path: Path, promise: Recorder) -> None:
    """401 and UNAUTHENTICATED come while no byte of 50 MB was sent; health needs none, and nothing
    logs a token.
    """
    with Served(tmp_path, AGENTEVAL_SIDECAR__TOKEN=TOKEN) as served:
        for token in WRONG_TOKENS:
            more = "" if token is None else f"Authorization: {token}\r\n"
            for path in ("/v1/traces", "/v1/logs"):
                with connected(served.http_port) as client:
                    client.sendall(HEAD.format(path=path, more=more).encode())
                    reply = client.recv(65_536)
                assert reply.startswith(b"HTTP/1.1 401"), (token, reply)
                assert b"www-authenticate: Bearer" in reply
            for method in (TRACES, LOGS):
                assert stream_code(served, method, token) == grpc.StatusCode.UNAUTHENTICATED
        right = f"Bearer {TOKEN}"
        assert served.post(trace_request(new_trace_id()), Authorization=right).status == 200
        code, _ = served.export(trace_request(new_trace_id()), metadata=(("authorization", right),))
        assert code == grpc.StatusCode.OK
        assert served.get("/healthz").status == 200
        end(served)
        assert TOKEN not in served.told
    promise(
        "B9", figure=f"{len(WRONG_TOKENS)} wrong tokens: 401 and UNAUTHENTICATED before the body"
    )


def stream_code(served: Served, method: str, token: str | None) -> grpc.StatusCode:
    """What comes of a call that sends no message."""
    if token is not None and not token.isascii():
        token = token.encode("ascii", "replace").decode()  # gRPC sends nothing else
    with grpc.insecure_channel(
        served.grpc, options=[("grpc.use_local_subchannel_pool", 1)]
    ) as channel:
        pause = threading.Event()

        def nothing() -> Iterator[bytes]:
            pause.wait(20)
            yield b""

        call = channel.stream_unary(method).future(
            nothing(), timeout=15, metadata=() if token is None else (("authorization", token),)
        )
        code: grpc.StatusCode = call.code()
        pause.set()
        return code


def test_the_refusal_arrives_however_much_was_sent(tmp_path: Path) -> None:
    """A client that sends its whole body first reads 401 or 413, not a reset connection."""
    with Served(tmp_path, AGENTEVAL_SIDECAR__TOKEN=TOKEN) as served:
        for _ in range(20):
            assert served.post(b"x" * 5_000_000).status == 401
        assert served.post(b"x" * 70_000_000, Authorization=f"Bearer {TOKEN}").status == 413


class Certificates(NamedTuple):
    folder: Path
    ca: trustme.CA
    client: trustme.LeafCert
    stranger: trustme.LeafCert

    def file(self, name: str, *blobs: trustme.Blob) -> str:
        path = self.folder / name
        path.write_bytes(b"".join(blob.bytes() for blob in blobs))
        return str(path)

    def settings(self, **more: object) -> str:
        leaf = self.ca.issue_cert("localhost", "127.0.0.1", "::1")
        fields = {
            "certificate": self.file("chain.pem", *leaf.cert_chain_pems),
            "key": self.file("key.pem", leaf.private_key_pem),
            "client_ca": self.file("ca.pem", self.ca.cert_pem),
            **more,
        }
        return settings_with(**{name: f'"{value}"' for name, value in fields.items()})


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    ca = trustme.CA()
    return Certificates(
        tmp_path_factory.mktemp("tls"),
        ca,
        ca.issue_cert("client"),
        trustme.CA().issue_cert("stranger"),
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_client_certificate_is_demanded(
    host: str, tmp_path: Path, certificates: Certificates, promise: Recorder
) -> None:
    """Of our authority it is served, over IPv6 too; without one, with a foreign one or without TLS
    it is not.
    """
    with Served(tmp_path, settings=certificates.settings(host=host)) as served:
        outcomes = {}
        for name, leaf in (
            ("ours", certificates.client),
            ("foreign", certificates.stranger),
            ("none", None),
        ):
            outcomes[name] = (
                over_https(served, host, certificates, leaf),
                over_grpc(served, certificates, leaf),
            )
        assert outcomes.pop("ours") == (200, grpc.StatusCode.OK)
        assert set(outcomes.values()) == {("refused", grpc.StatusCode.UNAVAILABLE)}
        with pytest.raises((OSError, http.client.HTTPException)):
            plain(host, served.http_port)
        end(served)
    promise("B9", figure="client certificates: ours served, foreign, none and no TLS refused")


def plain(host: str, port: int) -> int:
    connection = http.client.HTTPConnection(host, port, timeout=10)
    connection.request("POST", "/v1/traces", trace_request(1))
    return connection.getresponse().status


def over_https(served: Served, host: str, certificates: Certificates, leaf: Any) -> int | str:
    context = ssl.create_default_context()
    certificates.ca.configure_trust(context)
    if leaf is not None:
        leaf.configure_cert(context)
    connection = http.client.HTTPSConnection(host, served.http_port, timeout=10, context=context)
    try:
        connection.request("POST", "/v1/traces", trace_request(new_trace_id()), PROTOBUF)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return "refused"
    finally:
        connection.close()


def over_grpc(served: Served, certificates: Certificates, leaf: Any) -> grpc.StatusCode:
    key, chain = (
        (None, None)
        if leaf is None
        else (leaf.private_key_pem.bytes(), leaf.cert_chain_pems[0].bytes())
    )
    credentials = grpc.ssl_channel_credentials(certificates.ca.cert_pem.bytes(), key, chain)
    options = [
        ("grpc.ssl_target_name_override", "localhost"),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    with grpc.secure_channel(served.grpc, credentials, options) as channel:
        try:
            channel.unary_unary(TRACES)(trace_request(new_trace_id()), timeout=10)
            return grpc.StatusCode.OK
        except grpc.RpcError as error:
            return error.code()  # type: ignore[no-any-return]


def test_a_handshake_that_does_not_come_is_not_waited_for(
    tmp_path: Path, certificates: Certificates
) -> None:
    """A connection to the port of HTTPS without a byte of TLS is closed within the time of any slow
    client.
    """
    with (
        Served(tmp_path, settings=certificates.settings()) as served,
        connected(served.http_port) as client,
    ):
        assert client.recv(1) == b""


@pytest.mark.parametrize("wrong", ["missing", "no PEM", "another's key"])
def test_a_wrong_certificate_ends_it_with_a_message(
    wrong: str, tmp_path: Path, certificates: Certificates
) -> None:
    """Exit code 2 and no traceback: the file is missing, or is no certificate, or the key is of
    another one.
    """
    key = {
        "missing": "/nowhere.pem",
        "no PEM": certificates.file("no.pem", trustme.Blob(b"x")),
        "another's key": certificates.file("other.pem", certificates.stranger.private_key_pem),
    }[wrong]
    served = Served(tmp_path, settings=certificates.settings(key=key))
    refuses_to_start(served)
    assert "sidecar.key" in served.told or "sidecar.certificate" in served.told, served.told


@pytest.mark.parametrize("option", ["grpc-port", "http-port"])
def test_a_taken_port_is_an_error_that_names_the_fix(
    option: str, tmp_path: Path, promise: Recorder
) -> None:
    """The second of the two ports as well: exit code 2, which setting, and that 0 chooses a free
    one.
    """
    with socket.create_server(("127.0.0.1", 0)) as holder:
        served = Served(tmp_path, f"--{option}={holder.getsockname()[1]}")
        refuses_to_start(served, f"sidecar.{option.replace('-', '_')}", "0 for a free one")
    promise("B9", figure="a taken port: exit code 2, which setting, what to do")


OF_A_PAGE = {
    "a page of any site": {"Origin": "http://evil.example"},
    "a page without an origin": {"Origin": "null"},
    "a page of this machine": {"Origin": "http://127.0.0.1:8080"},
    "a page whose name leads here": {"Host": "evil.example", "Origin": "http://evil.example"},
    "a name that leads here": {"Host": "evil.example"},
    "a name that begins like ours": {"Host": "localhost.evil.example"},
    "an address in a name": {"Host": "127.0.0.1.evil.example"},
}
OF_PROGRAMS = (
    "127.0.0.1",
    "localhost",
    "LOCALHOST:1",
    "[::1]",
    "10.1.2.3:4328",
    "sidecar.internal",
)
FEEDBACK = b'{"conversation_id": "c", "thumbs": "up"}'
BODIES = {
    "/v1/traces": (b"", "application/x-protobuf"),
    "/v1/logs": (b"{}", "application/json"),
    "/v1/feedback": (FEEDBACK, "application/json"),
    "/v1/erase": (b'{"conversation": "nobody"}', "application/json"),
    "/v1/evaluate": (b'{"input": {"response": "At nine."}}', "application/json"),
}


def test_pages_in_a_browser_are_refused(tmp_path: Path, promise: Recorder) -> None:
    """Without a token: 403 with an `Origin`, 421 with another name as `Host`, on every path. Programs
    on this machine are served by any address and the names of the settings. Refusals are counted.
    """
    settings = settings_with(host_names="[sidecar.internal]", evaluate="true")
    with Served(tmp_path, settings=settings) as served:
        refused, taken = 0, 0
        for path, (body, kind) in BODIES.items():
            for name, way in OF_A_PAGE.items():
                status = served.post(body, path, Content_Type=kind, **way).status
                assert status == (403 if "Origin" in way else 421), f"{path}: {name}"
                refused += 1
            for host in OF_PROGRAMS:
                reply = served.post(body, path, Content_Type=kind, Host=host)
                assert reply.status in (200, 202), f"{path} {host}: {reply}"
                taken += 1
        assert served.terminate() == 0
        assert served.told.count("request_refused") == 2, served.told  # one line a reason
        assert f"requests:page ({4 * len(BODIES)})" in served.told, served.told
        assert f"requests:host ({3 * len(BODIES)})" in served.told, served.told
    promise(
        "B9",
        figure=f"no token: {refused} requests of pages and foreign names refused, {taken} of "
        f"programs taken, on {len(BODIES)} paths",
    )


def test_a_token_serves_by_every_name(tmp_path: Path) -> None:
    """As of a service in a cluster: who has the token is no foreign page."""
    switched_on = {"AGENTEVAL_SIDECAR__TOKEN": TOKEN, "AGENTEVAL_SIDECAR__EVALUATE": "true"}
    with Served(tmp_path, **switched_on) as served:
        for path, (body, kind) in BODIES.items():
            reply = served.post(
                body,
                path,
                Content_Type=kind,
                Host="agenteval-sidecar.observability.svc:4328",
                Authorization=f"Bearer {TOKEN}",
            )
            assert reply.status in (200, 202), f"{path}: {reply}"

"""Places: what arrives at real servers on loopback, and what happens where those hang, lie or break."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import hmac
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from agenteval_otel.components.loading import resolve
from agenteval_otel.engine.capabilities.notify import MessagePlace, load_places
from agenteval_otel.engine.capabilities.notify.notices import Bulletin, shown_name
from agenteval_otel.errors import ConfigurationError
from tests.backends.faults import LOOPBACK, PostHandler, black_hole, refused_port, serving
from tests.notify.support import (
    PASSWORD,
    SECRET,
    USER,
    bulletin,
    mail_server,
    notice,
    place_of,
)
from tests.storage.receiver import Answer, receiving

OK = Answer(body="ok")
HOSTILE = (
    "<!channel> <https://evil.example|click> https://evil.example\r\nBcc: me@evil.example & @here"
)
BY_MAIL = {"sender": "alerts@example.com", "to": ["me@example.com", "you@example.com"]}


def problem(place: MessagePlace) -> str | None:
    """Why a test message is not taken."""
    found = place.send_test()
    assert found is None or SECRET not in found
    return found


def deliver(place: MessagePlace, sent: Bulletin) -> None:
    """Have it taken."""
    assert asyncio.run(place.attempt(sent)) is None


def test_slack_gets_text_and_blocks() -> None:
    """A block for each notice with its link, and one that says from where it comes."""
    with receiving(OK) as receiver:
        place = place_of("slack", url=f"{receiver.url}/{SECRET}", pages_url="http://pages:8629/a/")
        assert problem(place) is None
    (request,) = receiver.requests
    assert request.path == f"/{SECRET}"
    body = request.body
    assert body["text"] == "test message"
    section, context = body["blocks"]
    assert section["text"]["text"].startswith("This is a test of agenteval-otel.")
    assert "\n<http://pages:8629/a/answers?outcome=fail&amp;since=" in section["text"]["text"]
    assert section["text"]["text"].endswith("|Answers>")
    assert context["elements"][0]["text"].startswith("From ")


def test_names_make_no_link_and_mention_nobody() -> None:
    """Slack's markup is escaped, and what chats and mail programs take for an address is broken."""
    text = f"Objective breached: {shown_name(HOSTILE)}."
    with receiving(OK) as receiver:
        deliver(place_of("slack", url=receiver.url), bulletin(notice(text)))
    (request,) = receiver.requests
    sent = json.dumps(request.body)
    for broken in ("<", ">", "https://", "@", "\\n", "evil.example"):
        assert broken not in sent
    assert "&lt;!channel&gt;" in sent
    assert all(block.get("text", {}).get("verbatim", True) for block in request.body["blocks"])


@pytest.mark.parametrize(
    "name", ["evil.com", "www.evil", "a.dev/x", "http://x", "me@here", "support.prod:443"]
)
def test_what_looks_like_an_address_is_broken(name: str) -> None:
    """Its dots, colons and at signs are in brackets."""
    shown = shown_name(name)
    assert not any(sign in shown.replace("[.]", "").replace("[:]", "") for sign in ".:@")


@pytest.mark.parametrize("name", ["next_step", "support v2.1", "Answer: helpful?", "böse 回答"])
def test_other_names_stay(name: str) -> None:
    """They are shown as they are."""
    assert shown_name(name) == name


def test_long_names_are_cut() -> None:
    """A name of a megabyte takes eighty characters, on one line."""
    assert len(shown_name("a b\n" * 250_000)) == 80


def test_long_messages_are_cut() -> None:
    """Slack takes 50 blocks of 3,000 characters: what is beyond is counted, and no escape is cut."""
    notices = [notice("&" * 4_000, id=str(number)) for number in range(70)]
    with receiving(OK) as receiver:
        deliver(place_of("slack", url=receiver.url), bulletin(*notices))
    blocks = receiver.requests[0].body["blocks"]
    assert len(blocks) == 41
    assert all(len(block["text"]["text"]) <= 3_000 for block in blocks[:-1])
    assert blocks[0]["text"]["text"].replace("&amp;", "") == "..."
    assert "30 more are not written out" in blocks[-1]["elements"][0]["text"]


@pytest.mark.parametrize(
    ("secret", "key"),
    [("plain words", b"plain words"), (f"whsec_{base64.b64encode(b'key').decode()}", b"key")],
)
def test_a_webhook_gets_signed_json(secret: str, key: bytes) -> None:
    """The body is the documented one, and the signature is that of Standard Webhooks."""
    sent = bulletin(notice(facts={"criterion": "good"}, url="http://pages/answers"), left_out=3)
    with receiving(Answer(204)) as receiver:
        address = f"{receiver.url}/x?code={SECRET}"
        deliver(place_of("webhook", url=address, secret=secret), sent)
    (request,) = receiver.requests
    stamp, id = request.headers["webhook-timestamp"], request.headers["webhook-id"]
    signed = f"{id}.{stamp}.{json.dumps(request.body)}".encode()
    digest = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert request.headers["webhook-signature"] == f"v1,{digest}"
    assert abs(int(stamp) - time.time()) < 60
    body = request.body
    assert (body["version"], body["id"], body["left_out"]) == (1, id, 3)
    assert body["source"] == {"service": "shop", "host": "here", "process": 7}
    assert body["notices"] == [
        {
            "id": "a",
            "kind": "objective",
            "state": "breached",
            "reminder": False,
            "at": "2001-09-09T01:46:40+00:00",
            "title": "Objective breached.",
            "text": "Objective breached.",
            "answers_url": "http://pages/answers",
            "facts": {"criterion": "good"},
        }
    ]
    assert "3 notices before were left out" in body["text"]


def test_the_same_notices_have_the_same_id() -> None:
    """A receiver can tell a message that is sent again."""
    with receiving(Answer(204)) as receiver:
        place = place_of("webhook", url=receiver.url)
        for one in (bulletin(), bulletin(), bulletin(notice(id="b"))):
            deliver(place, one)
    first, again, other = (request.headers["webhook-id"] for request in receiver.requests)
    assert first == again != other
    assert "webhook-signature" not in receiver.requests[0].headers


def test_a_redirect_is_refused() -> None:
    """Nothing goes where the answer points."""
    with receiving(OK) as other:
        answer = Answer(307, "moved", {"location": other.url})
        with receiving(answer) as receiver:
            found = problem(place_of("webhook", url=receiver.url))
    assert found == "webhook at 127.0.0.1: answered with status 307, a redirect"
    assert other.requests == []


@pytest.mark.parametrize("body", ["<html>Sign in", {"ok": False}, "no_team"])
def test_an_answer_that_slack_never_gives_is_not_believed(body: Any) -> None:
    """A proxy's login page has the status of success too."""
    with receiving(Answer(200, body)) as receiver:
        found = problem(place_of("slack", url=receiver.url))
    assert found == "slack at 127.0.0.1: answered without the ok of Slack"


@pytest.mark.parametrize("status", [400, 403, 404, 410, 429, 500])
def test_a_status_of_failure_is_shown_without_the_answers_words(status: int) -> None:
    """An answer may quote the address, which is a secret."""
    with receiving(Answer(status, {"error": {"message": SECRET}})) as receiver:
        found = problem(place_of("slack", url=f"{receiver.url}/{SECRET}"))
    assert found == f"slack at 127.0.0.1: answered with status {status}"


def test_an_endpoint_that_hangs_is_left_after_the_time_limit() -> None:
    """It is answered that nothing came."""
    with black_hole() as hole:
        found = problem(place_of("webhook", url=f"{hole.endpoint}/{SECRET}", timeout_s=0.2))
    assert found == "webhook at 127.0.0.1: no answer within 0.2 s"


def test_nothing_listens() -> None:
    """The error's class is named, and no address."""
    with refused_port() as port:
        found = problem(place_of("webhook", url=f"http://127.0.0.1:{port}/{SECRET}"))
        by_mail = problem(place_of("smtp", host=LOOPBACK, port=port, tls="none", **BY_MAIL))
    assert found == "webhook at 127.0.0.1: no answer (ConnectError)"
    assert by_mail == "smtp at 127.0.0.1: no connection"


class HalfWay(PostHandler):
    """Announces more than it sends, and closes."""

    def do_POST(self) -> None:
        self.body()
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nok")
        self.close_connection = True


class Endless(PostHandler):
    """Answers without an end."""

    def do_POST(self) -> None:
        self.body()
        self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                self.wfile.write(b"ok" * 10_000)
        except OSError:
            self.close_connection = True


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (HalfWay, "no answer (RemoteProtocolError)"),
        (Endless, "the response is longer than 65536 bytes"),
    ],
)
def test_an_answer_in_parts_is_no_answer(handler: type[PostHandler], words: str) -> None:
    """One that breaks off, and one that never ends."""
    with serving(handler) as port:
        found = problem(place_of("slack", url=f"http://127.0.0.1:{port}/{SECRET}"))
    assert found == f"slack at 127.0.0.1: {words}"


class Compressed(PostHandler):
    """Answers with a status of success, and compressed."""

    def do_POST(self) -> None:
        self.body()
        self.answer(200, gzip.compress(b"ok"), {"content-encoding": "gzip"})


@pytest.mark.parametrize("handler", [Compressed, Endless])
def test_a_webhook_has_taken_what_it_answers_with_success(handler: type[PostHandler]) -> None:
    """Whatever else it answers."""
    with serving(handler) as port:
        assert problem(place_of("webhook", url=f"http://127.0.0.1:{port}/{SECRET}")) is None


@pytest.mark.parametrize(
    "fields", [{"type": "webhook"}, {"type": "smtp", "tls": "none", **BY_MAIL}], ids=str
)
def test_what_does_not_connect_has_not_arrived(fields: dict[str, Any]) -> None:
    """A host that swallows packets may take the message later."""
    with ExitStack() as stack:
        full = stack.enter_context(socket.create_server((LOOPBACK, 0), backlog=1))
        address = full.getsockname()
        for _ in range(4):  # nobody accepts: further ones wait for ever
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        where: dict[str, Any] = {"url": f"http://{address[0]}:{address[1]}"}
        if fields["type"] == "smtp":
            where = {"host": address[0], "port": address[1]}
        error = asyncio.run(place_of(**fields, **where, timeout_s=0.3).attempt(bulletin()))
    assert error is not None
    assert (error.error_type, error.retryable) == ("connection_error", True)


def test_a_mail_is_plain_text_with_its_headers() -> None:
    """A real server takes it. Names begin no header, and other alphabets arrive."""
    text = f"Objective breached: {shown_name(HOSTILE)} böse 回答."
    with mail_server() as server:
        place = place_of("smtp", host=LOOPBACK, port=server.port, tls="none", **BY_MAIL)
        deliver(place, bulletin(notice(text)))
    (mail,) = server.mails
    (envelope,) = server.envelopes
    assert envelope.mail_from == "alerts@example.com"
    assert envelope.rcpt_tos == ["me@example.com", "you@example.com"]
    assert mail["To"] == "me@example.com, you@example.com"
    assert mail["From"] == "alerts@example.com"
    assert mail["Bcc"] is None
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["Message-ID"] == f"<{bulletin(notice(text)).id}@example.com>"
    assert mail["Subject"].startswith("[agenteval] Objective breached: <!channel>")
    assert mail["Date"].datetime is not None
    assert mail.get_content_type() == "text/plain"
    assert "böse 回答." in mail.get_content()
    assert "https://" not in mail.get_content()


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def server_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    return context


def test_a_login_is_behind_starttls(authority: trustme.CA, tmp_path: Path) -> None:
    """The password crosses an encrypted connection to a server whose certificate is checked."""
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca)
    fields: dict[str, Any] = {"user": USER, "password": PASSWORD, **BY_MAIL}
    with mail_server(tls=server_context(authority)) as server:
        where: dict[str, Any] = {"host": "localhost", "port": server.port}
        assert problem(place_of("smtp", ca=ca, **where, **fields)) is None
        unknown = problem(place_of("smtp", **where, **fields))
        wrong = problem(place_of("smtp", ca=ca, **where, **{**fields, "password": SECRET}))
        plain = problem(place_of("smtp", tls="none", **where, **BY_MAIL))
    assert unknown == "smtp at localhost: no TLS (SSLCertVerificationError)"
    assert wrong == "smtp at localhost: answered with code 535"
    assert plain == "smtp at localhost: answered with code 530"
    assert {login.login for login in server.logins} == {USER.encode()}
    assert len(server.mails) == 1


def test_a_server_without_starttls_gets_nothing() -> None:
    """Neither password nor mail."""
    with mail_server() as server:
        where: dict[str, Any] = {"host": LOOPBACK, "port": server.port}
        found = problem(place_of("smtp", user=USER, password=PASSWORD, **where, **BY_MAIL))
    assert found == "smtp at 127.0.0.1: the server has no STARTTLS or no login"
    assert (server.mails, server.logins) == ([], [])


@contextmanager
def talking(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that talks on each connection, until the block ends."""
    with socket.create_server((LOOPBACK, 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    talk(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def drip(connection: socket.socket) -> None:
    """Greet with line after line, until the client goes."""
    try:
        while True:
            connection.sendall(b"220-wait\r\n")
            threading.Event().wait(0.02)
    except OSError:
        return


def leave(connection: socket.socket) -> None:
    """Greet, and go."""
    connection.sendall(b"220 hello\r\n")


@pytest.mark.parametrize("talk", [drip, leave])
def test_a_mail_server_that_drips_or_leaves_holds_nothing_up(
    talk: Callable[[socket.socket], None],
) -> None:
    """The time limit is one of the whole attempt."""
    with talking(talk) as port:
        place = place_of("smtp", host=LOOPBACK, port=port, tls="none", timeout_s=0.3, **BY_MAIL)
        error = asyncio.run(place.attempt(bulletin()))
    assert str(error) == "smtp at 127.0.0.1: no answer (SMTPServerDisconnected)"
    assert error is not None
    assert (error.error_type, error.retryable) == ("connection_error", True)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"type": "slack"}, "notify[0].url: required field is missing"),
        ({"type": "slack", "url": f"ftp://{SECRET}"}, "notify[0].url: expected an address"),
        ({"type": "slack", "url": [SECRET]}, "notify[0].url: expected a text"),
        (
            {"type": "slack", "url": f"https://me:{SECRET}@host/"},
            "notify[0].url: expected an address",
        ),
        ({"type": "slak", "url": SECRET}, "unknown notify type 'slak' (did you mean 'slack'?)"),
        ({"type": "webhook", "url": "http://x", "secret": f"whsec_{SECRET}!"}, "notify[0].secret"),
        ({"type": "webhook", "url": "http://x", "secret": ""}, "notify[0].secret"),
        ({"type": "webhook", "url": "http://x", "summary": "monday"}, "notify[0].summary"),
        ({"type": "webhook", "url": "http://x", "timezone": "Mars"}, "notify[0].timezone"),
        ({"type": "webhook", "url": "http://x", "pages_url": "javascript:x"}, "pages_url"),
        ({"type": "webhook", "url": "http://x", "pages_url": "http://x/|>"}, "pages_url"),
        ({"type": "webhook", "url": "http://x", "about": ["all"]}, "notify[0].about[0]"),
        ({"type": "smtp", "host": "x", **BY_MAIL, "to": []}, "notify[0].to"),
        ({"type": "smtp", "host": "x", **BY_MAIL, "ca": "/no/such.pem"}, "notify[0].ca"),
        ({"type": "smtp", "host": "x", **BY_MAIL, "to": ["a@b\nBcc: c@d"]}, "notify[0].to"),
        ({"type": "smtp", "host": "x", **BY_MAIL, "sender": "A <a@b>"}, "notify[0].sender"),
        ({"type": "smtp", "host": "x", **BY_MAIL, "user": "x"}, "user and password belong"),
        (
            {
                "type": "smtp",
                "host": "x",
                **BY_MAIL,
                "user": "x",
                "password": SECRET,
                "tls": "none",
            },
            "a password crosses no network in the clear",
        ),
    ],
    ids=str,
)
def test_a_wrong_place_is_refused_without_its_secret(fields: dict[str, Any], words: str) -> None:
    """At start, with the setting's path."""
    from agenteval_otel import Settings

    with pytest.raises(ConfigurationError) as caught:
        Settings(notify=[fields])
    assert words in str(caught.value)
    assert SECRET not in str(caught.value) or fields["type"] == "slak"


@pytest.mark.parametrize(
    ("short", "written_out"),
    [
        ({"slack": "http://a"}, {"type": "slack", "url": "http://a"}),
        ({"webhook": "http://a"}, {"type": "webhook", "url": "http://a"}),
        (
            {"slack": {"url": "http://a", "groupS": 1}},
            {"type": "slack", "url": "http://a", "group_s": 1},
        ),
        ({"smtp": {"host": "x", **BY_MAIL}}, {"type": "smtp", "host": "x", **BY_MAIL}),
    ],
    ids=str,
)
def test_a_type_may_be_the_key_of_its_fields(
    short: dict[str, Any], written_out: dict[str, Any]
) -> None:
    """Alone, in a list, and beside places that are written out."""
    expected = resolve(MessagePlace, written_out)
    assert load_places(short) == (expected,)
    assert load_places([short, written_out]) == (expected, expected)


SHORT = "notify[0]: expected 'type', or a type as the only key with its fields below it, found "


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ({"slak": SECRET}, f"{SHORT}'slak' (did you mean 'slack'?). Known: slack, smtp, webhook"),
        (
            {"slack": SECRET, "timeout_s": 1},
            f"{SHORT}'slack', 'timeout_s'. Known: slack, smtp, webhook",
        ),
        ({f"https://x/{SECRET}": None}, f"{SHORT}(an address). Known: slack, smtp, webhook"),
        (
            f"https://x/{SECRET}",
            "notify[0]: unknown notify type (an address). Known: slack, smtp, webhook",
        ),
        ({}, f"{SHORT}no key"),
        ({1: SECRET}, f"{SHORT}1."),
        ({"slack": f"ftp://{SECRET}"}, "notify[0].slack.url: expected an address"),
        (
            {"slack": {"page_url": SECRET}},
            "notify[0].slack.page_url: unknown field (did you mean 'pages_url'?)",
        ),
        (
            {"slack": [SECRET]},
            "notify[0].slack: expected its url or a mapping of its fields, found list. Known: ",
        ),
        ({"smtp": SECRET}, "notify[0].smtp: expected a mapping of its fields, found str. Known: "),
        ({"smtp": None}, "notify[0].smtp.host: required field is missing"),
        (
            {"slack": {"type": "webhook", "url": f"https://x/{SECRET}"}},
            "type 'webhook' is not 'slack'",
        ),
    ],
    ids=str,
)
def test_a_wrong_short_form_is_refused_with_the_choices(place: Any, words: str) -> None:
    """By the setting's path, and without an address."""
    with pytest.raises(ConfigurationError) as caught:
        load_places([place])
    assert words in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "slack", "url": f"https://hooks.example/{SECRET}"},
        {"type": "webhook", "url": f"https://x/?code={SECRET}", "secret": SECRET},
        {"type": "smtp", "host": "x", "user": "u", "password": SECRET, **BY_MAIL},
    ],
    ids=lambda fields: fields["type"],
)
def test_secrets_are_shown_nowhere(fields: dict[str, Any]) -> None:
    """Neither by `repr`, nor by a dump, nor in words. A dump for another process has them."""
    place = place_of(**fields)
    shown = (repr(place), str(place), place.in_words, place.label, str(place.model_dump()))
    assert all(SECRET not in text for text in shown)
    assert SECRET not in place.model_dump_json()
    assert SECRET in str(place.model_dump(context={"secrets": True}))

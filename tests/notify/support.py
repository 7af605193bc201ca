"""A mail server on loopback, and a pipeline whose objective is breached and met again."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, cast

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword

from agenteval_otel.components.loading import resolve
from agenteval_otel.engine.capabilities.notify import MessagePlace
from agenteval_otel.engine.capabilities.notify.notices import Bulletin, Notice
from agenteval_otel.engine.capabilities.notify.notifier import Notifier
from agenteval_otel.engine.capabilities.objectives.watch import Objectives, ObjectiveSettings
from agenteval_otel.engine.pipeline import Pipeline
from agenteval_otel.testing import RecordedTelemetry
from tests.backends.faults import LOOPBACK, free_ports
from tests.objectives.support import QUICK, pipeline_of

SECRET = "canary-5d41402abc4b2a76"
SOURCE = {"service": "shop", "host": "here", "process": 7}
USER, PASSWORD = "alerts", f"password-{SECRET}"


def place_of(type: str, **fields: Any) -> MessagePlace:
    """A place as the settings have it, which groups nothing."""
    return resolve(MessagePlace, {"type": type, "group_s": 0, **fields})


def notice(text: str = "Objective breached.", **fields: Any) -> Notice:
    return Notice(fields.pop("id", "a"), "objective", "breached", text, text, 10**18, **fields)


def bulletin(*notices: Notice, left_out: int = 0) -> Bulletin:
    return Bulletin(notices or [notice()], SOURCE, left_out)


class MailServer:
    """Keeps the mails that it takes; `replies` are what it answers to mails, then ``250``."""

    def __init__(self, replies: Sequence[str]) -> None:
        self.mails: list[EmailMessage] = []
        self.envelopes: list[Envelope] = []
        self.logins: list[LoginPassword] = []
        self.arrived = threading.Event()
        self._replies = list(replies)
        self.port = 0

    async def handle_RCPT(
        self, server: Any, session: Any, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address.startswith("unknown"):
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 taken"

    async def handle_DATA(self, server: Any, session: Any, envelope: Envelope) -> str:
        if self._replies:
            return self._replies.pop(0)
        assert isinstance(envelope.content, bytes)
        mail = message_from_bytes(envelope.content, policy=policy.default)
        self.envelopes.append(envelope)
        self.mails.append(cast(EmailMessage, mail))
        self.arrived.set()
        return "250 taken"

    def authenticate(
        self, server: Any, session: Any, envelope: Any, mechanism: str, data: LoginPassword
    ) -> AuthResult:
        self.logins.append(data)
        is_right = data.password == PASSWORD.encode()
        return AuthResult(success=is_right, handled=False)


@contextmanager
def mail_server(*replies: str, tls: ssl.SSLContext | None = None) -> Iterator[MailServer]:
    """A real SMTP server, until the block ends. With `tls` it takes mails after STARTTLS and login."""
    made = MailServer(replies)
    (made.port,) = free_ports(1)
    of_tls: dict[str, Any] = {}
    if tls is not None:
        of_tls = {
            "tls_context": tls,
            "require_starttls": True,
            "auth_required": True,
            "authenticator": made.authenticate,
        }
    controller = Controller(made, hostname=LOOPBACK, port=made.port, **of_tls)
    controller.start()
    try:
        yield made
    finally:
        controller.stop()


Ask = Callable[..., Any]


@contextmanager
def notifying(
    telemetry: RecordedTelemetry, *places: MessagePlace, **arguments: Any
) -> Iterator[tuple[Pipeline, Ask]]:
    """A pipeline that has begun to send to the places, and what has its agent answer."""
    capabilities = (Objectives.made_by(ObjectiveSettings(QUICK)), Notifier.made_by(places))
    pipeline, ask = pipeline_of(telemetry, capabilities=capabilities, **arguments)
    pipeline.capabilities.start()
    try:
        yield pipeline, ask
    finally:
        pipeline.shutdown(5.0)


def notifier_of(pipeline: Pipeline) -> Notifier:
    found = pipeline.capabilities.of(Notifier)
    assert found is not None
    return found


def breach(ask: Ask, **fields: Any) -> None:
    """Have the objective breached."""
    ask("good", times=20, **fields)
    ask("bad", times=40, **fields)


def recover(ask: Ask, **fields: Any) -> None:
    """Have the objective met again."""
    ask("good", times=200, **fields)

"""Messages as mails, by SMTP."""

from __future__ import annotations

import contextlib
import re
import smtplib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from agenteval_otel.components import ListOf
from agenteval_otel.components.delivery import DeliveryError
from agenteval_otel.components.explained import IS_FILE
from agenteval_otel.engine.capabilities.notify.notices import Bulletin
from agenteval_otel.engine.capabilities.notify.place import PARTLY, UNANSWERED, MessagePlace
from agenteval_otel.runtime.text import brief

_ADDRESS: Final = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*", re.ASCII)
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_SUBJECT_CHARS: Final = 150
_LOOK_AGAIN_S: Final = 0.1


class SmtpPlace(MessagePlace, type="smtp"):
    """Sends messages as mails in plain text.

    Attributes:
        host: The mail server.
        port: Its port.
        tls: ``starttls``, ``tls`` from the first byte, or ``none``.
        ca: PEM file of the authorities that sign its certificate. By default the system's.
        user: The name to log in with. None logs in nowhere.
        password: Its password, best as a variable: ``${SMTP_PASSWORD}``. Never shown or logged.
        sender: ``from`` of the mails, an address such as ``alerts@example.com``.
        to: Addresses of the recipients.
    """

    host: str = Field(min_length=1, max_length=253, pattern=r"^[\w.:-]+$")
    port: int = Field(default=587, ge=1, le=65_535)
    tls: Literal["starttls", "tls", "none"] = "starttls"
    ca: Annotated[Path | None, IS_FILE] = None
    user: str | None = None
    password: SecretStr | None = None
    sender: str
    to: ListOf[str] = Field(min_length=1, max_length=50)

    @property
    def label(self) -> str:
        """Return its type and the mail server."""
        return f"{self.type} at {self.host}"

    @property
    def target(self) -> str:
        """Return the mail server and the recipients."""
        return f"{self.host}:{self.port} {', '.join(self.to)}"

    @field_validator("sender", "to")
    @classmethod
    def _are_addresses(cls, value: Any) -> Any:
        for address in [value] if isinstance(value, str) else value:
            if not _ADDRESS.fullmatch(address):
                raise ValueError("expected a bare address such as alerts@example.com")
        return value

    @field_validator("ca")
    @classmethod
    def _is_read(cls, value: Path | None) -> Path | None:
        if value is not None:
            try:
                ssl.create_default_context(cafile=value)
            except OSError as error:
                problem = f"expected a PEM file that can be read ({type(error).__name__})"
                raise ValueError(problem) from None
        return value

    @model_validator(mode="after")
    def _keeps_the_password_private(self) -> Self:
        if (self.user is None) is not (self.password is None):
            raise ValueError("user and password belong together")
        if self.password is not None and self.tls == "none" and self.host not in _LOCAL:
            raise ValueError("a password crosses no network in the clear: set tls")
        return self

    async def deliver(self, bulletin: Bulletin) -> None:
        """Send one mail to all recipients. Blocks the thread, which only sends."""
        mail = mail_of(bulletin, self.sender, self.to)
        error_type = "connection_error"
        try:
            # without the name of this machine: finding it may ask the network
            client = self._client(self.sender.partition("@")[2])
            with _ended_after(self.timeout_s, client):
                self._connect(client)
                error_type = UNANSWERED  # from here on it may arrive
                refused = client.sendmail(self.sender, list(self.to), mail.as_bytes())
                with contextlib.suppress(OSError, smtplib.SMTPException):
                    client.quit()
        except smtplib.SMTPResponseException as error:
            raise self._refusal(error.smtp_code) from None
        except smtplib.SMTPRecipientsRefused as error:
            raise self._refusal(max(code for code, _ in error.recipients.values())) from None
        except (ConnectionRefusedError, socket.gaierror):
            raise self.failure("no connection", error_type, retryable=True) from None
        except ssl.SSLError as error:
            # one that is closed meanwhile may work later
            is_closed = isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)
            problem = f"no TLS ({type(error).__name__})"
            raise self.failure(
                problem, error_type if is_closed else "tls", retryable=is_closed
            ) from None
        except smtplib.SMTPNotSupportedError:
            raise self.failure("the server has no STARTTLS or no login", "not_supported") from None
        except (OSError, smtplib.SMTPException) as error:
            problem = f"no answer ({type(error).__name__})"
            raise self.failure(problem, error_type, retryable=True) from None
        if refused:
            raise self.failure(f"{len(refused)} recipients were refused", PARTLY)

    def _client(self, own_name: str) -> smtplib.SMTP:
        if self.tls == "tls":
            return smtplib.SMTP_SSL(
                local_hostname=own_name, timeout=self.timeout_s, context=self._certificates()
            )
        return smtplib.SMTP(local_hostname=own_name, timeout=self.timeout_s)

    def _connect(self, client: smtplib.SMTP) -> None:
        client._host = self.host  # type: ignore[attr-defined]  # TLS needs it, `connect` sets it not
        code, _ = client.connect(self.host, self.port)
        if code != 220:
            raise smtplib.SMTPConnectError(code, "")
        if self.tls == "starttls":
            client.starttls(context=self._certificates())
        if self.user is not None and self.password is not None:
            client.login(self.user, self.password.get_secret_value())
        client.ehlo_or_helo_if_needed()

    def _certificates(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ca)

    def _refusal(self, code: int) -> DeliveryError:
        # 4xx: later it may be taken. What the server says may quote the password.
        is_for_now = 400 <= code < 500
        return self.failure(f"answered with code {code}", "refused", retryable=is_for_now)


def mail_of(bulletin: Bulletin, sender: str, to: Any) -> EmailMessage:
    """Return a bulletin as a mail. Names can begin no header: they are one line."""
    mail = EmailMessage(policy=SMTP)
    mail["Subject"] = brief(f"[agenteval] {bulletin.title}", _SUBJECT_CHARS)
    mail["From"] = sender
    mail["To"] = ", ".join(to)
    mail["Date"] = formatdate()
    # the same if it is sent again, so that mail programs show it once
    mail["Message-ID"] = f"<{bulletin.id}@{sender.partition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(bulletin.text, cte="quoted-printable")
    return mail


@contextmanager
def _ended_after(timeout_s: float, client: smtplib.SMTP) -> Iterator[None]:
    """End the client's connection after a time.

    The client's own limit is one of each read: a server that sends a byte now and then would keep
    it for ever.
    """
    is_done = threading.Event()

    def end() -> None:
        wait_s = timeout_s
        while not is_done.wait(wait_s):
            # again and again: the socket is another one once TLS begins
            with contextlib.suppress(OSError, AttributeError):
                client.sock.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]
            wait_s = _LOOK_AGAIN_S

    watch = threading.Thread(target=end, name="agenteval-smtp", daemon=True)
    watch.start()
    try:
        yield
    finally:
        is_done.set()
        client.close()

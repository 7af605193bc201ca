"""Contract of places: where messages go, which, and how many. Loads no client."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal
from zoneinfo import ZoneInfo

from pydantic import Field, SecretStr, SerializationInfo, field_validator
from pydantic import field_serializer as serializer

from agenteval_otel.components import Component, ListOf
from agenteval_otel.components.delivery import DeliveryError
from agenteval_otel.components.explained import IS_FILE, TimeZoneName
from agenteval_otel.components.loading import load_each, resolve
from agenteval_otel.engine.capabilities.notify.notices import Bulletin, test_notice
from agenteval_otel.runtime.worker import new_loop

UNANSWERED: Final = "unanswered"
"""The error type of a message that may have arrived although no answer came."""
MALFORMED: Final = "malformed_answer"
"""The error type of a message whose answer has the status of success, and is not what is expected."""
PARTLY: Final = "partly_refused"
"""The error type of a message that some of its recipients got."""
MAY_HAVE_ARRIVED: Final = frozenset({UNANSWERED, MALFORMED})
About = Literal["objective", "judge", "breaker", "evaluator", "summary"]
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEKLY: Final = re.compile(rf"({'|'.join(_DAYS)}) ([01]\d|2[0-3]):([0-5]\d)")
_PAGES: Final = re.compile(r"https?://[\w.:\[\]-]+[\w./~-]*", re.ASCII)


class MessagePlace(Component, contract="notify"):
    """Sends messages to people. Implement `deliver`.

    Each place has a queue and a thread of its own, so that none waits for another.

    Attributes:
        about: What it hears of: breaches and recoveries of objectives, judges that are not
            trusted, circuit breakers, evaluators that are not run any more, the weekly summary.
        pages_url: Address at which `agenteval-otel ui` is opened, such as
            ``http://127.0.0.1:8629``. Messages then link to the answers behind them.
        group_s: How long a notice waits for others, in seconds. All go into one message.
        remind_s: Time after which what lasts is reported again, in seconds, at least ten minutes.
            It is reported again at most seven times.
        most_per_hour: Messages within any hour, with those that may have arrived. Notices beyond
            it are counted, and the next message has their number.
        summary: When the weekly summary is sent, such as ``monday 09:00``. It is in the time of
            `timezone`. ``never`` sends none.
        timezone: Time zone of `summary`, such as ``Europe/Berlin``.
        timeout_s: Time limit of one attempt, in seconds.
        give_up_s: Age of a notice after which it is not tried again, in seconds.
        shared_file: SQLite file of the processes on this machine that name it, such as a service's
            workers. One of them sends a message of what several see. None: each sends its own.
    """

    has_short_form: ClassVar[bool] = True

    about: ListOf[About] = ("objective", "judge", "breaker", "evaluator", "summary")
    pages_url: str = ""
    group_s: float = Field(default=30.0, ge=0, le=3_600)
    remind_s: float = Field(default=86_400.0, ge=600, le=2_592_000)
    most_per_hour: int = Field(default=20, ge=1, le=1_000)
    summary: str = "monday 09:00"
    timezone: TimeZoneName = "UTC"
    timeout_s: float = Field(default=10.0, gt=0, le=60)
    give_up_s: float = Field(default=3_600.0, gt=0, le=86_400)
    shared_file: Annotated[Path | None, IS_FILE] = None

    @property
    def target(self) -> str:
        """Return what tells it from other places of its type. It may be a secret."""
        return self.label

    @property
    def label(self) -> str:
        """Return the name of the place in messages and log lines. It has no secret."""
        return self.type

    @property
    def in_words(self) -> str:
        """Return where messages go and what they are about, in one line without secrets."""
        summary = f"weekly summary {self.summary} {self.timezone}"
        if self.next_summary(0.0) is None:
            summary = "no weekly summary"
        about = ", ".join(word for word in self.about if word != "summary")
        return f"{self.label}: {about or 'nothing else'}, {summary}"

    async def deliver(self, bulletin: Bulletin) -> None:
        """Send a bulletin within `timeout_s`.

        It runs on a thread that only sends, with an event loop of its own, and may block.

        Raises:
            DeliveryError: It was not taken. `UNANSWERED` says that it may have been.
        """
        raise NotImplementedError

    def send_test(self) -> str | None:
        """Send a test message. Return why it was not taken, or None if it was. Blocks."""
        bulletin = Bulletin([test_notice(self.pages_url)], source_of_process())
        with asyncio.Runner(loop_factory=new_loop) as runner:
            error = runner.run(self.attempt(bulletin))
        return None if error is None else str(error)

    async def attempt(self, bulletin: Bulletin) -> DeliveryError | None:
        """Send a bulletin, and return why it was not taken. Raises nothing."""
        try:
            async with asyncio.timeout(self.timeout_s):
                await self.deliver(bulletin)
        except DeliveryError as error:
            return error
        except TimeoutError:
            return self.failure(
                f"no answer within {self.timeout_s:g} s", UNANSWERED, retryable=True
            )
        except Exception as error:
            # By its class alone: what a client says may quote an address or a key.
            return self.failure(f"it cannot be sent ({type(error).__name__})", type(error).__name__)
        return None

    def failure(
        self,
        problem: str,
        error_type: str,
        *,
        retryable: bool = False,
        retry_after_s: float | None = None,
    ) -> DeliveryError:
        """Return why a message was not taken."""
        return DeliveryError(
            f"{self.label}: {problem}",
            error_type=error_type,
            retryable=retryable,
            retry_after_s=retry_after_s,
        )

    def next_summary(self, now_s: float) -> float | None:
        """Return when the next summary after a moment is due (Unix time), or None for never."""
        match = _WEEKLY.fullmatch(self.summary)
        if match is None or "summary" not in self.about:
            return None
        zone = ZoneInfo(self.timezone)
        now = datetime.fromtimestamp(now_s, UTC).astimezone(zone)
        days = (_DAYS.index(match[1]) - now.weekday()) % 7
        due = now.replace(hour=int(match[2]), minute=int(match[3]), second=0, microsecond=0)
        due += timedelta(days=days)
        if due.timestamp() <= now_s:
            due += timedelta(days=7)
        return due.timestamp()

    @field_validator("summary")
    @classmethod
    def _is_a_moment_of_the_week(cls, value: str) -> str:
        if value != "never" and not _WEEKLY.fullmatch(value):
            raise ValueError("expected a day and a time such as 'monday 09:00', or 'never'")
        return value

    @field_validator("pages_url")
    @classmethod
    def _is_the_pages_address(cls, value: str) -> str:
        if value and not _PAGES.fullmatch(value):
            raise ValueError("expected an address such as http://127.0.0.1:8629")
        return value

    @serializer("*", when_used="unless-none")
    def _hidden_secrets(self, value: Any, info: SerializationInfo) -> Any:
        if not isinstance(value, SecretStr):
            return value
        return value.get_secret_value() if (info.context or {}).get("secrets") else "***"


def source_of_process() -> dict[str, Any]:
    """Return of which process messages tell."""
    service = os.environ.get("OTEL_SERVICE_NAME", "").strip()
    for pair in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","):
        name, _, value = pair.partition("=")
        if name.strip() == "service.name" and not service:
            service = value.strip()
    host = socket.gethostname()
    return {"service": service or host, "host": host, "process": os.getpid()}


def load_places(values: object) -> tuple[MessagePlace, ...]:
    """Return the places of the field `notify`, which may be a list, a single one, or None.

    Raises:
        ConfigurationError: A place is wrong. The error has the path.
    """
    if values is None:
        values = ()
    listed = values if isinstance(values, list | tuple) else [values]
    return load_each(
        lambda value, path: resolve(MessagePlace, value, path=path), listed, path="notify"
    )

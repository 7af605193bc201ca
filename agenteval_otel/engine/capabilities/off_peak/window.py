"""The off-peak window: its settings. Loads no judge."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from datetime import time as time_of_day
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from pydantic import AliasChoices, Field, field_validator, model_validator

from agenteval_otel.components.explained import FrozenSettings, TimeZoneName

_CLOCK: Final = re.compile(r"([01]\d|2[0-3]):[0-5]\d")


class OffPeakSettings(FrozenSettings):
    """When evaluators with ``schedule: off_peak`` run, and where answers wait until then.

    Attributes:
        begins: ``from`` in settings: the local time at which the window opens, such as ``22:00``.
        ends: ``to`` in settings: the local time at which it closes. Before `begins` it closes on
            the next day.
        timezone: Time zone of both times, such as ``Europe/Berlin``, with its daylight saving time.
        batch: True sends the questions of judges to the batch API of their provider, at half the
            price, instead of waiting for the window. All judges with ``schedule: off_peak`` have to
            be of type ``anthropic`` then.
        batch_every_s: How long questions are collected for one batch, in seconds.
        path: The SQLite file in which answers wait, redacted. Several processes of one application
            may share it.
        max_bytes: Total size of the answers in the file. Answers beyond it are discarded and
            counted.
        max_age_s: How long an answer may wait, in seconds. Older ones are discarded and counted.
    """

    begins: str = Field(
        default="22:00", validation_alias=AliasChoices("from", "begins"), serialization_alias="from"
    )
    ends: str = Field(
        default="06:00", validation_alias=AliasChoices("to", "ends"), serialization_alias="to"
    )
    timezone: TimeZoneName = "UTC"
    batch: bool = False
    batch_every_s: float = Field(default=600.0, ge=0, le=86_400)
    path: Path = Path("off-peak.db")
    max_bytes: int = Field(default=256 * 1024 * 1024, ge=65_536)
    max_age_s: float = Field(default=259_200.0, gt=0, le=2_592_000)

    @field_validator("begins", "ends")
    @classmethod
    def _is_a_time(cls, value: str) -> str:
        if not _CLOCK.fullmatch(value):
            raise ValueError("expected a local time in quotes, such as '22:00'")
        return value

    @model_validator(mode="after")
    def _has_a_length(self) -> Any:
        if self.begins == self.ends:
            raise ValueError("the window never closes, or never opens: from and to have to differ")
        return self

    def is_open(self, now_s: float) -> bool:
        """Tell whether the local time at a moment (Unix time) lies in the window.

        An hour that a change of the clocks repeats is open twice. One that it leaves out is not
        missed: the window opens with the first local time behind it.
        """
        if self.batch:
            return True
        local = datetime.fromtimestamp(now_s, UTC).astimezone(ZoneInfo(self.timezone)).time()
        begins = time_of_day.fromisoformat(self.begins)
        ends = time_of_day.fromisoformat(self.ends)
        return begins <= local < ends if begins < ends else local >= begins or local < ends

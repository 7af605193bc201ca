"""Messages to a channel of Slack, by an incoming webhook."""

from __future__ import annotations

import html
import json
from typing import Any, Final

from agenteval_otel.engine.capabilities.notify.http import HttpPlace
from agenteval_otel.engine.capabilities.notify.notices import Bulletin
from agenteval_otel.engine.capabilities.notify.place import MALFORMED

_SECTION_CHARS: Final = 2_900  # Slack takes 3,000
_CUT: Final = "..."


class SlackPlace(HttpPlace, type="slack"):
    """Sends messages to a channel of Slack, or of a chat that takes Slack's messages.

    Its `url` is an incoming webhook. An answer other than ``ok`` counts as not taken. Names become
    neither links nor mentions.
    """

    async def deliver(self, bulletin: Bulletin) -> None:
        """Post the bulletin, a block for each notice."""
        blocks: list[dict[str, Any]] = []
        for notice in bulletin.shown:
            text = _shortened(notice.text)
            if notice.url:
                text += f"\n<{escaped(notice.url)}|Answers>"
            blocks.append(_block("section", text))
        blocks.append(_block("context", escaped(bulletin.footer)))
        message = {
            "text": escaped(bulletin.title),
            "blocks": blocks,
            "unfurl_links": False,
            "unfurl_media": False,
            "link_names": False,
        }
        answer = await self.post(json.dumps(message).encode())
        if answer.strip() != b"ok":
            raise self.failure("answered without the ok of Slack", MALFORMED)


def escaped(text: str) -> str:
    """Return text for Slack's markup: it gives a meaning to the same three characters as HTML."""
    return html.escape(text, quote=False)


def _shortened(text: str) -> str:
    """Return text escaped and short enough for a block. A cut is marked, and leaves no half escape."""
    if len(escaped(text)) <= _SECTION_CHARS:
        return escaped(text)
    shown: list[str] = []
    left = _SECTION_CHARS - len(_CUT)
    for character in text:
        left -= len(escaped(character))
        if left < 0:
            break
        shown.append(escaped(character))
    return "".join(shown) + _CUT


def _block(kind: str, text: str) -> dict[str, Any]:
    # `verbatim`: Slack makes neither links nor mentions of what looks like them
    element = {"type": "mrkdwn", "text": text, "verbatim": True}
    if kind == "context":
        return {"type": kind, "elements": [element]}
    return {"type": kind, "text": element}

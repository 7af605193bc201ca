"""Messages as JSON to an address of yours, signed as Standard Webhooks are."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from typing import Any, Final

from pydantic import SecretStr, field_validator

from agenteval_otel.engine.capabilities.notify.http import HttpPlace
from agenteval_otel.engine.capabilities.notify.notices import Bulletin, Notice, moment

VERSION: Final = 1
"""Of the body. A field that goes or changes its meaning makes it a new one."""
_PREFIX: Final = "whsec_"


class WebhookPlace(HttpPlace, type="webhook"):
    """Posts messages as JSON. Any answer with a status of success counts as taken.

    Requests have the headers of Standard Webhooks: ``webhook-id``, ``webhook-timestamp`` and with
    a `secret` ``webhook-signature``.

    Attributes:
        secret: Key of the signature: ``whsec_`` with Base64, or any other text. Never shown.
    """

    secret: SecretStr | None = None

    @field_validator("secret")
    @classmethod
    def _is_a_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            try:
                is_key = bool(_key_of(value.get_secret_value()))
            except (binascii.Error, ValueError):
                is_key = False
            if not is_key:
                raise ValueError("expected a text, or whsec_ with Base64")
        return value

    async def deliver(self, bulletin: Bulletin) -> None:
        """Post the bulletin, with its id and signature as headers."""
        now_s = int(time.time())
        body = json.dumps(body_of(bulletin, now_s), allow_nan=False).encode()
        headers = {"webhook-id": bulletin.id, "webhook-timestamp": str(now_s)}
        if self.secret is not None:
            key = _key_of(self.secret.get_secret_value())
            signed = b".".join((bulletin.id.encode(), str(now_s).encode(), body))
            digest = hmac.new(key, signed, hashlib.sha256).digest()
            headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
        await self.post(body, headers, is_read=False)


def body_of(bulletin: Bulletin, now_s: int) -> dict[str, Any]:
    """Return a bulletin as it is posted. The page about messages describes it."""
    body: dict[str, Any] = {"version": VERSION, "id": bulletin.id}
    body["sent_at"] = moment(now_s * 10**9)
    body["source"] = dict(bulletin.source)
    body["title"] = bulletin.title
    body["text"] = bulletin.text
    body["left_out"] = bulletin.left_out
    body["notices"] = [_json_of(notice) for notice in bulletin.notices]
    return body


def _json_of(notice: Notice) -> dict[str, Any]:
    fields = notice._asdict()
    fields["at"] = moment(fields.pop("at_ns"))
    fields["answers_url"] = fields.pop("url") or None
    return fields


def _key_of(secret: str) -> bytes:
    if secret.startswith(_PREFIX):
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    return secret.encode()

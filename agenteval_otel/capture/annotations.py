"""Annotations: what `annotate` says for slicing results, short and safe.

They are prompt, experiment, tags, and the user's id, hashed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable
from datetime import date
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from agenteval_otel.capture.text import clean
from agenteval_otel.models.inputs import Annotations
from agenteval_otel.semconv import CRITERION_NAME, CRITERION_NAME_RULE, MAX_TAGS

NAMES: Final = frozenset(Annotations.model_fields) - {"service", "service_version"}
FLAG_KEY: Final = "feature_flag.key"
FLAG_VARIANTS: Final = ("feature_flag.result.variant", "feature_flag.variant")
"""Feature flags, by the present convention and the one before."""
_MAX_CHARS: Final = 200
_HASH_CHARS: Final = 32
_TEXTS: Final = (str, int, float, Decimal, UUID, date)


def hashed(user_id: str, salt: str | None = None) -> str:
    """Return the first 32 hexadecimal digits of the id's SHA-256.

    With a salt, they are those of its HMAC-SHA-256 under that key.
    """
    text = user_id.encode("utf-8", "replace")
    if not salt:
        return hashlib.sha256(text).hexdigest()[:_HASH_CHARS]
    key = salt.encode("utf-8", "replace")
    return hmac.new(key, text, "sha256").hexdigest()[:_HASH_CHARS]


def clean_annotation(
    name: str, value: object, user_id: Callable[[str], str], wrong: Callable[[str], None]
) -> Any:
    """Return a detached annotation in its field's form, or None.

    `wrong` is called with the reason for what is left out. `user_id` converts a user's id.
    """
    if name == "tags":
        return _tags(value, wrong)
    text = _text(value)
    if text is None:
        wrong("expected text or a number")
    if not text:
        return None
    if name == "user_id":
        text = user_id(text)
    return clean(text, _MAX_CHARS)


def flag_of(events: Iterable[Any]) -> dict[str, Any]:
    """Return the experiment and the arm by the feature flag that a span's events name.

    The result is empty unless that flag is the only one.
    """
    variants: dict[Any, Any] = {}
    for event in events:
        flag = event.attributes
        if not flag or FLAG_KEY not in flag:
            continue
        variant = next((flag[name] for name in FLAG_VARIANTS if name in flag), None)
        variants[flag[FLAG_KEY]] = variant
    if len(variants) != 1:
        return {}
    [(experiment, arm)] = variants.items()
    return {"experiment": experiment, "arm": arm}


def _tags(value: object, wrong: Callable[[str], None]) -> dict[str, str] | None:
    if not isinstance(value, dict):
        wrong("expected a mapping such as tags={'tenant': 'acme'}")
        return None
    tags: dict[str, str] = {}
    for key, item in value.items():
        text = _text(item)
        if not isinstance(key, str) or not CRITERION_NAME.fullmatch(key):
            wrong(f"a tag's key must be a slug: {CRITERION_NAME_RULE}")
        elif text is None and item is not None:
            wrong("a tag's value must be text, a number or a boolean")
        elif text and len(tags) == MAX_TAGS:
            wrong(f"at most {MAX_TAGS} tags, further ones are left out")
            break
        elif text:
            tags[key] = clean(text, _MAX_CHARS)
    return tags or None


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).strip() if isinstance(value, _TEXTS) else None

"""Erasure of what this process and its storage hold.

An erasure is of a person, of a conversation, or of everything before a time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from agenteval_otel.capture.redaction.outgoing import Redaction
from agenteval_otel.config.process import current_settings, default_pipeline, deliver
from agenteval_otel.config.settings import Settings
from agenteval_otel.engine.capabilities.off_peak.off_peak import erase_waiting_of
from agenteval_otel.engine.handler import judges_of
from agenteval_otel.errors import StorageError
from agenteval_otel.evaluators.judges.cache import erase_verdicts, erase_verdicts_of
from agenteval_otel.storage.base import EvaluationStorageProvider
from agenteval_otel.storage.erasure import ErasedPlace, Erasure

_DELIVER_S: Final = 30.0


def erase(
    *,
    conversation: str | None = None,
    user: str | None = None,
    before: str | datetime | None = None,
) -> tuple[ErasedPlace, ...]:
    """Remove what is held of a conversation, of a user, or of before a time.

    What this process holds is removed first, then what its storage holds.

    Open conversations, unsampled answers that wait for feedback, feedback and spans that wait go at
    once. Answers that are being evaluated are first delivered, for up to 30 s. Stored results lose
    content and ids, and keep their scores. Blocks, for files of gigabytes for minutes: call it on a
    thread. What was exported stays where it is.

    Args:
        conversation: Its ``conversation_id``, or ``session_id``.
        user: The id as it was annotated, or as it is stored. All conversations that the user took
            part in are included.
        before: ISO 8601, or a datetime. Without a zone it is in UTC.

    Returns:
        Each place with how much was removed, and with a `problem` where something was left.

    Raises:
        ConfigurationError: Not exactly one of them was given, or its value is wrong.
    """
    fields = {"conversation": conversation, "user": user, "before": before}
    fields_given = {name: value for name, value in fields.items() if value is not None}
    erasure = erasure_of(fields_given, current_settings())
    pipeline = default_pipeline()
    learn_conversations(pipeline.providers, erasure)
    counts, is_delivered = _erase_waiting(erasure)
    places = [ErasedPlace(f"this process: {name}", count) for name, count in counts.items()]
    if not is_delivered:
        problem = "not everything was delivered in time: run this again"
        places.append(ErasedPlace("this process", problem=problem))
    caches = erase_caches(current_settings(), erasure)
    return (*places, *caches, *erase_stored(pipeline.providers, erasure))


def erase_waiting(fields: object) -> tuple[dict[str, int], bool]:
    """Erase what waits in this process, for the sidecar.

    Return how many of what, and whether the rest was delivered.

    Raises `ConfigurationError` for wrong fields, `StorageError` where a journal was left as it was.
    """
    erasure = erasure_of(fields, current_settings())
    learn_conversations(default_pipeline().providers, erasure)
    return _erase_waiting(erasure)


def _erase_waiting(erasure: Erasure) -> tuple[dict[str, int], bool]:
    # A queued answer may become a turn of an open conversation, so erase again once it is
    # evaluated.
    counts = Counter(default_pipeline().erase(erasure))
    is_delivered = deliver(_DELIVER_S)
    counts.update(default_pipeline().erase(erasure))
    counts["cached verdicts"] += erase_verdicts(_verdicts_before(erasure))
    return dict(counts), is_delivered


def erasure_of(fields: object, settings: Settings) -> Erasure:
    return Erasure.of(fields, settings.user_id_salt)


def learn_conversations(providers: Iterable[Any], erasure: Erasure) -> None:
    """Add the conversations of the erasure's users, which a dry run over the stored results finds."""
    if erasure.users:
        erase_stored(providers, erasure, dry_run=True)


def erase_stored(
    providers: Iterable[Any], erasure: Erasure, *, dry_run: bool = False
) -> list[ErasedPlace]:
    """Erase from each provider, or with `dry_run` count.

    What a provider raises is the problem of its place.
    """
    places = []
    for provider in providers:
        if hasattr(provider, "emitter"):
            continue  # it exports, and stores nothing here
        if not isinstance(provider, EvaluationStorageProvider):
            name = type(provider).__name__
            places.append(
                ErasedPlace(name, problem="your own class: erase it there", is_out_of_reach=True)
            )
            continue
        try:
            places.append(provider.erase(erasure, dry_run=dry_run))
        except Exception as error:
            name = getattr(provider, "place", provider.type)
            places.append(ErasedPlace(name, problem=_problem(error)))
    return places


def judges_in(settings: Settings) -> list[Any]:
    """Return the judges of all evaluators, those of single agents too."""
    evaluators = [*settings.evaluators]
    for agent in settings.agents.values():
        evaluators.extend(agent.evaluators or ())
    judges: list[Any] = []
    for evaluator in evaluators:
        judges.extend(judge for _, judge in judges_of(evaluator))
    return judges


def erase_caches(
    settings: Settings, erasure: Erasure, *, dry_run: bool = False
) -> list[ErasedPlace]:
    """Empty the files with verdicts of judges.

    They quote answers without an id, so all are erased, or those before a time.
    """
    caches = [judge.cache for judge in judges_in(settings)]
    paths = [cache.path for cache in caches if cache is not None and cache.path is not None]
    places = []
    for path in dict.fromkeys(paths):
        try:
            count = erase_verdicts_of(path, _verdicts_before(erasure), dry_run=dry_run)
            places.append(ErasedPlace(f"{path} (verdicts of judges)", count))
        except Exception as error:
            places.append(ErasedPlace(f"{path} (verdicts of judges)", problem=_problem(error)))
    return places


def erase_off_peak(
    settings: Settings, erasure: Erasure, *, dry_run: bool = False
) -> list[ErasedPlace]:
    """Delete answers that wait for off-peak evaluators from their file."""
    if settings.off_peak is None:
        return []
    place = f"{settings.off_peak.path} (answers that wait)"
    path = settings.off_peak.path
    try:
        return [ErasedPlace(place, erase_waiting_of(path, erasure, dry_run=dry_run))]
    except Exception as error:
        return [ErasedPlace(place, problem=_problem(error))]


def hidden_ids(settings: Settings, erasure: Erasure) -> list[str]:
    """Return why stored results cannot be found by an id.

    Redaction has replaced the id, so others have the same.
    """
    redaction = Redaction(settings.redactors)
    ids = [("conversation_id", id) for id in sorted(erasure.conversations)]
    ids += [("user_id", id) for id in sorted(erasure.users) if settings.user_id == "plain"]
    reasons = []
    for name, id in ids:
        shown = redaction.text(id, name)
        if shown != id:
            reasons.append(
                f"{name} is stored redacted, as others are ({shown}): "
                f"only --before reaches such results"
            )
    return reasons


def _verdicts_before(erasure: Erasure) -> float:
    return math.inf if erasure.before is None else erasure.before.timestamp()


def _problem(error: Exception) -> str:
    if isinstance(error, StorageError | OSError):
        return f"not erased: {error}"
    return f"not erased: {type(error).__name__}"

"""What a judge is asked, and what it answers. Neither holds a key."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from agenteval_otel.models.judge_calls import JudgeUsage
from agenteval_otel.models.value import Value


class JudgeRequest(Value):
    """A question to a judge.

    Attributes:
        system: The instruction; trusted text.
        prompt: The question, rendered; untrusted text is in it as JSON data behind a random delimiter already.
        answer_form: JSON Schema of the answer, an object's.
        max_tokens: Most tokens of the answer; a model's thinking counts.
        purpose: Names of the criteria, for metrics; few different words.
        fingerprint: Hexadecimal digits of the rubric and of what is judged, without the delimiter; for caches.
    """

    system: str = ""
    prompt: str
    answer_form: dict[str, Any] = Field(default_factory=lambda: {"type": "object"})
    max_tokens: int = Field(default=1024, ge=1)
    purpose: str = ""
    fingerprint: str = ""


class Verdict(Value):
    """A judge's answer.

    Attributes:
        answer: The JSON object that the judge answered with; its fields are not checked yet.
        raw: The answer's text as it came; content.
        usage: What it has used.
        model: The model that answered, as the provider names it.
        response_id: The provider's id of the answer.
        duration_s: From the question to the answer, retries and waits between them included.
        cost_usd: Its price in US dollars; None where that is unknown.
        from_cache: It comes from the cache; nothing was used.
        probability: With what probability the budget let the call be made, above 0 to 1; 1 where nothing limits it.
    """

    answer: dict[str, Any]
    raw: str = ""
    usage: JudgeUsage = JudgeUsage()
    model: str = ""
    response_id: str | None = None
    duration_s: float = 0.0
    cost_usd: float | None = None
    from_cache: bool = False
    probability: float = Field(default=1.0, gt=0.0, le=1.0)

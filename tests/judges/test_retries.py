"""Retries: few, never before the provider asks to come back, and never the whole of a provider's
trouble.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from agenteval_otel.components.http_client.replies import retry_after_of
from agenteval_otel.components.retry import RetryBudget, wait_before
from agenteval_otel.judges import AnthropicJudge, Judge, OpenAICompatibleJudge
from agenteval_otel.testing import ModelReply, ModelServer
from tests.judges.asking import failure, hosted

BOTH = pytest.mark.parametrize("kind", [AnthropicJudge, OpenAICompatibleJudge])


def test_the_budget_is_a_share_of_the_calls() -> None:
    """Retries never exceed a tenth of the calls, but for the first two; at most ten are saved."""
    budget, used = RetryBudget(0.1), 0
    for calls in range(1, 201):
        budget.count_call()
        used += sum(budget.take() for _ in range(2))
        assert used <= max(2, calls / 10 + 1e-6)
    assert used == 20
    for _ in range(1_000):
        budget.count_call()
    assert sum(budget.take() for _ in range(100)) == 10


@BOTH
@pytest.mark.parametrize("headers", [{"Retry-After": "3600"}, {"Retry-After-Ms": "3600000"}])
def test_a_retry_after_beyond_the_deadline_fails_at_once(
    kind: type[Judge], headers: dict[str, str]
) -> None:
    """The error has the time that the provider asks for."""
    with ModelServer([ModelReply(status=429, headers=headers)]) as server:
        result = failure(hosted(kind, server, deadline_s=60.0))
        assert len(server.requests) == 1
    assert (result.error_type, result.retryable, result.retry_after_s) == (
        "rate_limited",
        True,
        3600.0,
    )


def test_retry_after_may_be_a_date() -> None:
    """A past date means no wait."""
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    result = retry_after_of({"retry-after": later})
    assert result is not None
    assert 90 < result <= 100
    assert retry_after_of({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0.0
    assert retry_after_of({}) is None


def test_waits_grow_and_differ() -> None:
    """They double up to eight seconds, with random parts."""
    for retry, longest in ((0, 0.5), (1, 1.0), (10, 8.0)):
        waits = {wait_before(retry, 0.5) for _ in range(50)}
        assert len(waits) > 40
        assert longest / 2 <= min(waits) <= max(waits) <= longest
    assert all(4.0 <= wait_before(0, 0.5, 4.0) <= 5.0 for _ in range(50))

"""Where a judge or an embedder may be asked: any host that the settings name. Redirects carry no
key.
"""

from __future__ import annotations

from typing import Any

import pytest

from agenteval_otel.embedders import OpenAICompatibleEmbedder
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.judges import AnthropicJudge, Judge, OpenAICompatibleJudge
from agenteval_otel.testing import ModelServer
from tests.judges.asking import GOOD, failure

HOSTED: list[Any] = [AnthropicJudge, OpenAICompatibleJudge, OpenAICompatibleEmbedder]
BOTH = pytest.mark.parametrize("kind", [AnthropicJudge, OpenAICompatibleJudge])


@pytest.mark.parametrize(
    "url",
    [
        "ftp://judge.example",
        "file:///etc/passwd",
        "judge.example",
        "//judge.example",
        "",
        "https://",
        "https://user:pass@judge.example",
        "https://judge.example/v1?key=1",
        "https://judge.example/#x",
        "https://judge.example:99999",
        "https://judge.example:0",
        "https://judge.example/a b",
        "https://judge\n.example",
    ],
)
def test_a_malformed_address_is_refused_at_load(url: str) -> None:
    """Another scheme, a user, a query and a wrong port are configuration errors without the
    password.
    """
    for kind in HOSTED:
        with pytest.raises(ConfigurationError, match="base_url") as raised:
            kind.load({"model": "m", "base_url": url})
        assert "pass" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://vllm.models.svc:8000",
        "http://127.0.0.1:11434",
        "http://10.1.2.3/v1",
        "http://[fd00::1]:9",
    ],
)
def test_private_addresses_need_no_setting(url: str) -> None:
    """A model in the same cluster or on the same machine is the common case."""
    for kind in HOSTED:
        assert kind.load({"model": "m", "base_url": url}).base_url == url


@BOTH
def test_a_refused_connection_is_a_connection_error(kind: type[Judge]) -> None:
    """Nothing listens on the port."""
    with ModelServer([GOOD]) as server:
        url = server.url
    result = failure(kind(model="m", base_url=url, api_key="key", max_retries=0))  # type: ignore[call-arg]
    assert result.error_type == "connection_error"

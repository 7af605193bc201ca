"""GoGrid's LLM judge, ``{rubric, model, template?}``, rewritten into fields of `LLMJudge`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["is_rubric_judge", "judge_defaults"]


def is_rubric_judge(config: Mapping[str, Any]) -> bool:
    """Whether an ``LLMJudge`` entry is GoGrid's: it has a rubric."""
    return config.get("rubric") is not None


def judge_defaults(*, has_template: bool) -> dict[str, Any]:
    """What GoGrid implies: the reply is two lines, every answer is judged, and a template holds the texts itself."""
    return {
        "refuse_degenerate": False, "needs": (), "reply_form": "lines",
        "placement": "inline" if has_template else "data",
    }  # fmt: skip

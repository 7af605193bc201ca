"""Testing: deterministic doubles and contract checks, part of the product.

`RecordedTelemetry` keeps what is emitted, `ManualClock` is time that a test moves, `ModelServer` a
model provider on loopback, `ScriptedJudge` a judge with prepared answers, `CassetteJudge` one with
recorded verdicts. The ``check_*`` functions check your own parts against their contracts. With
``configure(dispatcher="inline")`` a call is evaluated before it returns. Fixtures and
`assert_evaluation` come from the pytest plugin: docs/pytest.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agenteval_otel.runtime.lazy import importing

if TYPE_CHECKING:
    from agenteval_otel.testing.cassette import CassetteJudge
    from agenteval_otel.testing.checks import (
        check_component,
        check_embedder,
        check_evaluator,
        check_ground_truth,
        check_sampler,
        check_storage,
    )
    from agenteval_otel.testing.doubles import ManualClock, RecordedTelemetry, ScriptedJudge
    from agenteval_otel.testing.model_formats import ModelReply
    from agenteval_otel.testing.model_server import ModelServer

__all__ = [
    "CassetteJudge",
    "ManualClock",
    "ModelReply",
    "ModelServer",
    "RecordedTelemetry",
    "ScriptedJudge",
    "check_component",
    "check_embedder",
    "check_evaluator",
    "check_ground_truth",
    "check_sampler",
    "check_storage",
]

# Each is imported when it is first used: the pytest plugin beside them loads with every run of pytest.
_PARTS = {
    "cassette": ("CassetteJudge",),
    "checks": tuple(name for name in __all__ if name.startswith("check_")),
    "doubles": ("ManualClock", "RecordedTelemetry", "ScriptedJudge"),
    "model_formats": ("ModelReply",),
    "model_server": ("ModelServer",),
}
_MODULE_OF: dict[str, str] = {}
for _module, _names in _PARTS.items():
    _MODULE_OF |= dict.fromkeys(_names, f"{__name__}.{_module}")
__getattr__ = importing(globals(), _MODULE_OF)

"""The pipeline: sample -> dispatch -> build -> run -> store.

`plan` is what one handler wants, `route` what happens to its answers, `process` who shares one, `exit` how it ends.
"""

from agenteval_otel.pipeline.exit import EXIT_TIMEOUT_S, handle_sigterm
from agenteval_otel.pipeline.plan import AgentDefaults, Plan
from agenteval_otel.pipeline.process import (
    current_pipeline,
    default_pipeline,
    live_pipelines,
    set_default_pipeline,
    use_assembler,
)
from agenteval_otel.pipeline.route import Pipeline

__all__ = [
    "EXIT_TIMEOUT_S", "AgentDefaults", "Pipeline", "Plan", "current_pipeline", "default_pipeline", "handle_sigterm",
    "live_pipelines", "set_default_pipeline", "use_assembler",
]  # fmt: skip

"""Settings, and the only place that assembles: from settings to the process's pipeline.

`settings` and `criteria` are the models, `files` (with `bounded_yaml`) reads into a `tree`, `overlay` lays profiles and
the environment over it, `plugins` imports what is listed, `load` does it in order and tells everything that is wrong.
`assemble` builds and swaps, `process` holds what the process was configured with, `switch` is the kill switch. `schema`
and `descriptions` are for editors and documents.
"""

from agenteval_otel.config.assemble import build
from agenteval_otel.config.criteria import Criterion
from agenteval_otel.config.current import current_pipeline, set_current_pipeline
from agenteval_otel.config.load import Loaded, Problem, SettingsError, load_settings
from agenteval_otel.config.process import accounting, configure, default_pipeline, flush, reload, shutdown
from agenteval_otel.config.settings import AgentSettings, Settings
from agenteval_otel.config.switch import disable, enable

__all__ = [
    "AgentSettings", "Criterion", "Loaded", "Problem", "Settings", "SettingsError", "accounting", "build", "configure",
    "current_pipeline", "default_pipeline", "disable", "enable", "flush", "load_settings", "reload",
    "set_current_pipeline", "shutdown",
]  # fmt: skip

"""Settings (files, environment, code), and the process's pipeline that is built from them.

`load` reads a file (`files`, `yaml_files`) into a `tree`, merges profile and variables (`environment`) and validates
the result as `settings`, with the help of `parts`. `assemble` builds and swaps pipelines. `process` has the verbs
(`configure`, `flush`, ...), `current` the current pipeline and the kill switch, `schema` the JSON Schema.
"""

from agenteval_otel.config.current import current_pipeline, disable, enable, set_current_pipeline
from agenteval_otel.config.load import Loaded, Problem, SettingsError, load_settings
from agenteval_otel.config.parts import Criterion
from agenteval_otel.config.process import accounting, build, configure, default_pipeline, flush, reload, shutdown
from agenteval_otel.config.settings import AgentSettings, Settings

__all__ = [
    "AgentSettings", "Criterion", "Loaded", "Problem", "Settings", "SettingsError", "accounting", "build", "configure",
    "current_pipeline", "default_pipeline", "disable", "enable", "flush", "load_settings", "reload",
    "set_current_pipeline", "shutdown",
]  # fmt: skip

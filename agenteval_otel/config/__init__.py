"""Settings (files, environment, code), and the process's pipeline that is built from them."""

from agenteval_otel.config.load import Loaded, Problem, SettingsError, load_settings
from agenteval_otel.config.process import (
    accounting,
    build,
    configure,
    current_pipeline,
    default_pipeline,
    disable,
    enable,
    flush,
    reload,
    set_current_pipeline,
    shutdown,
)
from agenteval_otel.config.settings import Settings
from agenteval_otel.engine.agent_settings import AgentSettings, Criterion

__all__ = [
    "AgentSettings",
    "Criterion",
    "Loaded",
    "Problem",
    "Settings",
    "SettingsError",
    "accounting",
    "build",
    "configure",
    "current_pipeline",
    "default_pipeline",
    "disable",
    "enable",
    "flush",
    "load_settings",
    "reload",
    "set_current_pipeline",
    "shutdown",
]

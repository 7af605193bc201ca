"""Evaluation without code: the entry point of OpenTelemetry's automatic instrumentation.

It is `AgentEvalInstrumentor`. ``opentelemetry-instrument python app.py`` calls it, and so does
declarative configuration (``OTEL_CONFIG_FILE``) that names ``agenteval`` below
``instrumentation/development: python:``.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Collection
from functools import partial
from types import ModuleType
from typing import Any, Final

try:
    import wrapt
    from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]
    from opentelemetry.instrumentation.utils import unwrap
except ImportError:
    raise ImportError(
        'needs the extra instrumentor: pip install "agenteval-otel[instrumentor]"'
    ) from None

from opentelemetry import trace

from agenteval_otel.config import Settings, configure
from agenteval_otel.config.process import current_pipeline, current_settings, when_configured
from agenteval_otel.instrumentation import asgi, wsgi
from agenteval_otel.instrumentation.exchange import SOCKET, Middleware
from agenteval_otel.instrumentation.spans import AgentEvalSpanProcessor
from agenteval_otel.runtime.log import log

__all__ = ["AgentEvalInstrumentor"]

_KINDS: Final[tuple[type[Middleware], ...]] = (asgi.AgentEvalMiddleware, wsgi.AgentEvalMiddleware)
_APPLICATIONS: Final[tuple[tuple[str, str, type[Middleware]], ...]] = (
    # and FastAPI, which is made of it
    ("starlette.applications", "Starlette", asgi.AgentEvalMiddleware),
    ("flask.app", "Flask", wsgi.AgentEvalMiddleware),
    ("django.core.handlers.asgi", "ASGIHandler", asgi.AgentEvalMiddleware),
    ("django.core.handlers.wsgi", "WSGIHandler", wsgi.AgentEvalMiddleware),
)
"""Module, class and middleware of the applications that are known.

They are wrapped when they are imported.
"""


_PREFIX: Final = "AGENTEVAL_"
_FIX: Final = (
    "nothing is evaluated: name a settings file in AGENTEVAL_SETTINGS (agenteval-otel init writes one), set a variable "
    "such as AGENTEVAL_SAMPLE_RATE=1, or call agenteval_otel.configure() in the application. "
    "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=agenteval silences this line"
)


class AgentEvalInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Sets the process up by its settings.

    It monitors the `routes` that they name, and evaluates what spans show. ``instrument(**fields)``
    takes a settings file as `settings`, `profile`, and fields of `Settings`. Without any, the file
    that ``AGENTEVAL_SETTINGS`` names and variables ``AGENTEVAL_*`` count. Raises
    `ConfigurationError` if they are wrong. Automatic instrumentation logs it, and the application
    runs without.

    Without any of these nothing is evaluated, as the package may be installed for another reason:
    one log line says how to configure it. It then waits for a `configure` of the application.
    """

    _processor: AgentEvalSpanProcessor | None = None
    _is_waiting = False

    def instrumentation_dependencies(self) -> Collection[str]:
        return ()

    def _instrument(
        self, settings: str | None = None, profile: str | None = None, **fields: Any
    ) -> None:
        has_settings = settings is not None or profile is not None or bool(fields)
        has_variables = any(name.startswith(_PREFIX) for name in os.environ)
        if has_settings or has_variables:
            self._set_up(configure(settings, profile=profile, **fields))
            return
        pipeline = current_pipeline()
        if pipeline is None or pipeline.provisional:
            log.warning("instrumentor_not_configured", part="instrumentor", fix=_FIX)
            self._is_waiting = True
            when_configured(self._set_up_late)
        else:
            self._set_up(current_settings())

    def _set_up_late(self, chosen: Settings) -> None:
        if self._is_waiting:  # else it was undone meanwhile
            self._is_waiting = False
            self._set_up(chosen)

    def _set_up(self, chosen: Settings) -> None:
        routes = chosen.routes
        add = getattr(trace.get_tracer_provider(), "add_span_processor", None)
        if chosen.spans and add is not None:
            self._processor = AgentEvalSpanProcessor()
            add(self._processor)
        templates = {}
        for kind in _KINDS:
            taken: dict[str, str] = {}
            for route, agent in routes.items():
                is_of_sockets = route.startswith(f"{SOCKET} ")
                if kind.has_sockets or not is_of_sockets:
                    taken[route] = agent
            if taken:
                templates[kind] = kind(None, routes=taken)
        for module, name, kind in _APPLICATIONS:
            if kind in templates:
                wrap_class = partial(_wrap, name, templates[kind])
                wrapt.register_post_import_hook(wrap_class, module)

    def _uninstrument(self, **_: Any) -> None:
        self._is_waiting = False
        if self._processor is not None:
            self._processor.shutdown()
            self._processor = None
        for module, name, _middleware in _APPLICATIONS:
            if module in sys.modules:
                application = getattr(sys.modules[module], name)
                unwrap(application, "__call__")


def _wrap(name: str, template: Any, module: ModuleType) -> None:
    """Have every call of the class's applications pass through middleware like the template."""

    def around(call: Any, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        middleware = copy.copy(template)
        middleware.app = call
        return middleware(*args, **kwargs)

    wrapt.wrap_function_wrapper(module, f"{name}.__call__", around)

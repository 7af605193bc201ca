"""Collectors, the sidecar, and what stands around them.

They are the texts in ``files``, with what a plan decides filled in.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from importlib.resources import files
from textwrap import indent
from typing import Final

from agenteval_otel import semconv
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.provisioning.collector.sidecars import (
    number_of_sidecars,
    shared_lines,
    shared_values,
    values_by_sidecar,
)
from agenteval_otel.provisioning.files import GeneratedFiles
from agenteval_otel.provisioning.plan import MonitoringPlan
from agenteval_otel.runtime.version import scope_version

CONTENT: Final = (
    # Of the conventions, now and before.
    r"gen_ai[.](input[.]messages|output[.]messages|system_instructions)",
    r"gen_ai[.]tool[.](definitions|call[.](arguments|result))",
    r"gen_ai[.](prompt|completion|content|prompt[.][^nv].*|(completion|content)[.].*)",
    # Ours.
    r"gen_ai[.]evaluation[.](explanation|user_prompt)",
    r"gen_ai[.]full_nl_response",
    r"agenteval[.]input",
    # Other libraries' own.
    r"(input|output)[.]value",
    r"llm[.](input|output)_messages([.].*)?",
    r"traceloop[.]entity[.](input|output)",
)
"""Attributes that hold what people and models wrote, as regular expressions of whole names."""

_FILES: Final = files(__package__).joinpath("files")
_PLACES: Final = {
    "otel-collector": "otel-collector.yaml",
    "tail-sampling": "collector/tail-sampling.yaml",
    "gateway": "collector/gateway.yaml",
    "gateway-agent": "collector/gateway-agent.yaml",
    "azure-monitor": "collector/azure-monitor.yaml",
    "jaeger": "jaeger/jaeger.yaml",
    "tempo": "tempo/tempo.yaml",
    "loki": "loki/loki.yaml",
    "to-sidecar": "collector/to-sidecar.yaml",
    "compose": "compose.yaml",
    "compose-sidecar": "compose.sidecar.yaml",
    "collector-sidecar": "kubernetes/collector-sidecar.yaml",
    "agenteval-sidecar": "kubernetes/agenteval-sidecar.yaml",
}
_COMPOSED: Final = {
    "where": "\n# As prometheus.yml, with the names that the others have in compose.yaml.",
    "collector": "collector:8889",
    "alertmanager": "alertmanager:9093",
}
_MARGIN_S: Final = 10
"""How much longer than its draining the sidecar may take to end."""
_COLLECTOR_S: Final = 30
"""What the application and the Collector take to end, in a pod."""
_INCLUDED: Final = re.compile(r"^( *)#\+ ([a-z_-]+)\n", re.MULTILINE)
_PLACEHOLDER: Final = re.compile(r"@([a-z_]+)@")
_ADDRESS: Final = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\]):\d{1,5}")


def files_of(
    plan: MonitoringPlan,
    *,
    scrape: str = "127.0.0.1:8889",
    alertmanager: str = "127.0.0.1:9093",
    sidecars: str = "1",
) -> GeneratedFiles:
    """Return the configurations of the Collectors and of the programs around them, by path.

    Prometheus reads neither environment variables nor flags for the addresses of others: outside of
    Compose it scrapes the Collector at `scrape` and sends alerts to `alertmanager`, host and port
    each. With more `sidecars` than one the Collector balances over them.
    """
    alone = {"where": "", "collector": scrape, "alertmanager": alertmanager}
    for option, address in (("scrape", scrape), ("alertmanager", alertmanager)):
        if not _ADDRESS.fullmatch(address):
            raise ConfigurationError(
                f"must be a host and a port such as 127.0.0.1:9000, found {address!r}", path=option
            )
    decision_s = 60.0 if plan.judge_models else 15.0
    drain_s = math.ceil(plan.drain_s)
    stop_s = drain_s + _MARGIN_S
    each_sidecar = values_by_sidecar(number_of_sidecars(sidecars))
    values = {
        "metric_expiration": _duration(150.0, plan, at_least_s=3.0),
        "decision_wait": _duration(decision_s, plan, at_least_s=1.0),
        "version": scope_version(),
        "drain": str(drain_s),
        "stop": str(stop_s),
        "grace": str(stop_s + _COLLECTOR_S),
        **shared_values(each_sidecar),
    }
    # Statements of the transform processor; `$$` is the Collector's `$`.
    lines = {}
    for record in ("span", "spanevent", "log"):
        statements = [
            f'- delete_matching_keys({record}.attributes, "^{pattern}$$")\n' for pattern in CONTENT
        ]
        lines[f"without_content_of_{record}"] = "".join(statements)
    lines["failing"] = _failing(plan)
    to_sidecars = ""
    if len(each_sidecar) > 1:
        to_sidecars = _filled(_whole("to-sidecars.yaml", {}), values)
    lines |= shared_lines(each_sidecar, to_sidecars)
    for part in ("compose_sidecar", "pod_sidecar"):
        text = _whole(f"parts/{part}.yaml", lines)
        lines[f"{part}s"] = "\n".join(_filled(text, values | own) for own in each_sidecar)
    prometheus = _whole("prometheus.yml", {})
    intervals = {
        "scrape_interval": plan.duration(5.0, at_least_s=0.25),
        "evaluation_interval": plan.duration(15.0, at_least_s=1.0),
    }
    texts = {}
    for name, path in _PLACES.items():
        texts[path] = _filled(_whole(f"{name}.yaml", lines), values)
    texts["prometheus/prometheus.yml"] = _filled(prometheus, alone | intervals)
    texts["sidecar/Dockerfile"] = _filled(_whole("Dockerfile", {}), values | each_sidecar[0])
    service = _whole("sidecar.service", lines)
    for own in each_sidecar:
        texts[f"systemd/agenteval-sidecar{own['suffix']}.service"] = _filled(service, values | own)
    if to_sidecars:
        texts["collector/to-sidecars.yaml"] = to_sidecars
    texts["prometheus/prometheus-compose.yml"] = _filled(prometheus, _COMPOSED | intervals)
    return texts


def _failing(plan: MonitoringPlan) -> str:
    """Return one policy of tail sampling for each criterion that can fail.

    The result is a comment if none can.
    """
    policies = [
        f"- name: fails-{name}\n"
        "  type: string_attribute\n"
        f"  string_attribute: {{ key: {semconv.criterion_label(name)}, values: [{semconv.LABEL_FAIL}] }}\n"
        for name in plan.names_with_verdicts
    ]
    return "".join(policies) or "# (No configured criterion has a threshold: nothing fails.)\n"


def _duration(seconds: float, plan: MonitoringPlan, *, at_least_s: float) -> str:
    scaled = max(at_least_s, seconds * plan.time_scale)
    return f"{scaled / 60:g}m" if scaled % 60 == 0 else f"{scaled:g}s"


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)


def _whole(name: str, lines: Mapping[str, str]) -> str:
    """Return a text with what its lines ``#+ ...`` name.

    They name lines that a plan decides, parts, and other texts.
    """

    def part(name: str) -> str:
        if name in lines:
            return lines[name]
        shared = f"parts/{name}.yaml"
        if _FILES.joinpath(shared).is_file():
            return _whole(shared, lines)
        return _whole(f"{name}.yaml", lines)

    text = _FILES.joinpath(name).read_text(encoding="utf-8")
    return _INCLUDED.sub(lambda match: indent(part(match[2]), match[1]), text)

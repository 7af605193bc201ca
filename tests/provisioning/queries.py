"""Every query of the dashboards as Grafana would send it: read from the JSON, its variables
replaced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

__all__ = [
    "PanelQuery", "annotations_of", "dashboards_of", "interpolated", "late_choices", "panels_of", "queries_of",
    "variables_of",
]  # fmt: skip

_VARIABLE = re.compile(r"\$(\w+)|\[\[(\w+?)(?::\w+)?\]\]|\$\{(\w+)(?:\.[^:}]+)?(?::[^}]+)?\}")
"""How Grafana finds variables in a text."""


class PanelQuery(NamedTuple):
    """One query of one panel, ready to be asked: PromQL or LogQL without variables."""

    dashboard: str  # its uid
    panel: str
    kind: Literal["prometheus", "loki", "__expr__"]
    expression: str


def queries_of(
    files: Mapping[str, str],
    values: Mapping[str, str],
    *,
    interval: str = "15s",
    range_: str = "1h",
    interpolate: bool = True,
) -> list[PanelQuery]:
    """The queries of all dashboards among the files, with the variables' values; one left out is
    "All", or empty.
    """
    builtin = {
        "__rate_interval": interval,
        "__interval": interval,
        "__auto": interval,
        "__range": range_,
    }
    result = []
    for dashboard in dashboards_of(files):
        chosen = {**variables_of(dashboard), **values, **builtin}
        for panel in panels_of(dashboard):
            for target in panel.get("targets", ()):
                kind, text = (
                    target["datasource"]["type"],
                    target.get("expr") or target["expression"],
                )
                expression = interpolated(text, chosen) if interpolate else text
                result.append(PanelQuery(dashboard["uid"], panel["title"], kind, expression))
    return result


def annotations_of(
    files: Mapping[str, str], values: Mapping[str, str], *, interval: str
) -> list[PanelQuery]:
    """Return the queries of what dashboards mark on graphs, as `queries_of` returns those of panels."""
    result = []
    for dashboard in dashboards_of(files):
        chosen = {**variables_of(dashboard), **values, "__interval": interval}
        for annotation in dashboard["annotations"]["list"]:
            expression = interpolated(annotation["expr"], chosen)
            result.append(
                PanelQuery(dashboard["uid"], annotation["name"], "prometheus", expression)
            )
    return result


def dashboards_of(files: Mapping[str, str]) -> list[dict[str, Any]]:
    """The dashboards among generated files."""
    return [
        json.loads(text)
        for path, text in files.items()
        if path.endswith(".json") and "dashboards/" in path
    ]


def panels_of(dashboard: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The panels of a dashboard, those of its rows among them; headings are left out."""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield from panels_of({"panels": panel.get("panels") or ()})
        else:
            yield panel


def variables_of(dashboard: Mapping[str, Any]) -> dict[str, str]:
    """Each variable of a dashboard with what it stands for when all is chosen, else with what is
    chosen at first.
    """
    return {
        item["name"]: item.get("allValue") or item.get("current", {}).get("value") or ""
        for item in dashboard["templating"]["list"]
    }


def late_choices(dashboard: Mapping[str, Any]) -> dict[str, str]:
    """Return what the variable of late results stands for, by the words that a reader chooses."""
    (variable,) = (item for item in dashboard["templating"]["list"] if item["name"] == "late")
    choices = (choice.partition(" : ") for choice in variable["query"].split(","))
    return {text: value for text, _, value in choices}


def interpolated(text: str, values: Mapping[str, str]) -> str:
    """The text with its variables replaced; what looks like one and has no value stays, as in
    Grafana.
    """

    def value(result: re.Match[str]) -> str:
        name = next(filter(None, result.groups()))
        return values.get(name, result[0])

    return _VARIABLE.sub(value, text)

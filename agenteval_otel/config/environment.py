"""Settings from environment variables: ``AGENTEVAL_*``, and references ``${VARIABLE}`` in a file.

Their values stay text (`EnvironmentText`) until the settings are validated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel

from agenteval_otel.components.explained import suggestion
from agenteval_otel.config.settings import AgentSettings, Settings
from agenteval_otel.config.tree import EnvironmentText, Tree, map_texts, paths_of, place_of
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.runtime.masking import MASK, is_secret, mask_text

PREFIX = "AGENTEVAL_"
SETTINGS, PROFILE = "AGENTEVAL_SETTINGS", "AGENTEVAL_PROFILE"
_REFERENCE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{")


class Variable(NamedTuple):
    """A variable of the environment that overrides a setting; `shown` is its value without secrets."""

    name: str
    path: str
    shown: str


def _model_of(annotation: Any) -> type[BaseModel] | None:
    """The model of a section; None for values, containers, and parts that are chosen by `type`."""
    alternatives = [annotation] if isinstance(annotation, type) else get_args(annotation)
    models = [model for model in alternatives if isinstance(model, type) and issubclass(model, BaseModel)]
    is_container = get_origin(annotation) in (dict, tuple)
    return None if is_container or not models or "contract" in models[0].__dict__ else models[0]


_SECTIONS = {
    name: model for name, field in Settings.model_fields.items() if (model := _model_of(field.annotation)) is not None
}


def read_variables(environment: Mapping[str, str], base: Tree) -> tuple[Tree, list[Variable], list[str]]:
    """What to merge over the file's tree, the variables in force, and a warning for each that names no setting.

    Such as ``AGENTEVAL_SAMPLE_RATE`` or ``AGENTEVAL_TELEMETRY__ENDPOINT``; empty ones are ignored. A value that begins
    with ``[`` or ``{`` is YAML. An unknown variable may belong to another program.

    Raises:
        ConfigurationError: A list or mapping that is not YAML; the path is the variable.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    variables, warnings = [], []
    for name in sorted(environment):
        text = environment[name].strip()
        if not name.startswith(PREFIX) or name in (SETTINGS, PROFILE) or not text:
            continue
        keys = name[len(PREFIX) :].lower().split("__")
        if not _is_setting(keys):
            warnings.append(f"{name} names no setting{suggestion(name, _known_names())}")
            continue
        keys = _spelled(keys, base.values)
        path = ".".join(keys)
        section = values
        for depth, key in enumerate(keys[:-1], start=1):
            if not isinstance(section.get(key), dict):
                section[key] = {}
            section = section[key]
            origins[place_of(".".join(keys[:depth]))] = name
        section[keys[-1]] = value = _value_of(text, name, path)
        origins |= {place_of(inner): name for inner in (path, *paths_of(value, path))}
        shown = MASK if any(map(is_secret, keys)) else mask_text(text)
        variables.append(Variable(name, path, shown))
    return Tree(values, origins), variables, warnings


def _known_names() -> list[str]:
    nested = [f"{first}__{field}" for first, model in _SECTIONS.items() for field in model.model_fields]
    return [*(PREFIX + path.upper() for path in [*Settings.model_fields, *nested]), SETTINGS, PROFILE]


def _is_setting(keys: list[str]) -> bool:
    first, *rest = keys
    if first not in Settings.model_fields or not all(keys):
        return False
    if first in _SECTIONS:
        return not rest or rest[0] in _SECTIONS[first].model_fields
    if first == "agents":
        return not rest or (len(rest) >= 2 and rest[1] in AgentSettings.model_fields)
    return not rest or first in ("criteria", "dispatcher", "sampler")


def _spelled(keys: list[str], base: Any) -> list[str]:
    """The keys as the file writes them: its names, such as an agent's, match in any spelling."""
    spelled = []
    for key in keys:
        known = base if isinstance(base, dict) else {}
        spelled.append(next((name for name in known if re.sub(r"\W", "_", name).lower() == key), key))
        base = known.get(spelled[-1])
    return spelled


def _value_of(text: str, name: str, path: str) -> Any:
    def shielded(text: str, path: str) -> EnvironmentText:
        return EnvironmentText(text, MASK if _has_secret(path) else mask_text(text))

    if text[0] not in "[{":
        return shielded(text, path)
    from agenteval_otel.config.files import load_yaml

    try:
        return map_texts(load_yaml(text, name)[0], shielded, path)
    except ConfigurationError as error:
        message = "a list or mapping" if _has_secret(path) else error.problems[0][1]
        raise ConfigurationError(f"expected YAML: {message}", path=name) from None


def _has_secret(path: str) -> bool:
    return any(is_secret(part) for part in re.split(r"\.|\[\d+\]", path))


def substitute(
    tree: Tree, environment: Mapping[str, str]
) -> tuple[Tree, list[tuple[str | None, str]], frozenset[str]]:
    """Resolve ``${NAME}`` and ``${NAME:-default}`` in every text; ``$${`` is a literal ``${``.

    Every other ``$`` stays: patterns end in it. Also returns the problems, and the values that no message may show.
    """
    problems: list[tuple[str | None, str]] = []
    secrets: set[str] = set()

    def resolved(match: re.Match[str], path: str) -> str:
        name, default = match.groups()
        if match[0] == "$${":
            return "${"
        if name is None:
            problems.append((path, "expected ${NAME} or ${NAME:-default}; write $${ for a plain ${"))
            return match[0]
        value = environment.get(name)
        if default is not None and not value:
            return str(default)
        if value is None:
            hint = f"set it, or give a default: ${{{name}:-...}}"
            problems.append((path, f"the environment variable {name} is not set; {hint}"))
            return match[0]
        secrets.add(value)
        return value

    def changed(text: str, path: str) -> str:
        if "${" not in text or isinstance(text, EnvironmentText):
            return text
        result = _REFERENCE.sub(lambda match: resolved(match, path), text)
        return result if result == text.replace("$${", "${") else EnvironmentText(result, text)

    return tree._replace(values=map_texts(tree.values, changed)), problems, frozenset(secrets)

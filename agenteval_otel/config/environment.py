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
from agenteval_otel.config.tree import EnvironmentText, Items, Section
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


class Overrides(NamedTuple):
    """What variables set: the tree to merge over the file's, the variables in force, and the unknown ones."""

    section: Section
    variables: tuple[Variable, ...]
    warnings: tuple[str, ...]


def read_variables(environment: Mapping[str, str], base: Section) -> Overrides:
    """The overrides, such as ``AGENTEVAL_SAMPLE_RATE`` or ``AGENTEVAL_TELEMETRY__ENDPOINT``; empty ones are ignored.

    A value that begins with ``[`` or ``{`` is YAML. A variable that names no setting is a warning: another program may
    own it.

    Raises:
        ConfigurationError: A list or mapping that is not YAML; the path is the variable.
    """
    section, variables, warnings = Section(), [], []
    for name in sorted(environment):
        text = environment[name].strip()
        if not name.startswith(PREFIX) or name in (SETTINGS, PROFILE) or not text:
            continue
        keys = name[len(PREFIX) :].lower().split("__")
        if not _is_setting(keys):
            known = [PREFIX + field.upper() for field in Settings.model_fields]
            known += [
                f"{PREFIX}{first.upper()}__{field.upper()}"
                for first, model in _SECTIONS.items() for field in model.model_fields
            ]  # fmt: skip
            warnings.append(f"{name} names no setting{suggestion(name, [*known, SETTINGS, PROFILE])}")
            continue
        path = _put(section, base, keys, _value_of(text, name, keys), name)
        shown = MASK if any(is_secret(key) for key in keys) else mask_text(text)
        variables.append(Variable(name, path, shown))
    return Overrides(section, tuple(variables), tuple(warnings))


def _is_setting(keys: list[str]) -> bool:
    first, *rest = keys
    if first not in Settings.model_fields or not all(keys):
        return False
    if first in _SECTIONS:
        return not rest or rest[0] in _SECTIONS[first].model_fields
    if first == "agents":
        return not rest or (len(rest) >= 2 and rest[1] in AgentSettings.model_fields)
    return not rest or first in ("criteria", "dispatcher", "sampler")


def _value_of(text: str, name: str, keys: list[str]) -> Any:
    secret = any(is_secret(key) for key in keys)
    if text[0] not in "[{":
        return EnvironmentText(text, MASK if secret else mask_text(text))
    from agenteval_otel.config.files import load_yaml

    try:
        return _from_environment(load_yaml(text, name), secret)
    except ConfigurationError as error:
        message = "a list or mapping" if secret else error.problems[0][1]
        raise ConfigurationError(f"expected YAML: {message}", path=name) from None


def _from_environment(value: Any, secret: bool) -> Any:
    if isinstance(value, Section):
        section = Section()
        for key, item in value.items():
            section.put(key, _from_environment(item, secret or is_secret(key)), value.origins[key].partition(":")[0])
        return section
    if isinstance(value, Items):
        origins = [origin.partition(":")[0] for origin in value.origins]
        return Items([_from_environment(item, secret) for item in value], origins)
    return EnvironmentText(value, MASK if secret else mask_text(value)) if isinstance(value, str) else value


def _put(section: Section, base: Any, keys: list[str], value: Any, name: str) -> str:
    """Set the value at the keys; names in the file, such as an agent's, match in any spelling."""
    path = []
    for position, variable_key in enumerate(keys):
        below = base if isinstance(base, Section) else Section()
        key = next((name for name in below if re.sub(r"\W", "_", name).lower() == variable_key), variable_key)
        path.append(key)
        if position == len(keys) - 1:
            section.put(key, value, name)
            break
        if not isinstance(section.get(key), Section):
            section.put(key, Section(), name)
        section, base = section[key], below.get(key)
    return ".".join(path)


class Substitution(NamedTuple):
    """A tree with its references resolved, the problems, and the values that no message may show."""

    tree: Section
    problems: list[tuple[str | None, str]]
    secrets: frozenset[str]


def substitute(tree: Section, environment: Mapping[str, str]) -> Substitution:
    """Resolve ``${NAME}`` and ``${NAME:-default}`` in every text; ``$${`` is a literal ``${``.

    Every other ``$`` stays: patterns end in it.
    """
    work = _Substituting(environment)
    return Substitution(work.value(tree, ""), work.problems, frozenset(work.secrets))


class _Substituting:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.problems: list[tuple[str | None, str]] = []
        self.secrets: set[str] = set()

    def value(self, value: Any, path: str) -> Any:
        if isinstance(value, Section):
            section = Section()
            for key, item in value.items():
                section.put(key, self.value(item, f"{path}.{key}" if path else key), value.origins[key])
            return section
        if isinstance(value, Items):
            return Items([self.value(item, f"{path}[{index}]") for index, item in enumerate(value)], value.origins)
        if not isinstance(value, str) or "${" not in value or isinstance(value, EnvironmentText):
            return value
        text = _REFERENCE.sub(lambda match: self._resolved(match, path), value)
        return text if text == value.replace("$${", "${") else EnvironmentText(text, value)

    def _resolved(self, match: re.Match[str], path: str) -> str:
        name, default = match.groups()
        if match[0] == "$${":
            return "${"
        if name is None:
            self.problems.append((path, "expected ${NAME} or ${NAME:-default}; write $${ for a plain ${"))
            return match[0]
        value = self._environment.get(name)
        if default is not None and not value:
            return str(default)
        if value is None:
            hint = f"set it, or give a default: ${{{name}:-...}}"
            self.problems.append((path, f"the environment variable {name} is not set; {hint}"))
            return match[0]
        self.secrets.add(value)
        return value

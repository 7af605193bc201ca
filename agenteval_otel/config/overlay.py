"""What is laid over a settings file: a profile, variables of the environment, and the values of ``${VARIABLE}``.

Mappings merge key by key; lists and everything else are replaced. Values from the environment stay text, marked as
such (`Told`), and become what their field wants when the settings are made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from agenteval_otel.components import near
from agenteval_otel.config.export import ExportSettings
from agenteval_otel.config.settings import AgentSettings, Settings
from agenteval_otel.config.tree import Items, Section, Told
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.masking import MASK, is_secret, mask_text
from agenteval_otel.objectives import BreachSettings
from agenteval_otel.pipeline.load_shedding import LoadSheddingSettings
from agenteval_otel.sampling import Escalation
from agenteval_otel.sampling.settings import SamplingSettings
from agenteval_otel.storage import OtlpStorageProvider

__all__ = [
    "EXCLUSIVE", "PREFIX", "PROFILE", "SETTINGS", "Substitution", "Variable", "overlay", "read_variables", "substitute",
]  # fmt: skip

EXCLUSIVE = {"sample_rate": "sampler", "sampler": "sample_rate"}
"""Who says the one takes the other back."""
PREFIX = "AGENTEVAL_"
SETTINGS, PROFILE = "AGENTEVAL_SETTINGS", "AGENTEVAL_PROFILE"
_REFERENCE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{")


def overlay(base: Section, over: Section) -> Section:
    """The base with `over` laid over it.

    Mappings merge, but one that names another ``type`` replaces the whole; a `sample_rate` takes the place of a
    `sampler` below it, and the other way round.
    """
    if "type" in over and over["type"] != base.get("type"):
        return over
    gone = {EXCLUSIVE[key] for key in over if key in EXCLUSIVE and EXCLUSIVE[key] not in over}
    merged = Section()
    for key, value in base.items():
        if key not in gone:
            merged.put(key, value, base.origins[key])
    for key, value in over.items():
        below = base.get(key)
        if isinstance(below, Section) and isinstance(value, Section):
            value = overlay(below, value)
        merged.put(key, value, over.origins[key])
    return merged


class Variable(NamedTuple):
    """A variable of the environment that overrides a setting; `shown` is its value without secrets."""

    name: str
    path: str
    shown: str


_SECTIONS: dict[str, type[BaseModel]] = {
    "telemetry": OtlpStorageProvider, "load_shedding": LoadSheddingSettings, "escalation": Escalation,
    "breach": BreachSettings, "sampling": SamplingSettings, "export": ExportSettings,
}  # fmt: skip


class _Found(NamedTuple):
    section: Section
    variables: tuple[Variable, ...]
    warnings: tuple[str, ...]


def read_variables(environment: Mapping[str, str], base: Section) -> _Found:
    """The overrides: ``AGENTEVAL_SAMPLE_RATE``, ``AGENTEVAL_TELEMETRY__ENDPOINT``; empty ones say nothing.

    A value that begins with ``[`` or ``{`` is read as YAML. A variable that names no setting is a warning: another
    program may own it.

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
            warnings.append(f"{name} names no setting{near(name, [*known, SETTINGS, PROFILE])}")
            continue
        path = _put(section, base, keys, _value_of(text, name, keys), name)
        shown = MASK if any(is_secret(key) for key in keys) else mask_text(text)
        variables.append(Variable(name, path, shown))
    return _Found(section, tuple(variables), tuple(warnings))


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
        return Told(text, MASK if secret else mask_text(text))
    from agenteval_otel.config.bounded_yaml import load_yaml

    try:
        return _told(load_yaml(text, name), secret)
    except ConfigurationError as error:
        message = "a list or mapping" if secret else error.problems[0][1]
        raise ConfigurationError(f"expected YAML: {message}", path=name) from None


def _told(value: Any, secret: bool) -> Any:
    if isinstance(value, Section):
        section = Section()
        for key, item in value.items():
            section.put(key, _told(item, secret or is_secret(key)), value.origins[key].partition(":")[0])
        return section
    if isinstance(value, Items):
        origins = [origin.partition(":")[0] for origin in value.origins]
        return Items([_told(item, secret) for item in value], origins)
    return Told(value, MASK if secret else mask_text(value)) if isinstance(value, str) else value


def _put(section: Section, base: Any, keys: list[str], value: Any, name: str) -> str:
    """Set the value at the keys; names of the file, such as an agent's, are found again in any spelling."""
    path = []
    for position, word in enumerate(keys):
        known = base if isinstance(base, Section) else Section()
        key = next((one for one in known if re.sub(r"\W", "_", one).lower() == word), word)
        path.append(key)
        if position == len(keys) - 1:
            section.put(key, value, name)
            break
        if not isinstance(section.get(key), Section):
            section.put(key, Section(), name)
        section, base = section[key], known.get(key)
    return ".".join(path)


class Substitution(NamedTuple):
    """A tree with its references resolved, what was wrong, and the values that no message may show."""

    tree: Section
    problems: list[tuple[str | None, str]]
    secrets: frozenset[str]


def substitute(tree: Section, environment: Mapping[str, str]) -> Substitution:
    """Resolve ``${NAME}`` and ``${NAME:-default}`` in every text; ``$${`` is a plain ``${``.

    Every other ``$`` stays as it is: patterns end in it.
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
            items = [self.value(item, f"{path}[{index}]") for index, item in enumerate(value)]
            return Items(items, value.origins)
        if isinstance(value, str) and "${" in value and not isinstance(value, Told):
            return self._text(value, path)
        return value

    def _text(self, text: str, path: str) -> str:
        found = _REFERENCE.sub(lambda match: self._resolved(match, path), text)
        return found if found == text.replace("$${", "${") else Told(found, text)

    def _resolved(self, match: re.Match[str], path: str) -> str:
        name, default = match.groups()
        if match[0] == "$${":
            return "${"
        if name is None:
            self.problems.append((path, "expected ${NAME} or ${NAME:-default}; write $${ for a plain ${"))
            return match[0]
        told = self._environment.get(name)
        if default is not None and not told:
            return str(default)
        if told is None:
            self.problems.append(
                (path, f"the environment variable {name} is not set; set it, or give a default: ${{{name}:-...}}")
            )
            return match[0]
        self.secrets.add(told)
        return told

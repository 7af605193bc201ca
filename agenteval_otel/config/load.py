"""From a file, a profile, the environment and arguments to `Settings`; one error lists every problem.

Precedence, lowest first: defaults, the file, its profile, variables ``AGENTEVAL_*``, arguments in code.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from agenteval_otel.compat.agentdock import ENTRIES, SETTINGS_OF, marked
from agenteval_otel.components.explained import known_choices
from agenteval_otel.config.environment import PREFIX, PROFILE, SETTINGS, Variable, read_variables, substitute
from agenteval_otel.config.settings import Settings, missing_sets
from agenteval_otel.config.tree import EXCLUSIVE, Tree, merge
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.runtime.masking import MASK, mask_known


class Problem(NamedTuple):
    """One problem in the settings.

    Attributes:
        origin: ``settings.yaml:12``, or a variable's name; None for arguments in code.
        path: The setting, such as ``agents.support.sample_rate``.
        message: The value, and what was expected.
    """

    origin: str | None
    path: str | None
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in self if part)


class SettingsError(ConfigurationError):
    """Wrong settings: every problem, with its origin."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.located = tuple(problems)
        lines = [str(problem) for problem in self.located]
        super().__init__(lines[0] if len(lines) == 1 else f"{len(lines)} problems:\n  " + "\n  ".join(lines))
        self.problems = tuple((problem.path or problem.origin, problem.message) for problem in self.located)
        self.path = self.problems[0][0]

    @classmethod
    def of(cls, problems: Sequence[tuple[str | None, str]]) -> ConfigurationError:
        """An error of other problems, without origins."""
        return ConfigurationError.of(problems)


class Loaded(NamedTuple):
    """Settings, and their sources.

    Attributes:
        settings: The settings.
        tree: The merged tree, values from variables included.
        file: The file's path; None without one.
        profile: The profile in force.
        profiles: The profiles of the file.
        variables: The overrides in force.
        warnings: Variables that name no setting, and a profile without a file.
        secrets: Values that no message may show.
    """

    settings: Settings
    tree: Tree
    file: str | None
    profile: str | None
    profiles: tuple[str, ...]
    variables: tuple[Variable, ...]
    warnings: tuple[str, ...]
    secrets: frozenset[str]


def load_settings(
    path: str | os.PathLike[str] | None = None,
    *,
    profile: str | None = None,
    fields: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Loaded:
    """Read and validate settings. Imports the plugins that they list; blocks for the file system.

    Args:
        path: The file; by default the one that ``AGENTEVAL_SETTINGS`` names, if any.
        profile: A profile of the file; by default the one that ``AGENTEVAL_PROFILE`` names, if any.
        fields: Fields of `Settings` from code; they override everything else.
        environment: The process's environment by default.

    Raises:
        SettingsError: With every problem.
    """
    environment = os.environ if environment is None else environment
    fields = fields or {}
    source = path if path is not None else environment.get(SETTINGS, "").strip() or None
    chosen = profile or environment.get(PROFILE, "").strip() or None
    warnings: list[str] = []
    if source is None and chosen is not None and profile is None:
        warnings = [f"{PROFILE} says {chosen!r}, but there is no settings file"]
        chosen = None
    tree = Tree({}, {}) if source is None else _read(source)
    if ENTRIES in tree.values:
        tree, ignored = _in_our_form(tree)
        warnings += [f"{name} of an AgentDock document goes into the results of `evaluate` only" for name in ignored]
    profiles = _profiles_of(tree)
    tree = _with_profile(tree, profiles, chosen)
    try:
        overrides, variables, unknown = read_variables(environment, tree)
    except ConfigurationError as error:
        raise located(error, tree) from None
    tree = merge(tree, overrides)
    overridden = {*fields, *(EXCLUSIVE.get(key, key) for key in fields)}
    tree = tree.with_values({key: value for key, value in tree.values.items() if key not in overridden})
    tree, problems, secrets = substitute(tree, environment)
    settings = _validated(tree, problems, fields, secrets)
    return Loaded(
        settings, tree, None if source is None else os.fspath(source), chosen, tuple(profiles), tuple(variables),
        (*unknown, *warnings), secrets,
    )  # fmt: skip


def profile_names(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """The names of a file's profiles, in its order.

    Raises:
        SettingsError: The file or its profiles cannot be read.
    """
    return tuple(_profiles_of(_read(path)))


def _read(source: str | os.PathLike[str]) -> Tree:
    from agenteval_otel.config.files import read_file  # loads PyYAML

    try:
        return read_file(source)
    except ConfigurationError as error:
        raise SettingsError(Problem(origin, None, message) for origin, message in error.problems) from None


def _in_our_form(document: Tree) -> tuple[Tree, list[str]]:
    """An AgentDock run configuration as a settings tree, and the fields that settings have no use for."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    ignored = []
    for name, value in document.values.items():
        ours = SETTINGS_OF.get(name, name)
        if ours is None:
            ignored.append(name)
        elif value is not None:
            is_list = isinstance(value, list)
            path = "criteria.default" if ours == "criteria" and is_list else ours
            origins |= document.origins_below(name, path)
            if path != ours:
                value = {"default": value}
            elif ours == "evaluators" and is_list:
                value = [marked(entry) for entry in value]
            values[ours] = value
    return Tree(values, origins), ignored


def _profiles_of(tree: Tree) -> dict[str, Any]:
    profiles = tree.values.get("profiles")
    if profiles is None:
        return {}
    if not isinstance(profiles, dict):
        message = f"expected a mapping of profiles by name, found {type(profiles).__name__}"
        raise located(ConfigurationError(message, path="profiles"), tree)
    wrong = [
        (f"profiles.{name}", "expected a mapping of settings")
        for name, profile in profiles.items() if not isinstance(profile, dict)
    ]  # fmt: skip
    if wrong:
        raise located(ConfigurationError.of(wrong), tree)
    return profiles


def _with_profile(tree: Tree, profiles: Mapping[str, Any], chosen: str | None) -> Tree:
    """The tree with the profile on top, without what is not a setting: profiles, and a schema for editors."""
    base = tree._replace(values={key: tree.values[key] for key in tree.values if key not in ("profiles", "$schema")})
    if chosen is None:
        return base
    path = f"profiles.{chosen}"
    if chosen not in profiles:
        message = f"no profile {chosen!r}{known_choices(chosen, sorted(profiles))}"
        raise located(ConfigurationError(message, path="profiles"), tree)
    if "profiles" in profiles[chosen]:
        raise located(ConfigurationError("a profile holds no profiles", path=f"{path}.profiles"), tree)
    return merge(base, Tree(profiles[chosen], tree.origins_below(path, "")))


def _validated(
    tree: Tree, problems: list[tuple[str | None, str]], fields: Mapping[str, Any], secrets: frozenset[str]
) -> Settings:
    known = sorted([*Settings.model_fields, "profiles"])  # `Settings` does not know profiles
    unknown = [key for key in tree.values if key not in known]
    problems = [*problems, *((key, f"unknown field{known_choices(key, known)}") for key in unknown)]
    paths = {path for path, _ in problems}
    known_fields = {key: value for key, value in tree.values.items() if key not in unknown}
    try:
        settings = Settings(**{**known_fields, **fields})
    except ConfigurationError as error:
        # An unresolved reference does not fit its field either: one problem for each path.
        further = dict.fromkeys([*error.problems, *_missing_sets(tree)])
        problems = [*problems, *(problem for problem in further if problem[0] not in paths)]
    if problems:
        raise located(ConfigurationError.of(problems), tree, secrets=secrets)
    return settings


def _missing_sets(tree: Tree) -> list[tuple[str | None, str]]:
    """`Settings` checks these only when the rest is valid; the error should list everything."""
    criteria, agents = tree.values.get("criteria", {}), tree.values.get("agents", {})
    if not isinstance(criteria, dict) or not isinstance(agents, dict):
        return []
    chosen = {name: agent.get("criteria") for name, agent in agents.items() if isinstance(agent, dict)}
    return missing_sets(chosen, criteria)


def located(error: ConfigurationError, tree: Tree, *, secrets: Iterable[str] = ()) -> SettingsError:
    """The error with the origin of each problem, and without the secrets."""
    problems = []
    for path, message in error.problems:
        origin = tree.origin_of(path)
        if origin is not None and origin.startswith(PREFIX):
            origin = f"variable {origin}"
        problems.append(Problem(origin, path and hide(path, secrets), hide(message, secrets)))
    return SettingsError(sorted(problems, key=_line_of))


def _line_of(problem: Problem) -> int:
    line = (problem.origin or "").rpartition(":")[2]
    return int(line) if line.isdecimal() else 0


def hide(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets; short ones are masked only as whole words."""
    secrets = [secret for secret in secrets if secret.strip()]
    for secret in secrets:
        if len(secret) < 4:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", MASK, text)
        text = _without_beginnings(text, secret)
    return mask_known(text, secrets)


def _without_beginnings(text: str, secret: str) -> str:
    """Messages shorten long values: the beginning of a secret is masked as well."""
    at = text.find(secret[:_BEGINNING]) if len(secret) > _BEGINNING else -1
    while at >= 0:
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text[at:], secret, strict=False)))
        text = text[:at] + MASK + text[at + same :]
        at = text.find(secret[:_BEGINNING], at)
    return text


_BEGINNING = 12

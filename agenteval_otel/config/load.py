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
from agenteval_otel.config.parts import missing_sets
from agenteval_otel.config.settings import Settings
from agenteval_otel.config.tree import EXCLUSIVE, Items, Section, merge, origin_of, plain
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
    tree: Section
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
    source = path if path is not None else environment.get(SETTINGS, "").strip() or None
    chosen = profile or environment.get(PROFILE, "").strip() or None
    warnings: tuple[str, ...] = ()
    if source is None and chosen is not None and profile is None:
        chosen, warnings = None, (f"{PROFILE} says {chosen!r}, but there is no settings file",)
    tree = Section() if source is None else _read(source)
    tree.take("$schema")  # for editors
    if ENTRIES in tree:
        tree, ignored = _in_our_form(tree)
        warnings += tuple(
            f"{name} of an AgentDock document goes into the results of `evaluate` only" for name in ignored
        )
    profiles = _profiles_of(tree)
    tree = _with_profile(tree, profiles, chosen, None if source is None else os.path.basename(source))
    try:
        overrides = read_variables(environment, tree)
    except ConfigurationError as error:
        raise located(error, tree) from None
    tree = merge(tree, overrides.section)
    for key in fields or {}:
        tree.take(key)
        tree.take(EXCLUSIVE.get(key, key))
    substitution = substitute(tree, environment)
    settings = _validated(substitution.tree, substitution.problems, fields or {}, substitution.secrets)
    return Loaded(
        settings, substitution.tree, None if source is None else os.fspath(source), chosen, tuple(profiles),
        overrides.variables, overrides.warnings + warnings, substitution.secrets,
    )  # fmt: skip


def profile_names(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """The names of a file's profiles, in its order.

    Raises:
        SettingsError: The file or its profiles cannot be read.
    """
    return tuple(_profiles_of(_read(path)))


def _read(source: str | os.PathLike[str]) -> Section:
    from agenteval_otel.config.files import read_file  # loads PyYAML

    try:
        return read_file(source)
    except ConfigurationError as error:
        raise SettingsError(Problem(origin, None, message) for origin, message in error.problems) from None


def _in_our_form(document: Section) -> tuple[Section, list[str]]:
    """An AgentDock run configuration as a settings tree, and the fields that settings have no use for."""
    tree, ignored = Section(), []
    for name, value in document.items():
        origin, ours = document.origins[name], SETTINGS_OF.get(name, name)
        if ours is None:
            ignored.append(name)
        elif ours == "criteria" and isinstance(value, list):
            tree.put(ours, Section(), origin)
            tree[ours].put("default", value, origin)
        elif ours == "evaluators" and isinstance(value, Items):
            tree.put(ours, Items([marked(entry) for entry in value], value.origins), origin)
        elif value is not None:
            tree.put(ours, value, origin)
    return tree, ignored


def _profiles_of(tree: Section) -> Section:
    origin = tree.origins.get("profiles")
    profiles = tree.take("profiles")
    if profiles is None:
        return Section()
    if not isinstance(profiles, Section):
        message = f"expected a mapping of profiles by name, found {type(plain(profiles)).__name__}"
        raise SettingsError([Problem(origin, "profiles", message)])
    wrong = [
        Problem(profiles.origins[name], f"profiles.{name}", "expected a mapping of settings")
        for name, profile in profiles.items() if not isinstance(profile, Section)
    ]  # fmt: skip
    if wrong:
        raise SettingsError(wrong)
    return profiles


def _with_profile(tree: Section, profiles: Section, chosen: str | None, file: str | None) -> Section:
    if chosen is None:
        return tree
    if chosen not in profiles:
        message = f"no profile {chosen!r}{known_choices(chosen, sorted(profiles))}"
        raise SettingsError([Problem(file, "profiles", message)])
    if "profiles" in profiles[chosen]:
        origin = profiles[chosen].origins["profiles"]
        raise SettingsError([Problem(origin, f"profiles.{chosen}.profiles", "a profile holds no profiles")])
    return merge(tree, profiles[chosen])


def _validated(
    tree: Section, problems: list[tuple[str | None, str]], fields: Mapping[str, Any], secrets: frozenset[str]
) -> Settings:
    problems = [*problems, *_unknown_fields(tree)]
    paths = {path for path, _ in problems}
    known_fields = {key: value for key, value in plain(tree).items() if key in Settings.model_fields}
    try:
        settings = Settings(**{**known_fields, **fields})
    except ConfigurationError as error:
        # An unresolved reference does not fit its field either: one problem for each path.
        further = dict.fromkeys([*error.problems, *_missing_sets(tree)])
        problems = [*problems, *(problem for problem in further if problem[0] not in paths)]
    if problems:
        raise located(ConfigurationError.of(problems), tree, secrets=secrets)
    return settings


def _unknown_fields(tree: Section) -> list[tuple[str | None, str]]:
    """`Settings` would report these too, but does not know profiles."""
    fields = sorted([*Settings.model_fields, "profiles"])
    return [
        (key, f"unknown field{known_choices(key, fields)}")
        for key in tree if key not in Settings.model_fields
    ]  # fmt: skip


def _missing_sets(tree: Section) -> list[tuple[str | None, str]]:
    """`Settings` checks these only when the rest is valid; the error should list everything."""
    criteria, agents = tree.get("criteria", Section()), tree.get("agents", Section())
    if not isinstance(criteria, Section) or not isinstance(agents, Section):
        return []
    return missing_sets(
        {name: agent.get("criteria") for name, agent in agents.items() if isinstance(agent, Section)}, criteria
    )


def located(error: ConfigurationError, tree: Section, *, secrets: Iterable[str] = ()) -> SettingsError:
    """The error with the origin of each problem, and without the secrets."""
    problems = [
        Problem(_origin(tree, path), path and hide(path, secrets), hide(message, secrets))
        for path, message in error.problems
    ]
    return SettingsError(sorted(problems, key=_line_of))


def _line_of(problem: Problem) -> int:
    line = (problem.origin or "").rpartition(":")[2]
    return int(line) if line.isdecimal() else 0


def _origin(tree: Section, path: str | None) -> str | None:
    origin = origin_of(tree, path)
    return f"variable {origin}" if origin is not None and origin.startswith(PREFIX) else origin


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

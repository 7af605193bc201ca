"""`Settings` from all their sources.

They are, in rising precedence: defaults, a file, its profile, variables ``AGENTEVAL_*`` and
arguments.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from agenteval_otel.components.explained import known_choices, suggestion
from agenteval_otel.config.settings import Problems, Settings
from agenteval_otel.config.tree import EXCLUSIVE, Tree, map_texts, merge, paths_of
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators.compat.agentdock import ENTRIES, SETTINGS_OF, check_one_form, marked
from agenteval_otel.runtime.masking import MASK, is_secret, mask_known, mask_text

_PREFIX = "AGENTEVAL_"
_SETTINGS = "AGENTEVAL_SETTINGS"
_PROFILE = "AGENTEVAL_PROFILE"
# of the Partnership Agent's settings, ``{"Evaluation": {"Enabled": true}}``
_SECTION = "Evaluation"
_SECTION_FIELDS = frozenset({"Enabled", "LogToConsole"})
_REFERENCE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{")
_BEGINNING = 12  # characters: a beginning of a secret that is as long is masked
_WHOLE_WORD = 8  # characters: a shorter secret is masked as a whole word only


class Problem(NamedTuple):
    """Describes one problem in the settings.

    `origin` is ``settings.yaml:12``, a variable, or None for arguments in code.
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
        if len(lines) > 1:
            lines.insert(0, f"{len(lines)} problems:")
        super().__init__("\n  ".join(lines))
        self.problems = tuple(
            (problem.path or problem.origin, problem.message) for problem in self.located
        )
        self.path = self.problems[0][0]


class Variable(NamedTuple):
    """Describes a variable of the environment that overrides a setting.

    `shown` is its value without secrets.
    """

    name: str
    path: str
    shown: str


class Loaded(NamedTuple):
    """Settings, and their sources.

    The sources are the merged tree with the values of variables, the file and its profiles.
    """

    settings: Settings
    tree: Tree = Tree({}, {})
    file: str | None = None
    profile: str | None = None
    profiles: tuple[str, ...] = ()
    variables: tuple[Variable, ...] = ()
    warnings: tuple[str, ...] = ()
    secrets: frozenset[str] = frozenset()  # what no message may show


def load_settings(
    path: str | os.PathLike[str] | None = None,
    *,
    profile: str | None = None,
    fields: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Loaded:
    """Read and validate settings.

    The plugins that they list are imported. Blocks for the file system.

    File and profile are by default those that ``AGENTEVAL_SETTINGS`` and ``AGENTEVAL_PROFILE``
    name, if any. `fields` are fields of `Settings` from code. Raises `SettingsError` with every
    problem.
    """
    environment = os.environ if environment is None else environment
    fields = fields or {}
    source = path
    if source is None:
        source = environment.get(_SETTINGS, "").strip() or None
    chosen = profile or environment.get(_PROFILE, "").strip() or None
    warnings: list[str] = []
    if source is None and chosen is not None and profile is None:
        warnings = [f"{_PROFILE} says {chosen!r}, but there is no settings file"]
        chosen = None
    tree = Tree({}, {}) if source is None else _read(source, by_variable=path is None)
    if ENTRIES in tree.values:
        tree, ignored = _in_our_form(tree)
        warnings += [
            f"{name} of an AgentDock document goes into the results of `evaluate` only"
            for name in ignored
        ]
    section = tree.values.get(_SECTION)
    if isinstance(section, dict) and section.keys() <= _SECTION_FIELDS:
        tree = _without_section(tree, section)
    profiles = _profiles_of(tree)
    file_name = None if source is None else os.path.basename(source)
    tree = _with_profile(tree, profiles, chosen, file_name)
    try:
        from_environment = _read_variables(environment, tree)
    except ConfigurationError as error:
        raise located(error, tree) from None
    tree = merge(tree, from_environment.overrides)
    secrets = from_environment.secrets
    # A `sample_rate` from code also replaces a `sampler` of the file, and vice versa.
    overridden = {*fields, *(EXCLUSIVE.get(key, key) for key in fields)}
    tree = tree.with_values(
        {key: value for key, value in tree.values.items() if key not in overridden}
    )
    tree, problems = _substitute(tree, environment, secrets)
    settings = _validated(tree, problems, fields, secrets)
    return Loaded(
        settings,
        tree,
        file=None if source is None else os.fspath(source),
        profile=chosen,
        profiles=tuple(profiles),
        variables=tuple(from_environment.variables),
        warnings=(*from_environment.warnings, *warnings),
        secrets=frozenset(secrets),
    )


def profile_names(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the names of a file's profiles, in its order.

    Raises `SettingsError` if they cannot be read.
    """
    return tuple(_profiles_of(_read(path)))


def _read(source: str | os.PathLike[str], *, by_variable: bool = False) -> Tree:
    from agenteval_otel.config.files import read_file  # loads PyYAML

    try:
        return read_file(source)
    except ConfigurationError as error:
        hint = f" (the file that {_SETTINGS} names)" if by_variable else ""
        raise SettingsError(
            Problem(origin, None, message + hint) for origin, message in error.problems
        ) from None


def _in_our_form(document: Tree) -> tuple[Tree, list[str]]:
    """Return an AgentDock run configuration as a settings tree.

    Return with it the fields that settings ignore.
    """
    try:
        check_one_form(document.values)
    except ConfigurationError as error:
        raise located(error, document) from None
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
    return Tree(values, origins, document.root), ignored


def _without_section(document: Tree, section: Mapping[str, Any]) -> Tree:
    """Return the tree with the Partnership Agent's switch as ``enabled``.

    Its ``LogToConsole`` does nothing there either.
    """
    values = {name: value for name, value in document.values.items() if name != _SECTION}
    if "Enabled" not in section:
        return document._replace(values=values)
    origins = document.origins | document.origins_below(f"{_SECTION}.Enabled", "enabled")
    return Tree({"enabled": section["Enabled"], **values}, origins, document.root)


def _profiles_of(tree: Tree) -> dict[str, Any]:
    profiles = tree.values.get("profiles")
    if profiles is None:
        return {}
    mappings = {"profiles": profiles}
    if isinstance(profiles, dict):
        mappings |= {f"profiles.{name}": profile for name, profile in profiles.items()}
    problems: Problems = []
    for path, value in mappings.items():
        if not isinstance(value, dict):
            wrong = f"expected a mapping of settings, found {type(value).__name__}"
            problems.append((path, wrong))
    if problems:
        raise located(ConfigurationError.of(problems), tree)
    return dict(profiles)


def _with_profile(
    tree: Tree, profiles: Mapping[str, Any], chosen: str | None, file: str | None
) -> Tree:
    """Return the tree with the profile on top.

    What is not a setting is left out: profiles, and a schema for editors.
    """
    no_settings = ("profiles", "$schema")
    settings = {key: value for key, value in tree.values.items() if key not in no_settings}
    base = tree._replace(values=settings)
    if chosen is None:
        return base
    path = f"profiles.{chosen}"
    if chosen not in profiles:
        message = f"no profile {chosen!r}{known_choices(chosen, sorted(profiles))}"
        raise SettingsError([Problem(tree.origin_of("profiles") or file, "profiles", message)])
    if "profiles" in profiles[chosen]:
        raise located(
            ConfigurationError("a profile holds no profiles", path=f"{path}.profiles"), tree
        )
    return merge(base, Tree(profiles[chosen], tree.origins_below(path, "")))


class _Found(NamedTuple):
    """Holds what the variables of the environment say.

    Attributes:
        overrides: The tree to merge over the file's.
        variables: Those in force.
        secrets: Their secret values.
        warnings: Of unknown names.
    """

    overrides: Tree
    variables: list[Variable]
    secrets: set[str]
    warnings: list[str]


def _read_variables(environment: Mapping[str, str], base: Tree) -> _Found:
    """Return what the variables say, for the file's tree `base`.

    Variables are such as ``AGENTEVAL_SAMPLE_RATE`` or ``AGENTEVAL_TELEMETRY__ENDPOINT``. Empty ones
    are ignored. A value that begins with ``[`` or ``{`` is YAML. If it is not, `ConfigurationError`
    names the variable.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    secrets: set[str] = set()

    def note_secret(text: str, path: str) -> str:
        """Remember a text whose path names a secret. Return it unchanged."""
        if _has_secret(path):
            secrets.add(text)
        return text

    variables = []
    warnings = []
    for name in sorted(environment):
        text = environment[name].strip()
        if not name.startswith(_PREFIX) or name in (_SETTINGS, _PROFILE) or not text:
            continue
        keys = name[len(_PREFIX) :].lower().split("__")
        if keys == [_SECTION.lower(), "enabled"]:
            keys = ["enabled"]
        if keys[0] not in Settings.model_fields or not all(keys):  # another program may own it
            known = [_PREFIX + setting.upper() for setting in Settings.model_fields]
            warnings.append(
                f"{name} names no setting{suggestion(name, [*known, _SETTINGS, _PROFILE])}"
            )
            continue
        keys = _spelled(keys, base.values)
        path = ".".join(keys)
        section = values
        for depth, key in enumerate(keys[:-1], start=1):
            if not isinstance(section.get(key), dict):
                section[key] = {}
            section = section[key]
            origins[".".join(keys[:depth])] = name
        value = map_texts(_value_of(text, name, path), note_secret, path)
        section[keys[-1]] = value
        origins |= dict.fromkeys((path, *paths_of(value, path)), name)
        shown = MASK if _has_secret(path) else mask_text(text)
        variables.append(Variable(name, path, shown))
    return _Found(Tree(values, origins), variables, secrets, warnings)


def _spelled(keys: list[str], base: object) -> list[str]:
    """Return the keys as the file writes them.

    The file's names, such as an agent's, match in any spelling.
    """
    spelled = []
    for key in keys:
        known = base if isinstance(base, dict) else {}
        matches = (name for name in known if re.sub(r"\W", "_", name).lower() == key)
        spelling = next(matches, key)
        spelled.append(spelling)
        base = known.get(spelling)
    return spelled


def _value_of(text: str, name: str, path: str) -> Any:
    if text[0] not in "[{":
        return text
    from agenteval_otel.config.files import load_yaml

    try:
        return load_yaml(text, name)[0]
    except ConfigurationError as error:
        message = "a list or mapping" if _has_secret(path) else error.problems[0][1]
        raise ConfigurationError(f"expected YAML: {message}", path=name) from None


def _has_secret(path: str) -> bool:
    return is_secret(path) or any(is_secret(part) for part in re.split(r"\.|\[\d+\]", path))


def _substitute(
    tree: Tree, environment: Mapping[str, str], secrets: set[str]
) -> tuple[Tree, Problems]:
    """Resolve ``${NAME}`` and ``${NAME:-default}`` in every text. ``$${`` is a literal ``${``.

    Every other ``$`` stays: patterns end in it. The variables' values are added to the secrets.
    """
    problems: Problems = []

    def changed(text: str, path: str) -> str:
        if tree.origins.get(path, "") in environment:  # a variable's value is no template
            return text

        def resolved(match: re.Match[str]) -> str:
            name, default = match.groups()
            if match[0] == "$${":
                return "${"
            if name is None:
                problems.append(
                    (path, "expected ${NAME} or ${NAME:-default}. Write $${ for a plain ${")
                )
                return match[0]
            value = environment.get(name)
            if default is not None and not value:
                return str(default)
            if value is None:
                hint = f"Set it, or give a default: ${{{name}:-...}}"
                problems.append((path, f"the environment variable {name} is not set. {hint}"))
                return match[0]
            if value.strip():
                secrets.add(value)
            return value

        return _REFERENCE.sub(resolved, text)

    return tree._replace(values=map_texts(tree.values, changed)), problems


def _validated(
    tree: Tree, problems: Problems, fields: Mapping[str, Any], secrets: set[str]
) -> Settings:
    known = sorted([*Settings.model_fields, "profiles"])  # `Settings` does not know profiles
    unknown = [key for key in tree.values if key not in known]
    unknown_fields = [(key, f"unknown field{known_choices(key, known)}") for key in unknown]
    problems = [*problems, *unknown_fields]
    paths = {path for path, _ in problems}
    known_fields = {key: value for key, value in tree.values.items() if key not in unknown}
    try:
        settings = Settings(**{**known_fields, **fields})
    except ConfigurationError as error:
        # An unresolved reference does not fit its field either: one problem for each path.
        problems = [*problems, *(problem for problem in error.problems if problem[0] not in paths)]
    if problems:
        raise located(ConfigurationError.of(problems), tree, secrets=secrets)
    return settings  # bound: without problems nothing was raised


def located(error: ConfigurationError, tree: Tree, *, secrets: Iterable[str] = ()) -> SettingsError:
    """Return the error with the origin of each problem, and without the secrets."""
    problems = []
    for path, message in error.problems:
        origin = tree.origin_of(path)
        # a file's has its line
        if origin is not None and origin.startswith(_PREFIX) and ":" not in origin:
            origin = f"variable {origin}"
        elif origin is not None and path and tree.root:
            path = f"{tree.root}.{path}"
        problems.append(Problem(origin, path and hide(path, secrets), hide(message, secrets)))
    return SettingsError(sorted(problems, key=_line_of))


def _line_of(problem: Problem) -> int:
    line = (problem.origin or "").rpartition(":")[2]
    return int(line) if line.isdecimal() else 0


def hide(text: str, secrets: Iterable[str]) -> str:
    """Return the text without the secrets, and without the beginnings of long ones.

    Messages shorten long values.

    The secrets are looked for as they are and as `repr` shows them. Those below eight characters
    are looked for as whole words only.
    """
    forms: set[str] = set()
    for secret in secrets:
        if secret.strip():
            forms |= {secret, repr(secret)[1:-1]}
    for form in forms:
        if len(form) < _WHOLE_WORD:
            text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", MASK, text)
    long_forms = {form for form in forms if len(form) >= _WHOLE_WORD}
    for form in long_forms:
        if len(form) > _BEGINNING:
            text = _without_beginnings(text, form)
    return mask_known(text, long_forms)


def _without_beginnings(text: str, secret: str) -> str:
    """Return the text with every beginning of the secret masked, as far as the two are equal."""
    while (at := text.find(secret[:_BEGINNING])) >= 0:
        shown = os.path.commonprefix([text[at:], secret])  # noqa: RUF071 - of texts, by character
        text = text[:at] + MASK + text[at + len(shown) :]
    return text

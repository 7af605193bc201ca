"""Profiles, variables, references and arguments over a file; and no message shows a secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import Settings
from agenteval_otel.config import SettingsError, load_settings
from agenteval_otel.engine.pipeline import PoolDispatcher
from agenteval_otel.sampling import RateLimitSampler, RatioSampler
from agenteval_otel.storage import (
    ConsoleStorageProvider,
    JsonFileStorageProvider,
    OtlpStorageProvider,
)
from tests.config.support import load, written_settings, wrong

PROFILES = """
    sampler: {type: rate_limit, max_per_s: 3, ratio: 0.5}
    dispatcher: {type: pool, max_items: 7, concurrency: 2}
    evaluators: [ResponseHealth, {type: KeywordCoverage, criterion_name: kw, expected_keywords: [a]}]
    agents:
      support: {sample_rate: 0.5}
      sales: {enabled: false}
    profiles:
      merged: {sampler: {type: rate_limit, max_per_s: 4}, agents: {support: {enabled: false}}}
      replaced: {sampler: {type: ratio, ratio: 0.25}, dispatcher: {type: inline}, evaluators: [ResponseHealth]}
      rate: {sample_rate: 0.75, agents: {support: {sampler: {type: ratio, ratio: 0.1}}}}
      nothing: {}
    """


def test_a_profile_is_laid_over_the_file(tmp_path: Path) -> None:
    """Mappings merge by key; lists, and parts of another type, are replaced; a rate replaces a
    sampler.
    """
    base = load(tmp_path, PROFILES).settings
    assert base.sampler == RateLimitSampler(max_per_s=3, ratio=0.5)
    merged = load(tmp_path, PROFILES, profile="merged").settings
    assert merged.sampler == RateLimitSampler(max_per_s=4, ratio=0.5)
    assert (merged.agents["support"].sample_rate, merged.agents["support"].enabled) == (0.5, False)
    assert not merged.agents["sales"].enabled
    replaced = load(tmp_path, PROFILES, profile="replaced").settings
    assert replaced.sampler == RatioSampler(ratio=0.25)
    assert (replaced.dispatcher.type, len(replaced.evaluators)) == ("inline", 1)
    assert load(tmp_path, PROFILES, profile="nothing").settings == base
    rate = load(tmp_path, PROFILES, profile="rate").settings
    assert (rate.sample_rate, rate.sampler) == (0.75, None)
    assert (rate.agents["support"].sample_rate, rate.agents["support"].sampler) == (
        None,
        RatioSampler(ratio=0.1),
    )


def test_how_the_profile_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The argument, else the variable, else none; an unknown one is an error with the file and the
    known ones.
    """
    monkeypatch.setenv("AGENTEVAL_PROFILE", "rate")
    assert load(tmp_path, PROFILES).settings.sample_rate == 0.75
    document = load(tmp_path, PROFILES, profile="nothing")
    assert (document.settings.sample_rate, document.profile) == (None, "nothing")
    assert document.profiles == ("merged", "replaced", "rate", "nothing")
    for profile in ("rates", "xyz"):
        error = str(wrong(tmp_path, PROFILES, profile=profile))
        assert f"settings.yaml:8: profiles: no profile '{profile}'" in error
        assert ("did you mean 'rate'?" in error) is (profile == "rates")
        assert "Known: merged, nothing, rate, replaced" in error
    error = str(wrong(tmp_path, "agent_span: never"))
    assert error.startswith("settings.yaml: profiles: no profile 'rate'. Known: none")
    with pytest.raises(SettingsError, match="Known: none"):
        load_settings(profile="rate", environment={})
    # A fleet may set the variable for programs that have no file.
    without = load_settings(environment={"AGENTEVAL_PROFILE": "rate"})
    assert without.profile is None
    assert without.warnings == ("AGENTEVAL_PROFILE says 'rate', but there is no settings file",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("profiles: [a]", "settings.yaml:1: profiles: expected a mapping of settings, found list"),
        ("profiles:\n  a: 7", "settings.yaml:2: profiles.a: expected a mapping of settings"),
        (
            "profiles:\n  a: {profiles: {}}",
            "settings.yaml:2: profiles.a.profiles: a profile holds no profiles",
        ),
        (
            "profiles:\n  a: {sampel_rate: 1}",
            "settings.yaml:2: sampel_rate: unknown field (did you mean 'sample_",
        ),
        (
            "agents:\n  A: {sample_rate: 3}\n  a: {sample_rate: 1}\nprofiles: {a: {}}",
            "settings.yaml:2: agents.A.",
        ),
    ],
)
def test_wrong_profiles(text: str, message: str, tmp_path: Path) -> None:
    """Errors have their line, in a profile and below names that differ in a letter's case."""
    assert str(wrong(tmp_path, text, profile="a")).startswith(message)


VARIABLES: dict[str, tuple[str, Any]] = {
    "AGENTEVAL_ENABLED=off": ("enabled", False),
    "AGENTEVAL_ENABLED= NO ": ("enabled", False),
    "AGENTEVAL_ENABLED=1": ("enabled", True),
    "AGENTEVAL_SAMPLE_RATE=0.25": ("sample_rate", 0.25),
    "AGENTEVAL_AGENT_SPAN=always": ("agent_span", "always"),
    "AGENTEVAL_AGENT_SPAN=": ("agent_span", "never"),
    "AGENTEVAL_TELEMETRY__ENDPOINT=http://a:1": ("telemetry.endpoint", "http://a:1"),
    "AGENTEVAL_TELEMETRY__SIGNALS=[traces]": ("telemetry.signals", frozenset({"traces"})),
    "AGENTEVAL_TELEMETRY__HEADERS__TENANT=0123": ("telemetry.headers", {"tenant": "0123"}),
    "AGENTEVAL_TELEMETRY__HEADERS={x-tenant: '1'}": ("telemetry.headers", {"x-tenant": "1"}),
    "AGENTEVAL_DISPATCHER__MAX_ITEMS=9": ("dispatcher", PoolDispatcher(max_items=9)),
    "AGENTEVAL_SAMPLER={type: ratio, ratio: 0.5}": ("sampler", RatioSampler(ratio=0.5)),
    "AGENTEVAL_STORAGE=[{type: console}]": ("storage", (ConsoleStorageProvider(),)),
    "AGENTEVAL_AGENTS__SHOP_SUPPORT__SAMPLE_RATE=0.5": ("agents.Shop-Support.sample_rate", 0.5),
    "AGENTEVAL_AGENTS__OTHER__ENABLED=false": ("agents.other.enabled", False),
}


@pytest.mark.parametrize("variable", VARIABLES)
def test_variables_override_the_file(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each variable wins over the file, becomes what its field wants, and finds an agent however it
    is spelled.
    """
    name, _, value = variable.partition("=")
    monkeypatch.setenv(name, value)
    text = "agent_span: never\ndispatcher: {type: pool}\nagents: {Shop-Support: {criteria: []}}\n"
    document = load(tmp_path, text)
    path, expected = VARIABLES[variable]
    here: Any = document.settings
    for key in path.split("."):
        here = here[key] if isinstance(here, dict) else getattr(here, key)
    assert here == expected
    assert [item.name for item in document.variables] == ([name] if value else [])
    assert document.warnings == ()


def test_arguments_win_over_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Fields from code win over variables, these over the file; a rate from code displaces a
    sampler from the file.
    """
    monkeypatch.setenv("AGENTEVAL_SAMPLE_RATE", "0.5")
    assert load_settings(written_settings(tmp_path, "sample_rate: 0.1")).settings.sample_rate == 0.5
    assert load_settings(fields={"sample_rate": 0.9}).settings.sample_rate == 0.9
    document = load(tmp_path, "sampler: {type: rate_limit}\n", fields={"sampler": RatioSampler()})
    assert document.settings.sample_rate is None
    assert (
        load(
            tmp_path, "sampler: {type: rate_limit}\n", fields={"sample_rate": 1.0}
        ).settings.sampler
        is None
    )


@pytest.mark.parametrize("value", ["ect", "tab\there"])
def test_short_and_escaped_values_of_variables_are_hidden(tmp_path: Path, value: str) -> None:
    """Short ones as whole words only: other words with the same letters stay."""
    error = str(wrong(tmp_path, "sample_rate: '${SECRET}'", environment={"SECRET": value}))
    assert "expected a number, found '***'" in error


def test_a_file_may_be_named_like_a_variable(tmp_path: Path) -> None:
    """Its references are resolved, and its problems have their line."""
    name, environment = "AGENTEVAL_prod.yaml", {"RATE": "7"}
    assert str(
        wrong(tmp_path, "sample_rate: ${RATE}", name=name, environment=environment)
    ).startswith(f"{name}:1: ")
    assert (
        load(
            tmp_path, "sample_rate: ${RATE}", name=name, environment={"RATE": "1"}
        ).settings.sample_rate
        == 1.0
    )


def test_wrong_variables_name_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable, the setting and the value."""
    monkeypatch.setenv("AGENTEVAL_SAMPLE_RATE", "lots")
    monkeypatch.setenv("AGENTEVAL_ENABLED", "perhaps")
    error = str(wrong(tmp_path, "agent_span: never"))
    assert "variable AGENTEVAL_SAMPLE_RATE: sample_rate: expected a number" in error
    assert "found 'lots'" in error
    assert "variable AGENTEVAL_ENABLED: enabled: expected true or false" in error
    monkeypatch.setenv("AGENTEVAL_STORAGE", "[{type: console")
    assert str(wrong(tmp_path, "agent_span: never")).startswith(
        "AGENTEVAL_STORAGE: expected YAML: "
    )


def test_variables_that_name_no_setting(tmp_path: Path) -> None:
    """They are warnings with the name that was probably meant, or errors where only a part of the
    name is wrong.
    """
    names = {
        "AGENTEVAL_SAMPEL_RATE": "AGENTEVAL_SAMPLE_RATE",
        "AGENTEVAL_SETTING": "AGENTEVAL_SETTINGS",
        "AGENTEVAL_TELEMETRY____": "",
        "AGENTEVAL_": "",
    }
    result = load_settings(
        written_settings(tmp_path, "agent_span: never"), environment=dict.fromkeys(names, "1")
    )
    assert len(result.warnings) == len(names)
    for name, meant in names.items():
        (warning,) = [item for item in result.warnings if item.startswith(f"{name} ")]
        assert f"did you mean '{meant}'" in warning if meant else f"'{name}'" not in warning
    for name, path in {
        "AGENTEVAL_TELEMETRY__ENDPIONT": "telemetry.endpiont",
        "AGENTEVAL_STORAGE__0__PATH": "storage[0]",
        "AGENTEVAL_AGENTS__A__RATE": "agents.a.rate",
        "AGENTEVAL_AGENTS__ENABLED": "agents.enabled",
    }.items():
        (problem,) = wrong(tmp_path, "agent_span: never", environment={name: "1"}).located
        assert (problem.origin, problem.path) == (f"variable {name}", path)


def test_references_are_resolved(tmp_path: Path) -> None:
    """``${NAME}``, with a default, inside of text and for numbers and switches; every other dollar
    stays.
    """
    text = r"""
        enabled: ${ON}
        sample_rate: ${RATE:-0.5}
        agent_span: ${SPAN:-never}
        telemetry: {endpoint: "http://${HOST}:${PORT:-4317}", headers: {a: "${EMPTY}", b: "$${HOST}", c: "$5 $$ $"}}
        dispatcher: {type: "${KIND:-pool}", max_items: "${N}"}
        evaluators: [{type: RuleBased, rules: [{criterion: r, type: regex, pattern: '^\$$'}]}]
        """
    environment = {"ON": "no", "HOST": "collector", "EMPTY": "", "SPAN": "", "N": "12"}
    settings = load(tmp_path, text, environment=environment).settings
    assert (settings.enabled, settings.sample_rate, settings.agent_span) == (False, 0.5, "never")
    assert settings.telemetry.endpoint == "http://collector:4317"
    assert settings.telemetry.headers == {"a": "", "b": "${HOST}", "c": "$5 $$ $"}
    assert settings.dispatcher == PoolDispatcher(max_items=12)
    assert r"pattern='^\\$$'" in repr(settings.evaluators)


def test_missing_and_malformed_references(tmp_path: Path) -> None:
    """Each is reported with line, setting and name, beside every other problem; what is not in
    force needs none.
    """
    text = "agent_span: ${SPAN}\nsample_rate: ${RATE}\n"
    text += "telemetry:\n  endpoint: ${}\n  headers: {a: '${A B}'}\nstorage: [x]\n"
    error = wrong(tmp_path, text, environment={})
    shown = [str(problem) for problem in error.located]
    assert [line.partition(": ")[0] for line in shown] == [
        f"settings.yaml:{n}" for n in (1, 2, 4, 5, 6)
    ]
    assert (
        "agent_span: the environment variable SPAN is not set. Set it, or give a default: ${SPAN:-...}"
        in shown[0]
    )
    assert all("expected ${NAME} or ${NAME:-default}" in line for line in shown[2:4])
    text = "agent_span: ${A}\nprofiles: {b: {sample_rate: '${B}'}}\n"
    assert (
        load(tmp_path, text, environment={"AGENTEVAL_AGENT_SPAN": "never"}).settings.agent_span
        == "never"
    )


SECRET = "s3cr3t-pa55-w0rd"


@pytest.mark.parametrize(
    "text",
    [
        "agent_span: ${S}",
        "sample_rate: ${S}",
        "telemetry: {protocol: '${S}'}",
        "telemetry: {signals: ['${S}']}",
        "sampler: {type: '${S}'}",
        "evaluators: ['${S}']",
        "storage: [{type: otlp, detail: 'x${S}x'}]",
        "plugins: ['${S}']",
        "agents: {a: {criteria: '${S}'}}",
        "agents: {a: {criteria: [{name: '1${S}'}]}}",
        "evaluators: [{type: RuleBased, rules: [{criterion: r, type: regex, pattern: '${S}('}]}]",
        "evaluators: [{type: RuleBased, rules: [{criterion: r, type: regex, pattern: a, flags: ${S}}]}]",
        "evaluators: [{type: RuleBased, rules: [{criterion_name: '${S} x', config: {type: length}}]}]",
        "evaluators: {headers: ['${S}']}",
        "telemetry: ['${S}']",
        "telemetry: {headers: [{authorization: 'Bearer ${S}'}]}",
        "dispatcher: {type: pool, max_items: '${S}'}",
    ],
)
@pytest.mark.parametrize("value", [SECRET, SECRET * 20])
def test_no_error_shows_what_a_variable_held(text: str, value: str, tmp_path: Path) -> None:
    """Whatever is wrong with a value that came from a variable, the message shows the reference,
    never the value.
    """
    error: BaseException | None = wrong(tmp_path, text, environment={"S": value})
    while error is not None:
        assert value not in f"{error} {error!r}"
        assert SECRET not in str(error)
        error = error.__cause__


def test_no_dump_shows_what_a_variable_held(tmp_path: Path) -> None:
    """Neither the settings' repr nor their dump shows a secret of the telemetry."""
    text = (
        "telemetry: {endpoint: 'http://me:${S}@host:4317', headers: {authorization: 'Bearer ${S}'}}"
    )
    settings = load(tmp_path, text, environment={"S": SECRET}).settings
    assert settings.telemetry.headers == {"authorization": f"Bearer {SECRET}"}
    for shown in (
        repr(settings),
        str(settings),
        json.dumps(settings.telemetry.model_dump(mode="json")),
    ):
        assert SECRET not in shown


def test_telemetry_is_the_default_of_otlp_storage(tmp_path: Path) -> None:
    """The telemetry section is the default of every ``otlp`` entry, but not of instances."""
    text = """
        telemetry: {endpoint: "http://a:1", detail: none, headers: {x: y}}
        storage: [{type: otlp, detail: result}, {type: json_file, filePath: a.jsonl}, {type: otlp}]
        """
    first, second, third = load(tmp_path, text).settings.storage
    assert first == OtlpStorageProvider(endpoint="http://a:1", detail="result", headers={"x": "y"})
    assert second == JsonFileStorageProvider(path=Path("a.jsonl"))
    assert third == load(tmp_path, text).settings.telemetry
    plain = load(tmp_path, "telemetry: {detail: none}").settings
    assert (plain.storage, plain.telemetry) == ((), OtlpStorageProvider(detail="none"))
    own = OtlpStorageProvider()
    assert Settings(telemetry={"detail": "none"}, storage=own).storage == (own,)
    assert Settings(telemetry=OtlpStorageProvider(detail="none")).telemetry.detail == "none"

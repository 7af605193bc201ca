"""``agenteval-otel schema``: a valid schema that agrees with the loader on what is right and what
is wrong.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from agenteval_otel.config import SettingsError, load_settings
from agenteval_otel.config.schema import json_schema, writable_types
from agenteval_otel.engine.pipeline import Dispatcher
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.sampling import Sampler
from agenteval_otel.storage import EvaluationStorageProvider
from tests.cli.conftest import CommandLine
from tests.config.support import written_settings

RIGHT = [
    "{}",
    "enabled: true\nsample_rate: 0.5\nagent_span: never\nplugins: []",
    "enabled: ${ON:-true}\nsample_rate: ${RATE:-0.5}\nagent_span: ${SPAN:-never}",
    "sampler: {type: first_of, samplers: [{type: ratio, ratio: 0.1}, {type: rate_limit, max_per_s: 5}]}",
    "evaluators: [ResponseHealth, {type: ResponseHealth, sample_rate: 0.5},"
    " {type: KeywordCoverage, criterion_name: k, expected_keywords: [a]}]",
    "evaluators: [{type: RuleBased, rules: [{criterion: a, type: regex, pattern: b, flags: i}]}]",
    "telemetry: {endpoint: 'http://a:1', headers: {a: b}, signals: [traces], content: no_content, detail: auto}",
    "storage: [otlp, console]\nsampler: error\ndispatcher: pool\nredactors: [patterns]",
    "storage: {type: console}", "storage: [{type: otlp, protocol: grpc}, {type: json_file, path: a}]",
    "dispatcher: {type: pool, max_items: 5}",
    "criteria: {a: [{name: b, weight: 0, objective: 1}]}\nagents: {x: {criteria: a}, y: {criteria: [{name: c}]}}",
    "agents: {x: {evaluators: [ResponseHealth], sample_rate: 1, enabled: false}}",
    "profiles: {ci: {enabled: false, agents: {x: {sample_rate: 0}}}}",
    "notify: [{slack: 'http://a'}, {webhook: {url: 'http://a', about: [judge]}}, {type: slack, url: 'http://a'}]",
    "notify: {smtp: {host: a, sender: a@b, to: [a@b], port: '${PORT:-25}'}}", "notify: {slack: '${HOOK:-http://a}'}",
]  # fmt: skip
WRONG = [
    "sampel_rate: 1", "sample_rate: 2", "sample_rate: lots", "enabled: perhaps", "agent_span: x", "evaluators: [Nope]",
    "evaluators: [{type: ResponseHealth, nope: 1}]", "evaluators: [{type: KeywordCoverage}]",
    "evaluators: ResponseHealth",
    "evaluators: [KeywordCoverage]", "evaluators: [{type: RuleBased, rules: [{criterion: a, type: b}]}]",
    "sampler: {type: nope}", "sampler: {ratio: 1}", "sampler: {type: first_of, samplers: [{type: nope}]}",
    "storage: [{type: json_file}]", "storage: [otpl]", "telemetry: {protocol: smoke}", "telemetry: {endpiont: a}",
    "dispatcher: {type: pool, max_items: 0}", "criteria: {a: [{weight: 1}]}", "criteria: {a: [{name: b, treshold: 1}]}",
    "notify: [{slak: 'http://a'}]", "notify: [{slack: 'http://a', timeout_s: 1}]", "notify: [{smtp: a}]",
    "notify: [{slack: {}}]", "notify: [{slack: }]", "notify: [{}]", "notify: [slack]", "notify: ['http://a']",
    "notify: [{slack: {type: webhook, url: 'http://a'}}]", "notify: [{slack: {url: 'http://a'}, webhook: 'http://a'}]",
    "notify: [{url: 'http://a'}]", "agents: {x: {sampel_rate: 1}}", "agents: [x]", "profiles: {a: 7}", "plugins: a",
]  # fmt: skip


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json_schema()


@pytest.fixture(scope="module")
def validator(schema: dict[str, Any]) -> Any:
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("text", RIGHT)
def test_what_is_right_validates_and_loads(text: str, validator: Any, tmp_path: Path) -> None:
    """The schema takes what the loader takes."""
    load_settings(written_settings(tmp_path, text), environment={})
    assert [error.message for error in validator.iter_errors(yaml.safe_load(text))] == []


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_does_neither(text: str, validator: Any, tmp_path: Path) -> None:
    """The schema refuses what the loader refuses."""
    with pytest.raises(SettingsError):
        load_settings(written_settings(tmp_path, text), environment={})
    assert list(validator.iter_errors(yaml.safe_load(text)))


def test_a_wrong_profile_is_refused(validator: Any) -> None:
    """Profiles hold settings, checked like those of the file."""
    assert list(validator.iter_errors({"profiles": {"a": {"sampel_rate": 1}}}))
    assert list(validator.iter_errors({"profiles": {"a": {"profiles": {}}}}))


@pytest.mark.parametrize("contract", [Evaluator, Sampler, EvaluationStorageProvider, Dispatcher])
def test_every_writable_type_is_in_it(contract: Any, schema: dict[str, Any]) -> None:
    """Each registered type stands in the schema with its type, its fields in snake_case and their
    descriptions.
    """
    definitions = schema["$defs"]
    types = writable_types(contract)
    assert types
    for name in types:
        actual = definitions[f"{contract.contract}.{name}"]
        assert actual["properties"]["type"] == {"const": name}
        assert "type" in actual["required"]
        assert actual["additionalProperties"] is False
        assert all(field == field.lower() for field in actual["properties"])
    assert "Func" not in types, "a function cannot be written"
    assert "tracer_provider" not in str(definitions)


def test_the_command_prints_it_with_the_types_of_plugins(
    cli: CommandLine, schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """--settings imports the plugins of a file; the help tells how an editor finds the schema."""
    assert "yaml-language-server: $schema=" in " ".join(cli("schema --help").split())
    monkeypatch.syspath_prepend(str(cli.folder))
    cli.file(
        "schema_plugin.py",
        textwrap.dedent('''
        from agenteval_otel.evaluators import CriterionEvaluator

        class Made(CriterionEvaluator, type="SchemaPlugin"):
            """Made by a plugin.

            Attributes:
                depth: How deep it looks.
            """

            criterion_name: str = "made"
            depth: int = 3
        '''),
    )
    cli.settings("plugins: [schema_plugin]")
    printed = json.loads(cli("schema --settings settings.yaml"))
    made = printed["$defs"]["evaluator.SchemaPlugin"]
    assert made["properties"]["depth"]["description"] == "How deep it looks."
    assert printed["properties"] == schema["properties"]
    cli.settings("plugins: [schema_plugin_three]")
    cli("schema --settings settings.yaml", code=2)
    assert "cannot be imported" in cli.err

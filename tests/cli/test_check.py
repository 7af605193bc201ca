"""``agenteval-otel check``: its report on valid and on wrong files, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agenteval_otel.cli import main
from tests.config.support import written_settings

VALID = """\
    criteria:
      support: [{name: response_health, weight: 2, objective: 0.95}, {name: kwd, threshold: 1}]
    evaluators:
      - ResponseHealth
      - {type: KeywordCoverage, criterion_name: kw, expected_keywords: [a], threshold: 0.5, sample_rate: 0.5}
    sampler: {type: first_of, samplers: [{type: error}, {type: rate_limit, max_per_s: 3}, {type: ratio, ratio: 0.1}]}
    telemetry:
      endpoint: http://me:${PASSWORD}@collector:4317
      headers: {authorization: "Bearer ${TOKEN}"}
    storage: [{type: otlp, detail: result, signals: [metrics]}, {type: json_file, path: "${FOLDER}/a.jsonl"}]
    redactors: []
    agents:
      support: {criteria: support, sample_rate: 0.25}
      quiet: {enabled: false}
    profiles:
      production: {sample_rate: 0.05, telemetry: {content: span_only}}
      ci: {enabled: false}
    """
SECRETS = {"PASSWORD": "pw-secret-7", "TOKEN": "token-secret-7", "FOLDER": "/folder-secret-7"}


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AGENTEVAL_PROFILE", "AGENTEVAL_SETTINGS", "AGENTEVAL_ENABLED", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


def check(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["check", *map(str, arguments)])
    return code, *capsys.readouterr()


def test_the_report_on_a_valid_file_describes_what_will_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has agents, evaluators, criteria, sampling, storage, overrides and warnings, and no secret."""
    monkeypatch.setenv("AGENTEVAL_DISPATCHER__TYPE", "pool")
    monkeypatch.setenv("AGENTEVAL_DISPATCHER__MAX_ITEMS", "9")
    monkeypatch.setenv("AGENTEVAL_TELEMETRY__HEADERS__API_KEY", "key-secret-7")
    monkeypatch.setenv("AGENTEVAL_SAMPEL_RATE", "1")
    code, out, err = check(capsys, written_settings(tmp_path, VALID))
    assert (code, err) == (0, "")
    for line in (
        "settings.yaml is valid (no profile; also valid: production, ci).", "support: 25 % of the calls",
        "  ResponseHealth [inline]: response_health (binary, weight 2, objective 95 %)",
        "  KeywordCoverage [inline, 50 % of the sampled]: kw (numeric, passes from 0.5)", "quiet: off",
        "every other handler: first of: error; all calls, at most 3 a second; 10 % of the calls",
        "Telemetry goes to http://***@collector:4317; signals metrics; content no_content; detail result; "
        "headers api_key, authorization (values hidden)",
        "  json_file (path ***/a.jsonl)", "Redaction of what leaves the process: none",
        "Evaluations run in: pool (max_items 9)",
        "  AGENTEVAL_TELEMETRY__HEADERS__API_KEY=*** sets telemetry.headers.api_key",
        "  AGENTEVAL_DISPATCHER__MAX_ITEMS=9 sets dispatcher.max_items",
        "  AGENTEVAL_SAMPEL_RATE names no setting (did you mean 'AGENTEVAL_SAMPLE_RATE'?)",
        "  criterion 'kwd' is scored by no evaluator of agent 'support' in this file (did you mean 'kw'?)",
    ):  # fmt: skip
        assert line in out, out
    assert "secret-7" not in out


def test_one_profile_can_be_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The option and the variable choose it; a disabled one is reported as disabled."""
    file = written_settings(tmp_path, VALID)
    code, out, _ = check(capsys, file, "--profile", "production")
    assert code == 0
    assert "is valid (profile production)." in out, "the others were not checked"
    assert "every other handler: 5 % of the calls" in out
    assert "content span_only" in out
    monkeypatch.setenv("AGENTEVAL_PROFILE", "ci")
    code, out, _ = check(capsys, file)
    assert code == 0
    assert "Evaluation is disabled" in out
    assert "every other handler: off" in out


def test_every_problem_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Problems of the file and of each profile appear once, in the order of the lines; the exit code is 1."""
    text = VALID.replace("weight: 2", "weigth: 2").replace("${TOKEN}", "${TOKN}").replace("0.05", "lots")
    code, out, err = check(capsys, written_settings(tmp_path, text))
    assert (code, err) == (1, "")
    assert out.startswith("3 problems in ")
    problems = [line.strip() for line in out.splitlines()[2:]]
    assert [line.partition(": ")[0] for line in problems] == ["settings.yaml:2", "settings.yaml:9", "settings.yaml:16"]
    assert "did you mean 'weight'?" in problems[0]
    assert "TOKN is not set" in problems[1]
    assert problems[2].endswith("sample_rate: expected a number, found 'lots'")
    code, out, _ = check(capsys, written_settings(tmp_path, "a: [\n"))
    assert (code, out.splitlines()[0].split()[:2]) == (1, ["1", "problem"])


def test_the_report_is_available_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has the same contents, and no secret either."""
    code, out, _ = check(capsys, written_settings(tmp_path, VALID), "--format", "json")
    report = json.loads(out)
    assert (code, report["valid"], report["problems"], report["profiles"]) == (0, True, [], ["production", "ci"])
    assert report["agents"]["quiet"]["enabled"] is False
    assert report["agents"]["support"]["evaluators"][1]["execution"] == "inline"
    assert "secret-7" not in out
    code, out, _ = check(capsys, written_settings(tmp_path, "agent_span: x"), "--format", "json")
    report = json.loads(out)
    assert (code, report["valid"]) == (1, False)
    assert report["problems"][0]["origin"] == "settings.yaml:1"
    assert report["problems"][0]["path"] == "agent_span"


def test_a_missing_file_or_profile_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Standard error names it, with the known profiles."""
    code, out, err = check(capsys, tmp_path / "missing.yaml")
    assert (code, out) == (2, "")
    assert "missing.yaml: there is no such file" in err
    code, _, err = check(capsys, written_settings(tmp_path, VALID), "--profile", "prodction")
    assert code == 2
    assert "no profile 'prodction' (did you mean 'production'?); known: production, ci" in err
    with pytest.raises(SystemExit) as caught:
        main(["check"])
    assert caught.value.code == 2


def test_the_report_names_the_destination_of_telemetry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an endpoint in the file it is that of the standard variable, or none."""
    file = written_settings(tmp_path, "agent_span: never")
    assert "Telemetry goes to the application's OpenTelemetry provider; without one, nowhere" in check(capsys, file)[1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://variable:4317")
    assert "else to http://variable:4317 (OTEL_EXPORTER_OTLP_ENDPOINT)" in check(capsys, file)[1]
    assert "signals none" in check(capsys, written_settings(tmp_path, "telemetry: {signals: []}"))[1]
    stored = check(capsys, written_settings(tmp_path, "storage: [{type: json_file, path: a.jsonl}]"))[1]
    assert "Telemetry goes to the application's" in stored
    assert "Results are stored in:\n  json_file (path a.jsonl)" in stored


def test_a_missing_key_of_a_judge_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the variable and the setting. The file is valid: another environment may have the key."""
    monkeypatch.delenv("KEY_THAT_IS_MISSING", raising=False)
    monkeypatch.setenv("KEY_THAT_IS_THERE", "key-secret-7")
    code, out, err = check(capsys, written_settings(tmp_path, """\
        evaluators:
          - ResponseHealth
          - {type: LLMJudge, judge: {type: anthropic, model: m, api_key_env: KEY_THAT_IS_MISSING}}
        agents:
          support:
            evaluators:
              - {type: LLMJudge, judge: {type: anthropic, model: m, api_key_env: KEY_THAT_IS_THERE}}
              - {type: LLMJudge, criterion_name: b,
                 judge: {type: openai_compatible, model: m, base_url: "http://127.0.0.1:1/v1", api_key_env: "NO KEY"}}
        """))  # fmt: skip
    assert (code, err) == (0, "")
    warnings = out.partition("Warnings:")[2]
    missing = "the key is missing: the environment variable"
    assert f"  evaluators[1].judge: {missing} KEY_THAT_IS_MISSING is not set" in warnings
    assert f"  agents.support.evaluators[1].judge: {missing} NO KEY is not set" in warnings
    assert "KEY_THAT_IS_THERE" not in warnings
    assert "secret-7" not in out

"""``agenteval-otel check``: what it tells of right and of wrong files, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agenteval_otel.cli import main
from tests.config.support import said

RIGHT = """\
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
HELD = {"PASSWORD": "pw-held-7", "TOKEN": "token-held-7", "FOLDER": "/folder-held-7"}


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AGENTEVAL_PROFILE", "AGENTEVAL_SETTINGS", "AGENTEVAL_ENABLED", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in HELD.items():
        monkeypatch.setenv(name, value)


def check(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["check", *map(str, arguments)])
    return code, *capsys.readouterr()


def test_a_right_file_tells_what_will_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents with evaluators, lanes, criteria and sampling in words, storage, overrides and warnings; no secret."""
    monkeypatch.setenv("AGENTEVAL_DISPATCHER__TYPE", "pool")
    monkeypatch.setenv("AGENTEVAL_DISPATCHER__MAX_ITEMS", "9")
    monkeypatch.setenv("AGENTEVAL_TELEMETRY__HEADERS__API_KEY", "key-held-7")
    monkeypatch.setenv("AGENTEVAL_SAMPEL_RATE", "1")
    code, out, err = check(capsys, said(tmp_path, RIGHT))
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
    assert "held-7" not in out


def test_a_profile_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """--profile tells that profile, as does the variable; a switched-off one says so."""
    file = said(tmp_path, RIGHT)
    code, out, _ = check(capsys, file, "--profile", "production")
    assert code == 0
    assert "is valid (profile production)." in out, "the others were not checked, and are not praised"
    assert "every other handler: 5 % of the calls" in out
    assert "content span_only" in out
    monkeypatch.setenv("AGENTEVAL_PROFILE", "ci")
    code, out, _ = check(capsys, file)
    assert code == 0
    assert "Evaluation is disabled" in out
    assert "every other handler: off" in out


def test_a_wrong_file_tells_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every problem of the file and of each profile once, in the order of the lines; the exit code is 1."""
    text = RIGHT.replace("weight: 2", "weigth: 2").replace("${TOKEN}", "${TOKN}").replace("0.05", "lots")
    code, out, err = check(capsys, said(tmp_path, text))
    assert (code, err) == (1, "")
    assert out.startswith("3 problems in ")
    problems = [line.strip() for line in out.splitlines()[2:]]
    assert [line.partition(": ")[0] for line in problems] == ["settings.yaml:2", "settings.yaml:9", "settings.yaml:16"]
    assert "did you mean 'weight'?" in problems[0]
    assert "TOKN is not set" in problems[1]
    assert problems[2].endswith("sample_rate: expected a number, found 'lots'")
    code, out, _ = check(capsys, said(tmp_path, "a: [\n"))
    assert (code, out.splitlines()[0].split()[:2]) == (1, ["1", "problem"])


def test_machines_read_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--format json tells the same, without secrets either."""
    code, out, _ = check(capsys, said(tmp_path, RIGHT), "--format", "json")
    found = json.loads(out)
    assert (code, found["valid"], found["problems"], found["profiles"]) == (0, True, [], ["production", "ci"])
    assert found["agents"]["quiet"]["enabled"] is False
    assert found["agents"]["support"]["evaluators"][1]["execution"] == "inline"
    assert "held-7" not in out
    code, out, _ = check(capsys, said(tmp_path, "own_span: x"), "--format", "json")
    found = json.loads(out)
    assert (code, found["valid"]) == (1, False)
    assert found["problems"][0]["origin"] == "settings.yaml:1"
    assert found["problems"][0]["path"] == "own_span"


def test_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file or a profile that is not there is wrong use: 2, told on standard error."""
    code, out, err = check(capsys, tmp_path / "missing.yaml")
    assert (code, out) == (2, "")
    assert "missing.yaml: there is no such file" in err
    code, _, err = check(capsys, said(tmp_path, RIGHT), "--profile", "prodction")
    assert code == 2
    assert "no profile 'prodction' (did you mean 'production'?); known: production, ci" in err
    with pytest.raises(SystemExit) as caught:
        main(["check"])
    assert caught.value.code == 2


def test_where_telemetry_goes_without_an_endpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an endpoint in the file the standard variable is told, or that there is none."""
    file = said(tmp_path, "own_span: never")
    assert "Telemetry goes to the application's OpenTelemetry provider; without one, nowhere" in check(capsys, file)[1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://variable:4317")
    assert "else to http://variable:4317 (OTEL_EXPORTER_OTLP_ENDPOINT)" in check(capsys, file)[1]
    assert "signals none" in check(capsys, said(tmp_path, "telemetry: {signals: []}"))[1]
    stored = check(capsys, said(tmp_path, "storage: [{type: json_file, path: a.jsonl}]"))[1]
    assert "Telemetry goes to the application's" in stored
    assert "Results are stored in:\n  json_file (path a.jsonl)" in stored


def test_a_judge_without_its_key_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each variable that a judge's key should be in and is not, with its setting; the file is right all the same, since
    another environment may have the key."""
    monkeypatch.delenv("KEY_THAT_IS_MISSING", raising=False)
    monkeypatch.setenv("KEY_THAT_IS_THERE", "key-held-7")
    code, out, err = check(capsys, said(tmp_path, """\
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
    assert "held-7" not in out

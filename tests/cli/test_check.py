"""``agenteval-otel check``: its report on valid and on wrong files, and the exit code."""

from __future__ import annotations

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.test_explain import NOT_UNDERSTOOD_PAGE
from tests.notify.support import mail_server
from tests.storage.receiver import Answer, receiving

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
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


def test_the_report_on_a_valid_file_describes_what_will_run(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has agents, evaluators, criteria, sampling, storage, overrides and warnings, and no
    secret.
    """
    monkeypatch.setenv("AGENTEVAL_DISPATCHER__TYPE", "pool")
    monkeypatch.setenv("AGENTEVAL_DISPATCHER__MAX_ITEMS", "9")
    monkeypatch.setenv("AGENTEVAL_TELEMETRY__HEADERS__API_KEY", "key-secret-7")
    monkeypatch.setenv("AGENTEVAL_SAMPEL_RATE", "1")
    out = cli("check", cli.settings(VALID))
    for line in (
        "settings.yaml is valid (no profile, also valid: production, ci).",
        "support: 25 % of the calls",
        "  ResponseHealth [inline]: response_health (binary, weight 2, objective 95 %)",
        "  KeywordCoverage [inline, at most 50 % of all]: kw (numeric, passes from 0.5)",
        "quiet: off",
        "every other handler: first of: (1) error, (2) all calls, at most 3 a second, (3) 10 % of the calls",
        "Telemetry goes to http://***@collector:4317. Signals: metrics. Content: no_content. Detail: result. "
        "Headers: api_key, authorization (values hidden)",
        "  json_file (path ***/a.jsonl)",
        "Redaction of what leaves the process: none",
        "Evaluations run in: a background thread of each process, dispatcher: pool (max_items 9)",
        "  AGENTEVAL_TELEMETRY__HEADERS__API_KEY=*** sets telemetry.headers.api_key",
        "  AGENTEVAL_DISPATCHER__MAX_ITEMS=9 sets dispatcher.max_items",
        "  AGENTEVAL_SAMPEL_RATE names no setting (did you mean 'AGENTEVAL_SAMPLE_RATE'?)",
        "  criterion 'kwd' is scored by no evaluator of agent 'support' in this file (did you mean 'kw'?)",
    ):
        assert line in out, out
    assert "secret-7" not in out + cli.err


def test_the_report_has_the_product_of_the_dimensions(cli: CommandLine) -> None:
    """Values with ``_other``, times criteria, times series; above the limit, what happens then."""
    line = (
        "Metric dimensions: agenteval.tag.tenant ({} values). "
        "{} combinations with _other x 2 criteria x 10 series = "
    )
    agents = "agents: {a: {sample_rate: 0.5}}"
    out = cli("check", cli.settings(f"metric_dimensions: [tenant]\n{agents}"))
    assert line.format(16, 17) + "340\n" in out
    out = cli("check", cli.settings(f"metric_dimensions: {{tenant: 150}}\n{agents}"))
    assert line.format(150, 151) + "3,020. 2,000 are kept, the rest counts under _other\n" in out


def test_the_report_names_the_capabilities_of_the_settings(cli: CommandLine) -> None:
    """Those alone that the file names: the built-in ones are there always."""
    named = "capabilities: ['tests.engine.test_capability:Reader']\n"
    out = cli("check", cli.settings(f"evaluators: [ResponseHealth]\n{named}"))
    assert "Capabilities besides the built-in ones:\n  reader\n" in out
    assert "Capabilities" not in cli("check", cli.settings("evaluators: [ResponseHealth]\n"))


def test_the_report_says_what_of_a_running_process_was_understood(cli: CommandLine) -> None:
    """By the counts of its page: why answers were not, and how many were judged as JSON."""
    cli.file("page", NOT_UNDERSTOOD_PAGE)
    cli.settings("sample_rate: 0.5")
    out = cli("check settings.yaml --from page")
    for line in (
        "  13 of 1,003 were not understood (capture_failed)",
        "    10 foreign_object: objects of another library",
        "  90 of 990 evaluated ones were judged as their JSON",
    ):
        assert line in out, out


def test_one_profile_can_be_checked(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option and the variable choose it; a disabled one is reported as disabled."""
    file = cli.settings(VALID)
    out = cli("check", file, "--profile", "production")
    assert "is valid (profile production)." in out, "the others were not checked"
    assert "every other handler: 5 % of the calls" in out
    assert "Content: span_only" in out
    monkeypatch.setenv("AGENTEVAL_PROFILE", "ci")
    out = cli("check", file)
    assert "Evaluation is disabled" in out
    assert "every other handler: off" in out


def test_every_problem_is_reported(cli: CommandLine) -> None:
    """Problems of the file and of each profile appear once, in the order of the lines; the exit
    code is 1.
    """
    text = VALID
    for right, wrong in (("weight: 2", "weigth: 2"), ("${TOKEN}", "${TOKN}"), ("0.05", "lots")):
        text = text.replace(right, wrong)
    out = cli("check", cli.settings(text), code=1)
    assert out.startswith("3 problems in ")
    first, second, third = (line.strip() for line in out.splitlines()[2:])
    assert first.startswith("settings.yaml:2: ")
    assert "did you mean 'weight'?" in first
    assert second.startswith("settings.yaml:9: ")
    assert "TOKN is not set" in second
    assert third.startswith("settings.yaml:16: ")
    assert third.endswith("sample_rate: expected a number, found 'lots'")
    assert cli("check", cli.settings("a: [\n"), code=1).startswith("1 problem in ")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ("objective: 1.5", "evaluators[0].objective: expected at most 1, found 1.5"),
        ("objective: -0.1", "evaluators[0].objective: expected at least 0, found -0.1"),
        (
            "objective: 0.9, threshold: 5",
            "the threshold 5 lies outside of the scale 'numeric', 0 to 1",
        ),
        (
            "scale: likert5, threshold: 0.7",
            "the threshold 0.7 lies outside of the scale 'likert5', 1 to 5",
        ),
        ("criterion_name: Währung", "must be a slug: a letter a-z or A-Z, then"),
        ("criterion_name: score.x", "must not begin with 'score'"),
    ],
)
def test_what_cannot_be_passed_or_missed_is_refused(
    cli: CommandLine, fields: str, problem: str
) -> None:
    """An objective is a share, and a threshold lies on the scale: otherwise every answer fails, or
    none.
    """
    name = "" if "criterion_name" in fields else "criterion_name: c, "
    text = f"evaluators: [{{type: KeywordCoverage, expected_keywords: [a], {name}{fields}}}]"
    assert problem in cli("check", cli.settings(text), code=1)


def test_a_missing_file_or_profile_is_2(cli: CommandLine) -> None:
    """Standard error names it, with the known profiles."""
    assert cli("check missing.yaml", code=2) == ""
    assert "missing.yaml: there is no such file. `agenteval-otel init` writes one" in cli.err
    assert ".: is a folder. Expected a settings file" in cli("check .", code=1)
    cli("check", cli.settings(VALID), "--profile", "prodction", code=2)
    assert "no profile 'prodction' (did you mean 'production'?). Known: production, ci" in cli.err


def test_the_report_names_the_destination_of_telemetry(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an endpoint in the file it is that of the standard variable, or none."""
    file = cli.settings("agent_span: never")
    assert (
        "Telemetry goes to the application's OpenTelemetry provider, or nowhere without one"
        in cli("check", file)
    )
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://variable:4317")
    assert "else to http://variable:4317 (OTEL_EXPORTER_OTLP_ENDPOINT)" in cli("check", file)
    assert "Signals: none" in cli("check", cli.settings("telemetry: {signals: []}"))
    assert "  sqlite: agenteval.db" in cli("check", cli.settings("storage: sqlite"))
    stored = cli("check", cli.settings("storage: [{type: json_file, path: a.jsonl}]"))
    assert "Telemetry goes to the application's" in stored
    assert "Results are stored in:\n  json_file (path a.jsonl)" in stored


def test_a_missing_key_of_a_judge_is_a_warning(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the variable and the setting. The file is valid: another environment may have the
    key.
    """
    monkeypatch.setenv("KEY_THAT_IS_THERE", "key-secret-7")
    out = cli(
        "check",
        cli.settings("""\
        evaluators:
          - ResponseHealth
          - {type: LLMJudge, criterion_name: a, judge: {type: anthropic, model: m, api_key_env: KEY_THAT_IS_MISSING}}
        agents:
          support:
            evaluators:
              - {type: LLMJudge, criterion_name: c, judge: {type: anthropic, model: m, api_key_env: KEY_THAT_IS_THERE}}
              - {type: LLMJudge, criterion_name: b,
                 judge: {type: openai_compatible, model: m, base_url: "http://127.0.0.1:1/v1", api_key_env: "NO KEY"}}
        """),
    )
    warnings = out.partition("Warnings:")[2]
    missing = "the key is missing: the environment variable"
    assert f"  evaluators[1].judge: {missing} KEY_THAT_IS_MISSING is not set" in warnings
    assert f"  agents.support.evaluators[1].judge: {missing} NO KEY is not set" in warnings
    assert "KEY_THAT_IS_THERE" not in warnings
    assert "secret-7" not in out


@pytest.mark.parametrize(
    ("settings", "ratio", "warns"),
    [
        ("sample_rate: 0.05", "0.1", True),
        ("sample_rate: 0.05", "1.0", False),
        ("sample_rate: 0.05", "often", False),
        ("sampling: {trust: [trace_id]}", "0.1", False),
        ("sampling: {only_recorded: true}", "0.1", False),
    ],
)
def test_head_sampling_that_is_not_followed_is_a_warning(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, settings: str, ratio: str, warns: bool
) -> None:
    """Where the SDK's variables record a share of the traces, with the two ways out."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", ratio)
    out = cli("check", cli.settings(settings))
    assert ("OTEL_TRACES_SAMPLER records 10 % of the traces" in out) is warns
    assert ("sampling.only_recorded: true" in out) is warns


@pytest.mark.parametrize(
    ("settings", "warns"),
    [
        ("sample_rate: 0.001", False),
        ("{sample_rate: 0.0001, load_shedding: {enabled: false}}", False),
        ("{sample_rate: 0.00001, load_shedding: {enabled: false}}", False),
        ("sample_rate: 0.00001", True),
        ("{sample_rate: 0.001, sampling: {upstream_ratio: 0.001}}", True),
        ("sample_rate: 0", False),
    ],
)
def test_rates_that_multiply_to_next_to_nothing_are_a_warning(
    cli: CommandLine, settings: str, warns: bool
) -> None:
    """One result would stand for more than a million answers."""
    assert ("may stand for" in cli("check", cli.settings(settings))) is warns


@pytest.mark.parametrize(("key", "code"), [("sampling-7-long-enough", 0), ("sampling-7", 1)])
def test_the_key_of_sampling_is_never_shown(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, key: str, code: int
) -> None:
    """Not by a variable that sets it, and not where it is too short."""
    monkeypatch.setenv("AGENTEVAL_SAMPLING__KEY", key)
    out = cli("check", cli.settings("sample_rate: 0.5"), code=code)
    assert "sampling.key" in out
    assert key not in out
    monkeypatch.delenv("AGENTEVAL_SAMPLING__KEY")
    assert key not in cli("check", cli.settings(f"sampling: {{key: {key}}}"), code=code)


def test_without_a_file_it_checks_the_one_that_the_process_would_read(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AGENTEVAL_SETTINGS comes before this folder's agenteval.yaml, and the report names the file."""
    cli("check", code=2)
    assert "AGENTEVAL_SETTINGS names no settings file" in cli.err
    assert "`agenteval-otel init` writes one" in cli.err
    cli.file("agenteval.yaml", "sample_rate: 0.5\n")
    assert cli("check").startswith("agenteval.yaml is valid")
    monkeypatch.setenv("AGENTEVAL_SETTINGS", cli.file("other.yaml", "sample_rate: 7\n"))
    assert "other.yaml" in cli("check", code=1)
    monkeypatch.setenv("AGENTEVAL_SETTINGS", "missing.yaml")
    cli("check", code=2)
    assert "missing.yaml: there is no such file" in cli.err


def test_an_address_of_a_sidecar_that_evaluates_nothing_is_named(cli: CommandLine) -> None:
    """It may have been meant for the Collector."""
    endpoint = "endpoint: http://127.0.0.1:9000\n"
    warning = "endpoint is the sidecar's address, which is used with evaluate_in: sidecar alone"
    assert warning in cli("check", cli.settings(endpoint))
    assert warning not in cli("check", cli.settings(f"{endpoint}evaluate_in: sidecar\n"))


def test_a_file_that_nobody_named_runs_no_module_of_its_folder(cli: CommandLine) -> None:
    """It may be an outsider's. What is wrong is said, with the command that names the file."""
    cli.file("of_an_outsider.py", "open('was_run', 'w').close()\n")
    cli.file("agenteval.yaml", "plugins: [of_an_outsider]\n")
    out = cli("check", code=1)
    assert "'of_an_outsider' cannot be imported" in out
    assert "only imported for a file that you name: agenteval-otel check agenteval.yaml" in out
    assert not (cli.folder / "was_run").exists()
    assert "agenteval.yaml is valid" in cli("check", "agenteval.yaml")
    assert (cli.folder / "was_run").exists()


PLACES = """\
    notify:
      - {type: slack, url: "${SLACK}", pages_url: "http://localhost:8629"}
      - {type: webhook, url: "${HOOK}", secret: "${TOKEN}", about: [judge]}
      - {type: smtp, host: 127.0.0.1, port: "${PORT}", tls: none, sender: a@example.com, to: [b@example.com]}
    """


def test_a_test_message_goes_to_every_place(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line each says whether it was taken. If one was not, the exit code is 1."""
    with (
        receiving(Answer(body="ok")) as slack,
        receiving(Answer(500)) as hook,
        mail_server() as mail,
    ):
        monkeypatch.setenv("SLACK", f"{slack.url}/slack-secret-7")
        monkeypatch.setenv("HOOK", f"{hook.url}/hook-secret-7")
        monkeypatch.setenv("PORT", str(mail.port))
        file = cli.settings(PLACES)
        out = cli("check --send-test", file, code=1)
        for line in (
            "Messages go to:",
            "  webhook at 127.0.0.1: judge, no weekly summary",
            "  notify[0] slack at 127.0.0.1: taken",
            "  notify[1] NOT TAKEN: webhook at 127.0.0.1: answered with status 500",
            "  notify[2] smtp at 127.0.0.1: taken",
        ):
            assert line in out, out
        assert "secret-7" not in out + cli.err
        monkeypatch.setenv("HOOK", f"{slack.url}/hook-secret-7")
        assert "NOT TAKEN" not in cli("check --send-test", file)
        cli("check", file)
        assert [request.path for request in slack.requests] == [
            "/slack-secret-7",
            "/slack-secret-7",
            "/hook-secret-7",
        ]
    assert [sent["Subject"] for sent in mail.mails] == ["[agenteval] test message"] * 2


def test_a_file_that_is_not_named_sends_nothing(cli: CommandLine) -> None:
    """An outsider's may have an address that gets our variables."""
    with receiving(Answer(body="ok")) as receiver:
        cli.file("agenteval.yaml", f"notify: [{{type: slack, url: '{receiver.url}/${{HOME}}'}}]")
        cli("check --send-test", code=2)
        assert "expected FILE: name agenteval.yaml if its places are yours" in cli.err
        cli("check")
    assert receiver.requests == []


def test_a_test_message_needs_a_place(cli: CommandLine) -> None:
    """Without one it is a wrong use."""
    cli("check --send-test", cli.settings("sample_rate: 1"), code=2)
    assert "expected places for messages in `notify`" in cli.err

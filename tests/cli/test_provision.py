"""``agenteval-otel provision``: what it writes, compares, refuses and prints."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from agenteval_otel.cli import main
from agenteval_otel.provisioning.targets import ALL, TARGETS, options_of
from tests.config.support import said

SETTINGS = """\
    evaluators:
      - {type: ResponseHealth, objective: 0.95}
      - {type: KeywordCoverage, criterion_name: words, expected_keywords: [a], threshold: 0.5}
      - {type: KeywordCoverage, criterion_name: more, expected_keywords: [b], objective: 0.9}
      - {type: KeywordCoverage, criterion_name: all_words, expected_keywords: [a], threshold: 1}
      - {type: KeywordCoverage, criterion_name: unset, expected_keywords: [c]}
    criteria: {support: [{name: response_health, objective: 0.99}]}
    agents: {support: {criteria: support}, quiet: {enabled: false}}
    """


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AGENTEVAL_PROFILE", "AGENTEVAL_SETTINGS", "AGENTEVAL_ENABLED", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


def provision(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["provision", *map(str, arguments)])
    return code, *capsys.readouterr()


def test_files_alerts_and_the_next_command_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each criterion has its alert, or the reason why there is none."""
    file, folder = said(tmp_path, SETTINGS), tmp_path / "out"
    code, out, err = provision(capsys, "prometheus", "--settings", file, "--output", folder)
    assert (code, err) == (0, "")
    for line in (
        f"wrote {folder}/prometheus/rules/agenteval-alerts.yaml", "0 of 3 unchanged", "5 criteria, 1 agent named",
        "  response_health of support: alerts on its objective of 99 %",
        "  response_health of all but support: alerts on its objective of 95 %",
        "  more: no alert: it has an objective, but no threshold that decides what passes",
        "  words: alerts where its mean falls below its threshold",
        "  all_words: no alert: its mean cannot be compared with its threshold; give it an objective",
        "  unset: no alert: it has neither an objective nor a threshold",
        f"Next: promtool check rules {folder}/prometheus/rules/*.yaml && promtool test rules "
        f"{folder}/prometheus/tests/*.yaml",
    ):  # fmt: skip
        assert line in out.splitlines()
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == [
        "agenteval-alerts.test.yaml", "agenteval-alerts.yaml", "agenteval-recording.yaml",
    ]  # fmt: skip
    assert stat.S_IMODE((folder / "prometheus/rules/agenteval-alerts.yaml").stat().st_mode) == 0o644


def test_rules_with_scaled_time_have_no_tests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The next command only checks the rules."""
    file, folder = said(tmp_path, SETTINGS), tmp_path / "out"
    out = provision(capsys, "prometheus", "--settings", file, "--output", folder, "--time-scale", "0.01")[1]
    assert out.splitlines()[-1] == f"Next: promtool check rules {folder}/prometheus/rules/*.yaml"


def test_check_compares_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 1 while a file is missing or differs, and 0 once all are up to date."""
    file, folder = said(tmp_path, SETTINGS), tmp_path / "out"
    arguments = ("alertmanager", "--settings", file, "--output", folder)
    code, out, _ = provision(capsys, *arguments, "--check")
    assert (code, folder.exists()) == (1, False)
    assert f"{folder}/alertmanager/alertmanager.yml: is missing" in out
    provision(capsys, *arguments)
    assert provision(capsys, *arguments, "--check")[:2] == (0, "1 of 1 files are up to date\n")
    written = folder / "alertmanager/alertmanager.yml"
    written.write_text(written.read_text() + "# mine\n")
    code, out, _ = provision(capsys, *arguments, "--check")
    assert code == 1
    assert f"{written}: differs" in out


def test_an_obsolete_dashboard_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--check gives 1 until it is removed."""
    pytest.importorskip("grafana_foundation_sdk")
    folder = tmp_path / "out"
    provision(capsys, "grafana", "--settings", said(tmp_path, SETTINGS), "--output", folder)
    arguments = (
        "grafana",
        "--settings",
        said(tmp_path, SETTINGS.replace("name: unset", "name: other")),
        "--output",
        folder,
    )
    obsolete = f"{folder}/grafana/dashboards/criterion-unset.json: is obsolete: no setting needs it any more; remove it"
    code, out, _ = provision(capsys, *arguments)
    assert code == 0
    assert obsolete in out.splitlines()
    code, out, _ = provision(capsys, *arguments, "--check")
    assert code == 1
    assert obsolete in out.splitlines()
    (folder / "grafana/dashboards/criterion-unset.json").unlink()
    assert provision(capsys, *arguments, "--check")[0] == 0


def test_a_file_that_was_not_generated_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is written beside it either, except with --force."""
    file, own = said(tmp_path, SETTINGS), tmp_path / "out/prometheus/rules/agenteval-alerts.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("groups: []\n")
    arguments = ("prometheus", "--settings", file, "--output", tmp_path / "out")
    code, out, err = provision(capsys, *arguments)
    assert (code, out) == (2, "")
    assert f"{own}: was not generated; --force writes over it" in err
    assert [path.name for path in (tmp_path / "out").rglob("*.yaml")] == [own.name]
    assert provision(capsys, *arguments, "--force")[0] == 0
    assert own.read_text() != "groups: []\n"


def test_an_option_of_another_target_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would have no effect; the error names its target."""
    file = said(tmp_path, SETTINGS)
    code, _, err = provision(capsys, "grafana", "--settings", file, "--webhook", "http://127.0.0.1:1")
    assert code == 2
    assert "--webhook: is an option of alertmanager, not of grafana" in err


def test_without_a_settings_file_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defaults would overwrite the rules of a file. AGENTEVAL_SETTINGS names one too."""
    arguments = ("prometheus", "--output", tmp_path / "out")
    code, _, err = provision(capsys, *arguments)
    assert (code, (tmp_path / "out").exists()) == (2, False)
    assert "--settings: no settings file is named" in err
    monkeypatch.setenv("AGENTEVAL_SETTINGS", str(said(tmp_path, SETTINGS)))
    assert provision(capsys, *arguments)[0] == 0


@pytest.mark.parametrize("scale", ["0", "-1", "nan", "inf", "1001", "fast"])
def test_a_wrong_time_scale_is_refused(scale: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is a number above 0, at most 1000."""
    with pytest.raises(SystemExit, match="2"):
        main(["provision", "prometheus", "--time-scale", scale])
    assert "must be a number above 0, at most 1000" in capsys.readouterr().err


def test_an_unwritable_folder_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error has the path and the reason."""
    file, folder = said(tmp_path, SETTINGS), tmp_path / "out"
    folder.write_text("")
    code, _, err = provision(capsys, "alertmanager", "--settings", file, "--output", folder)
    assert code == 2
    assert f"{folder}/alertmanager/alertmanager.yml: cannot be written" in err


def test_wrong_settings_are_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the setting, and nothing is written."""
    file = said(tmp_path, "evaluators: [{type: ResponseHealth, objective: 2}]")
    code, _, err = provision(capsys, "all", "--settings", file, "--output", tmp_path / "out")
    assert code == 2
    assert "evaluators[0].objective" in err
    assert not (tmp_path / "out").exists()


def test_all_is_every_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The files of `all` are those of each target by itself, and its options are all options."""
    file = said(tmp_path, SETTINGS)
    assert provision(capsys, ALL, "--settings", file, "--output", tmp_path / "all")[0] == 0
    for target in TARGETS:
        assert provision(capsys, target, "--settings", file, "--output", tmp_path / "single")[0] == 0
    texts = [
        {path.relative_to(folder): path.read_text() for path in folder.rglob("*") if path.is_file()}
        for folder in (tmp_path / "all", tmp_path / "single")
    ]
    assert texts[0] == texts[1]
    assert set(options_of(ALL)) == {name for target in TARGETS for name in options_of(target)}

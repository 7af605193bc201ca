"""``agenteval-otel provision``: what it writes, compares, refuses and tells."""

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
      - {type: KeywordCoverage, criterion_name: told, expected_keywords: [c]}
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


def test_it_writes_tells_what_is_alerted_and_what_comes_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each file is named, each criterion with its alert or with why there is none, and the next command is given."""
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
        "  told: no alert: it has neither an objective nor a threshold",
        f"Next: promtool check rules {folder}/prometheus/rules/*.yaml && promtool test rules "
        f"{folder}/prometheus/tests/*.yaml",
    ):  # fmt: skip
        assert line in out.splitlines()
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == [
        "agenteval-alerts.test.yaml", "agenteval-alerts.yaml", "agenteval-recording.yaml",
    ]  # fmt: skip
    assert stat.S_IMODE((folder / "prometheus/rules/agenteval-alerts.yaml").stat().st_mode) == 0o644


def test_with_scaled_time_no_tests_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """None are written, so the next command only checks the rules."""
    file, folder = said(tmp_path, SETTINGS), tmp_path / "out"
    out = provision(capsys, "prometheus", "--settings", file, "--output", folder, "--time-scale", "0.01")[1]
    assert out.splitlines()[-1] == f"Next: promtool check rules {folder}/prometheus/rules/*.yaml"


def test_check_compares_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1 while files are missing or differ, each named; 0 once they are as the settings say."""
    file, folder = said(tmp_path, SETTINGS), tmp_path / "out"
    asked = ("alertmanager", "--settings", file, "--output", folder)
    code, out, _ = provision(capsys, *asked, "--check")
    assert (code, folder.exists()) == (1, False)
    assert f"{folder}/alertmanager/alertmanager.yml: is missing" in out
    provision(capsys, *asked)
    assert provision(capsys, *asked, "--check")[:2] == (0, "1 of 1 files are up to date\n")
    written = folder / "alertmanager/alertmanager.yml"
    written.write_text(written.read_text() + "# mine\n")
    code, out, _ = provision(capsys, *asked, "--check")
    assert code == 1
    assert f"{written}: differs" in out


def test_a_dashboard_of_a_criterion_that_is_gone_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """When writing and with --check, which gives 1 until it is removed."""
    pytest.importorskip("grafana_foundation_sdk")
    folder = tmp_path / "out"
    provision(capsys, "grafana", "--settings", said(tmp_path, SETTINGS), "--output", folder)
    asked = ("grafana", "--settings", said(tmp_path, SETTINGS.replace("name: told", "name: other")), "--output", folder)
    told = f"{folder}/grafana/dashboards/criterion-told.json: is obsolete: no setting needs it any more; remove it"
    code, out, _ = provision(capsys, *asked)
    assert code == 0
    assert told in out.splitlines()
    code, out, _ = provision(capsys, *asked, "--check")
    assert code == 1
    assert told in out.splitlines()
    (folder / "grafana/dashboards/criterion-told.json").unlink()
    assert provision(capsys, *asked, "--check")[0] == 0


def test_what_was_not_generated_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody's own file stays, and with it everything else is left alone, until --force says otherwise."""
    file, own = said(tmp_path, SETTINGS), tmp_path / "out/prometheus/rules/agenteval-alerts.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("groups: []\n")
    asked = ("prometheus", "--settings", file, "--output", tmp_path / "out")
    code, out, err = provision(capsys, *asked)
    assert (code, out) == (2, "")
    assert f"{own}: was not generated; --force writes over it" in err
    assert [path.name for path in (tmp_path / "out").rglob("*.yaml")] == [own.name]
    assert provision(capsys, *asked, "--force")[0] == 0
    assert own.read_text() != "groups: []\n"


def test_an_option_of_another_target_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would have no effect, so it says whose it is."""
    file = said(tmp_path, SETTINGS)
    code, _, err = provision(capsys, "grafana", "--settings", file, "--webhook", "http://127.0.0.1:1")
    assert code == 2
    assert "--webhook: is an option of alertmanager, not of grafana" in err


def test_without_a_settings_file_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forgotten option does not write the defaults over the rules of a file; the variable names one as well."""
    asked = ("prometheus", "--output", tmp_path / "out")
    code, _, err = provision(capsys, *asked)
    assert (code, (tmp_path / "out").exists()) == (2, False)
    assert "--settings: no settings file is named" in err
    monkeypatch.setenv("AGENTEVAL_SETTINGS", str(said(tmp_path, SETTINGS)))
    assert provision(capsys, *asked)[0] == 0


@pytest.mark.parametrize("scale", ["0", "-1", "nan", "inf", "1001", "fast"])
def test_a_time_scale_that_is_none_is_refused(scale: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Only numbers above 0, at most 1000."""
    with pytest.raises(SystemExit, match="2"):
        main(["provision", "prometheus", "--time-scale", scale])
    assert "must be a number above 0, at most 1000" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file stands where the folder should be: 2, with the path and the reason."""
    file, folder = said(tmp_path, SETTINGS), tmp_path / "out"
    folder.write_text("")
    code, _, err = provision(capsys, "alertmanager", "--settings", file, "--output", folder)
    assert code == 2
    assert f"{folder}/alertmanager/alertmanager.yml: cannot be written" in err


def test_wrong_settings_are_told_as_check_tells_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the setting and the line; nothing is written."""
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

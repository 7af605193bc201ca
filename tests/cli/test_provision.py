"""``agenteval-otel provision``: what it writes, compares, refuses and prints."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from agenteval_otel.cli import main
from agenteval_otel.provisioning import ALL, TARGETS, options_of
from tests.config.support import written_settings

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


class Provision:
    """The command for a settings file, in a folder of its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.tmp_path, self.folder, self._capsys = folder, folder / "out", capsys

    def __call__(
        self, *arguments: object, settings: str | None = SETTINGS, output: str = "out"
    ) -> tuple[int, str, str]:
        file = [] if settings is None else ["--settings", written_settings(self.tmp_path, settings)]
        code = main(["provision", *map(str, (*arguments, *file, "--output", self.tmp_path / output))])
        return code, *self._capsys.readouterr()


@pytest.fixture
def provision(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Provision:
    return Provision(tmp_path, capsys)


def test_files_alerts_and_the_next_command_are_listed(provision: Provision) -> None:
    """Each criterion has its alert, or the reason why there is none."""
    folder = provision.folder
    code, out, err = provision("prometheus")
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


def test_rules_with_scaled_time_have_no_tests(provision: Provision) -> None:
    """The next command only checks the rules."""
    _, out, _ = provision("prometheus", "--time-scale", "0.01")
    assert out.splitlines()[-1] == f"Next: promtool check rules {provision.folder}/prometheus/rules/*.yaml"


def test_check_compares_and_writes_nothing(provision: Provision) -> None:
    """The exit code is 1 while a file is missing or differs, and 0 once all are up to date."""
    written = provision.folder / "alertmanager/alertmanager.yml"
    code, out, _ = provision("alertmanager", "--check")
    assert (code, provision.folder.exists()) == (1, False)
    assert f"{written}: is missing" in out
    provision("alertmanager")
    assert provision("alertmanager", "--check")[:2] == (0, "1 of 1 files are up to date\n")
    written.write_text(written.read_text() + "# mine\n")
    code, out, _ = provision("alertmanager", "--check")
    assert code == 1
    assert f"{written}: differs" in out


def test_an_obsolete_dashboard_is_named(provision: Provision) -> None:
    """--check gives 1 until it is removed."""
    pytest.importorskip("grafana_foundation_sdk")
    provision("grafana")
    changed = SETTINGS.replace("name: unset", "name: other")
    dashboard = provision.folder / "grafana/dashboards/criterion-unset.json"
    for option, expected in (((), 0), (("--check",), 1)):
        code, out, _ = provision("grafana", *option, settings=changed)
        assert code == expected
        assert f"{dashboard}: is obsolete: no setting needs it any more; remove it" in out.splitlines()
    dashboard.unlink()
    assert provision("grafana", "--check", settings=changed)[0] == 0


def test_a_file_that_was_not_generated_is_kept(provision: Provision) -> None:
    """Nothing is written beside it either, except with --force."""
    own = provision.folder / "prometheus/rules/agenteval-alerts.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("groups: []\n")
    code, out, err = provision("prometheus")
    assert (code, out) == (2, "")
    assert f"{own}: was not generated; --force writes over it" in err
    assert [path.name for path in provision.folder.rglob("*.yaml")] == [own.name]
    assert provision("prometheus", "--force")[0] == 0
    assert own.read_text() != "groups: []\n"


def test_an_option_of_another_target_is_refused(provision: Provision) -> None:
    """It would have no effect; the error names its target."""
    code, _, err = provision("grafana", "--webhook", "http://127.0.0.1:1")
    assert code == 2
    assert "--webhook: is an option of alertmanager, not of grafana" in err


def test_without_a_settings_file_nothing_is_written(provision: Provision, monkeypatch: pytest.MonkeyPatch) -> None:
    """The defaults would overwrite the rules of a file. AGENTEVAL_SETTINGS names one too."""
    code, _, err = provision("prometheus", settings=None)
    assert (code, provision.folder.exists()) == (2, False)
    assert "--settings: no settings file is named" in err
    monkeypatch.setenv("AGENTEVAL_SETTINGS", str(written_settings(provision.tmp_path, SETTINGS)))
    assert provision("prometheus", settings=None)[0] == 0


@pytest.mark.parametrize("scale", ["0", "-1", "nan", "inf", "1001", "fast"])
def test_a_wrong_time_scale_is_refused(scale: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is a number above 0, at most 1000."""
    with pytest.raises(SystemExit, match="2"):
        main(["provision", "prometheus", "--time-scale", scale])
    assert "must be a number above 0, at most 1000" in capsys.readouterr().err


def test_an_unwritable_folder_and_wrong_settings_are_2(provision: Provision) -> None:
    """The error has the path and the reason, or the setting."""
    provision.folder.write_text("")
    code, _, err = provision("alertmanager")
    assert code == 2
    assert f"{provision.folder}/alertmanager/alertmanager.yml: cannot be written" in err
    code, _, err = provision("all", settings="evaluators: [{type: ResponseHealth, objective: 2}]")
    assert code == 2
    assert "evaluators[0].objective" in err
    assert provision.folder.read_text() == ""


def test_all_is_every_target(provision: Provision) -> None:
    """Its files are those of each target by itself, and its options are all options."""
    assert provision(ALL, output="all")[0] == 0
    for target in TARGETS:
        assert provision(target, output="single")[0] == 0
    texts = [
        {path.relative_to(folder): path.read_text() for path in folder.rglob("*") if path.is_file()}
        for folder in (provision.tmp_path / "all", provision.tmp_path / "single")
    ]
    assert texts[0] == texts[1]
    assert set(options_of(ALL)) == {name for target in TARGETS for name in options_of(target)}

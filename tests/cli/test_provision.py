"""``agenteval-otel provision``: what it writes, compares, refuses and prints."""

from __future__ import annotations

import stat
import sys

import pytest

from agenteval_otel.provisioning import ALL, TARGETS, options_of
from tests.cli.conftest import CommandLine

SETTINGS = """\
    evaluators:
      - {type: ResponseHealth, objective: 0.95}
      - {type: KeywordCoverage, criterion_name: words, expected_keywords: [a], threshold: 0.5}
      - {type: KeywordCoverage, criterion_name: more, expected_keywords: [b], objective: 0.9}
      - {type: KeywordCoverage, criterion_name: all_words, expected_keywords: [a], threshold: 1}
      - {type: KeywordCoverage, criterion_name: unset, expected_keywords: [c]}
      - {type: KeywordCoverage, criterion_name: never, expected_keywords: [c], threshold: 1, objective: 0}
    criteria: {support: [{name: response_health, objective: 0.99}]}
    agents: {support: {criteria: support}, quiet: {enabled: false}}
    """


class Provision:
    """The command for a settings file; writes into the folder `out`."""

    def __init__(self, cli: CommandLine) -> None:
        self.cli, self.folder = cli, cli.folder / "out"

    def __call__(
        self, words: str, settings: str | None = SETTINGS, output: str = "out", code: int = 0
    ) -> list[str]:
        option = ""
        if settings is not None:
            self.cli.settings(settings)
            option = "--settings settings.yaml"
        return self.cli(f"provision {words} {option} --output {output}", code=code).splitlines()

    @property
    def err(self) -> str:
        return self.cli.err

    def assert_refused(self, settings: str, message: str) -> None:
        """Check that `provision` and `check` refuse these settings with this message."""
        self("prometheus", settings=settings, code=2)
        assert message in self.err
        assert message in self.cli("check settings.yaml", code=1)


@pytest.fixture
def provision(cli: CommandLine) -> Provision:
    return Provision(cli)


def test_files_alerts_and_the_next_command_are_listed(provision: Provision) -> None:
    """Each criterion has its alert, or the reason why there is none."""
    folder = provision.folder
    lines = provision("prometheus")
    for line in (
        "wrote out/prometheus/rules/agenteval-alerts.yaml",
        "0 of 7 unchanged",
        "6 criteria, 1 agent named",
        "  response_health of support: alerts on its objective of 99 %",
        "  response_health of all but support: alerts on its objective of 95 %",
        "  more: no alert: it has an objective, but no threshold that decides what passes",
        "  words: alerts where its mean falls below its threshold",
        "  all_words: no alert: its mean cannot be compared with its threshold. Give it an objective",
        "  unset: no alert: it has neither an objective nor a threshold",
        "  never: no alert: an objective of 0 cannot be missed",
        "Alerts do not link to their runbooks: publish the runbooks of the documentation, and pass --runbooks URL",
        "Next: promtool check rules out/prometheus/rules/*.yaml && promtool test rules "
        "out/prometheus/tests/*.yaml",
    ):
        assert line in lines
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == [
        "agenteval-alerts.test.yaml",
        "agenteval-alerts.yaml",
        "agenteval-dashboards.yaml",
        "agenteval-fleet.test.yaml",
        "agenteval-recording.yaml",
        "agenteval-silence.test.yaml",
        "time-to-page.md",
    ]
    assert stat.S_IMODE((folder / "prometheus/rules/agenteval-alerts.yaml").stat().st_mode) == 0o644
    scaled = provision("prometheus --time-scale 0.01", output="scaled")
    assert scaled[-1] == "Next: promtool check rules scaled/prometheus/rules/*.yaml", "no tests"


def test_check_compares_and_writes_nothing(provision: Provision) -> None:
    """The exit code is 1 while a file is missing, differs or is obsolete, and 0 once all are up to
    date.
    """
    name = "out/alertmanager/alertmanager.yml"
    check = "alertmanager --check"
    assert f"{name}: is missing" in provision(check, code=1)
    assert not provision.folder.exists()
    provision("alertmanager")
    assert provision(check) == ["1 of 1 files are up to date"]
    written = provision.folder / "alertmanager/alertmanager.yml"
    earlier = written.with_name("earlier.yml")
    earlier.write_text(written.read_text())
    obsolete = "out/alertmanager/earlier.yml: is obsolete: no setting needs it any more. Remove it"
    assert obsolete in provision("alertmanager")
    assert obsolete in provision(check, code=1)
    earlier.unlink()
    written.write_text(written.read_text() + "# mine\n")
    assert f"{name}: differs" in provision(check, code=1)


def test_a_file_that_was_not_generated_is_kept(provision: Provision) -> None:
    """Nothing is written beside it either, except with --force."""
    own = provision.folder / "prometheus/rules/agenteval-alerts.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("groups: []\n")
    assert provision("prometheus", code=2) == []
    alerts = "out/prometheus/rules/agenteval-alerts.yaml"
    assert f"{alerts}: was not generated. --force writes over it" in provision.err
    assert [path.name for path in provision.folder.rglob("*.yaml")] == [own.name]
    provision("prometheus --force")
    assert own.read_text() != "groups: []\n"


def test_without_a_settings_file_nothing_is_written(
    provision: Provision, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defaults would overwrite the rules of a file. AGENTEVAL_SETTINGS names one too."""
    provision("alertmanager", settings=None, code=2)
    assert not provision.folder.exists()
    assert "--settings: no settings file is named" in provision.err
    monkeypatch.setenv("AGENTEVAL_SETTINGS", str(provision.cli.settings(SETTINGS)))
    provision("alertmanager", settings=None)


def test_wrong_options_settings_and_folders_are_2(provision: Provision) -> None:
    """The error names the target of the option, the path and the reason, or the setting."""
    no_address = "must be an address that begins with http:// or https://"
    for words, message in (
        (
            "grafana --webhook http://127.0.0.1:1",
            "--webhook: is an option of alertmanager, not of grafana",
        ),
        ("alertmanager --webhook docs/here", f"webhook: {no_address}"),
        ("prometheus --runbooks docs/here", f"runbooks: {no_address}"),
        ("prometheus --traces docs/here", f"traces: {no_address}"),
        ("collector --scrape 8889", "scrape: must be a host and a port"),
        ("collector --sidecars 0", "sidecars: must be a number from 1 to 64, found '0'"),
        ("prometheus --sidecars 2", "--sidecars: is an option of collector, not of prometheus"),
    ):
        provision(words, code=2)
        assert message in provision.err
    provision.folder.write_text("")
    provision("alertmanager", code=2)
    assert "out/alertmanager/alertmanager.yml: cannot be written" in provision.err
    provision("all", settings="evaluators: [{type: ResponseHealth, objective: 2}]", code=2)
    assert "evaluators[0].objective" in provision.err
    assert provision.folder.read_text() == ""


def test_all_is_every_target(provision: Provision) -> None:
    """Its files are those of each target by itself, and its options are all options."""
    provision(ALL, output="all")
    options: set[str] = set()
    for target in TARGETS:
        provision(target, output="single")
        options.update(options_of(target))
    together, apart = (
        {path.relative_to(folder): path.read_text() for path in folder.rglob("*") if path.is_file()}
        for folder in (provision.cli.folder / "all", provision.cli.folder / "single")
    )
    assert together == apart
    assert set(options_of(ALL)) == options


def test_links_to_answers_begin_as_those_of_messages_do(provision: Provision) -> None:
    """Unless the command says otherwise."""
    place = "{type: webhook, url: 'https://hooks.example', pages_url: 'https://scores.example/'}"
    settings = f"{SETTINGS}notify: [{place}]\n    "
    alerts = provision.folder / "prometheus/rules/agenteval-alerts.yaml"
    overview = provision.folder / "grafana/dashboards/overview.json"
    for option, begins in (
        ("", "https://scores.example/answers?"),
        ("--pages https://other.example", "https://other.example/answers?"),
    ):
        provision(f"{ALL} {option}", settings=settings)
        assert f"answers_url: {begins}" in alerts.read_text()
        assert f'"url": "{begins}' in overview.read_text()


def test_all_without_the_extra_writes_the_rest(
    provision: Provision, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is missing, and how to get it, is on standard error; --check, which cannot compare it,
    gives 2.
    """
    for name in list(sys.modules):
        if name.startswith(("agenteval_otel.provisioning.grafana.", "grafana_foundation_sdk.")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grafana_foundation_sdk", None)
    assert "wrote out/compose.yaml" in provision(ALL)
    assert not (provision.folder / "grafana").exists()
    assert (
        'not written: grafana/: dashboards need the extra grafana: pip install "agenteval-otel[grafana]"'
        in provision.err
    )
    provision(f"{ALL} --check", code=2)
    assert "not compared: grafana/" in provision.err
    provision("grafana", code=2)


FUNCTIONS = """\
    functions: [polite]
    criteria: {default: [{name: polite, objective: 0.9}]}
    agents:
      flights: {functions: [price_named], criteria: [{name: price_named, objective: 0.85}]}
      hotels: {evaluators: ["quality_of_tests:stars", ResponseHealth], criteria: [{name: stars, objective: 0.8}]}
    """


def test_objectives_of_functions_have_alerts(
    provision: Provision, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that a decorator brings, by name, and of those that the file imports."""
    monkeypatch.syspath_prepend(provision.cli.folder)
    provision.cli.file(
        "quality_of_tests.py", "def stars(evaluation_input) -> bool:\n    return True\n"
    )
    lines = provision("prometheus", settings=FUNCTIONS)
    for line in (
        "  price_named of flights: alerts on its objective of 85 %",
        "  stars of hotels: alerts on its objective of 80 %",
        "  polite of all but flights, hotels: alerts on its objective of 90 %",
    ):
        assert line in lines
    shown = provision.cli("check settings.yaml")
    assert "  functions of decorators: polite, price_named" in shown
    assert "Warnings" not in shown


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "functions: [price_named]",
            "functions: [price_namd]",
            "'price_named' (did you mean 'price_namd'?)",
        ),
        (
            "functions: [polite]",
            "functions: []",
            "criteria.default[0]: has an objective, and no evaluator in this file",
        ),
        (
            "quality_of_tests:stars",
            "no_such_module:stars",
            "'no_such_module:stars' cannot be imported",
        ),
    ],
)
def test_an_objective_that_nothing_scores_is_refused(
    provision: Provision, old: str, new: str, message: str
) -> None:
    """By `provision` and by `check`, with its place and the nearest name: no alert would come from
    it.
    """
    text = FUNCTIONS.replace("quality_of_tests:stars", "json:dumps").replace(
        "name: stars", "name: dumps"
    )
    text = (text if ":stars" not in old else FUNCTIONS).replace(old, new)
    provision.assert_refused(text, message)


OF_LAST = """\
    evaluators:
      - ResponseHealth
      - {type: KeywordCoverage, criterion_name: helpful, expected_keywords: [a]}
    functions: [no_secrets]
    criteria:
      default:
        - {name: helpful, threshold: 0.7, objective: 0.95, of_last: 100}
        - {name: no_secrets, objective: 1, of_last: 100}
        - {name: response_health, objective: 0}
    """


def test_the_cost_of_an_objective_of_the_last_verdicts_is_a_warning(provision: Provision) -> None:
    """Of `check` and of `provision`: how often chance breaches it, and what to do; so is a page
    that cannot come.
    """
    lines = provision("prometheus", settings=OF_LAST)
    shown = provision.cli("check settings.yaml").splitlines()
    assert (
        "  KeywordCoverage [inline]: helpful (numeric, passes from 0.7, objective 95 % of the last 100)"
        in shown
    )
    assert "  helpful: alerts once more than 5 of the last 100 verdicts fail" in lines
    assert "  no_secrets: alerts once any of the last 100 verdicts fails" in lines
    assert "  response_health: no alert: an objective of 0 cannot be missed" in lines
    for out in (lines, shown):
        helpful, secrets, health = (
            next(line for line in out if f"criterion '{name}'" in line)
            for name in ("helpful", "no_secrets", "response_health")
        )
        assert (
            "is in breach 38 % of the time, anew every 117 verdicts. "
            "One with half as many failures is in breach every 635" in helpful
        )
        assert "Without `of_last`: at most one false page in 20,000,000 verdicts" in helpful
        assert "wrong in one of 1,000 verdicts breaches it every 1,110 verdicts" in secrets
        assert "an objective of 0 cannot be missed" in health
    disabled = f"{OF_LAST}breach: {{enabled: false}}\n"
    warning = "no process watches the objectives, and no page comes for helpful, no_secrets"
    assert any(warning in line for line in provision("prometheus --force", settings=disabled))
    assert warning in provision.cli("check settings.yaml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "threshold: 0.7, ",
            "",
            "criteria.default[0].of_last: nothing says which scores pass on the scale 'numeric'. "
            "Give 'helpful' a threshold",
        ),
        (
            "objective: 0.95, ",
            "",
            "criteria.default[0].of_last: needs an objective above 0 beside it, such as {name: "
            "helpful, objective: 0.95, of_last: 100}",
        ),
        (
            "objective: 1, of_last",
            "objective: 0, of_last",
            "criteria.default[1].of_last: needs an objective above 0",
        ),
        (
            "of_last: 100",
            "of_last: 10001",
            "criteria.default[0].of_last: expected at most 10000, found 10001",
        ),
        ("of_last: 100", "of_last: 0", "criteria.default[0].of_last: expected at least 1, found 0"),
        (
            "of_last: 100",
            "of_last: 0.5",
            "criteria.default[0].of_last: expected a whole number, found 0.5",
        ),
        (
            "of_last: 100",
            "of_last: true",
            "criteria.default[0].of_last: expected a number, found True",
        ),
        (
            "of_last: 100",
            "last: 100",
            "criteria.default[0].last: unknown field (did you mean 'of_last'?)",
        ),
        (
            "objective: 0}",
            "objective: 95}",
            "criteria.default[2].objective: expected at most 1, found 95",
        ),
        (
            "objective: 0}",
            "objective: true}",
            "criteria.default[2].objective: expected a number, found True",
        ),
    ],
)
def test_wrong_objectives_are_refused(
    provision: Provision, old: str, new: str, message: str
) -> None:
    """By `provision` and by `check`, with the field, what was found and what is allowed."""
    text = OF_LAST.replace(old, new, 1)
    provision.assert_refused(text, message)

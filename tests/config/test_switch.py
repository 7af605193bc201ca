"""`disable` and `enable`, and what a bare handler finds in the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from agenteval_otel import Settings, accounting, configure, disable, enable, monitor
from agenteval_otel.config import build, current_pipeline
from agenteval_otel.errors import ConfigurationError
from tests.config.support import written_settings
from tests.testing.doubles import Keeping


def test_every_pipeline_of_the_process_is_switched_off() -> None:
    """Handlers of the configured pipeline and of pipelines of their own count as disabled, and go
    on afterwards.
    """
    own = build(Settings(storage=[Keeping()], dispatcher="inline", sample_rate=1.0))
    configure(storage=[Keeping()], dispatcher="inline", sample_rate=1.0)
    off_before = build(Settings(enabled=False, dispatcher="inline"))
    follows, brings_its_own = monitor(str.upper), monitor(pipeline=own)(str.lower)
    disable()
    disable()
    follows("a")
    brings_its_own("A")
    assert accounting()["disabled"] == own.accounting.outcomes()["disabled"] == 1
    enable()
    follows("a")
    brings_its_own("A")
    assert accounting()["evaluated"] == own.accounting.outcomes()["evaluated"] == 1
    assert not off_before.enabled, "what its owner had switched off stays off"


def test_the_operators_switch_is_not_overridden(monkeypatch: pytest.MonkeyPatch) -> None:
    """`enable` leaves ``AGENTEVAL_ENABLED=false`` in force, and overrides the settings' own
    ``enabled: false``.
    """
    monkeypatch.setenv("AGENTEVAL_ENABLED", "false")
    configure(storage=[Keeping()], dispatcher="inline", sample_rate=1.0)
    handler = monitor(str.upper)
    enable()
    handler("a")
    disable()
    enable()
    handler("a")
    assert (accounting()["disabled"], accounting()["evaluated"]) == (2, 0)
    monkeypatch.delenv("AGENTEVAL_ENABLED")
    configure(storage=[Keeping()], dispatcher="inline", sample_rate=1.0, enabled=False)
    enable()
    handler("a")
    assert accounting()["evaluated"] == 1


def test_a_wrong_file_of_the_environment_is_told_at_decoration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decorating is the start: there, and not at a call, the file's problems are raised; nothing is
    left behind.
    """
    monkeypatch.setenv("AGENTEVAL_SETTINGS", str(written_settings(tmp_path, "sample_rate: 7")))
    with pytest.raises(ConfigurationError, match=r"settings\.yaml:1: sample_rate: .*found 7"):
        monitor(str.upper)
    assert current_pipeline() is None
    monkeypatch.setenv("AGENTEVAL_SETTINGS", str(tmp_path / "missing.yaml"))
    with pytest.raises(
        ConfigurationError,
        match=r"missing\.yaml: cannot be read: No such file .*AGENTEVAL_SETTINGS",
    ):
        monitor(str.upper)
    monkeypatch.delenv("AGENTEVAL_SETTINGS")
    assert monitor(str.upper)("a") == "A"
    monkeypatch.setenv("AGENTEVAL_ENABLED", "perhaps")
    with pytest.raises(
        ConfigurationError, match=r"^AGENTEVAL_ENABLED: expected true or false, found 'perhaps'"
    ):
        Settings()


def test_a_misspelled_variable_is_a_line_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With what was probably meant, and no error."""
    monkeypatch.setenv("AGENTEVAL_SAMPEL_RATE_", "0.1")
    configure(storage=[Keeping()], dispatcher="inline")
    assert (
        "AGENTEVAL_SAMPEL_RATE_ names no setting (did you mean 'AGENTEVAL_SAMPLE_RATE'?)"
        in caplog.text
    )


def test_a_plugin_brings_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listed module is imported before evaluators are looked up; a missing or broken one is an
    error.
    """
    monkeypatch.syspath_prepend(str(tmp_path))
    written_settings(
        tmp_path,
        """\
        from agenteval_otel.evaluators import ResponseHealth

        class Shouting(ResponseHealth, type="ShoutingOfTheSettingsTest"):
            criterion_name: str = "shouting"
        """,
        name="settings_plugin.py",
    )
    written_settings(tmp_path, "raise SystemExit(3)", name="settings_broken_plugin.py")
    settings = configure(
        written_settings(
            tmp_path, "plugins: [settings_plugin]\nevaluators: [{type: ShoutingOfTheSettingsTest}]"
        ),
        dispatcher="inline",
        storage=[Keeping()],
    )
    assert [evaluator.label for evaluator in settings.evaluators] == [
        "ShoutingOfTheSettingsTest:shouting"
    ]
    with pytest.raises(ConfigurationError) as caught:
        configure(
            written_settings(
                tmp_path,
                "plugins:\n  - settings_broken_plugin\n  - settings_missing_plugin\nagent_span: x",
            )
        )
    shown = str(caught.value)
    assert "settings.yaml:2: plugins[0]: 'settings_broken_plugin' cannot be imported" in shown
    assert "SystemExit: 3" in shown
    assert "settings.yaml:3: plugins[1]: 'settings_missing_plugin' cannot be imported" in shown
    assert "settings.yaml:4: agent_span" in shown

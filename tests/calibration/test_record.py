"""The calibration record: written whole, read back, refused where it is wrong, expired where the
judge has changed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.offline.calibration.record import (
    CalibrationRecord,
    CalibrationRecords,
    load_records,
)
from tests.calibration.test_agreement import agreement_of, rows


def record(**fields: Any) -> CalibrationRecord:
    defaults = {
        "criterion": "polite",
        "evaluator_id": "LLMJudge:polite",
        "evaluator_version": "0123456789ab",
        "made": "2026-11-27T10:00:00+00:00",
        "models": ("small-1",),
        "threshold": 4.0,
    }
    return CalibrationRecord(
        **agreement_of(rows(40, 10, 5, 45)).model_dump(), **(defaults | fields)
    )


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    """As readable JSON with every figure, for one evaluator and criterion the newest alone."""
    path = tmp_path / "records.json"
    records = CalibrationRecords([record(), record(criterion="tone", evaluator_id="LLMJudge:tone")])
    newer = record(made="2026-12-01T10:00:00+00:00")
    records.with_record(newer).save(path)
    again = load_records(path)
    assert sorted(item.criterion for item in again) == ["polite", "tone"]
    assert again.find("polite", "LLMJudge:polite") == newer
    assert again.find("polite") == newer
    assert again.find("polite", "another") is None
    written = json.loads(path.read_text())
    assert written["records"][0]["figures"]["kappa"]["mean"] == pytest.approx(0.7)
    assert again.find("polite").sentence.startswith("kappa 0.70 (")  # type: ignore[union-attr]
    assert not list(tmp_path.glob("tmp*"))


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ({}, None),
        ({"evaluator_version": "0123456789ab", "model": "small-1", "threshold": 4.0}, None),
        ({"evaluator_version": "ffffffffffff"}, "measured on version 0123456789ab .* has changed"),
        ({"model": "small-2"}, "measured on small-1, and small-2 answers now"),
        ({"threshold": 3.0}, "with the threshold 4, and 3 decides now"),
    ],
)
def test_a_record_expires_when_the_judge_changes(result: dict[str, Any], why: str | None) -> None:
    expired = record().expired_because(**result)
    assert (expired is None) == (why is None)
    if why is not None:
        assert expired is not None
        assert re.search(why, expired)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no such file. `agenteval-otel calibrate` writes it"),
        ("{", "not JSON"),
        ("[]", "no file of calibration records"),
        ('{"format": 2, "records": []}', "format 2, but this version reads 1"),
        (
            '{"format": 1, "records": [{"criterion": "polite"}]}',
            r"records\[0\].*is missing|records\[0\].*required",
        ),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "records.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        load_records(path)


def test_figures_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "records.json"
    CalibrationRecords([record()]).save(path)
    path.write_text(re.sub('"effectiveRows": [^,]*', '"effectiveRows": NaN', path.read_text()))
    with pytest.raises(ConfigurationError, match=r"effective_?rows|effectiveRows"):
        load_records(path)
    assert len(load_records(tmp_path / "none.json", missing_ok=True)) == 0
    with pytest.raises(ConfigurationError, match="cannot be written"):
        CalibrationRecords().save(tmp_path / "no" / "folder.json")

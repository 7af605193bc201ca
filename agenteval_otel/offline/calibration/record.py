"""The calibration record: a JSON file that says how the judge of each criterion agreed with people.

    {"format": 1, "records": [{"criterion": "refusal", "evaluatorId": ..., "evaluatorVersion": ...,
    "shares": ...}]}

It is small. `agenteval-otel calibrate` and `judge check` write it. Reports, dashboards, alerts and
`explain` read it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Self

from pydantic import Field, ValidationError

from agenteval_otel.components.explained import explain_validation
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.offline.calibration.agreement import Agreement

FORMAT: Final = 1
DEFAULT_PATH: Final = "agenteval-calibration.json"
NOT_MEASURED: Final = "not measured on your judge"


class CalibrationRecord(Agreement):
    """Holds how one evaluator agreed with people on one criterion.

    `Agreement` has the rates and what corrects by them.

    Attributes:
        criterion: The criterion that was judged.
        evaluator_id: As on results: ``LLMJudge:refusal``.
        evaluator_version: The evaluator's fingerprint, its judge and wording included: another one,
            another judge.
        judge: The judge as telemetry names it, ``anthropic:claude-haiku-4-5``. None for evaluators
            without one.
        judge_fingerprint: Of the judge's settings alone. None for evaluators without one.
        models: The models that answered, as their provider named them.
        made: The date, ISO 8601.
        source: The file or the storage that the labels came from, and where they were left out,
            why.
        threshold: The score from which on the evaluator passes an answer, on the criterion's scale.
        threshold_prompts: Digests of the prompts of the rows that chose the threshold: no row of
            theirs is reported.
        malformed_rate: Share of the answers that the evaluator failed on, 0 to 1. They are in no
            other figure.
        cost_usd: Of the calls for one answer. None where prices are not known.
        latency_s: Median seconds of an evaluation.
    """

    criterion: str = Field(min_length=1)
    evaluator_id: str
    evaluator_version: str
    judge: str | None = None
    judge_fingerprint: str | None = None
    models: tuple[str, ...] = ()
    made: str
    source: str = ""
    threshold: float | None = None
    threshold_prompts: tuple[str, ...] = ()
    malformed_rate: float = Field(default=0.0, ge=0, le=1)
    cost_usd: float | None = None
    latency_s: float | None = None

    @property
    def sentence(self) -> str:
        """Say for people how the judge agrees, on how many rows, and when it was measured."""
        kappa = self.kappa
        interval = f"{kappa.low:.2f} to {kappa.high:.2f}"
        day = self.made[:10]
        return f"kappa {kappa.mean:.2f} ({interval}) with people on {self.rows:,} answers, {day}"

    def expired_because(
        self,
        *,
        evaluator_version: str | None = None,
        model: str | None = None,
        threshold: float | None = None,
    ) -> str | None:
        """Return why the record does not apply to these results.

        None if it applies or that is unknown.

        `evaluator_version`, `model` and `threshold` are those of a result (the model as its
        provider names it).
        """
        if evaluator_version is not None and evaluator_version != self.evaluator_version:
            return (
                f"it was measured on version {self.evaluator_version} of {self.evaluator_id}, and this is "
                f"{evaluator_version}: the judge, its wording or its threshold has changed"
            )
        if model is not None and self.models and model not in self.models:
            return f"it was measured on {', '.join(self.models)}, and {model} answers now"
        if threshold is not None and self.threshold is not None and threshold != self.threshold:
            return f"it was measured with the threshold {self.threshold:g}, and {threshold:g} decides now"
        return None


class CalibrationRecords:
    """Holds the records of a file, by criterion and evaluator."""

    def __init__(self, records: Iterable[CalibrationRecord] = (), path: str | None = None) -> None:
        self.path = path
        self._records = {(record.criterion, record.evaluator_id): record for record in records}

    def __repr__(self) -> str:
        return f"<CalibrationRecords {len(self._records)} of {self.path}>"

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[CalibrationRecord]:
        return iter(self._records.values())

    def find(self, criterion: str, evaluator_id: str | None = None) -> CalibrationRecord | None:
        """Return the record of a criterion and the named evaluator.

        Without a name it is the newest record of the criterion. None if there is none.
        """
        if evaluator_id is not None:
            return self._records.get((criterion, evaluator_id))
        of_criterion = [record for record in self if record.criterion == criterion]
        return max(of_criterion, key=lambda record: record.made, default=None)

    def with_record(self, record: CalibrationRecord) -> Self:
        """Return the same records with this one in the place of an older one."""
        return type(self)([*self, record], self.path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, whole or not at all.

        Raises:
            ConfigurationError: It cannot be written.
        """
        records: list[dict[str, Any]] = []
        for record in self:
            fields = record.model_dump(mode="json", by_alias=True)
            records.append(fields | {"figures": record.figures()})
        content = {"format": FORMAT, "records": records}
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        target = Path(path)
        try:
            with tempfile.NamedTemporaryFile(
                "w", dir=target.parent, delete=False, encoding="utf-8"
            ) as file:
                file.write(text)
            os.chmod(file.name, 0o644)  # a file to commit; temporary ones are their owner's alone
            os.replace(file.name, target)
        except OSError as error:
            raise ConfigurationError(
                f"cannot be written: {error.strerror}", path=str(path)
            ) from None


def load_records(path: str | os.PathLike[str], *, missing_ok: bool = False) -> CalibrationRecords:
    """Read the records of a file. There are none if the file is missing and `missing_ok` is set.

    Raises:
        ConfigurationError: It cannot be read, is no such file, of a newer format, or a record is
            wrong.
    """
    name = os.fspath(path)
    try:
        data: object = json.loads(Path(path).read_text("utf-8"))
    except FileNotFoundError:
        if missing_ok:
            return CalibrationRecords(path=name)
        raise ConfigurationError(
            "there is no such file. `agenteval-otel calibrate` writes it", path=name
        ) from None
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror}", path=name) from None
    except ValueError as error:
        raise ConfigurationError(f"not JSON: {str(error)[:80]}", path=name) from None
    if not isinstance(data, dict) or not isinstance(data.get("records"), list):
        raise ConfigurationError(
            'expected {"format": 1, "records": [...]}: no file of calibration records', path=name
        )
    if data.get("format") != FORMAT:
        raise ConfigurationError(
            f"format {str(data.get('format'))[:20]}, but this version reads {FORMAT}", path=name
        )
    records = []
    for position, fields in enumerate(data["records"]):
        try:
            records.append(CalibrationRecord.model_validate(fields))
        except ValidationError as error:
            raise explain_validation(
                error, CalibrationRecord, path=f"{name}: records[{position}]"
            ) from None
    return CalibrationRecords(records, name)

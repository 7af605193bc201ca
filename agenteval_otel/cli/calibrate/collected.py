"""Holds the results of one evaluator of one criterion.

They are its verdicts, people's labels, its failures, time and cost.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from agenteval_otel.components.explained import known_choices
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators.base import Evaluator
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult
from agenteval_otel.models.inputs import Annotations
from agenteval_otel.models.scoring import passed_of
from agenteval_otel.models.scoring.probability import weight
from agenteval_otel.models.scoring.scales import BOOLEAN_WORDS
from agenteval_otel.offline.calibration.measure import JudgedAnswer, digest
from agenteval_otel.offline.calibration.shift import RELEASES


class Labelled(NamedTuple):
    """A row of the labels file, as far as the figures need it.

    Attributes:
        original: What `--next` writes of it.
        answered_s: When the answer was given, Unix time. None if that is unknown.
        release: What is known of the release, by its names.
    """

    key: str
    prompt: str
    person: bool | None
    label_weight: float
    cluster: str
    system: str
    slices: Mapping[str, str]
    original: Mapping[str, Any]
    answered_s: float | None = None
    release: Mapping[str, str] = {}


class Collected:
    """The results of one evaluator of one criterion.

    `evaluator` is None for stored results. `versions` count its fingerprints, the newest one last.
    """

    def __init__(
        self, criterion: str, evaluator_id: str, evaluator: Evaluator | None = None
    ) -> None:
        self.criterion = criterion
        self.evaluator_id = evaluator_id
        self.evaluator = evaluator
        self.answers: list[JudgedAnswer] = []
        self.originals: dict[str, Mapping[str, Any]] = {}
        self.failed = Counter[str]()
        self.skipped = Counter[str]()
        self.versions = dict[str, int]()
        self.models = Counter[str]()
        self.threshold: float | None = None
        self._durations_s: list[float] = []
        self._cost_usd: float | None = None

    @property
    def attempted(self) -> int:
        return len(self.answers) + self.failed.total()

    @property
    def malformed_rate(self) -> float:
        return self.failed.total() / max(1, self.attempted)

    @property
    def cost_usd(self) -> float | None:
        """Return the average cost of one answer. None means that no cost is known."""
        return None if self._cost_usd is None else self._cost_usd / max(1, self.attempted)

    @property
    def latency_s(self) -> float | None:
        return statistics.median(self._durations_s) if self._durations_s else None

    def add(self, result: EvaluationResult, row: Labelled) -> None:
        """Add one result and the row that it is about.

        Failures and skips are counted, and are in no figure.
        """
        if result.started_ns is not None and result.ended_ns is not None:
            self._durations_s.append((result.ended_ns - result.started_ns) / 1e9)
        self._add_cost(result)
        if result.status == "skipped":
            self.skipped[(result.skip_reason or "skipped")[:80]] += 1
            return
        if result.status == "failed":
            self.failed[result.error_type or "error"] += 1
            return
        if result.judge_model is not None:
            self.models[result.judge_model] += 1
        version = result.evaluator_version or ""
        self.versions[version] = self.versions.pop(version, 0) + 1
        if result.threshold is not None:
            self.threshold = result.threshold
        score: float | None = None
        if result.score is not None and not isinstance(result.score, str | bool):
            score = float(result.score)
        release = {**row.release, "evaluator_version": version}
        self.originals[row.key] = row.original
        self.answers.append(
            JudgedAnswer(
                row.key,
                row.prompt,
                score,
                _verdict(result),
                row.person,
                weight(result.probability),
                row.label_weight,
                row.cluster,
                row.system,
                row.slices,
                row.answered_s,
                release,
            )
        )

    def _add_cost(self, result: EvaluationResult) -> None:
        facts = (result.metadata or {}).get("judge")
        cost = facts.get("costUsd") if isinstance(facts, Mapping) else None
        if result.judgement is not None:
            cost = result.judgement.cost_usd
        if isinstance(cost, int | float) and not isinstance(cost, bool) and math.isfinite(cost):
            self._cost_usd = (self._cost_usd or 0.0) + cost


def _verdict(result: EvaluationResult) -> bool | None:
    if result.passed is not None:
        return result.passed
    return result.score if isinstance(result.score, bool) else None


def label_of(
    value: Any, criterion: EvaluationCriteria, positive: Iterable[str] = ()
) -> bool | None:
    """Return a person's verdict from the cell of a label. An empty cell gives None.

    Raises:
        ConfigurationError: It is no verdict: NaN, an unknown word, a number where nothing says what
            passes.
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    words = [*positive]
    if words:
        return str(value).strip() in words
    if isinstance(value, str):
        text = value.strip().lower()
        known = BOOLEAN_WORDS.get(text)
        if known is not None:
            return bool(known)
        try:
            value = float(text)
        except ValueError:
            raise ConfigurationError(
                f"the label {value[:40]!r} is no verdict{known_choices('', sorted(BOOLEAN_WORDS))}. "
                "--positive names the words that pass"
            ) from None
    if isinstance(value, bool):
        return value
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigurationError(
            f"the label {str(value)[:40]} is no verdict: expected true, false, or a finite number"
        )
    verdict = passed_of(value, criterion)
    if verdict is None and value in (0, 1):
        return bool(value)
    if verdict is None:
        raise ConfigurationError(
            f"the label {value:g} is a score, and no threshold decides whether it passes: the criterion "
            f"{criterion.name!r} needs a threshold, or the labels are true and false"
        )
    return verdict


def value_of(item: EvaluationInput | Annotations, name: str) -> str:
    """Return the value of a field, a key of the metadata or a tag as text.

    The text is empty if there is no value.
    """
    value = getattr(item, name, None) if name in type(item).model_fields else None
    for fields in (getattr(item, "metadata", None), item.tags):
        if value is None and fields:
            value = fields.get(name)
    return "" if value is None else str(value)


def values_of(item: EvaluationInput | Annotations, names: Iterable[str]) -> dict[str, str]:
    """Return the values of the names that have one, by name."""
    values = {name: value_of(item, name) for name in names}
    return {name: value for name, value in values.items() if value}


def release_of(item: EvaluationInput | Annotations) -> dict[str, str]:
    """Return what is known of the release that answered."""
    return values_of(item, RELEASES)


def labelled_row(
    item: EvaluationInput,
    person: bool | None,
    *,
    id_field: str,
    cluster: str | None,
    system: str,
    slices: Iterable[str],
    label_weight: float,
    original: Mapping[str, Any],
) -> Labelled:
    """Return the row of an input and its label."""
    answered_by = value_of(item, system)
    response = item.text_at("response")
    prompt = item.prompt if item.prompt is not None else response or ""
    key = value_of(item, id_field) or digest(item.prompt, response, answered_by)
    shared = value_of(item, cluster) if cluster else item.conversation_id or ""
    answered_s = None if item.timestamp is None else item.timestamp / 1e3
    return Labelled(
        key,
        digest(prompt),
        person,
        label_weight,
        shared,
        answered_by,
        values_of(item, slices),
        original,
        answered_s,
        release_of(item),
    )

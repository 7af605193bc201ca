"""JudgeHealth: watches the judges of a pipeline.

Scores and feedback are recorded on the background thread. Additional questions (canaries, repeats)
are sent from a separate thread, one at a time, and are not scored as answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from agenteval_otel import semconv as names
from agenteval_otel.capture.redaction.outgoing import Redaction
from agenteval_otel.engine.capabilities.judge_health.canaries import Canary, read_canaries
from agenteval_otel.engine.capabilities.judge_health.pairs import Change, JudgedCriterion, agree
from agenteval_otel.engine.capabilities.judge_health.references import (
    Key,
    read_references,
    write_references,
)
from agenteval_otel.engine.capabilities.judge_health.scores import Counts, ScoreWindow
from agenteval_otel.engine.capabilities.judge_health.settings import JudgeHealthSettings
from agenteval_otel.engine.capability import Capability, Evaluated, MakeCapability
from agenteval_otel.engine.handler import HandlerSettings
from agenteval_otel.engine.signals import StateChange
from agenteval_otel.errors import ConfigurationError, EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.evaluators.base import find_criterion, result_of
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult
from agenteval_otel.models.results import unit_of
from agenteval_otel.models.scoring.probability import has_weight
from agenteval_otel.models.scoring.probability import weight as weight_of
from agenteval_otel.models.value import copy_with
from agenteval_otel.runtime.fork import RANDOM, ForkSafeLock, reset_in_child
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.reentrancy import EvaluationThread
from agenteval_otel.runtime.worker import Worker, new_loop
from agenteval_otel.sampling.key import PROCESS_KEY, SamplingKey
from agenteval_otel.semconv import CANARY, PEOPLE, POSITION, REPEAT
from agenteval_otel.telemetry.accounting import Labels
from agenteval_otel.telemetry.emitter import Emitter
from agenteval_otel.telemetry.spans import attach_marked

MAX_WATCHED: Final = 16
"""Criteria of judges with series of their own."""
_MAX_ANSWERS: Final = 2_048
_MAX_REPEATS: Final = 4
_MAX_MODELS: Final = 8
_TICK_S: Final = 10.0
_ASK_S: Final = 120.0

Span = tuple[int, int]


class Watched(NamedTuple):
    """Holds a criterion, the evaluator that has a judge score it, and the judge's model."""

    evaluator: Any
    criterion: EvaluationCriteria
    model: str
    emitter: Emitter | None


class JudgeHealth(Capability):
    """Watches the judges of one pipeline.

    `broken` counts and logs what breaks. The clock is monotonic, in seconds.
    """

    name = "judge_health"

    @classmethod
    def made_by(cls, settings: JudgeHealthSettings) -> MakeCapability:
        """Return what makes it for a pipeline."""
        return lambda host: cls(
            settings, host.redaction, host.broken, key=host.key, announce=host.announce
        )

    def __init__(
        self,
        settings: JudgeHealthSettings | None,
        redaction: Redaction,
        broken: Callable[[str, BaseException], None],
        *,
        key: SamplingKey = PROCESS_KEY,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = RANDOM.random,
        announce: Callable[[StateChange], None] | None = None,
    ) -> None:
        self.settings = settings or JudgeHealthSettings()
        self._key = key
        settings = self.settings
        self._redaction = redaction
        self._broken = broken
        self._clock = clock
        self._draw = draw
        self._announce = announce
        self.canaries: Sequence[Canary] = (
            () if settings.canaries is None else read_canaries(settings.canaries)
        )
        self._references = read_references(settings.reference)
        self._lock = ForkSafeLock()
        self._watched: dict[tuple[str, str | None], Watched] = {}
        self._criteria: set[str] = set()  # that people's feedback can be compared on
        self._worker = Worker(
            "agenteval-judges",
            max_waiting=2 * _MAX_REPEATS,
            idle_s=min(_TICK_S, settings.every_s),
            on_idle=self._look,
            stays=True,
            thread_class=EvaluationThread,
        )
        self._reset()
        reset_in_child(self._reset)

    def __repr__(self) -> str:
        return f"<JudgeHealth watched={len(self._judged)} canaries={len(self.canaries)}>"

    def _reset(self) -> None:
        self._judged: dict[Key, JudgedCriterion] = {}
        self._by_judge: dict[Span, dict[str, EvaluationResult]] = {}
        self._by_people: dict[Span, dict[str, EvaluationResult]] = {}
        self._models: dict[str, dict[str, None]] = {}
        self.checks: dict[tuple[str, str], int] = {}
        self.changes: dict[str, int] = {}
        self._next_round = -1.0
        self._repeats = 0
        self._is_distrusted = self._is_closed = False

    def bind(self, settings: HandlerSettings) -> None:
        """Watch the judges of a handler. Raises `ConfigurationError` as `know` does."""
        if settings.emitter is not None:
            settings.emitter.observe_judge_health(self)
        self.know(settings.runner.evaluators, settings.runner.criteria, settings.emitter)

    def on_results(
        self, settings: HandlerSettings, results: list[EvaluationResult]
    ) -> list[EvaluationResult]:
        """Return the results, with those of judges marked that are not trusted."""
        return self.marked(results) if settings.calls_model else results

    def on_response(self, evaluated: Evaluated) -> None:
        """Note what judges or people say of an answer."""
        task = evaluated.task
        if task.settings.calls_model or task.select.results:
            span = task.target and task.target[:2]
            self.observe(span, evaluated.input, evaluated.response.results)

    def retire(self) -> None:
        """End as `close` does: the next pipeline asks."""
        self.close()

    def know(
        self,
        evaluators: Iterable[Evaluator],
        criteria: Sequence[EvaluationCriteria],
        emitter: Emitter | None,
    ) -> None:
        """Watch the judges of a handler's evaluators. Nothing is asked yet.

        Raises:
            ConfigurationError: A canary's label is not on the scale of its criterion.
        """
        for evaluator in evaluators:
            judge: Any = getattr(evaluator, "judge", None)
            if judge is None or evaluator.shadow or not self.settings.enabled:
                continue
            for own in evaluator.criteria():
                criterion = find_criterion(criteria, own.name) or own
                self._check_labels(evaluator, criterion)
                key = own.name, evaluator.signature["evaluator_version"]
                self._criteria.add(own.name)
                self._watched[key] = Watched(
                    evaluator, criterion, judge.model or judge.type, emitter
                )

    def _check_labels(self, evaluator: Evaluator, criterion: EvaluationCriteria) -> None:
        for number, canary in enumerate(self.canaries, 1):
            if criterion.name in canary.labels:
                try:
                    result_of(evaluator, criterion, canary.labels[criterion.name])
                except EvaluationError as error:
                    wrong = f"canary {number}: the label of {criterion.name}: {error}"
                    raise ConfigurationError(wrong, path="judge_health.canaries") from None

    def take_over(self, before: JudgeHealth) -> None:
        """Continue with what another one has seen if its settings are equal, else start anew."""
        if before.settings == self.settings:
            self._lock = before._lock  # its last questions may still be under way
            with self._lock:
                # Drop replaced judges: no new score can restore trust.
                continued: dict[Key, JudgedCriterion] = {}
                for key, judged in before._judged.items():
                    criterion, _, version = key
                    if (criterion, version) in self._watched:
                        continued[key] = judged
                self._judged = continued
                self._next_round = before._next_round
                self._models = before._models
                self._by_judge = before._by_judge
                self._by_people = before._by_people
                self.checks = before.checks
                self.changes = before.changes
                self._is_distrusted = not all(judged.is_trusted for judged in self._judged.values())
        before.close()

    def close(self, timeout_s: float = 0.0) -> bool:
        """Ask nothing any more, and end the thread.

        A question that is under way ends by itself. Returns True at once.
        """
        self._is_closed = True
        self._worker.close(0.0)
        return True

    # --- on the background thread
    # ------------------------------------------------------------------------------------

    def marked(self, results: list[EvaluationResult]) -> list[EvaluationResult]:
        """Return the results, with those of judges marked that are not trusted.

        Nearly always it is the same list.
        """
        return [self._marked(result) for result in results] if self._is_distrusted else results

    def _marked(self, result: EvaluationResult) -> EvaluationResult:
        with self._lock:
            judged = None if result.judgement is None else self._judged_of(result)
        if judged is None or judged.is_trusted or result.judgement is None:
            return result
        return copy_with(result, {"judgement": copy_with(result.judgement, {"untrusted": True})})

    def observe(
        self,
        span: Span | None,
        evaluation_input: EvaluationInput,
        results: Sequence[EvaluationResult],
    ) -> None:
        """Note the results of one answer.

        Ask for a second opinion if it is to be asked. Never waits or raises.
        """
        if not self.settings.enabled:
            return
        try:
            judged = [
                result for result in results if result.judgement is not None and not result.shadow
            ]
            trace = None if span is None else f"{span[0]:032x}"
            unit = unit_of(
                conversation=evaluation_input.conversation_id,
                session=evaluation_input.session_id,
                trace=trace,
            )
            for result in judged:
                self._note(result, evaluation_input, unit)
            if span is not None:
                people = [
                    result
                    for result in results
                    if result.evaluator_kind == "human" and result.status == "scored"
                ]
                self._join(span, judged, people)
            if judged and self.settings.asks and not self._is_closed:
                self._worker.start()
                self._repeat_some(evaluation_input, judged)
        except Exception as error:
            self._broken("judge_health", error)

    def _note(
        self, result: EvaluationResult, evaluation_input: EvaluationInput, unit: str | None
    ) -> None:
        watched = self._watched_of(result)
        judgement = result.judgement
        if watched is None or judgement is None:
            return
        if not judgement.from_cache and result.status == "scored":
            answered = f"{judgement.model} {judgement.system_fingerprint or ''}".strip()
            self._note_model(watched.model, answered)
        length = len(evaluation_input.response_text or "")
        weight = weight_of(result.probability)
        with self._lock:
            judged = self._judged_of(result)
            if judged is None or result.normalized is None or not has_weight(result.probability):
                return
            is_reference, change = judged.add_score(result.normalized, weight, length, unit)
        self._report(judged, change)
        path = self.settings.reference
        reference = judged.scores.reference
        if is_reference and path is not None and reference is not None:
            key = judged.criterion, judged.model, judged.version
            self._references[key] = reference
            self._worker.submit(partial(self._write, path, {key: reference}))

    def _note_model(self, model: str, answered: str) -> None:
        """Count answers of a model or configuration that has not answered lately.

        Providers alternate between a few.
        """
        models = self._models.setdefault(model, {})
        is_new = answered not in models
        models.pop(answered, None)
        models[answered] = None
        changes = self.changes.setdefault(model, 0)
        if is_new and len(models) > 1:
            self.changes[model] = changes + 1
            log.warning("judge_model_changed", part=model, answered=answered[:200])
        if len(models) > _MAX_MODELS:
            del models[next(iter(models))]

    def _join(
        self, span: Span, judged: list[EvaluationResult], people: list[EvaluationResult]
    ) -> None:
        """Compare human feedback and the judge's result for an answer, whichever arrives first."""
        by_name: dict[str, EvaluationResult] = {}
        for result in people:
            name = self.settings.feedback.get(result.criterion_name, result.criterion_name)
            if name in self._criteria:  # clients may make up any number of others
                by_name[name] = _bare(result)
        by_judge = {
            result.criterion_name: _bare(result) for result in judged if result.status == "scored"
        }
        if by_judge:
            _remember(self._by_judge, span, by_judge)
        if by_name:
            _remember(self._by_people, span, by_name)
        known_judged = self._by_judge.get(span, {})
        known_people = self._by_people.get(span, {})
        for name in known_judged.keys() & known_people.keys() & {*by_name, *by_judge}:
            self._compare(PEOPLE, known_judged[name], known_people[name])

    def _repeat_some(
        self, evaluation_input: EvaluationInput, judged: list[EvaluationResult]
    ) -> None:
        share = self.settings.repeat_share
        of_evaluator: dict[str | None, list[EvaluationResult]] = {}
        for result in judged:
            if (
                result.status == "scored"
                and result.judgement is not None
                and not result.judgement.from_cache
            ):
                of_evaluator.setdefault(result.evaluator_version, []).append(result)
        for results in of_evaluator.values():
            if share > 0.0 and self._draw() < share and self._worker.waiting < _MAX_REPEATS:
                self._worker.submit(partial(self._repeat, evaluation_input, results))

    def _watched_of(self, result: EvaluationResult) -> Watched | None:
        return self._watched.get((result.criterion_name, result.evaluator_version))

    def _judged_of(self, result: EvaluationResult) -> JudgedCriterion | None:
        """Return what is watched of a result's criterion and judge.

        Return None if its judge is not watched, or if there are too many already.
        """
        watched = self._watched_of(result)
        if watched is None:
            return None
        # another rubric has other scores
        key: Key = (result.criterion_name, watched.model, result.evaluator_version)
        judged = self._judged.get(key)
        if judged is None:
            if len(self._judged) >= MAX_WATCHED:
                log.warning("judge_not_watched", part=result.criterion_name, most=MAX_WATCHED)
                return None
            judged = self._judged[key] = JudgedCriterion(
                self.settings, *key, self._references.get(key)
            )
        return judged

    # --- comparisons, on either thread
    # -------------------------------------------------------------------------------

    def _compare(self, check: str, result: EvaluationResult, other: EvaluationResult) -> None:
        """Compare a judge's result with another opinion of the same. A failure is not compared."""
        agrees = (
            agree(result, other, self.settings.tolerance) if result.status == "scored" else None
        )
        outcome: str = result.status
        if outcome == "scored":
            if agrees is None:
                outcome = "not_comparable"
            elif agrees:
                outcome = "agreed"
            else:
                outcome = "disagreed"
        with self._lock:
            self._count(check, outcome)
            judged = self._judged_of(result)
            change = None if judged is None or agrees is None else judged.compare(check, agrees)
        if judged is not None:
            self._report(judged, change)

    def _count(self, check: str, outcome: str, number: int = 1) -> None:
        self.checks[check, outcome] = self.checks.get((check, outcome), 0) + number

    def _report(self, judged: JudgedCriterion, change: Change | None) -> None:
        if change is None:
            return
        self._is_distrusted = not all(judged.is_trusted for judged in list(self._judged.values()))
        event = "judge_untrusted" if change.distrusts else "judge_trusted_again"
        log.warning(
            event,
            part=judged.criterion,
            judge=judged.model,
            check=change.check,
            value=round(change.value, 3),
        )
        # one check that trusts it again is no change while another distrusts it
        if self._announce is not None and (change.distrusts or judged.is_trusted):
            self._announce(_state_change(judged, change))

    # --- on the thread of its own
    # ------------------------------------------------------------------------------------

    def _write(self, path: Path, references: Mapping[Key, Counts]) -> None:
        try:
            write_references(path, references)
        except Exception as error:
            self._broken("judge_health", error)

    def _look(self) -> None:
        """Ask the canaries when it is time."""
        if self._clock() >= self._next_round:
            self.ask_canaries()

    def ask_canaries(self) -> None:
        """Ask every judge its canaries now, on the calling thread. Blocks.

        The next round is due `every_s` later. After `close` nothing is asked.
        """
        if self.canaries and not self._is_closed:
            self._next_round = self._clock() + self.settings.every_s
            self._run(self._round())

    async def _round(self) -> None:
        for evaluator, watched in self._evaluators():
            own = {item.criterion.name: item for item in watched}
            try:
                again = evaluator.again()
            except Exception as error:  # the others are asked all the same
                self._broken("judge_health", error)
                continue
            try:
                for canary in self.canaries:
                    wanted = [own[name] for name in canary.labels if name in own]
                    if wanted and not self._is_closed:
                        await self._ask_canary(again, canary, wanted)
            finally:
                await again.judge.close()

    async def _ask_canary(self, evaluator: Any, canary: Canary, watched: Sequence[Watched]) -> None:
        criteria = [item.criterion for item in watched]
        expected = {
            part.name: result_of(evaluator, part, canary.labels[part.name]) for part in criteria
        }
        for result in await self._ask(CANARY, evaluator, canary.evaluation_input, watched):
            self._compare(CANARY, result, expected[result.criterion_name])

    def _repeat(
        self, evaluation_input: EvaluationInput, results: Sequence[EvaluationResult]
    ) -> None:
        self._look()  # while repeats keep coming the thread is never idle
        watched: list[Watched] = []
        for result in results:
            of_result = self._watched_of(result)
            if of_result is not None:
                watched.append(of_result)
        if watched and not self._is_closed and hasattr(watched[0].evaluator, "again"):
            self._run(self._ask_again(evaluation_input, results, watched))

    async def _ask_again(
        self,
        evaluation_input: EvaluationInput,
        results: Sequence[EvaluationResult],
        watched: Sequence[Watched],
    ) -> None:
        self._repeats += 1
        evaluator = watched[0].evaluator
        swaps = self._repeats % 2 == 0 and evaluator.compares(evaluation_input)
        check = POSITION if swaps else REPEAT
        again = evaluator.again(swaps=swaps)
        first = {result.criterion_name: result for result in results}
        try:
            for result in await self._ask(check, again, evaluation_input, watched):
                self._compare(check, result, first[result.criterion_name])
        finally:
            await again.judge.close()

    async def _ask(
        self,
        check: str,
        evaluator: Any,
        evaluation_input: EvaluationInput,
        watched: Sequence[Watched],
    ) -> list[EvaluationResult]:
        """Return the results, none of them scored as an answer.

        Calls and cost count as those of any question.
        """
        attach_marked(self._key)
        emitter = watched[0].emitter
        if emitter is not None:
            emitter.watch_judges(None)
        criteria = [item.criterion for item in watched]
        try:
            async with asyncio.timeout(_ASK_S):
                results = await evaluator.evaluate(
                    self._redaction.input(evaluation_input), criteria
                )
        except Exception as error:
            outcome = "skipped" if isinstance(error, EvaluationSkipped) else "failed"
            with self._lock:
                self._count(check, outcome, len(criteria))
            return []
        return [
            result
            for result in results
            if find_criterion(criteria, result.criterion_name) is not None
        ]

    def _run(self, work: Any) -> None:
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                runner.run(work)
        except Exception as error:
            self._broken("judge_health", error)

    def _evaluators(self) -> list[tuple[Any, list[Watched]]]:
        """Return each repeatable evaluator once, with the criteria that it scores."""
        grouped: dict[int, tuple[Any, list[Watched]]] = {}
        versions: dict[str | None, int] = {}
        for (_, version), watched in list(self._watched.items()):
            if hasattr(watched.evaluator, "again"):
                first = versions.setdefault(version, id(watched.evaluator))
                _, criteria = grouped.setdefault(first, (watched.evaluator, []))
                criteria.append(watched)
        return list(grouped.values())

    # --- for the metrics, on any thread: of several versions of a criterion the worst
    # ---------------------------------

    def agreements(self) -> dict[Labels, float]:
        """Return the share of the last comparisons that agreed, by criterion, judge and check."""
        shares: list[tuple[Labels, float]] = []
        with self._lock:
            for judged in self._judged.values():
                for check, last in judged.agreement.items():
                    shares.append((_labels_of_check(judged, check), last.share))
            return _chosen(min, shares)

    def untrusted(self) -> dict[Labels, float]:
        """Return 1 while a check distrusts the judge, 0 once it does no more."""
        states: list[tuple[Labels, float]] = []
        with self._lock:
            for judged in self._judged.values():
                for check, distrusts in judged.states.items():
                    states.append((_labels_of_check(judged, check), float(distrusts)))
            return _chosen(max, states)

    def drifts(self) -> dict[Labels, float]:
        drifts = [(labels, scores.drift()) for labels, scores in self._scores()]
        return _chosen(max, ((labels, drift.psi) for labels, drift in drifts if drift is not None))

    def length_correlations(self) -> dict[Labels, float]:
        values = [(labels, scores.length_correlation()) for labels, scores in self._scores()]
        return _chosen(
            partial(max, key=abs),
            ((labels, value) for labels, value in values if value is not None),
        )

    def _scores(self) -> list[tuple[Labels, ScoreWindow]]:
        # Copies: who computes with them must not keep the background thread waiting.
        with self._lock:
            return [(_labels(judged), judged.scores.copied()) for judged in self._judged.values()]

    def checks_by_outcome(self) -> dict[Labels, float]:
        with self._lock:
            return {
                ((names.JUDGE_CHECK, check), (names.OUTCOME, outcome)): count
                for (check, outcome), count in self.checks.items()
            }

    def changes_by_model(self) -> dict[Labels, float]:
        return {((names.JUDGE_MODEL, model),): count for model, count in list(self.changes.items())}


def _state_change(judged: JudgedCriterion, change: Change) -> StateChange:
    """Return the change of one check as that of the judge, which is well if no check distrusts it."""
    facts: dict[str, str | float] = {
        "judge": judged.model,
        "evaluator_version": judged.version or "",
        "check": change.check,
        "value": round(change.value, 3),
    }
    return StateChange("judge", judged.criterion, None, change.distrusts, time.time_ns(), facts)


def _chosen(
    choose: Callable[[float, float], float], values: Iterable[tuple[Labels, float]]
) -> dict[Labels, float]:
    chosen: dict[Labels, float] = {}
    for labels, value in values:
        chosen[labels] = choose(chosen.get(labels, value), value)
    return chosen


def _labels(judged: JudgedCriterion) -> Labels:
    return (names.EVALUATION_NAME, judged.criterion), (names.JUDGE_MODEL, judged.model)


def _labels_of_check(judged: JudgedCriterion, check: str) -> Labels:
    return (*_labels(judged), (names.JUDGE_CHECK, check))


def _bare(result: EvaluationResult) -> EvaluationResult:
    """Return what is compared of it, without the content."""
    return copy_with(result, {"reasoning": None, "metadata": None, "judgement": None})


def _remember(
    answers: dict[Span, dict[str, EvaluationResult]],
    span: Span,
    results: dict[str, EvaluationResult],
) -> None:
    answers[span] = {**answers.pop(span, {}), **results}
    if len(answers) > _MAX_ANSWERS:
        del answers[next(iter(answers))]

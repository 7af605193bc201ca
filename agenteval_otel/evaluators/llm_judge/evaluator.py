"""LLMJudge: a model judges the answer, by criteria in words."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

from pydantic import AliasChoices, Field, field_validator, model_validator

from agenteval_otel.components import ListOf
from agenteval_otel.components.explained import ComponentError
from agenteval_otel.errors import ConfigurationError, EvaluationError, EvaluationSkipped, JudgeError
from agenteval_otel.evaluators.base import (
    CriterionEvaluator,
    EvaluatorKind,
    Execution,
    failure_of,
    result_of,
    skipped_of,
)
from agenteval_otel.evaluators.built_in import NotBlank
from agenteval_otel.evaluators.judges import JudgeRequest, Verdict
from agenteval_otel.evaluators.judges.adapter import CallableJudge, JudgeField, as_judge
from agenteval_otel.evaluators.judges.prompt import CaseText
from agenteval_otel.evaluators.llm_judge.case import (
    CaseFields,
    case_of,
    conversation_windows,
    fields_shown,
    injection_signs,
    missing_of,
    no_answer,
    windows_of,
)
from agenteval_otel.evaluators.llm_judge.prompt import (
    NAMES,
    CriterionTask,
    ReplyForm,
    fields_of,
    of_conversation,
    question,
    tasks_of,
    unknown_placeholder,
    with_reminder,
)
from agenteval_otel.evaluators.llm_judge.replies import (
    FormError,
    JudgeAnswer,
    judge_facts,
    judgement_of,
    outcomes_of,
    reply_of,
    worst_of,
)
from agenteval_otel.evaluators.llm_judge.rubric import Levels, Rubric, slug_of
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult, Score
from agenteval_otel.models.judge_calls import BATCH, Judgement
from agenteval_otel.models.scoring.scales import rating_of
from agenteval_otel.models.value import copy_with

_RUBRIC_PASSES = 0.7
_OWN_CRITERION = {"description", "scale", "levels", "rubric"}
_WORDS = ("description", "levels", "rubric", "prompt_template", "system_prompt", "criterion_name")
_NO_WORDS = (
    "nothing says what is to be judged: say it in words, as in LLMJudge('Is the answer polite?', judge=...), which is "
    "description: in settings, or by levels, rubric, rubrics or prompt_template"
)


class LLMJudge(CriterionEvaluator, type="LLMJudge"):
    """Asks a model to judge the answer, by one criterion or by several in one call.

    Higher is better on every scale.

    ``LLMJudge("Is the answer polite?", judge="anthropic:claude-haiku-4-5")`` is all that it needs.

    The texts of the case are data to the judge: JSON behind a random mark, with the instruction
    before and after it. The judge answers with evidence, a reason and a score for each criterion. A
    score from 1 to 5 has its word as the ``rating`` in the metadata, from ``Unacceptable`` to
    ``Exceptional``. A score beyond the scale and a failed call give a failed result with its
    ``error_type`` and the usage in the metadata. Inputs that lack a needed field, and unusable
    answers, are skipped without a call.

    Attributes:
        judge: A `Judge`, ``type:model`` (``type:model@address``), settings of a judge, or an object
            or a function that generates text. ``llm`` and ``provider`` are other names for it.
        description: What is to be judged, in words for the judge. It is the one positional
            argument.
        criterion_name: The criterion that it scores. When left out, the first words of
            `description` or `rubric`, in lower case and joined by ``_``: ``is_the_answer_polite``.
        levels: What each level of the scale means, by the level.
        rubric: The whole rubric as one text, as in GoGrid: scored from 0 to 10, divided by ten,
            passing from 0.7.
        rubrics: Several criteria for one call, in place of the evaluator's own. Catalogue criteria
            are given by name.
        prompt_template: Own wording. ``{{input}}``, ``{{response}}``, ``{{reference}}``,
            ``{{context.key}}`` (also ``context``, ``history``, ``tool_calls``, ``tool_results``,
            ``tool_definitions``) are texts of the case, ``{{criterion_name}}``,
            ``{{criterion_description}}`` and ``{{criterion_scale}}`` the criterion's. The judge
            gets only the fields that the template names. JSON's braces stay text.
        system_prompt: Replaces the built-in one.
        needs: Fields that an input must have, else the criteria are skipped. ``a|b``: the first one
            that it has.
        takes: Fields shown in addition if the input has them. They are not used with a template.
        placement: Texts of the case as ``data``, or ``inline`` in the template, where a text can
            pose as instructions.
        reply_form: ``evidence``, ``score`` (JSON, as AgentDock), ``lines`` (as GoGrid), or a bare
            ``number``.
        refuse_degenerate: Whether answers without any content are skipped. Judges may rate them as
            correct.
        max_field_chars: The middle of a longer text is left out, with a note for the judge and
            ``leftOut`` in the metadata.
        max_windows: Splits longer answers into up to this many windows, with one call each. The
            worst score counts. When left out, the rubric decides: 20 windows for the catalogue's
            harm criteria, 1 for all others. Longer conversations are split between turns, by
            default also for `TaskAdherence` and `Contradiction`. With one window, the beginning and
            the end are shown.
        max_tokens: Maximum number of tokens of the judge's answer, including its thinking.
        repair: Whether the judge is asked once more, with a reminder of the form, if its reply is
            not in the form. The second call is counted and paid like the first, and has what is
            left of `timeout_s`. Its reply is read as strictly.
    """

    kind: ClassVar[EvaluatorKind] = "llm_judge"
    # A reply that comes at the second attempt is judged by the same words.
    fingerprint_exclude: ClassVar[frozenset[str]] = frozenset({"repair"})

    criterion_name: str = "llm_judge"
    scale: str = "pass/fail"
    judge: JudgeField = Field(
        validation_alias=AliasChoices("judge", "llm", "provider"),
        serialization_alias="judge",
        examples=['judge="anthropic:<model>" or judge="openai:<model>"'],
    )
    description: str = Field(default="", kw_only=False)
    levels: Levels = Field(default_factory=dict)
    rubric: NotBlank | None = None
    rubrics: ListOf[Rubric] = ()
    prompt_template: NotBlank | None = None
    system_prompt: str | None = None
    needs: ListOf[CaseFields] = ("response",)
    takes: ListOf[CaseFields] = ("question", "ground_truth")
    placement: Literal["data", "inline"] = "data"
    reply_form: ReplyForm = "evidence"
    refuse_degenerate: bool = True
    max_field_chars: int = Field(default=16_000, ge=200, le=1_000_000)
    max_windows: int | None = Field(default=None, ge=1, le=100)
    max_tokens: int = Field(default=4_096, ge=16)  # twenty claims, or four criteria in one call
    repair: bool = False

    @field_validator("judge", mode="before")
    @classmethod
    def _load_judge(cls, value: object) -> Any:
        try:
            return as_judge(value, path="judge")
        except ConfigurationError as failure:
            raise ComponentError(failure) from None

    @model_validator(mode="before")
    @classmethod
    def _named_by_its_words(cls, data: object) -> Any:
        if not isinstance(data, Mapping) or "criterion_name" in data or "criterionName" in data:
            return data
        words = data.get("description") or data.get("rubric")
        if not isinstance(words, str) or not words.strip():
            return data
        slug = slug_of(words)
        if not slug:
            raise ValueError(
                "no criterion name can be made of these words: give criterion_name, in Latin letters"
            )
        return {**data, "criterion_name": slug}

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if not self.rubrics and not any(map(self._is_changed, _WORDS)):
            raise ValueError(_NO_WORDS)
        # By their values: a dump sets all fields.
        own_fields = {name for name in _OWN_CRITERION if self._is_changed(name)}
        if self.rubrics and (own_fields or self._is_changed("criterion_name")):
            raise ValueError("give rubrics, or one criterion of its own, not both")
        if self.rubric is not None and own_fields - {"rubric"}:
            other = min(own_fields - {"rubric"})
            raise ValueError(
                f"rubric is judged from 0 to 10: give description in its place, or no {other}"
            )
        # AgentDock and GoGrid keep any name as text
        is_ours = self.reply_form in ("evidence", "number")
        wrong = unknown_placeholder(self.prompt_template or "") if is_ours else None
        if wrong is not None:
            raise ComponentError(ConfigurationError(wrong, path="prompt_template"), of_model=True)
        names = [task.criterion_name for task in self.all_rubrics]
        if len(set(names)) < len(names):
            raise ValueError("two rubrics have the same criterion_name")
        if (
            self.reply_form == "number"
            and self._tasks(self.criteria())[0].scale.schema["type"] != "integer"
        ):
            raise ValueError(
                "reply_form number is for a scale of whole numbers, such as likert5 or 0-10"
            )
        if self.reply_form != "evidence" and (len(names) > 1 or self.all_rubrics[0].claims):
            raise ValueError(
                f"reply_form {self.reply_form} is for one criterion, and for none with claims"
            )
        return self

    def _is_changed(self, name: str) -> bool:
        field = type(self).model_fields.get(name)
        if field is None:
            return False
        return bool(getattr(self, name) != field.get_default(call_default_factory=True))

    def preferred_execution(self) -> Execution | None:
        return "async"

    @property
    def label(self) -> str:
        names = ",".join(rubric.criterion_name for rubric in self.all_rubrics)
        return f"{self.type}:{names}"

    @cached_property
    def all_rubrics(self) -> tuple[Rubric, ...]:
        """Return the criteria, each as a rubric."""
        if self.rubrics:
            return tuple(self.rubrics)
        fields: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("criterion_name", "weight", "objective", "threshold")
        }
        if self.rubric is None:
            fields |= {
                "description": self.description,
                "scale": self.scale,
                "levels": self.levels,
            }
        else:
            fields |= {
                "description": self.rubric,
                "scale": "numeric",
                "levels": {"0": "worst", "10": "best"},
            }
            if self.threshold is None:
                fields["threshold"] = _RUBRIC_PASSES
        return (Rubric(**fields),)

    @property
    def _form(self) -> ReplyForm:
        # Only a `CallableJudge` may return free text; every other judge returns a JSON object, by
        # its contract.
        is_text = self.reply_form in ("lines", "number")
        if is_text and not isinstance(self.judge, CallableJudge):
            return "evidence"
        return self.reply_form

    @property
    def derived_from(self) -> str | None:
        words = self.description or self.rubric or ""
        return words if words and slug_of(words) == self.criterion_name else None

    def criteria(self) -> tuple[EvaluationCriteria, ...]:
        return tuple(task.criterion for task in self.all_rubrics)

    async def evaluate(
        self, evaluation_input: EvaluationInput, criteria: Sequence[EvaluationCriteria]
    ) -> list[EvaluationResult]:
        """Return a result for each of its criteria that is scored.

        One call of the judge scores all of them. Criteria in windows share a call for each window.
        A reply that is to be repaired takes another call.
        """
        tasks = self._tasks(criteria)
        reasons = {task.key: self._skip_reason(evaluation_input, task) for task in tasks}
        due = [task for task in tasks if reasons[task.key] is None]
        if tasks and not due and len(set(reasons.values())) == 1:
            raise EvaluationSkipped(reasons[tasks[0].key])
        keys = [task.key for task in due]
        judged = dict(zip(keys, await self._judged(evaluation_input, due), strict=True))
        return [judged.get(task.key) or self._skipped(task, reasons[task.key]) for task in tasks]

    async def _judged(
        self, evaluation_input: EvaluationInput, tasks: Sequence[CriterionTask]
    ) -> list[EvaluationResult]:
        parts: list[tuple[Sequence[CriterionTask], EvaluationInput]] = (
            [(tasks, evaluation_input)] if tasks else []
        )
        in_windows = {task.key: self._windows_of(task) for task in tasks}
        shown = self._shown(evaluation_input, most=max(in_windows.values(), default=1))
        if len(shown) > 1:
            whole = [task for task in tasks if in_windows[task.key] == 1]
            split = [task for task in tasks if in_windows[task.key] > 1]
            parts = [(split, window) for window in shown]
            parts += [(whole, evaluation_input)] if whole else []
        calls = await asyncio.gather(*(self._ask(part, input_part) for part, input_part in parts))
        results: list[EvaluationResult] = []
        for task in tasks:
            of_task = [call for call in calls if task in call.tasks]
            worst = worst_of(of_task, task)
            paid = calls if not results else ()  # the first result shows the usage
            results.append(self._signed(task, worst, of_task, paid))
        return results

    def _windows_of(self, task: CriterionTask) -> int:
        more = task.rubric.conversation_windows if self._of_conversations else 1
        return self.max_windows or max(task.rubric.max_windows, more)

    def _shown(self, evaluation_input: EvaluationInput, *, most: int) -> list[EvaluationInput]:
        """Return the input in windows, or itself if it is short enough or `most` is 1."""
        if most > 1 and evaluation_input.conversation is not None:
            return conversation_windows(evaluation_input, self.max_field_chars, most=most)
        text = evaluation_input.text_at("response") or ""
        if most == 1 or len(text) <= self.max_field_chars:
            return [evaluation_input]
        windows = windows_of(text, self.max_field_chars, most=most)
        return [copy_with(evaluation_input, {"response": window}) for window in windows]

    async def _ask(
        self, tasks: Sequence[CriterionTask], evaluation_input: EvaluationInput
    ) -> JudgeAnswer:
        """Ask the judge, once more if a reply is to be repaired, and read what it says."""
        request, case = self.question_for(evaluation_input, tasks)
        # the question is written and sent in two turns of the loop, each a short one
        await asyncio.sleep(0)
        first = await self._call(request, tasks, case)
        # The question of a batch was asked with all others, hours ago.
        if not (self.repair and first.is_unreadable and BATCH.get() is None):
            return first
        second = await self._call(with_reminder(request), tasks, case)
        if second.verdict is None and not second.is_unreadable:
            # A guard refused it, or it failed: the first failure says more.
            return first._replace(earlier=second.outcome)
        if second.verdict is not None and not second.is_unreadable:
            self.judge.guarded().keep(request, second.verdict)
        return second._replace(earlier=first.outcome)

    async def _call(
        self, request: JudgeRequest, tasks: Sequence[CriterionTask], case: Mapping[str, CaseText]
    ) -> JudgeAnswer:
        guarded = self.judge.guarded()
        try:
            verdict = await guarded.judge(request)
        except EvaluationSkipped as skipped:
            return JudgeAnswer(tasks, [self._skipped(task, str(skipped)) for task in tasks], case)
        except Exception as error:
            kind = type(error).__name__
            if not isinstance(error, JudgeError):  # of a judge from outside
                error = JudgeError(f"the judge raised {kind}: {error}", error_type=kind)
            message = str(error)
            if error.reply_begins:  # live it is kept only where content is captured
                message += f". The reply begins {error.reply_begins!r}"
            results = [self._failure(task, message, error.error_type) for task in tasks]
            return JudgeAnswer(tasks, results, case, error, error.is_unreadable)
        results = []
        unreadable = 0
        for task in tasks:
            try:
                results.append(self._result(verdict, task, case, alone=len(tasks) == 1))
            except FormError as error:
                results.append(self._failure(task, str(error), error.error_type))
                unreadable += 1
        if any(result.error_type is not None for result in results):
            guarded.forget(request)  # the cache keeps no answer that cannot be used
        return JudgeAnswer(tasks, results, case, verdict, unreadable == len(tasks))

    def _signed(
        self,
        task: CriterionTask,
        answer: JudgeAnswer,
        of_task: Sequence[JudgeAnswer],
        paid: Sequence[JudgeAnswer],
    ) -> EvaluationResult:
        """Return the criterion's result with the facts of its calls.

        `paid` are the calls whose usage it shows.
        """
        result = answer.results[answer.tasks.index(task)]
        if not any(call.outcomes for call in (*of_task, *paid)):
            return result
        texts: list[str] = []
        for call in of_task:
            texts += [str(text.text) for text in call.case.values()]
        signs = injection_signs(texts)
        judgement = judgement_of(answer, paid, self.judge.model)
        metadata = dict(result.metadata or {})
        if self._shows_facts(judgement, paid):
            metadata["judge"] = judge_facts(judgement, paid)
        if len(of_task) > 1:
            metadata["windows"] = len(of_task)
        left_out = {name: text.left_out for name, text in answer.case.items() if text.left_out}
        if left_out:
            metadata["leftOut"] = left_out
        if signs:
            metadata["injectionSigns"] = list(signs)
        probability = math.prod(outcome.probability for outcome in outcomes_of(of_task))
        changes = {
            "metadata": metadata or None,
            "suspected_injection": bool(signs),
            "judgement": judgement,
            "probability_given_sampled": probability,
        }
        return copy_with(result, changes)

    def _shows_facts(self, judgement: Judgement, paid: Sequence[JudgeAnswer]) -> bool:
        if not paid:
            return False
        # In the originals' forms only where the provider counts tokens: their metadata has nothing
        # else.
        counts_tokens = bool(judgement.input_tokens or judgement.output_tokens)
        return self.reply_form == "evidence" or counts_tokens

    def again(self, *, swaps: bool = False) -> Self:
        """Return a copy that repeats earlier requests without reading verdicts from the cache.

        With `swaps` the texts of the case are in reverse order.
        """
        judge = self.judge.model_copy(update={"cache": None})
        judge.__dict__.pop("_guarded", None)
        other = self.model_copy(update={"judge": judge})
        other.__dict__["_swaps"] = swaps
        return other

    def compares(self, evaluation_input: EvaluationInput) -> bool:
        """Tell whether the judge sees the answer beside a reference answer.

        Their order can then be reversed.
        """
        wanted = _fields_wanted(self._tasks(self.criteria()))
        shows_both = {"response", "ground_truth"} <= set(fields_shown(evaluation_input, wanted))
        has_both = evaluation_input.text_at("ground_truth") is not None
        return self.prompt_template is None and shows_both and has_both

    def question_for(
        self, evaluation_input: EvaluationInput, tasks: Sequence[CriterionTask] | None = None
    ) -> tuple[JudgeRequest, Mapping[str, CaseText]]:
        """Return the request for an input, and the case in it. Nothing is sent."""
        tasks = self._tasks(self.criteria()) if tasks is None else tasks
        wanted = _fields_wanted(tasks)
        if self._of_conversations:
            wanted.append("history")
        if self.prompt_template is not None:
            fields = fields_of(self.prompt_template)
        else:
            fields = [(NAMES[field], field) for field in fields_shown(evaluation_input, wanted)]
        if self.__dict__.get("_swaps"):
            fields = fields[::-1]
        case = case_of(evaluation_input, fields, limit=self.max_field_chars)
        request = question(
            tasks,
            case,
            template=self.prompt_template,
            is_inline=self.placement == "inline",
            reply_form=self._form,
            system_prompt=self.system_prompt,
            max_tokens=self.max_tokens,
        )
        return request, case

    def _tasks(self, criteria: Sequence[EvaluationCriteria]) -> list[CriterionTask]:
        tasks = tasks_of(
            self.all_rubrics,
            criteria,
            needs=self.needs,
            takes=self.takes,
            agentdock=self.reply_form == "score",
            whole=self.rubric is not None,
        )
        return list(map(of_conversation, tasks)) if self._of_conversations else tasks

    @property
    def _of_conversations(self) -> bool:
        return self.evaluates == "conversation"

    def _skip_reason(self, evaluation_input: EvaluationInput, task: CriterionTask) -> str | None:
        missing = missing_of(evaluation_input, (*task.needs, *self._named))
        if missing is not None or not self.refuse_degenerate:
            return missing
        is_shown = any("response" in wanted.split("|") for wanted in (*task.needs, *task.takes))
        if not is_shown and self.prompt_template is None:
            return None
        text = evaluation_input.text_at("response")
        return None if text is None else no_answer(text)

    @cached_property
    def _named(self) -> Sequence[str]:
        """Return the fields that the template refers to, which the input must have.

        In the original frameworks' forms, a missing question, response or ground truth is ``N/A``
        in the prompt.
        """
        fields = [field for _, field in fields_of(self.prompt_template or "")]
        if self.reply_form in ("evidence", "number"):
            return fields
        return [field for field in fields if field not in ("question", "response", "ground_truth")]

    def _result(
        self, verdict: Verdict, task: CriterionTask, case: Mapping[str, CaseText], *, alone: bool
    ) -> EvaluationResult:
        try:
            reply = reply_of(verdict, task, self._form, case, alone=alone)
        except FormError:
            raise
        except EvaluationError as error:
            return self._failure(task, str(error), error.error_type)
        except EvaluationSkipped as skipped:
            return self._skipped(task, str(skipped))
        value = task.to_score(reply.raw)
        metadata = {"rawLlmScore": reply.raw, **reply.facts}
        if task.criterion.scale == "likert5" and self.reply_form != "score":  # AgentDock gives none
            metadata["rating"] = rating_of(value)
        score = Score(value=value, reasoning=reply.reason, metadata=metadata)
        return result_of(self, task.criterion, score)

    def _skipped(self, task: CriterionTask, reason: str | None) -> EvaluationResult:
        return skipped_of(self, task.criterion.name, reason or "")

    def _failure(self, task: CriterionTask, error: str, error_type: str) -> EvaluationResult:
        return failure_of(self, task.criterion.name, error, error_type=error_type, filler="error")


def _fields_wanted(tasks: Sequence[CriterionTask]) -> list[str]:
    wanted: list[str] = []
    for task in tasks:
        wanted += (*task.needs, *task.takes)
    return wanted

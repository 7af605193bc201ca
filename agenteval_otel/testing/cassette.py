"""CassetteJudge: a model's verdicts from a file, so that tests need neither a key nor the network."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, SerializeAsAny, ValidationError, field_validator

from agenteval_otel.components.explained import ComponentError
from agenteval_otel.errors import ConfigurationError, JudgeError
from agenteval_otel.evaluators.judges import Judge, JudgeRequest, JudgeUsage, Verdict
from agenteval_otel.evaluators.judges.adapter import as_judge
from agenteval_otel.models.value import copy_with
from agenteval_otel.runtime.fork import ForkSafeLock

_LOCK = ForkSafeLock()
_HINT = "ask the judge once with record=True (pytest --agenteval-record)"


class CassetteJudge(Judge, type="cassette"):
    """Reads the verdicts of a judge from a file, and records them there on request.

    The file has a JSON object on each line: the question's digest, and the verdict with the model's
    answer (content). A question that is not there, because the input, the criterion, the judge's
    model or our wording has changed, fails with ``not_found``. Several processes may record into
    one file.

    Attributes:
        recorded: The judge whose verdicts they are. Asked only to record.
        path: The file.
        record: Ask the judge for verdicts that the file does not have, and append them.
    """

    fingerprint_exclude: ClassVar[frozenset[str]] = Judge.fingerprint_exclude | {"path", "record"}

    recorded: SerializeAsAny[Judge]
    path: Path
    record: bool = Field(default=False)

    @field_validator("recorded", mode="before")
    @classmethod
    def _load_judge(cls, value: object) -> Any:
        try:
            return as_judge(value, path="recorded")
        except ConfigurationError as failure:
            raise ComponentError(failure) from None

    @cached_property
    def _verdicts(self) -> dict[str, Verdict]:
        if not self.path.exists():
            return {}
        verdicts: dict[str, Verdict] = {}
        for number, line in enumerate(self.path.read_text("utf-8").splitlines(), 1):
            try:
                entry = json.loads(line)
                verdicts[entry["question"]] = Verdict.model_validate(entry["verdict"])
            except (ValueError, KeyError, TypeError, ValidationError):
                raise JudgeError(
                    f"{self.path}:{number} is no recorded verdict", error_type="bad_request"
                ) from None
        return verdicts

    async def judge(self, request: JudgeRequest) -> Verdict:
        """Return the recorded verdict, with nothing used.

        Without one, return and record the judge's own verdict if `record` is set, else
        raise `JudgeError`.
        """
        source = f"{request.fingerprint or request.prompt}\0{self.recorded.fingerprint_source()}"
        question = hashlib.sha256(source.encode("utf-8", "replace")).hexdigest()[:32]
        if question in self._verdicts:
            changes = {
                "usage": JudgeUsage(calls=0),
                "cost_usd": 0.0,
                "duration_s": 0.0,
                "from_cache": True,
            }
            return copy_with(self._verdicts[question], changes)
        if not self.record:
            raise JudgeError(
                f"{self.path} has no verdict on this question: {_HINT}", error_type="not_found"
            )
        verdict = await self.recorded.guarded().judge(request)
        fields = verdict.model_dump(mode="json", include={"answer", "raw", "model"})
        record = {"question": question, "purpose": request.purpose, "verdict": fields}
        line = json.dumps(record) + "\n"
        with _LOCK:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line)
        self._verdicts[question] = verdict
        return verdict

    async def close(self) -> None:
        await self.recorded.close()

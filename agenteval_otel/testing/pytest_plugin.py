"""The pytest plugin ``agenteval``.

It has fixtures for settings and judges, `assert_evaluation`, and a table of the criteria.

pytest imports it in every environment that has this package: the rest is imported when a fixture is
used.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from agenteval_otel.config import Settings
    from agenteval_otel.evaluators.func import EvaluatorLike
    from agenteval_otel.evaluators.judges import Judge
    from agenteval_otel.models import AggregatedEvaluationResult
    from agenteval_otel.offline.config import EvaluationRunConfig

_RESULTS = pytest.StashKey[list[dict[str, Any]]]()
_KEPT: Any = {
    "overall_score": True,
    "run_errors": True,
    "evaluation_config_snapshot": {"evaluatorTypes"},
    "results": {
        "__all__": {
            "criterion_name",
            "evaluator_type",
            "evaluator_id",
            "evaluator_version",
            "score",
            "normalized",
            "label",
            "passed",
            "error",
            "error_type",
            "skip_reason",
            "reason_code",
            "probability",
        }
    },
}
"""What the table and a comparison need of a result, which is no text of an answer."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "agenteval_settings", "settings file whose evaluators assert_evaluation uses", default=""
    )
    parser.addini("agenteval_cassettes", "folder with recorded verdicts of judges", default="")
    add = parser.getgroup("agenteval").addoption
    add(
        "--agenteval-record",
        action="store_true",
        help="ask judges for verdicts that are not recorded yet",
    )
    add(
        "--agenteval-results",
        metavar="FILE",
        help="write the scores of the tests there, for --agenteval-baseline",
    )
    add(
        "--agenteval-baseline",
        metavar="FILE",
        help="fail when a criterion has dropped significantly since these --agenteval-results",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Summary(config), "agenteval-summary")


@pytest.fixture(scope="session")
def agenteval_settings(pytestconfig: pytest.Config) -> Settings:
    """Load the settings from the file of the ini option ``agenteval_settings``.

    Without it, from that of AGENTEVAL_SETTINGS.
    """
    from agenteval_otel.config.load import load_settings

    return load_settings(_place(pytestconfig, "agenteval_settings")).settings


@pytest.fixture(scope="session")
def agenteval_config(
    pytestconfig: pytest.Config, agenteval_settings: Settings | Mapping[str, Any]
) -> EvaluationRunConfig:
    """Return what `assert_evaluation` runs.

    It has the evaluators and criteria of the settings, with recorded judges.
    """
    from agenteval_otel.config import Settings
    from agenteval_otel.config.process import build, run_fields
    from agenteval_otel.evaluators.judges import Judge
    from agenteval_otel.offline.config import EvaluationRunConfig

    settings = agenteval_settings
    if not isinstance(settings, Settings):
        settings = Settings(**settings)
    fields = run_fields(settings, build(settings))
    folder = _place(pytestconfig, "agenteval_cassettes")
    if folder is not None:
        evaluators = []
        for evaluator in fields["evaluators"]:
            judge = getattr(evaluator, "judge", None)
            if isinstance(judge, Judge):
                recorded = _recorded(pytestconfig, judge, folder / "settings.jsonl")
                evaluator = evaluator.model_copy(update={"judge": recorded})
            evaluators.append(evaluator)
        fields["evaluators"] = evaluators
    return EvaluationRunConfig(**fields)


@pytest.fixture
def agenteval_judge(request: pytest.FixtureRequest) -> Callable[..., Judge]:
    """Make judges.

    ``agenteval_judge(replies=[...])`` answers from a script (the fields of `ScriptedJudge`).
    ``agenteval_judge(judge)`` answers with the verdicts that are recorded for the test's file.
    """

    def make(judge: object = None, /, **script: Any) -> Judge:
        from agenteval_otel.testing import ScriptedJudge

        if judge is None:
            return ScriptedJudge(**script)
        folder = _place(request.config, "agenteval_cassettes") or request.path.parent / "cassettes"
        return _recorded(request.config, judge, folder / f"{request.path.stem}.jsonl")

    return make


@pytest.fixture
def assert_evaluation(request: pytest.FixtureRequest) -> Callable[..., AggregatedEvaluationResult]:
    """Evaluate an answer, and fail with a line for each criterion that is not as expected.

    ``assert_evaluation(answer, prompt=..., evaluators=[...], expect={"tone": 0.8})``: the answer is
    a text, a message, an `EvaluationInput` or a mapping of its fields, and other named arguments
    are fields of the input. Without evaluators (or an `EvaluationRunConfig`) those of
    `agenteval_config` run. Each criterion has to pass or skip, unless `expect` names it with False,
    a least score from 0 to 1, or a label. Returns the result.
    """

    def check(
        answer: object,
        /,
        *,
        evaluators: EvaluationRunConfig | Sequence[EvaluatorLike] | None = None,
        expect: Mapping[str, bool | float | str] | None = None,
        **fields: Any,
    ) -> AggregatedEvaluationResult:
        __tracebackhide__ = True
        from agenteval_otel.models import EvaluationInput
        from agenteval_otel.offline.config import EvaluationRunConfig
        from agenteval_otel.offline.run import run_evaluation_sync
        from agenteval_otel.testing.expectations import check_expected

        config = request.getfixturevalue("agenteval_config") if evaluators is None else evaluators
        if not isinstance(config, EvaluationRunConfig):
            config = EvaluationRunConfig(evaluators=config)
        if isinstance(answer, EvaluationInput):
            answer = {name: getattr(answer, name) for name in answer.model_fields_set}
        elif not isinstance(answer, Mapping) or "role" in answer:
            answer = {"response": answer}
        result = run_evaluation_sync({**answer, **fields}, config)
        dump = result.model_dump(mode="json", include=_KEPT, fallback=str)
        request.node.stash.setdefault(_RESULTS, []).append(dump)
        check_expected(result, expect)
        return result

    return check


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Attach the results to the report of the test, which pytest-xdist brings from its workers."""
    report = yield
    if _RESULTS in item.stash:
        report.agenteval_results = item.stash[_RESULTS]
        # those of the test's setup, call and teardown are on their own reports
        del item.stash[_RESULTS]
    return report


class Summary:
    """Collects the results of all tests, in the process that prints.

    That is the only process, or pytest-xdist's controller.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.results: list[tuple[str, dict[str, Any]]] = []
        self._prints = not hasattr(config, "workerinput")
        self._baseline: tuple[str, list[Any]] | None = None
        self._comparison: Any = None
        self._wrong: str | None = None  # why there is no comparison
        path = config.getoption("agenteval_baseline")
        if path is not None and self._prints:
            from agenteval_otel.errors import AgentEvalError
            from agenteval_otel.offline.comparison import ComparedSource

            try:
                self._baseline = path, list(ComparedSource(path).answers())
            except (AgentEvalError, OSError) as error:
                raise pytest.UsageError(f"--agenteval-baseline: {error}") from None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the results and compare them.

        Fail a run that has passed but for a significant drop.
        """
        if not self._prints:
            return
        self.results.sort(key=lambda pair: pair[0])  # workers finish in any order
        path = session.config.getoption("agenteval_results")
        if path is not None:
            lines = (json.dumps(record) + "\n" for record in _with_ids(self.results))
            Path(path).write_text("".join(lines), encoding="utf-8")
        if self._baseline is not None and self.results:
            self._compare(*self._baseline)
            if session.exitstatus == pytest.ExitCode.OK:
                if self._wrong is not None:
                    session.exitstatus = pytest.ExitCode.USAGE_ERROR
                elif self._comparison.drops:
                    session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _compare(self, name: str, before: list[Any]) -> None:
        from agenteval_otel.errors import AgentEvalError
        from agenteval_otel.offline.comparison import Options, compare
        from agenteval_otel.offline.comparison.answers import answer_of
        from agenteval_otel.storage.rows import row_of_record

        try:
            records = ((record["metadata"]["id"], record) for record in _with_ids(self.results))
            after = [answer_of(row_of_record(record, id, id)) for id, record in records]
            self._comparison = compare(before, after, Options(pairs=True), (name, "this run"))
        except AgentEvalError as error:
            self._wrong = str(error)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "rerun":  # type: ignore[comparison-overlap]  # of pytest-rerunfailures: the last run counts
            for result in getattr(report, "agenteval_results", ()):
                self.results.append((report.nodeid, result))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.results:
            return
        from agenteval_otel.offline.reports.report import Report
        from agenteval_otel.storage.rows import result_of_record

        results = [result_of_record(result) for _, result in self.results]
        report = Report(results, [place for place, _ in self.results])
        writer = terminalreporter.config.get_terminal_writer()
        terminalreporter.write_sep("=", "evaluations")
        terminalreporter.write_line(report.text(width=writer.fullwidth, colour=writer.hasmarkup))
        if self._comparison is not None:
            from agenteval_otel.offline.comparison.report import text_of

            terminalreporter.write_sep("=", "evaluations against the baseline")
            terminalreporter.write_line(
                text_of(self._comparison, width=writer.fullwidth, colour=writer.hasmarkup)
            )
        if self._wrong is not None:
            terminalreporter.write_line(f"--agenteval-baseline: {self._wrong}")


def _with_ids(results: list[tuple[str, dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Yield the results as records with ids.

    The id is that of the test, numbered from its second result on.
    """
    counts: Counter[str] = Counter()
    for test, result in results:
        counts[test] += 1
        name = test if counts[test] == 1 else f"{test} {counts[test]}"
        yield {**result, "metadata": {"id": name}}


def _place(config: pytest.Config, option: str) -> Path | None:
    """Return the file or folder of an ini option, relative to the ini file. None if it is unset."""
    text = config.getini(option)
    if not text:
        return None
    folder = config.inipath.parent if config.inipath else config.rootpath
    return folder / str(text)


def _recorded(config: pytest.Config, judge: object, path: Path) -> Judge:
    from agenteval_otel.evaluators.judges.adapter import as_judge
    from agenteval_otel.testing.cassette import CassetteJudge

    loaded = as_judge(judge)
    record = config.getoption("agenteval_record")
    return CassetteJudge(recorded=loaded, path=path, record=record, model=loaded.model)

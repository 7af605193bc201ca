"""B10: no data is run as code, nor opens files or processes: settings, results read back, answers,
tasks.

An audit hook listens while the inputs are tried, after a warm-up in which the interpreter loads
modules. The rest of the proof is that ruff finds nothing in the package that could run data.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.promises.figures import sized
from tests.promises.programs import run_program

PACKAGE = Path(__file__).resolve().parents[2] / "agenteval_otel"
INPUTS = sized(2_000, 50_000)

PROGRAM = r"""
    import json, os, pathlib, random, sys, traceback
    from pydantic import BaseModel
    from agenteval_otel import EvaluationInput, Settings, run_evaluation_sync, EvaluationRunConfig
    from agenteval_otel.components.loading import resolve
    from agenteval_otel.config.load import load_settings
    from agenteval_otel.errors import AgentEvalError
    from agenteval_otel.evaluators import Evaluator, KeywordCoverage, ResponseHealth
    from agenteval_otel.models import AggregatedEvaluationResult, EvaluationCriteria
    from agenteval_otel.engine.execution.wire import answer_of, decoded
    from agenteval_otel.capture.build import build_input
    from agenteval_otel import monitor
    from agenteval_otel.engine.pipeline import InlineDispatcher
    from tests.promises.bench import pipeline_of
    count, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
    dice = random.Random(10)
    CANARY = folder / "canary"
    CODE = [
        f"__import__('os').system('touch {CANARY}')", f"$(touch {CANARY})", f"`touch {CANARY}`", f"; touch {CANARY}",
        f"!!python/object/apply:os.system ['touch {CANARY}']", "!!python/name:os.system", "!!python/module:pty",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}", "${jndi:ldap://127.0.0.1/x}", "%(os)s", "{0.__class__}",
        "cos\nsystem\n(S'touch x'\ntR.", "\x80\x04\x95", "() => require('child_process')", "__class__", "__reduce__",
        "os.system", "subprocess:Popen", "builtins.eval", "eval", "exec", "../../etc/passwd",
        "/etc/passwd", "file:///etc/passwd", "{a: &a [*a]}", "!!binary aGVsbG8=", "&x", "<<: *x", "\ud800", "\0",
    ]
    NAMES = ["type", "evaluators", "config", "rules", "pattern", "function", "class", "__class__", "__init__",
             "storage", "sampler", "path", "filePath", "endpoint", "headers", "agents", "criteria", "redactors", "name",
             "prompt", "response", "messages", "context", "metadata", "py/object", "$ref", "__reduce__"]
    TYPES = ["RuleBased", "KeywordCoverage", "Func", "ResponseHealth", "json_file", "console", "otlp", "ratio", "rules"]

    def value(depth=0):
        kind = dice.randrange(9 if depth < 3 else 6)
        if kind < 3: return dice.choice(CODE)
        if kind == 3: return dice.choice(TYPES)
        if kind == 4: return dice.choice([None, True, 0, -1, 1e308, 10**30, float("nan"), ""])
        if kind == 5: return dice.choice(NAMES)
        if kind == 6: return [value(depth + 1) for _ in range(dice.randrange(4))]
        return {dice.choice([*NAMES, *CODE]): value(depth + 1) for _ in range(dice.randrange(5))}

    def text():
        raw = json.dumps(value())
        if dice.random() < 0.5:
            raw = "".join(f"{dice.choice(NAMES)}: {dice.choice(CODE)}\n" for _ in range(dice.randrange(1, 5)))
        if dice.random() < 0.3:
            cut = dice.randrange(len(raw) + 1)
            raw = raw[:cut] + dice.choice(CODE) + raw[cut:]
        return raw

    made = folder / "settings"
    made.mkdir()
    def settings_file():
        path = made / ("agenteval" + dice.choice([".yaml", ".toml", ".json"]))
        path.write_bytes(text().encode("utf-8", "surrogatepass"))
        load_settings(path)

    def settings():
        fields = value()
        Settings.model_validate(fields if isinstance(fields, dict) else {"evaluators": fields})

    def evaluator():
        fields = value()
        fields = fields if isinstance(fields, dict) else {"rules": fields}
        resolve(Evaluator, {**fields, "type": dice.choice([*TYPES, *CODE])})

    def evaluated():
        run_evaluation_sync(EvaluationInput(response=dice.choice(CODE), prompt=dice.choice(CODE)), RUN)

    def read_back():
        line = json.dumps({**VALID, dice.choice([*VALID, *NAMES]): value()})
        line = line if dice.random() < 0.7 else line[: dice.randrange(len(line))]
        AggregatedEvaluationResult.model_validate_json(line)

    def an_input():
        fields = {dice.choice([*EvaluationInput.model_fields, *NAMES[:2]]): value() for _ in range(3)}
        EvaluationInput.model_validate_json(json.dumps(fields))

    def answered():
        ANSWER(value(), value())

    def message():
        body = dice.choice([value(), [value()], [dice.choice(CODE), dice.choice(CODE), dice.choice(CODE)]])
        answer = answer_of(dice.choice(["results", "other", "failed", "skipped", "?", *CODE]), body)
        if isinstance(answer, Exception):
            raise answer

    def frames():
        raw = bytearray(json.dumps([value(), value()]).encode() + b"\n" + text().encode("utf-8", "replace") + b"\n")
        for _ in range(dice.randrange(3)):
            raw[dice.randrange(len(raw))] = dice.randrange(256)
        for message in bytes(raw).splitlines():
            decoded(message)

    KEYWORDS = KeywordCoverage(criterion_name="k", expected_keywords=["os"])
    RUN = EvaluationRunConfig(evaluators=[KEYWORDS, ResponseHealth()])
    VALID = json.loads(run_evaluation_sync(EvaluationInput(response="x"), RUN).model_dump_json(by_alias=True))
    pipeline = pipeline_of(*RUN.evaluators, dispatcher=InlineDispatcher())
    ANSWER = monitor(pipeline=pipeline)(lambda prompt, answer: answer)
    KINDS = [settings_file, settings, evaluator, evaluated, read_back, an_input, answered, message, frames]
    counts = {"taken": 0, "refused": 0}
    heard, listening = {}, False

    def attempt(kind):
        try:
            kind()
            counts["taken"] += 1
        except Exception:
            counts["refused"] += 1

    BAD = {"exec", "compile", "pickle.find_class", "marshal.loads", "os.system", "os.exec", "os.posix_spawn",
           "os.spawn", "subprocess.Popen", "os.fork", "os.forkpty", "ctypes.dlopen", "import", "open", "socket.connect",
           "urllib.Request", "os.putenv", "os.remove", "os.rename", "os.mkdir", "os.chmod", "shutil.rmtree",
           "code.__new__", "function.__new__", "object.__setattr__"}

    def hook(event, args):
        if not listening or event not in BAD:
            return
        subject = args[0] if args else ""
        if event == "open" and isinstance(subject, int):
            return  # a file object on a descriptor whose opening was heard
        if event == "open":
            mode = args[1] or ""
            if isinstance(subject, (str, bytes, os.PathLike)) and pathlib.Path(os.fsdecode(subject)).parent == made:
                return  # the settings file itself
            if not (set("wax+") & set(mode)) and not (isinstance(args[2], int) and args[2] & 3):
                if str(subject).endswith((".py", ".pyc")) or "linecache" in str(subject):
                    return  # source lines for a traceback
        if event == "import" and subject in sys.modules:
            return
        if event == "exec":
            subject = getattr(subject, "co_name", subject), getattr(subject, "co_filename", "")
        key = f"{event} {str(subject)[:80]}"
        heard.setdefault(key, traceback.format_stack(limit=12))

    def complete(model):
        model.model_rebuild()  # else its first use compiles the annotations of its fields
        for kind in model.__subclasses__():
            complete(kind)

    for kind in BaseModel.__subclasses__():
        complete(kind)
    sys.addaudithook(hook)
    for _ in range(40):
        for kind in KINDS:
            attempt(kind)
    counts.update(taken=0, refused=0)
    listening = True
    for number in range(count):
        attempt(KINDS[number % len(KINDS)])
    listening = False
    print("report", json.dumps({**counts, "heard": heard, "canary": CANARY.exists()}))
"""


@pytest.mark.sized
def test_nothing_of_the_data_is_run(tmp_path: Path, promise: Callable[..., None]) -> None:
    """While thousands of hostile inputs are tried, no code is compiled or run, nothing started,
    opened or imported.
    """
    report = run_program(PROGRAM, str(INPUTS), str(tmp_path), timeout_s=900).report()
    heard = report["heard"]
    promise(
        "B10",
        figure=(
            f"{INPUTS} inputs, {report['taken']} taken and {report['refused']} refused: {len(heard)} audit events, "
            "no command was run"
        ),
    )
    assert report["taken"] > INPUTS / 20, "the inputs get past the first check"
    assert report["refused"] > INPUTS / 20
    assert not report["canary"]
    assert not heard, json.dumps(heard, indent=1)


RULES = "S102,S301,S302,S307,S506,S602,S604,S605,S606"
"""Ruff's rules against exec, pickle, marshal, eval, unsafe YAML, shells and programs that replace
the process.
"""


def test_the_package_has_nothing_that_runs_data() -> None:
    """No such call stands in the package."""
    command = (
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--ignore-noqa",
        "--no-cache",
        f"--select={RULES}",
    )
    checked = subprocess.run(
        [*command, "--output-format=json", str(PACKAGE)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert json.loads(checked.stdout) == []

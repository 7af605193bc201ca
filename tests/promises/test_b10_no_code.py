"""B10: no data is run as code, nor opens files or processes: settings, results read back, answers, tasks.

An audit hook listens while the inputs are tried. It cannot be taken out again, so that is done in a process of its own.
What the hook hears of the interpreter's own loading of modules is left out by warming up with one valid input of each
kind. The rest of the proof is that the package contains nothing that could run data.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.promises.figures import sized
from tests.promises.programs import run_program

PACKAGE = Path(__file__).resolve().parents[2] / "agenteval_otel"
INPUTS = sized(2_000, 50_000)

PROGRAM = r"""
    import asyncio, json, os, pathlib, random, struct, sys, tempfile
    from pydantic import BaseModel
    from agenteval_otel import EvaluationInput, Settings, run_evaluation_sync, EvaluationRunConfig
    from agenteval_otel.components import resolve
    from agenteval_otel.config.load import load_settings
    from agenteval_otel.errors import AgentEvalError
    from agenteval_otel.evaluators import Evaluator, KeywordCoverage, ResponseHealth
    from agenteval_otel.models import AggregatedEvaluationResult, EvaluationCriteria
    from agenteval_otel.execution.wire import answer_of, decoded
    from agenteval_otel.capture.build import build_input
    from agenteval_otel import monitor
    from agenteval_otel.pipeline import Pipeline
    from agenteval_otel.sampling import RatioSampler
    from agenteval_otel.testing import InlineDispatcher
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
        found = value()
        Settings.model_validate(found if isinstance(found, dict) else {"evaluators": found})

    def evaluator():
        found = value()
        fields = found if isinstance(found, dict) else {"rules": found}
        resolve(Evaluator, {**fields, "type": dice.choice([*TYPES, *CODE])})

    def evaluated():
        run_evaluation_sync(EvaluationInput(response=dice.choice(CODE), prompt=dice.choice(CODE)), RUN)

    def read_back():
        found = value()
        line = json.dumps({**VALID, dice.choice([*VALID, *NAMES]): found})
        line = line if dice.random() < 0.7 else line[: dice.randrange(len(line))]
        AggregatedEvaluationResult.model_validate_json(line)

    def given():
        EvaluationInput.model_validate_json(json.dumps({dice.choice(NAMES): value() for _ in range(3)}))

    def answered():
        ANSWER(value(), value())

    def message():
        body = dice.choice([value(), [value()], [dice.choice(CODE), dice.choice(CODE), dice.choice(CODE)]])
        found = answer_of(dice.choice(["results", "other", "failed", "skipped", "?", *CODE]), body)
        if isinstance(found, Exception):
            raise found

    def frames():
        raw = bytearray(json.dumps([value(), value()]).encode() + b"\n" + text().encode("utf-8", "replace") + b"\n")
        for _ in range(dice.randrange(3)):
            raw[dice.randrange(len(raw))] = dice.randrange(256)
        for message in bytes(raw).splitlines():
            decoded(message)

    KEYWORDS = KeywordCoverage(criterion_name="k", expected_keywords=["os"])
    RUN = EvaluationRunConfig(evaluators=[KEYWORDS, ResponseHealth()])
    VALID = json.loads(run_evaluation_sync(EvaluationInput(response="x"), RUN).model_dump_json(by_alias=True))
    pipeline = Pipeline(sampler=RatioSampler(), evaluators=RUN.evaluators, storage=(), dispatcher=InlineDispatcher())
    ANSWER = monitor(pipeline=pipeline)(lambda prompt, answer: answer)
    KINDS = [settings_file, settings, evaluator, evaluated, read_back, given, answered, message, frames]
    tally = {"taken": 0, "refused": 0}
    heard, listening = {}, False

    def attempt(kind):
        try:
            kind()
            tally["taken"] += 1
        except Exception:
            tally["refused"] += 1

    BAD = {"exec", "compile", "pickle.find_class", "marshal.loads", "os.system", "os.exec", "os.posix_spawn",
           "os.spawn", "subprocess.Popen", "os.fork", "os.forkpty", "ctypes.dlopen", "import", "open", "socket.connect",
           "urllib.Request", "os.putenv", "os.remove", "os.rename", "os.mkdir", "os.chmod", "shutil.rmtree",
           "code.__new__", "function.__new__", "object.__setattr__"}

    def hook(event, args):
        if not listening or event not in BAD:
            return
        said = args[0] if args else ""
        if event == "open" and isinstance(said, int):
            return  # a file object on a descriptor whose opening was heard
        if event == "open":
            mode = args[1] or ""
            if isinstance(said, (str, bytes, os.PathLike)) and pathlib.Path(os.fsdecode(said)).parent == made:
                return  # the settings file itself
            if not (set("wax+") & set(mode)) and not (isinstance(args[2], int) and args[2] & 3):
                if str(said).endswith((".py", ".pyc")) or "linecache" in str(said):
                    return  # source lines for a traceback
        if event == "import" and said in sys.modules:
            return
        if event == "exec":
            said = getattr(said, "co_name", said), getattr(said, "co_filename", "")
        key = f"{event} {str(said)[:80]}"
        if key not in heard:
            frames_, frame_ = [], sys._getframe(1)
            while frame_ is not None and len(frames_) < 12:
                frames_.append(f"{frame_.f_code.co_filename.rpartition('site-packages/')[2]}:{frame_.f_lineno}")
                frame_ = frame_.f_back
            heard[key] = [0, frames_]
        heard[key][0] += 1

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
    tally.update(taken=0, refused=0)
    listening = True
    for number in range(count):
        attempt(KINDS[number % len(KINDS)])
    listening = False
    print("report", json.dumps({**tally, "heard": heard, "canary": CANARY.exists()}))
"""


@pytest.mark.sized
def test_nothing_of_the_data_is_run(tmp_path: Path, promise: Callable[..., None]) -> None:
    """While thousands of hostile inputs are tried, no code is compiled or run, nothing started, opened or imported."""
    finished = run_program(PROGRAM, str(INPUTS), str(tmp_path), timeout_s=900)
    assert finished.code == 0, finished.stderr
    report = json.loads(finished.lines("report")[0])
    heard = report["heard"]
    promise("B10", figure=(
        f"{INPUTS} inputs, {report['taken']} taken and {report['refused']} refused: {len(heard)} audit events, "
        "no command was run"
    ))  # fmt: skip
    assert report["taken"] > INPUTS / 20, "the inputs get past the first check"
    assert report["refused"] > INPUTS / 20
    assert not report["canary"]
    assert not heard, json.dumps(heard, indent=1)


CALLS = {
    "eval", "exec", "compile", "__import__", "execfile", "os.system", "os.popen", "os.execv", "os.execve", "os.spawnv",
    "subprocess.call", "subprocess.getoutput", "subprocess.check_output", "yaml.load", "yaml.unsafe_load",
    "yaml.full_load", "pickle.loads", "pickle.load", "marshal.loads", "shelve.open", "code.interact", "runpy.run_path",
    "runpy.run_module", "subprocess.run", "subprocess.Popen", "os.posix_spawn", "ctypes.CDLL",
    "types.FunctionType", "types.CodeType", "builtins.eval", "builtins.exec", "input",
}  # fmt: skip
MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "code", "codeop", "imp", "pty", "xmlrpc"}
_MAIN = "in the fork server: the program that the host itself runs, as multiprocessing does"
ARGUED = {
    ("evaluators/catalogue/__init__.py", "yaml.load"): "files of ours, with the safe loader in C",
    ("execution/launch.py", "os.posix_spawn"): "the fork server: this Python, with arguments of ours",
    ("execution/portable.py", "runpy.run_module"): _MAIN,
    ("execution/portable.py", "runpy.run_path"): _MAIN,
    ("execution/fork_server.py", "ctypes.CDLL"): "the C library that is there already, for one call to the system",
}
"""What is called all the same: module and call, and why that is no data's doing."""


def _calls(file: Path) -> Iterator[tuple[str, str]]:
    """Every call and import of a file that could run data."""
    name = str(file.relative_to(PACKAGE))
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            shell = any(word.arg == "shell" and ast.unparse(word.value) != "False" for word in node.keywords)
            if called in CALLS or shell:
                yield name, called
        elif isinstance(node, ast.Import):
            yield from ((name, f"import {alias.name}") for alias in node.names if alias.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            yield name, f"import {node.module}"


def test_the_package_has_nothing_that_runs_data() -> None:
    """No eval, exec, pickle, unsafe YAML or shell in the package, but for what is argued for by name."""
    found = {entry for file in sorted(PACKAGE.rglob("*.py")) for entry in _calls(file)}
    assert found == set(ARGUED)


IMPORTS = {
    "__init__.py": "modules of ours, by the public names",
    "capture/formats/__init__.py": "the response formats, by names of ours",
    "cli/__init__.py": "the commands, by names of ours",
    "components/loading.py": "modules that the operator lists under `plugins`",
    "components/component.py": "modules of ours that announced a type",
    "evaluators/__init__.py": "modules of the package, by names of ours",
    "http_client/model.py": "the clients of models, by names of ours",
    "provisioning/targets.py": "the targets, by names of ours",
    "telemetry/senders.py": "OpenTelemetry's encoders of the three signals, by names of ours",
    "evaluators/imports.py": "in the fork server: the module of an evaluator that the host has imported",
    "runtime/reentrancy.py": "the standard library's module of sub-interpreters, by the names it has had",
}
"""Where a module is imported by a name that is worked out, and whose name that is."""


def test_modules_are_imported_by_name_where_the_operator_says_so() -> None:
    """`importlib.import_module` and `__import__` stand only where the name is ours or the operator's."""
    found = {
        str(file.relative_to(PACKAGE))
        for file in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__"))
        if not isinstance(node.args[0], ast.Constant)  # a name that is written there
    }
    assert found == set(IMPORTS), "an import by name that nobody has argued for, or an argument that is out of date"


def test_the_check_finds_what_it_looks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the banned forms is found in a file that has it."""
    monkeypatch.setattr("tests.promises.test_b10_no_code.PACKAGE", tmp_path)
    for line in ("eval(x)", "yaml.load(x)", "import pickle", "from marshal import loads", "run(x, shell=True)"):
        (tmp_path / "one.py").write_text(line)
        assert list(_calls(tmp_path / "one.py")), line

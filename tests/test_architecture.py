"""The house holds: layers, vendors in one place, short files and functions, no circles, the names of the dictionary."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "agenteval_otel"
FILES = sorted(PACKAGE.rglob("*.py"))

LAYERS = {
    "errors": 0, "semconv": 0, "masking": 0, "registry": 0, "runtime": 0,
    "models": 1, "components": 1,
    "scoring": 2, "intervals": 2, "patterns": 2, "plugins": 2, "hosted": 2,
    "judges": 3, "embedders": 3, "ground_truth": 3, "sampling": 3, "capture": 3, "dispatch": 3,
    "telemetry": 4, "evaluators": 4,
    "storage": 5,
    "execution": 5, "objectives": 5,
    "engine": 6,
    "pipeline": 7,
    "config": 8,
    "instrumentation": 9, "feedback": 9,
    "sidecar": 10, "replay": 10,
    "provisioning": 11, "testing": 11,
    "cli": 12, "__init__": 13, "__main__": 14,
}  # fmt: skip

# Which modules may meet which vendor; a name stands for the module, or for all of a room.
VENDORS = {
    "anthropic": ("judges.anthropic",),
    "httpx2": ("hosted.http",),
    "sentence_transformers": ("embedders.sentence_transformers",),
    "torch": ("embedders.sentence_transformers",),
    "tqdm": ("embedders.sentence_transformers",),
    "transformers": ("embedders.sentence_transformers",),
    "numpy": ("embedders", "evaluators.semantic", "evaluators.similarity_measures"),
    "rapidfuzz": ("evaluators.similarity", "ground_truth"),
    "jsonschema_rs": ("evaluators.json_schema",),
    "re2": ("patterns.linear",),
    "regex": ("patterns",),
    "grafana_foundation_sdk": ("provisioning.grafana",),
    "grpc": ("telemetry.senders", "telemetry.target", "sidecar", "testing"),
    "google.rpc": ("telemetry.senders",),
    "requests": ("telemetry.senders", "telemetry.target"),
    "opentelemetry.proto": ("telemetry.signals", "sidecar", "testing"),
    "opentelemetry.sdk": ("telemetry.private", "instrumentation.span_processor", "testing"),
    "opentelemetry.exporter": ("telemetry.signals", "instrumentation.span_processor", "testing"),
    "opentelemetry": ("telemetry", "capture", "sampling.ratio", "sampling.unit", "sampling.upstream", "engine", "pipeline",
                      "instrumentation", "storage.otlp", "testing", "cli.demo.agent", "hosted.quiet"),
    "sqlalchemy": ("storage.sql",),
    "rich": ("cli", "engine.progress"),
    "yaml": ("config", "provisioning", "evaluators.catalogue"),
}  # fmt: skip
FREE = {"pydantic", "structlog", "agenteval_otel"}


def name_of(file: Path) -> str:
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def room_of(module: str) -> str:
    return module.partition(".")[0]


def imports_of(file: Path) -> list[tuple[str, bool]]:
    """Every imported module, with whether it is for type checkers only."""
    tree = ast.parse(file.read_text())
    for_types = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for statement in block.body
        for node in ast.walk(statement)
    }
    found: list[tuple[str, bool]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) in for_types) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.name}: relative import"
            # "from package import module" names the module, not the package.
            folder = PACKAGE.parent / (node.module or "").replace(".", "/")
            modules = [alias.name for alias in node.names if (folder / f"{alias.name}.py").is_file()]
            found += [(f"{node.module}.{name}", id(node) in for_types) for name in modules]
            if len(modules) < len(node.names):
                found.append((node.module or "", id(node) in for_types))
    return found


def own_imports(file: Path) -> list[str]:
    return [
        module.removeprefix("agenteval_otel.") if module != "agenteval_otel" else "__init__"
        for module, for_types in imports_of(file)
        if (module == "agenteval_otel" or module.startswith("agenteval_otel.")) and not for_types
    ]


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_a_room_stands_above_everything_it_imports(file: Path) -> None:
    """A module imports from lower layers, or from its own room; the command line may use the front door."""
    room = room_of(name_of(file))
    assert room in LAYERS, f"{room} is not in the table of layers"
    for imported in own_imports(file):
        other = room_of(imported)
        if other == room or (room in ("cli", "__main__") and other in ("__init__", "cli")):
            continue
        assert LAYERS[other] < LAYERS[room], f"{name_of(file)} imports {imported} from above or beside"


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_each_vendor_is_met_in_one_place(file: Path) -> None:
    """Third-party packages are imported where the table says, and nowhere else."""
    module = name_of(file)
    for imported, _ in imports_of(file):
        root = imported.partition(".")[0]
        if root in FREE or root in __import__("sys").stdlib_module_names:
            continue
        rule = next((vendor for vendor in VENDORS if imported == vendor or imported.startswith(f"{vendor}.")), None)
        assert rule is not None, f"{module} imports {imported}, which is not in the table of vendors"
        allowed = VENDORS[rule]
        assert any(f"{module}.".startswith(f"{place.rstrip('.')}.") for place in allowed), (
            f"{module} must not import {imported}"
        )


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_files_and_functions_are_short_and_documented(file: Path) -> None:
    """One file, one idea: 500 lines a file, 40 a function, a module docstring and `__all__`."""
    text = file.read_text()
    tree = ast.parse(text)
    assert len(text.splitlines()) <= 500, f"{name_of(file)} wants to become a folder"
    assert ast.get_docstring(tree), f"{name_of(file)} has no docstring"
    if file.name != "__main__.py":
        assert any(isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__" for node in tree.body)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            doc = ast.get_docstring(node, clean=False)
            length = (node.end_lineno or 0) - node.lineno + 1 - (len(doc.splitlines()) if doc else 0)
            assert length <= LONG.get((name_of(file), node.name), 40), f"{name_of(file)}.{node.name} has {length} lines"


# Argued for in place: a wrapper is one piece, because each call of a function within it would double what a chunk, or
# a call that goes by, costs.
LONG = {
    ("instrumentation.wrappers", name): 52
    for name in ("_function", "_coroutine", "_generator", "_async_generator", "monitored")
}


def test_modules_import_each_other_in_no_circle() -> None:
    """Following imports from any module never leads back to it."""
    modules = {name_of(file): file for file in FILES}
    graph = {
        module: {imported for imported in own_imports(file) if imported in modules and imported != module}
        for module, file in modules.items()
    }
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path, module))
        if module in done:
            return
        for imported in graph[module]:
            visit(imported, (*path, module))
        done.add(module)

    for module in graph:
        visit(module, ())


def test_the_dictionary_holds() -> None:
    """No class is called Manager, Helper, Util or Base-something."""
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                assert not node.name.endswith(("Manager", "Helper", "Util", "Utils")), node.name
                assert not node.name.startswith("Base"), node.name

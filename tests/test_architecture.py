"""The architecture: layers, vendors in one place, short files and functions, no import cycles,
plain names.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.test_public_names import NAMES

PACKAGE = Path(__file__).resolve().parents[1] / "agenteval_otel"
FILES = sorted(PACKAGE.rglob("*.py"))

# From the ground up: what is needed of the process and values, the parts, the route, work on recorded
# answers, programs. A package imports from lower layers alone.
LAYERS = {
    "errors": 0, "semconv": 0, "runtime": 0,
    "models": 1,
    "components": 2,
    "capture": 3, "sampling": 3,
    "evaluators": 4, "telemetry": 4,
    "storage": 5,
    "engine": 6,
    "config": 7,
    "instrumentation": 8,
    "offline": 9,
    "sidecar": 10, "provisioning": 10, "ui": 10, "testing": 10,
    "embedders": 10, "ground_truth": 10, "judges": 10, "mappers": 10, "redaction": 10,
    "cli": 11, "__init__": 12, "__main__": 13,
}  # fmt: skip

# Which modules may meet which vendor; a name stands for the module, or for all of a package.
VENDORS = {
    "anthropic": ("evaluators.judges.anthropic",),
    "httpx2": ("components.http_client.client",),
    "sentence_transformers": ("evaluators.embedders.sentence_transformers",),
    "torch": ("evaluators.embedders.sentence_transformers",),
    "tqdm": ("evaluators.embedders.sentence_transformers",),
    "transformers": ("evaluators.embedders.sentence_transformers",),
    "numpy": (
        "offline.comparison", "evaluators.embedders", "evaluators.lexical_similarity", "evaluators.nlp_accuracy",
        "engine.objectives.simulation",
        "provisioning.delays", "storage.summaries", "ui",
    ),
    "rapidfuzz": ("evaluators.lexical_similarity", "evaluators.ground_truth"),
    "jsonschema_rs": ("evaluators.json_schema",),
    "re2": ("runtime.patterns",),
    "regex": ("runtime.patterns", "runtime.text", "evaluators.words"),
    "grafana_foundation_sdk": ("provisioning.grafana",),
    "grpc": ("telemetry.target", "testing", "sidecar.grpc"),
    "google.rpc": ("telemetry.target", "sidecar.grpc"),
    "requests": ("telemetry.target",),
    "opentelemetry.proto": ("telemetry.forward", "telemetry.messages", "telemetry.target", "testing"),
    "opentelemetry.sdk": ("telemetry.private", "testing", "instrumentation.spans"),
    "opentelemetry.exporter": ("telemetry.target", "testing"),
    "opentelemetry.instrumentation": ("instrumentation.instrumentor",),
    "wrapt": ("instrumentation.instrumentor",),
    "opentelemetry": ("telemetry", "capture", "sampling.trace", "engine",
                      "instrumentation", "storage.otlp", "testing", "cli.demo.agent",
                      "components.http_client.client"),
    "sqlalchemy": ("components.database", "storage.sql_database", "storage.sql_erasure", "storage.sql_read"),
    "starlette": ("ui.app",),
    "jinja2": ("ui.app",),
    "pandas": ("offline.reports",),
    "pytest": ("testing.pytest_plugin",),
    "rich": ("cli", "offline.reports.table", "offline.comparison.report"),
    "shtab": ("cli.completion",),
    "uvicorn": ("sidecar.http", "ui.serve"),
    "yaml": ("config", "provisioning", "evaluators.llm_judge"),
}  # fmt: skip
FREE = {"pydantic", "pydantic_core", "structlog", "agenteval_otel"}


def name_of(file: Path) -> str:
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def package_of(module: str) -> str:
    return module.partition(".")[0]


def imports_of(file: Path) -> list[str]:
    """Every imported module, those for type checkers and those within functions included."""
    imported: list[str] = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.name}: relative import"
            # "from package import module" names the module, not the package.
            folder = PACKAGE.parent / (node.module or "").replace(".", "/")
            modules = [
                alias.name for alias in node.names if (folder / f"{alias.name}.py").is_file()
            ]
            imported += [f"{node.module}.{name}" for name in modules]
            if len(modules) < len(node.names):
                imported.append(node.module or "")
    return imported


def own_imports(file: Path) -> list[str]:
    return [
        module.removeprefix("agenteval_otel.") if module != "agenteval_otel" else "__init__"
        for module in imports_of(file)
        if module == "agenteval_otel" or module.startswith("agenteval_otel.")
    ]


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_a_package_stands_above_everything_it_imports(file: Path) -> None:
    """A module imports from lower layers, or from its own package; the command line may use the
    public names.
    """
    package = package_of(name_of(file))
    assert package in LAYERS, f"{package} is not in the table of layers"
    for imported in own_imports(file):
        other = package_of(imported)
        if other == package or (package in ("cli", "__main__") and other in ("__init__", "cli")):
            continue
        assert LAYERS[other] < LAYERS[package], (
            f"{name_of(file)} imports {imported} from above or beside"
        )


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_config_alone_knows_the_capabilities(file: Path) -> None:
    """The route, the entry points and the programs name none: a further one is a folder and a line."""
    place = "engine.capabilities."
    if f"{name_of(file)}.".startswith((place, "config.")):
        return
    known = [name for name in own_imports(file) if f"{name}.".startswith(place)]
    assert not known, f"{name_of(file)} imports {known}"


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_each_vendor_is_met_in_one_place(file: Path) -> None:
    """Third-party packages are imported where the table says, and nowhere else."""
    module = name_of(file)
    for imported in imports_of(file):
        root = imported.partition(".")[0]
        if root in FREE or root in __import__("sys").stdlib_module_names:
            continue
        rule = next(
            (
                vendor
                for vendor in VENDORS
                if imported == vendor or imported.startswith(f"{vendor}.")
            ),
            None,
        )
        assert rule is not None, (
            f"{module} imports {imported}, which is not in the table of vendors"
        )
        allowed = VENDORS[rule]
        assert any(f"{module}.".startswith(f"{place.rstrip('.')}.") for place in allowed), (
            f"{module} must not import {imported}"
        )


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_files_are_documented(file: Path) -> None:
    """Every file opens with a docstring."""
    assert ast.get_docstring(ast.parse(file.read_text())), f"{name_of(file)} has no docstring"


def test_no_import_cycles() -> None:
    """Following imports from any module never leads back to it, imports for type checkers included."""
    modules = {name_of(file): file for file in FILES}
    graph = {
        module: {
            imported for imported in own_imports(file) if imported in modules and imported != module
        }
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


def test_docstrings_of_functions_say_one_fact_a_sentence() -> None:
    """None has a semicolon, but in what it quotes. That the first word is a verb is ruff's D401."""
    found = []
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            text = re.sub(r"``.*?``", "", ast.get_docstring(node) or "", flags=re.DOTALL)
            if ";" in text:
                found.append(f"{name_of(file)}.{node.name}")
    assert found == []


def test_class_names_are_plain() -> None:
    """No class is called Manager, Helper, Util or Base-something."""
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                assert not node.name.endswith(("Manager", "Helper", "Util", "Utils")), node.name
                assert not node.name.startswith("Base"), node.name


def test_a_class_name_that_crosses_folders_is_used_once() -> None:
    """No other class of the package has the name of one that is public or imported across folders."""
    defined: dict[str, list[str]] = {}
    crossing: set[str] = {name for names in NAMES.values() for name in names}
    for path in FILES:
        place = str(path.relative_to(PACKAGE))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                defined.setdefault(node.name, []).append(place)
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE.name):
                folder = (node.module or "").split(".")[1:2]
                if folder != [place.split("/")[0]]:
                    crossing.update(alias.name for alias in node.names)
    # The two middlewares have one name on purpose: an application imports one of them.
    crossing.discard("AgentEvalMiddleware")
    twice = {name: places for name, places in defined.items() if len(places) > 1}
    assert {name: places for name, places in twice.items() if name in crossing} == {}

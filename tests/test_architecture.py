"""The architecture: layers, vendors in one place, short files and functions, no import cycles,
plain names.
"""

from __future__ import annotations

import ast
import sys
from functools import cache

from tests.sources import PACKAGE, Source, package_sources
from tests.test_public_names import NAMES

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
    "sqlalchemy": (
        "components.database", "storage.sql_database", "storage.sql_erasure", "storage.sql_notes", "storage.sql_read",
        "storage.sql_texts",
    ),
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


def package_of(module: str) -> str:
    return module.partition(".")[0]


def is_within(module: str, *places: str) -> bool:
    """Whether it is one of these modules, or in one of these packages."""
    return any(f"{module}.".startswith(f"{place}.") for place in places)


@cache
def imports_of(source: Source) -> list[str]:
    """Every imported module, those for type checkers and those within functions included."""
    imported: list[str] = []
    for plain in source.nodes_of(ast.Import):
        imported += [alias.name for alias in plain.names]
    for node in source.nodes_of(ast.ImportFrom):
        assert node.level == 0, f"{source.name}: relative import"
        # "from package import module" names the module, not the package.
        folder = PACKAGE.parent / (node.module or "").replace(".", "/")
        modules = [alias.name for alias in node.names if (folder / f"{alias.name}.py").is_file()]
        imported += [f"{node.module}.{name}" for name in modules]
        if len(modules) < len(node.names):
            imported.append(node.module or "")
    return imported


def own_imports(source: Source) -> list[str]:
    found = []
    for module in imports_of(source):
        if module == PACKAGE.name:
            found.append("__init__")
        elif module.startswith(f"{PACKAGE.name}."):
            found.append(module.removeprefix(f"{PACKAGE.name}."))
    return found


def test_a_package_stands_above_everything_it_imports() -> None:
    """A module imports from lower layers, or from its own package.

    The command line may use the public names.
    """
    wrong = []
    for source in package_sources():
        package = package_of(source.module)
        assert package in LAYERS, f"{package} is not in the table of layers"
        for imported in own_imports(source):
            other = package_of(imported)
            is_command_line = package in ("cli", "__main__") and other in ("__init__", "cli")
            if other == package or is_command_line:
                continue
            if LAYERS[other] >= LAYERS[package]:
                wrong.append(f"{source.module} imports {imported} from above or beside")
    assert wrong == []


def test_config_alone_knows_the_capabilities() -> None:
    """The route, the entry points and the programs name none: a further one is a folder and a line."""
    place = "engine.capabilities"
    wrong = []
    for source in package_sources():
        if is_within(source.module, place, "config"):
            continue
        known = [name for name in own_imports(source) if is_within(name, place)]
        if known:
            wrong.append(f"{source.module} imports {known}")
    assert wrong == []


def test_each_vendor_is_met_in_one_place() -> None:
    """Third-party packages are imported where the table says, and nowhere else."""
    wrong = []
    for source in package_sources():
        for imported in imports_of(source):
            root = package_of(imported)
            if root in FREE or root in sys.stdlib_module_names:
                continue
            rules = [vendor for vendor in VENDORS if is_within(imported, vendor)]
            if not rules:
                wrong.append(
                    f"{source.module} imports {imported}, which is not in the table of vendors"
                )
            elif not is_within(source.module, *VENDORS[rules[0]]):
                wrong.append(f"{source.module} must not import {imported}")
    assert wrong == []


def test_files_are_documented() -> None:
    """Every file opens with a docstring."""
    assert [source.name for source in package_sources() if not ast.get_docstring(source.tree)] == []


def test_no_import_cycles() -> None:
    """Following imports from any module never leads back to it, imports for type checkers included."""
    modules = {source.module: source for source in package_sources()}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path, module))
        if module in done:
            return
        for imported in own_imports(modules[module]):
            if imported in modules and imported != module:
                visit(imported, (*path, module))
        done.add(module)

    for module in modules:
        visit(module, ())


def test_class_names_are_plain() -> None:
    """No class is called Manager, Helper, Util or Base-something."""
    wrong = []
    for source in package_sources():
        for node in source.nodes_of(ast.ClassDef):
            if node.name.endswith(("Manager", "Helper", "Util", "Utils")):
                wrong.append(f"{source.name}: {node.name}")
            if node.name.startswith("Base"):
                wrong.append(f"{source.name}: {node.name}")
    assert wrong == []


def test_a_class_name_that_crosses_folders_is_used_once() -> None:
    """No other class of the package has the name of one that is public or imported across folders."""
    defined: dict[str, list[str]] = {}
    crossing: set[str] = {name for names in NAMES.values() for name in names}
    for source in package_sources():
        folder = source.path.relative_to(PACKAGE).parts[0]
        for node in source.nodes_of(ast.ClassDef):
            defined.setdefault(node.name, []).append(source.name)
        for imported in source.nodes_of(ast.ImportFrom):
            module = imported.module or ""
            if module.startswith(PACKAGE.name) and module.split(".")[1:2] != [folder]:
                crossing.update(alias.name for alias in imported.names)
    # The two middlewares have one name on purpose: an application imports one of them.
    crossing.discard("AgentEvalMiddleware")
    twice = {name: places for name, places in defined.items() if len(places) > 1}
    assert {name: places for name, places in twice.items() if name in crossing} == {}

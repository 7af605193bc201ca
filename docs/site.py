"""Hooks of mkdocs: the API's pages from the public packages, and links to files that are not on the
site.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.structure.files import File, Files

_PACKAGES = (
    "", "capture", "components", "embedders", "evaluators", "ground_truth", "judges", "redaction", "sampling",
    "storage", "testing",
)  # fmt: skip
_FIRST = {
    "": (
        "monitor", "configure", "annotate", "flush", "accounting", "run_evaluation", "run_evaluation_sync",
        "run_evaluations", "run_evaluations_sync", "record_feedback", "record_score", "record_ground_truth",
        "disable", "enable", "reload", "shutdown",
    ),
    "evaluators": ("LLMJudge", "Rubric", "RuleBased", "Func", "ResponseHealth", "Evaluator", "CriterionEvaluator"),
    "judges": ("AnthropicJudge", "OpenAIJudge", "OpenAICompatibleJudge", "SpendLimits", "Judge"),
    "sampling": ("RatioSampler", "RateLimitSampler", "FirstOfSampler", "ConversationSampler", "Escalation"),
    "storage": ("SqliteStorageProvider", "SqlStorageProvider", "JsonFileStorageProvider", "OtlpStorageProvider"),
}  # fmt: skip
"""What people look for in a package. Then come its other functions, then its other classes."""
_NOTES = {
    "evaluators": "`**shared_fields` are the fields of `CriterionEvaluator`, or of `Evaluator` where the base is that.",
}
_ON_SITE = (".md", ".png", ".svg")
_LINK = re.compile(r"\]\((?P<path>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Add the evaluators' pages to the navigation, and the API's tab at its end."""
    evaluators = sorted(path.name for path in (Path(config.docs_dir) / "evaluators").glob("*.md"))
    pages = [
        f"evaluators/{name}" for name in evaluators if name not in ("README.md", "catalogue.md")
    ]
    config.nav.insert(
        2, {"Evaluators": ["evaluators/README.md", "evaluators/catalogue.md", *pages]}
    )
    names = [f"agenteval_otel.{package}".rstrip(".") for package in _PACKAGES]
    config.nav.append({"API": [{name: f"api/{name}.md"} for name in names]})
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """A page for each public package, its names from where they are defined: packages load them
    late.
    """
    for package in _PACKAGES:
        name = f"agenteval_otel.{package}".rstrip(".")
        files.append(File.generated(config, f"api/{name}.md", content=_api_page(package, name)))
    return files


def _api_page(package: str, name: str) -> str:
    module = importlib.import_module(name)
    rows = ["| name | what it is or does |", "|---|---|"]
    parts = []
    for item in _in_order(package, module):
        value = getattr(module, item)
        home = getattr(value, "__module__", "")
        path = f"{home if home.startswith('agenteval_otel') else name}.{item}"
        rows.append(f"| [`{item}`](#{path}) | {_first_sentence(value)} |")
        parts.append(f"::: {path}")
    about = _marked_as_markdown((module.__doc__ or "").partition("\n\n")[0])
    notes = [_NOTES[package]] if package in _NOTES else []
    return "\n\n".join([f"# {name}", about, *notes, "\n".join(rows), *parts])


def _in_order(package: str, module: ModuleType) -> list[str]:
    """Return a package's names: those of `_FIRST`, then functions, then classes."""
    first = _FIRST.get(package, ())
    others = [name for name in module.__all__ if name not in first]
    return [*first, *sorted(others, key=lambda name: isinstance(getattr(module, name), type))]


def _first_sentence(value: object) -> str:
    paragraph = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    sentence = re.split(r"(?<=\.) (?=[A-Z`])", paragraph, maxsplit=1)[0]
    return _marked_as_markdown(sentence).replace("|", "\\|")


def _marked_as_markdown(text: str) -> str:
    return text.replace("``", "`")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """The page with links to the repository where their target lies outside of the documents, or is
    a folder.
    """
    docs = Path(config.docs_dir)

    def absolute(link: re.Match[str]) -> str:
        target = (docs / page.file.src_uri).parent.joinpath(link["path"]).resolve()
        is_on_site = target.is_relative_to(docs) and target.suffix in _ON_SITE
        if is_on_site or not target.exists():  # mkdocs reports what is missing
            return link[0]
        kind = "tree" if target.is_dir() else "blob"
        return f"]({config.repo_url}{kind}/main/{target.relative_to(docs.parent)}{link['anchor'] or ''})"

    return _LINK.sub(absolute, markdown)

"""Hooks of mkdocs: the API's pages from the public packages, and links to files that are not on the
site.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any, NamedTuple

from mkdocs.structure.files import File, Files


class _Page(NamedTuple):
    """A page of the API.

    Attributes:
        title: In the navigation.
        package: Its names are those of this package below `agenteval_otel`. Empty: of itself.
        modules: Of these, the names that such modules define. Empty: those that no other page of
            the package has.
    """

    title: str
    package: str
    modules: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Return where the page is, below the documents."""
        return f"api/{self.title.replace(': ', '-').replace(' ', '-')}.md"

    @property
    def module(self) -> str:
        return f"agenteval_otel.{self.package}".rstrip(".")


_PAGES = (
    _Page(
        "agenteval_otel",
        "",
        (
            "agenteval_otel.config.process",
            "agenteval_otel.config.erasure",
            "agenteval_otel.instrumentation",
        ),
    ),
    _Page("agenteval_otel: offline", "", ("agenteval_otel.offline",)),
    _Page("agenteval_otel: settings and results", ""),
    _Page("evaluators", "evaluators"),
    _Page("evaluators: judged", "evaluators", ("agenteval_otel.evaluators.llm_judge",)),
    _Page(
        "evaluators: tools and conversations",
        "evaluators",
        ("agenteval_otel.evaluators.tools", "agenteval_otel.evaluators.conversation"),
    ),
    *(
        _Page(package, package)
        for package in (
            "judges", "sampling", "storage", "capture", "components", "embedders", "ground_truth", "redaction",
            "testing",
        )
    ),
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
    config.nav.append({"API": [{page.title: page.path} for page in _PAGES]})
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages of the API. A name is shown from where it is defined: packages load them late."""
    for page in _PAGES:
        files.append(File.generated(config, page.path, content=_api_page(page)))
    return files


def _api_page(page: _Page) -> str:
    package = importlib.import_module(page.module)
    rows = ["| name | what it is or does |", "|---|---|"]
    parts = []
    for name in _names_of(page):
        value = getattr(package, name)
        path = f"{_home_of(value, package.__name__)}.{name}"
        rows.append(f"| [`{name}`](#{path}) | {_first_sentence(value)} |")
        parts.append(f"::: {path}")
    about = _marked_as_markdown((package.__doc__ or "").partition("\n\n")[0])
    notes = [_NOTES[page.package]] if page.package in _NOTES else []
    imported = f"Import these names from `{page.module}`."
    return "\n\n".join([f"# {page.title}", about, imported, *notes, "\n".join(rows), *parts])


def _names_of(page: _Page) -> list[str]:
    """Return the names on a page: those of `_FIRST`, then functions, then classes."""
    package = importlib.import_module(page.module)
    first = _FIRST.get(page.package, ())
    others = [name for name in package.__all__ if name not in first]
    others.sort(key=lambda name: isinstance(getattr(package, name), type))
    shown = []
    for name in (*first, *others):
        home = _home_of(getattr(package, name), page.module)
        if _page_of(page.package, home) is page:
            shown.append(name)
    return shown


def _page_of(package: str, home: str) -> _Page:
    """Return the page of what this module defines: one that names the module, else the one for the rest."""
    pages = [page for page in _PAGES if page.package == package]
    for page in pages:
        if page.modules and home.startswith(page.modules):
            return page
    return next(page for page in pages if not page.modules)


def _home_of(value: object, package: str) -> str:
    """Return the module that defines a name of a package."""
    home = getattr(value, "__module__", "")
    return home if home.startswith("agenteval_otel") else package


def _first_sentence(value: object) -> str:
    paragraph = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    sentence = re.split(r"(?<=\.) (?=[A-Z`])", paragraph, maxsplit=1)[0]
    return _marked_as_markdown(sentence).replace("|", "\\|")


def _marked_as_markdown(text: str) -> str:
    return text.replace("``", "`")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Return the page, whose links lead to the repository where a target is not on the site."""
    docs = Path(config.docs_dir)

    def absolute(link: re.Match[str]) -> str:
        target = (docs / page.file.src_uri).parent.joinpath(link["path"]).resolve()
        is_on_site = target.is_relative_to(docs) and target.suffix in _ON_SITE
        if is_on_site or not target.exists():  # mkdocs reports what is missing
            return link[0]
        kind = "tree" if target.is_dir() else "blob"
        return f"]({config.repo_url}{kind}/main/{target.relative_to(docs.parent)}{link['anchor'] or ''})"

    return _LINK.sub(absolute, markdown)

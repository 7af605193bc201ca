"""The pages as an ASGI application over Starlette and Jinja.

Handlers block, so they run on Starlette's threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlencode

import jinja2
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from agenteval_otel.components.explained import known_choices
from agenteval_otel.errors import AgentEvalError, ConfigurationError, StorageError
from agenteval_otel.offline.reports.figures import count_of, percent, with_interval
from agenteval_otel.offline.reports.label_shifts import shift_sentences
from agenteval_otel.storage.places import Place
from agenteval_otel.ui import answer_list, exports, views
from agenteval_otel.ui.access import Access
from agenteval_otel.ui.charts import bar_chart, cost_chart, dollars, line_chart, spark_chart
from agenteval_otel.ui.columns import By, Figure, ResultColumns, Rows
from agenteval_otel.ui.conversation import conversation_page, turns_around
from agenteval_otel.ui.costs import costs_in, order_in
from agenteval_otel.ui.health import Metrics, sections, tiles
from agenteval_otel.ui.label_files import (
    MAX_BYTES,
    ExportedLabel,
    exported_labels,
    import_labels,
    lines_of_labels,
    rows_of_labels,
)
from agenteval_otel.ui.label_forms import (
    fields_of_upload,
    own_verdicts,
    record_verdicts,
    take_back,
    verdicts_in,
)
from agenteval_otel.ui.label_page import MOST_CRITERIA, LabelPage, LabelQuery, name_in
from agenteval_otel.ui.label_queue import ORDERS
from agenteval_otel.ui.labels import USER_FEEDBACK, Labels, person_of
from agenteval_otel.ui.notes import LOOKED, take_note
from agenteval_otel.ui.report import HERE, single_file
from agenteval_otel.ui.run_tree import messages_of, run_of
from agenteval_otel.ui.runs import Runs
from agenteval_otel.ui.scores import all_stand_for, score_text, skips_of, stands_for, took_text
from agenteval_otel.ui.text import brief, duration_text, marked, shown, visible
from agenteval_otel.ui.traces import trace_link

_MAX_FORM: Final = 64 * 1024
_WORST: Final = 10
_MOST_SIDES: Final = 200
_MOST_COST_GROUPS: Final = 50
_NAME_KEPT_S: Final = 365 * 86_400
_OUTCOMES: Final = {
    "gain": ("up", "▲ better"),
    "drop": ("down", "▼ worse"),
    "not significant": ("same", "no clear change"),
    "too few": ("same", "too few to tell"),
    "evaluator changed": ("same", "evaluator changed"),
}
"""Of a comparison, with its class in the style sheet and its words on a page."""


class UiSettings(NamedTuple):
    """What the pages are of.

    Attributes:
        place: Where the results are read.
        title: How the pages name it.
        objectives: Of the criteria, by their names, 0 to 1. They come before stored ones.
        trace_url: Where a trace is shown, with ``{trace_id}`` and perhaps ``{span_id}``. None
            without such a place.
        keeps_comments: The content of labels is stored.
        can_label: Labels can be stored: the results are in a database and not read from a file.
        metrics: Reads the metrics of the process that evaluates. None if that is another process.
        exports_to: Where that process sends its telemetry, in words.
        runs: The runs that were opened beside each other. None for one place.
    """

    place: Place
    title: str
    objectives: Mapping[str, float] = {}
    trace_url: str | None = None
    keeps_comments: bool = True
    can_label: bool = True
    metrics: Callable[[], Metrics] | None = None
    exports_to: str = ""
    runs: Runs | None = None


class Pages:
    """The handlers of the pages.

    Attributes:
        lock: Acquired to render a page, because new results are read into the same columns.
    """

    def __init__(
        self, settings: UiSettings, columns: ResultColumns, access: Access | None = None
    ) -> None:
        self.settings = settings
        self.columns = columns
        self.access = access
        self.lock = threading.Lock()
        self.labels = Labels(settings.place, columns)
        self.notes = settings.place.notes if settings.can_label else None
        self.dimensions = views.DIMENSIONS if settings.runs else views.DIMENSIONS[1:]
        self._overviews: dict[
            tuple[views.Window, str | None], tuple[int, list[views.CriterionView]]
        ] = {}
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "shown": shown,
            "visible": visible,
            "brief": brief,
            "marked": marked,
            "percent": partial(percent, digits=1),
            "moment": views.moment_text,
            "field_text": views.field_text,
            "worst_first": answer_list.worst_first,
            "score_text": score_text,
            "took_text": took_text,
            "duration": duration_text,
            "stands_for": stands_for,
            "skips": skips_of,
            "all_stand_for": all_stand_for,
            "run": run_of,
            "earlier_messages": messages_of,
            "points": views.points,
            "count": lambda count, word: count_of(count, word),
        }
        self._templates.globals |= {
            "explained": views.explained,
            "figure_text": views.figure_text,
            "windows": list(views.WINDOWS),
            "orders": ORDERS,
            "most_criteria": MOST_CRITERIA,
            "url": _url,
            "outcomes": _OUTCOMES,
            "outcome_of": views.outcome_of,
            "with_interval": with_interval,
            "line_chart": line_chart,
            "spark_chart": spark_chart,
            "bar_chart": bar_chart,
            "cost_chart": cost_chart,
            "dollars": dollars,
            "outcomes_of_answers": answer_list.OUTCOMES,
            "orders_of_answers": answer_list.ORDERS,
            "looked_choices": LOOKED,
        }

    def __repr__(self) -> str:
        return f"<Pages {self.settings.title}>"

    @property
    def objectives(self) -> dict[str, float]:
        """Return the objectives of the criteria: those of the settings, else those stored."""
        return {**self.columns.objectives, **self.settings.objectives}

    def render(self, template: str, *, is_static: bool = False, **values: Any) -> str:
        csrf = self.access.csrf if self.access is not None and not is_static else ""
        return self._templates.get_template(template).render(
            page=template.removesuffix(".html"),
            place=self.settings.title,
            columns=self.columns,
            csrf=csrf,
            is_static=is_static,
            ui=self.settings,
            **values,
        )

    def overview(self, query: Mapping[str, str], *, is_static: bool = False) -> str:
        window = _window(query)
        run = self._run(query)
        criteria = self._overview(window, run)
        results = sum(view.scored + view.skipped + view.failed for view in criteria)
        newest = int(self.columns[window.by].max()) if results else None
        listed = views.ListedCriteria.of(criteria, query.get("q", ""), query.get("page", ""))
        if is_static:
            listed = listed._replace(shown=criteria, pages=1, is_long=False)
        return self.render(
            "overview.html",
            is_static=is_static,
            window=window,
            criteria=criteria,
            listed=listed,
            results=results,
            newest=newest,
            run=run,
        )

    def criterion(self, query: Mapping[str, str], *, is_static: bool = False) -> str:
        window = _window(query)
        name = query.get("name", "")
        filters = {column: query[column] for column in self.dimensions if query.get(column)}
        stored = views.criterion(self.columns, name, window, self.objectives, filters)
        if stored is None:
            raise _NotFound(f"no result of a criterion {name!r} is stored")
        view, rows = stored
        rate = view.passes is not None
        low: list[dict[str, Any]] = []
        if not is_static:
            lowest = views.worst(self.columns, rows, _WORST, window.by)
            low = self._answers(lowest, window.by)
        return self.render(
            "criterion.html",
            is_static=is_static,
            window=window,
            view=view,
            rate=rate,
            filters=filters,
            worst=low,
            groups={
                name: views.groups_of(self.columns, rows, name, rate=rate)
                for name in self.dimensions
            },
            histogram=views.histogram(self.columns, rows),
            shares=views.verdict_shares(self.columns, rows) if rate else None,
            versions=views.new_versions(self.columns, rows, window.by),
            agreement=self.labels.agreement(name),
            notes=self._label_notes(name, rows, view.passes),
        )

    def answer(self, evaluation_id: str, query: Mapping[str, str] | None = None) -> str:
        """Return the page of an answer. `query` is of the list that led to it, if one did."""
        stored = self.settings.place.find_answer(evaluation_id)
        if stored is None:
            raise _NotFound("no such answer is stored")
        evaluation, others = stored
        place_in_list = None
        if query:
            place_in_list = answer_list.place_of(self.columns, self._wanted(query), evaluation_id)
        return self.render(
            "answer.html",
            key=evaluation_id,
            here=f"/answer/{evaluation_id}?{urlencode(dict(query or {}))}",
            evaluation=evaluation,
            others=others,
            trace=trace_link(self.settings.trace_url, evaluation.span),
            place_in_list=place_in_list,
            around=turns_around(self.settings.place, evaluation_id, evaluation),
            note=None if self.notes is None else self.notes.of(evaluation_id),
        )

    def answers(self, query: Mapping[str, str]) -> str:
        wanted = self._wanted(query)
        words = wanted.words
        matched = answer_list.matching(self.settings.place, wanted)
        rows = answer_list.find(self.columns, wanted, matched)
        page = answer_list.page_of(rows, wanted.page)
        moments = answer_list.moments_of(self.columns, page, wanted.window.by)
        return self.render(
            "answers.html",
            wanted=wanted,
            address=wanted.address,
            chosen=lambda name: wanted.names.get(name, ""),
            choices=self._choices(),
            count=len(rows),
            pages=answer_list.pages_of(rows),
            answers=list(answer_list.listed(self.settings.place, moments, words)),
            words=words,
            matched=matched,
            looked_at=[] if self.notes is None else self.notes.looked_at(moments),
        )

    def _wanted(self, query: Mapping[str, str]) -> answer_list.ListQuery:
        return answer_list.ListQuery.read(query, _window(query), self.dimensions)

    def _choices(self) -> dict[str, list[str]]:
        """Return by what answers are chosen, with the names there are, at most 200 each."""
        choices = {}
        for column in ("criterion", *self.dimensions):
            names = sorted(name for name in self.columns.names(column) if name)
            choices[column] = names[:_MOST_SIDES]
        return choices

    def conversation(self, query: Mapping[str, str]) -> str:
        key = query.get("id", "")
        shown = conversation_page(self.settings.place, key, query.get("page"))
        if shown is None:
            raise _NotFound("no answer of this conversation is stored")
        return self.render("conversation.html", key=key, shown=shown)

    def label(self, query: Mapping[str, Sequence[str]], labeller: str) -> str:
        """Return the label page of a person. `query` has all values of each name."""
        names = self._criteria()
        window = _window({name: values[-1] for name, values in query.items()})
        wanted = LabelQuery.read(query, window, names)
        rows: dict[str, Rows] = {}
        notes: dict[str, tuple[str, ...]] = {}
        for name in wanted.criteria:
            of_criterion = views.rows_in(self.columns, window, {"criterion": name})
            of_evaluators = of_criterion[~self.columns["is_human"][of_criterion]]
            if len(of_evaluators):
                judged = self.columns.figure(of_evaluators, rate=True)
                rows[name] = of_evaluators
                notes[name] = self._label_notes(name, of_evaluators, judged)
        page = LabelPage(self.columns, self.labels, wanted, labeller)
        return self.render(
            "label.html",
            window=window,
            names=names[:_MOST_SIDES],
            notes=notes,
            **page.values(rows),
        )

    def exported_labels(self, query: Mapping[str, str]) -> Iterator[ExportedLabel]:
        """Yield the labels that count, of all criteria or of the one that `query` names."""
        name = query.get("criterion")
        labels = [label for label in self.labels.all() if name in (None, "", label.criterion)]
        return exported_labels(labels, self.settings.place)

    def label_criteria(self) -> list[str]:
        """Return what labels of a file may be of."""
        return [*self._criteria(), USER_FEEDBACK]

    def compare(self, query: Mapping[str, str], *, is_static: bool = False) -> str:
        window = _window(query)
        runs = self.settings.runs
        sides = self._sides()
        dimension = query.get("by") or next(iter(sides), "")
        if dimension and dimension not in sides:
            raise ConfigurationError(
                f"not two of {dimension!r} are stored{known_choices(dimension, sides)}", path="by"
            )
        names = sides.get(dimension, [""])
        left = query.get("left") or names[0]
        right = query.get("right") or names[-1]
        for side, name in (("left", left), ("right", right)):
            if name not in names:
                raise ConfigurationError(
                    f"no {dimension} {name!r}{known_choices(name, names)}", path=side
                )
        rate = query.get("figure") == "pass_rate"
        changes = []
        comparison = None
        if left != right and dimension == "run" and runs is not None:
            comparison = runs.compare(left, right, pass_rate=rate)
        elif left != right:
            changes = views.compare(self.columns, window, dimension, left, right)
        return self.render(
            "compare.html",
            is_static=is_static,
            window=window,
            possible=list(sides),
            by=dimension,
            sides=names,
            left=left,
            right=right,
            changes=changes,
            comparison=comparison,
            rate=rate,
        )

    def _sides(self) -> dict[str, list[str]]:
        """Return what answers can be compared by, each with the sides to choose from.

        Runs are in their order, others are sorted by name.
        """
        runs = self.settings.runs
        sides: dict[str, list[str]] = {}
        for side in views.SIDES:
            names = [name for name in self.columns.names(side) if name]
            sides[side] = sorted(names)[:_MOST_SIDES]
        sides["run"] = [] if runs is None else list(runs.names)
        return {side: names for side, names in sides.items() if len(names) > 1}

    def health(self, query: Mapping[str, str]) -> str:
        del query
        metrics = {} if self.settings.metrics is None else self.settings.metrics()
        now_s = time.time()
        newest = ""
        if self.columns.count:
            newest = views.moment_text(int(self.columns["evaluated"].max()), has_seconds=True)
        return self.render(
            "health.html",
            window=views.Window(),
            criteria=self._overview(views.Window()),
            sections=sections(metrics),
            tiles=tiles(metrics, self.settings.exports_to, now_s) if metrics else [],
            newest=newest,
        )

    def cost(self, query: Mapping[str, str]) -> str:
        window = _window(query)
        filters = _cost_filters(query)
        order = order_in(query.get("order"))
        return self.render(
            "cost.html",
            window=window,
            filters=filters,
            order=order,
            most_groups=_MOST_COST_GROUPS,
            costs=costs_in(self.columns, window, filters, order),
        )

    def csv_of_costs(self, query: Mapping[str, str]) -> Iterator[Iterable[Any]]:
        costs = costs_in(self.columns, _window(query), _cost_filters(query))
        return exports.rows_of_costs(costs)

    def csv_rows(self, query: Mapping[str, str]) -> Iterator[Iterable[Any]]:
        """Yield the rows of the overview, or of a criterion's results."""
        window = _window(query)
        name = query.get("name")
        if not name:
            return exports.rows_of_overview(self._overview(window, self._run(query)))
        stored = views.criterion(self.columns, name, window, {})
        if stored is None:
            raise _NotFound(f"no result of a criterion {name!r} is stored")
        _, rows = stored
        return exports.rows_of_criterion(self.columns, rows, self.dimensions)

    def csv_of_answers(self, query: Mapping[str, str]) -> Iterator[Iterable[Any]]:
        return exports.rows_of_answers(self.columns, self._wanted(query))

    def lines_of_answers(self, query: Mapping[str, str]) -> Iterator[bytes]:
        return exports.lines_of_answers(self.columns, self._wanted(query))

    def _run(self, query: Mapping[str, str]) -> str | None:
        """Return the run that a page is of, or the last run if none is named.

        The result is None without runs.
        """
        runs = self.settings.runs
        if runs is None:
            return None
        return runs.check(query.get("run") or runs.names[-1], "run")

    def _overview(self, window: views.Window, run: str | None = None) -> list[views.CriterionView]:
        current = self.columns.version
        self.labels.refresh()  # which of them count
        version, criteria = self._overviews.get((window, run), (-1, []))
        if version != current:
            filters = {"run": run} if run else {}
            criteria = views.overview(self.columns, window, self.objectives, filters)
            criteria = self._with_notes(criteria, window, filters)
            if not window.is_range:  # there are any number of ranges
                self._overviews[window, run] = (current, criteria)
        return criteria

    def _with_notes(
        self,
        criteria: Sequence[views.CriterionView],
        window: views.Window,
        filters: Mapping[str, str],
    ) -> list[views.CriterionView]:
        """Return the criteria, those of people with what their labels say of the evaluator's figure."""
        figures = {view.name: view.passes for view in criteria if not view.is_human}
        noted = []
        for view in criteria:
            if view.is_human and view.name in figures:
                of_criterion = {**filters, "criterion": view.name}
                rows = views.rows_in(self.columns, window, of_criterion)
                notes = self._label_notes(view.name, rows, figures[view.name])
                view = view._replace(notes=notes)
            noted.append(view)
        return noted

    def _label_notes(self, name: str, rows: Rows, judged: Figure | None) -> tuple[str, ...]:
        """Return what makes figures from labels doubtful: they are of other answers than those shown."""
        shifts = self.labels.shifts(name, rows, judged)
        return tuple(shift_sentences(shifts, all_answers="the answers shown here", shown=visible))

    def _criteria(self) -> list[str]:
        return [
            view.name
            for view in self._overview(views.Window())
            if not view.is_human and view.main is not None
        ]

    def _answers(self, rows: Rows, by: By) -> list[dict[str, Any]]:
        """Return what the lowest scores of a criterion show, with the first words of their texts."""
        columns = self.columns
        reasons = columns.names("reason")
        moments = answer_list.moments_of(columns, rows, by)
        texts = {item.key: item for item in answer_list.listed(self.settings.place, moments)}
        answers: list[dict[str, Any]] = []
        for row in rows:
            key = columns.id_of(row)
            answer = {
                "key": key,
                "moment": moments[key],
                "passed": int(columns["passed"][row]),
                "normalized": float(columns["normalized"][row]),
                "reason": reasons[columns["reason"][row]],
                "texts": texts.get(key),
            }
            answers.append(answer)
        return answers


class _NotFound(Exception):
    """The requested item is not stored."""


def _cost_filters(query: Mapping[str, str]) -> dict[str, str]:
    """Return the criterion and the agent that the page of costs is narrowed to."""
    return {name: query[name] for name in ("criterion", "agent") if query.get(name)}


def application(pages: Pages) -> Any:
    """Return the ASGI application. It is closed if the pages have an access."""
    views_of = {
        "/": pages.overview,
        "/criterion": pages.criterion,
        "/answers": pages.answers,
        "/conversation": pages.conversation,
        "/compare": pages.compare,
        "/cost": pages.cost,
        "/health": pages.health,
    }
    routes: list[Route | Mount] = []
    for path, view in views_of.items():
        routes.append(Route(path, partial(_page, pages, view)))
    routes.append(Route("/answer/{key:str}.json", partial(_answer_json, pages)))
    routes.append(Route("/answer/{key:str}", partial(_answer_page, pages)))
    routes.append(Route("/export.csv", partial(_csv, pages, pages.csv_rows)))
    routes.append(Route("/export/answers.csv", partial(_csv, pages, pages.csv_of_answers)))
    routes.append(Route("/export/cost.csv", partial(_csv, pages, pages.csv_of_costs)))
    routes.append(Route("/export/answers.jsonl", partial(_json_lines, pages)))
    routes.append(Route("/export/{page:str}.html", partial(_export, pages)))
    routes.append(Route("/export/labels.csv", partial(_labels_csv, pages)))
    routes.append(Route("/export/labels.jsonl", partial(_labels_jsonl, pages)))
    routes.append(Route("/label", partial(_label_page, pages)))
    routes.append(Route("/label", partial(_post_label, pages), methods=["POST"]))
    routes.append(Route("/label/import", partial(_post_import, pages), methods=["POST"]))
    routes.append(Route("/note", partial(_post_note, pages), methods=["POST"]))
    routes.append(Mount("/static", StaticFiles(directory=HERE / "static")))
    handlers: dict[Any, Any] = {
        _NotFound: lambda _, error: _message(pages, f"Not here: {error}.", 404),
        404: lambda *_: _message(pages, "There is no such page.", 404),
        StorageError: lambda _, error: _message(pages, str(error), 503),
        AgentEvalError: lambda _, error: _message(pages, str(error), 400),
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    return app if pages.access is None else pages.access.wrap(app)


def _page(pages: Pages, view: Callable[[Mapping[str, str]], str], request: Request) -> Response:
    query = request.query_params
    with pages.lock:
        pages.columns.refresh()
        if request.headers.get("x-update") and query.get("seen") == str(pages.columns.version):
            return Response(status_code=204)  # nothing is new: the page stays as it is
        return _html(view(query))


def _answer_page(pages: Pages, request: Request) -> Response:
    with pages.lock:
        pages.columns.refresh()
        return _html(pages.answer(request.path_params["key"], request.query_params))


def _answer_json(pages: Pages, request: Request) -> Response:
    stored = pages.settings.place.find_answer(request.path_params["key"])
    if stored is None:
        raise _NotFound("no such answer is stored")
    evaluation, _ = stored
    text = evaluation.model_dump_json(by_alias=True, indent=1)
    return _file(text, "application/json", "answer.json")


def _csv(
    pages: Pages,
    rows_of: Callable[[Mapping[str, str]], Iterator[Iterable[Any]]],
    request: Request,
) -> Response:
    with pages.lock:
        pages.columns.refresh()
        rows = rows_of(request.query_params)
        head = next(rows)  # settles which rows they are, while nothing is read into the columns
    return _file(exports.csv_text(chain([head], rows)), "text/csv; charset=utf-8", "agenteval.csv")


def _json_lines(pages: Pages, request: Request) -> Response:
    with pages.lock:
        pages.columns.refresh()
        lines = pages.lines_of_answers(request.query_params)
    return _file(lines, "application/x-ndjson", "answers.jsonl")


def _export(pages: Pages, request: Request) -> Response:
    exported = {"overview": pages.overview, "criterion": pages.criterion, "compare": pages.compare}
    view = exported.get(request.path_params["page"])
    if view is None:
        raise _NotFound(f"exported are {', '.join(exported)}")
    with pages.lock:
        pages.columns.refresh()
        page = view(request.query_params, is_static=True)
    return _file(single_file(page), "text/html", "agenteval.html")


def _label_page(pages: Pages, request: Request) -> Response:
    names = request.query_params
    query = {name: names.getlist(name) for name in names}
    with pages.lock:
        pages.columns.refresh()
        return _html(pages.label(query, _labeller(pages, request)))


def _labels_csv(pages: Pages, request: Request) -> Response:
    with pages.lock:
        pages.columns.refresh()
        exported = pages.exported_labels(request.query_params)
    text = exports.csv_text(rows_of_labels(exported))
    return _file(text, "text/csv; charset=utf-8", "labels.csv")


def _labels_jsonl(pages: Pages, request: Request) -> Response:
    with pages.lock:
        pages.columns.refresh()
        exported = pages.exported_labels(request.query_params)
    return _file(lines_of_labels(exported), "application/x-ndjson", "labels.jsonl")


async def _post_label(pages: Pages, request: Request) -> Response:
    body = await _body_of(request, _MAX_FORM)
    if body is None:
        return _message(pages, "The form is too long.", 413)
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    form = {name: values[-1] for name, values in fields.items()}
    return await run_in_threadpool(_label, pages, form, _labeller(pages, request))


async def _post_import(pages: Pages, request: Request) -> Response:
    body = await _body_of(request, MAX_BYTES + _MAX_FORM)
    if body is None:
        return _message(pages, f"The file is too long: at most {MAX_BYTES:,} bytes.", 413)
    return await run_in_threadpool(_import, pages, request.headers.get("content-type", ""), body)


async def _body_of(request: Request, limit: int) -> bytes | None:
    """Return the body of a request, or None if it is longer than the limit."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            return None
    return bytes(body)


def _labeller(pages: Pages, request: Request) -> str:
    return name_in(unquote(request.cookies.get(_name_cookie(pages), "")))


def _name_cookie(pages: Pages) -> str:
    return f"{pages.access.cookie if pages.access else 'agenteval'}_labeller"


def _refused(pages: Pages, csrf: str | None) -> Response | None:
    """Return the response to a form that may change neither labels nor notes, else None."""
    if pages.access is None or csrf != pages.access.csrf:
        return _message(pages, "The form was sent from another page.", 403)
    if not pages.settings.can_label:
        return _message(pages, "Labels and notes need a database: this is a file.", 400)
    return None


def _label(pages: Pages, form: Mapping[str, str], labeller: str) -> Response:
    refused = _refused(pages, form.get("csrf"))
    if refused is not None:
        return refused
    key = form.get("key", "")
    follow = form.get("next", "")
    reply = RedirectResponse(follow if follow.startswith("/label?") else f"/answer/{key}", 303)
    if "labeller" in form:
        name = quote(name_in(form["labeller"]))
        reply.set_cookie(
            _name_cookie(pages), name, max_age=_NAME_KEPT_S, httponly=True, samesite="lax"
        )
        return reply
    person = person_of(labeller)
    with pages.lock:
        labels = pages.labels.all()
    if "undo" in form:
        is_stored = take_back(labels, form["undo"], person, labeller, pages.settings.place)
    else:
        stored = pages.settings.place.find_answer(key)
        if stored is None:
            raise _NotFound("no such answer is stored")
        is_stored = record_verdicts(
            key,
            stored[0],
            verdicts_in(form),
            own_verdicts(labels, key, person),
            comment=form.get("comment", ""),
            name=labeller,
        )
    if not is_stored:
        return _message(pages, "The label was not stored: see the terminal.", 503)
    with pages.lock:
        pages.columns.refresh(at_once=True)
    return reply


def _import(pages: Pages, content_type: str, body: bytes) -> Response:
    fields = fields_of_upload(content_type, body)
    refused = _refused(pages, fields.get("csrf", b"").decode("utf-8", "replace"))
    if refused is not None:
        return refused
    with pages.lock:
        pages.columns.refresh(at_once=True)
        labels = list(pages.labels.all())
        criteria = pages.label_criteria()
    content = fields.get("file", b"")
    imported = import_labels(content, labels, pages.settings.place, criteria)
    with pages.lock:
        pages.columns.refresh(at_once=True)
    return _html(pages.render("imported.html", imported=imported))


async def _post_note(pages: Pages, request: Request) -> Response:
    body = await _body_of(request, _MAX_FORM)
    if body is None:
        return _message(pages, "The form is too long.", 413)
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    form = {name: values[-1] for name, values in fields.items()}
    return await run_in_threadpool(_note, pages, form)


def _note(pages: Pages, form: Mapping[str, str]) -> Response:
    refused = _refused(pages, form.get("csrf"))
    if refused is not None:
        return refused
    key = form.get("key", "")
    if not pages.settings.place.find_evaluations([key]):
        raise _NotFound("no such answer is stored")
    if pages.notes is not None:
        take_note(pages.notes, key, form, comments=pages.settings.keeps_comments)
    answer = f"/answer/{key}"
    follow = form.get("next", "")
    return RedirectResponse(follow if follow.startswith(f"{answer}?") else answer, 303)


def _window(query: Mapping[str, str]) -> views.Window:
    length = query.get("window", "all")
    if length not in views.WINDOWS:
        length = "all"
    by: By = "evaluated" if query.get("time") == "evaluated" else "answered"
    since = views.moment_in(query.get("since"))
    until = views.moment_in(query.get("until"))
    return views.Window(length, by, since, until)


def _url(path: str, *, window: views.Window | None = None, **query: Any) -> str:
    if window is not None:
        by = None if window.by == views.Window().by else window.by
        chosen = {"since": window.since, "until": window.until}
        query = {"window": window.length, "time": by, **chosen, **query}
    kept = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(kept)}" if kept else path


def _message(pages: Pages, message: str, status: int) -> Response:
    return _html(pages.render("message.html", message=message), status)


def _html(text: str, status: int = 200) -> Response:
    return HTMLResponse(text.encode("utf-8", "replace"), status)


def _file(content: str | Iterator[bytes], kind: str, name: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    if isinstance(content, str):
        return Response(content.encode("utf-8", "replace"), media_type=kind, headers=headers)
    return StreamingResponse(content, media_type=kind, headers=headers)

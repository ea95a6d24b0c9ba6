"""The pages: what each shows, which parts are live, and what updates them. A page and its stream use the same context.

A context is made in a thread, since most of them read files or call git.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from llmc.api import commenting, goal_orders, goal_views, tasks, workers
from llmc.api.night_view import night
from llmc.api.roots import Project
from llmc.api.views import Fleet, Item, Row
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, NotFound, UsageError
from llmc.config.durations import parse_duration
from llmc.web import charts
from llmc.web.live import Live
from llmc.web.rules import access, task_picture

Context = dict[str, Any]
Query = Mapping[str, str]

#: tabs of a worker's page
TABS = ("screen", "talk", "task", "log")
#: how many rows of a diff come with the page; later files are loaded when the reader gets there
FIRST_ROWS = 400
#: most workers whose screens the board shows
MOST_PREVIEWS = 40


class Page(Struct, frozen=True):
    """A page for one browser."""

    #: the template; also its place in the navigation
    name: str
    #: reads everything; runs in a thread
    context: Callable[[], Context]
    #: the elements that change while the page is open, each with its template
    parts: tuple[str, ...] = ()
    #: topics whose changes update the page
    topics: frozenset[str] = frozenset({"fleet"})
    #: workers whose screens the page shows
    screens: tuple[str, ...] = ()


class Action(Struct, frozen=True):
    """A button of an item."""

    verb: str
    label: str
    #: what to ask for confirmation; "" to ask nothing
    ask: str = ""


class Card(Struct, frozen=True):
    """An item of the attention list, with the actions available here."""

    item: Item
    row: Row | None
    actions: tuple[Action, ...]
    #: a question that can be answered here
    question: workers.Question | None
    #: the page with more
    link: str


def fleet_of(live: Live) -> Fleet:
    if live.fleet is None:
        raise NotFound(live.trouble or "cannot read the state of this root", hint="Run `llmc doctor`.")
    return live.fleet


def row_of(live: Live, worker: str) -> Row:
    row = fleet_of(live).rows.get(worker)
    if row is None:
        raise NotFound(
            f"no worker {worker[:60]!r}",
            hint="If the worker was removed, its work is in the trash: llmc trash list",
        )
    return row


def attention(live: Live, query: Query) -> Page:
    def context() -> Context:
        fleet = fleet_of(live)
        return {
            "cards": [_card(live.project, fleet, item) for item in fleet.items],
            "landed": fleet.landed,
            # what an undo would revert
            "last_landed": next((one for one in fleet.landed if not one.undone), None),
        }

    return Page("attention", context, ("attention", "landed"), frozenset({"fleet", "job"}))


def _card(project: Project, fleet: Fleet, item: Item) -> Card:
    row = fleet.rows.get(item.worker) if item.worker else None
    link = f"/w/{item.worker}" if item.worker else ""
    question = _question(project, item)
    actions: tuple[Action, ...] = ()
    if item.kind == "review" and row is not None:
        branch = project.config.repo.default_branch
        actions = (Action("accept", "Accept", f"Land {row.commit[:9]} on {branch}? You can undo it later."),)
        link = f"/w/{item.worker}/review"
    elif item.kind == "held" and item.worker:
        actions = (Action("release", "Release"),)
    elif item.kind == "goal_question":
        link = "/goals"
    elif item.kind in ("proposed", "task_question", "parked_task"):
        link = "/tasks"
    return Card(item, row, actions, question, link)


def _question(project: Project, item: Item) -> workers.Question | None:
    """The question of an item, if it can be answered on a page."""
    if item.worker and item.kind in ("question", "input", "dialog"):
        with contextlib.suppress(LlmcError):  # it cannot be answered from here; the item says how
            return workers.question(project, item.worker)
    return None


def board(live: Live, query: Query) -> Page:
    fleet = fleet_of(live)
    shown = tuple([*fleet.needs, *fleet.working, *fleet.idle][:MOST_PREVIEWS])

    def context() -> Context:
        return {"screens": dict(live.screens)}

    return Page("board", context, ("board",), frozenset({"fleet", "screen"}), shown)


def worker(live: Live, name: str, query: Query) -> Page:
    row_of(live, name)
    tab = query.get("tab", "screen")
    if tab not in TABS:
        raise NotFound(f"no tab {tab[:20]!r}", hint=f"Tabs: {', '.join(TABS)}")

    def context() -> Context:
        asked = (_question(live.project, item) for item in fleet_of(live).items if item.worker == name)
        return {
            "row": row_of(live, name),
            "question": next(filter(None, asked), None),
            "tab": tab,
            "tabs": TABS,
            "screen": live.screens.get(name),
            "talk": workers.talk(live.project, name) if tab == "talk" else (),
            "details": workers.details(live.project, name) if tab == "task" else None,
            "events": [one for one in live.newest_events() if one.worker == name] if tab == "log" else (),
            "job": live.job_of(name),
        }

    more = {"screen": f"screen {name}", "log": "events"}.get(tab, "fleet")
    return Page(
        "worker",
        context,
        ("worker_head", "worker_tab", "job"),
        frozenset({"fleet", "job", more}),
        (name,) if tab == "screen" else (),
    )


def review(live: Live, name: str, query: Query) -> Page:
    row_of(live, name)
    since = access.whole(query.get("since") or "0")
    if since is None:
        raise UsageError(f"`since` must be a round number, not {query['since'][:20]!r}")
    view = "split" if query.get("view") == "split" else "unified"
    #: the commit whose diff the browser shows already; a stream sends no diff
    drawn = query.get("drawn", "")
    sends = query.get("send") == "yes"

    def context() -> Context:
        shown = commenting.page(live.project, name, since)
        return {
            "row": row_of(live, name),
            "page": shown,
            "view": view,
            "lazy": _lazy_from(shown),
            "job": live.job_of(name),
            "notes": _notes(shown),
            "numbers": {file.path: number for number, file in enumerate(shown.files)},
            "prompt": commenting.request(live.project, shown) if sends else None,
            "outdated": bool(drawn) and drawn != shown.review.head,
            "for_stream": {"drawn": shown.review.head},
        }

    topics = frozenset({"fleet", "job", f"review {name}"})
    return Page("review", context, ("review_head", "notes", "job"), topics)


def _lazy_from(shown: commenting.Page) -> int:
    """The number of the first file that does not come with the page."""
    rows = 0
    for number, file in enumerate(shown.files):
        rows += 0 if file.folded else len(file.rows)
        if rows > FIRST_ROWS and number:
            return number
    return len(shown.files)


def _notes(shown: commenting.Page) -> dict[str, dict[int, list[commenting.Placed]]]:
    """The comments by file and row; row -1 is above the file, and file "" is above all files."""
    notes: dict[str, dict[int, list[commenting.Placed]]] = {}
    files = {file.path: file for file in shown.files}
    for one in shown.comments:
        file = files.get(one.anchor.path) if one.anchor else None
        row = commenting.row_of(one.anchor, file) if one.anchor and file else None
        place = notes.setdefault(file.path if file else "", {})
        place.setdefault(-1 if row is None else row, []).append(one)
    return notes


def task_list(live: Live, query: Query) -> Page:
    def context() -> Context:
        found = tasks.board(live.project, recent=50)
        rows = [found.view(task) for task in found.found.tasks.values()]
        return {"tasks": rows, "priorities": tasks.PRIORITIES, "picture": task_picture.picture(rows)}

    return Page("tasks", context, ("tasks",), frozenset({"fleet", "events"}))


def goal_list(live: Live, query: Query) -> Page:
    """The goals; `why` and `goal` in the URL name the goal or plan item to explain."""
    item, goal_id = query.get("why", ""), query.get("goal", "")

    def context() -> Context:
        found = goal_views.goals(live.project)
        goals = [
            {
                "id": view.goal.goal_id,
                "is_over": view.goal.status.is_over,
                "summary": goal_views.summary(view),
                "rows": goal_views.plan_rows(view),
            }
            for view in found.views
        ]
        return {
            "goals": goals,
            "questions": goal_views.open_questions(live.project),
            "troubles": found.troubles,
            "undriven": goal_orders.undriven(live.project) if goals else "",
            "explained": (item, goal_id or item),
            "why": goal_views.why(live.project, item, goal_id).lines if item else (),
        }

    return Page("goals", context, ("goals",), frozenset({"fleet", "events"}))


def the_night(live: Live, query: Query) -> Page:
    def context() -> Context:
        found = night(live.project, _since(query))
        landed = [one for one in found.digest.accepted if one.commit]
        last = max(landed, key=lambda one: one.at_unix, default=None)
        return {"night": found, "charts": charts.of_night(found), "last_landed": last}

    return Page("night", context, (), frozenset())


def _since(query: Query) -> float | None:
    """The start of the period; None: since the user last read the digest."""
    if not query.get("since"):
        return None
    try:
        return now_unix() - parse_duration(query["since"])
    except ValueError as error:
        raise UsageError(f"since: {error}", hint="For example: since=12h") from error


def events(live: Live, query: Query) -> Page:
    wanted = {name: query[name] for name in ("worker", "action") if query.get(name)}

    def context() -> Context:
        shown = [
            one
            for one in live.newest_events()
            if all(getattr(one, key) == value for key, value in wanted.items())
        ]
        return {"events": shown, "wanted": wanted, "jobs": live.jobs.recent(20)}

    return Page("events", context, ("events",), frozenset({"events", "job"}))


def all_roots(live: Live, query: Query) -> Page:
    """Every root of this user; the context that all pages share has what it shows."""
    return Page("roots", dict, ("roots",))


#: pages of the whole fleet, by their path
OF_FLEET: dict[str, Callable[[Live, Query], Page]] = {
    "attention": attention,
    "board": board,
    "tasks": task_list,
    "goals": goal_list,
    "night": the_night,
    "events": events,
    "roots": all_roots,
}


def job(live: Live, job_id: str) -> Page:
    """One order, from its start to its end."""
    found = live.jobs.get(job_id)
    return Page("job_page", lambda: {"job": found}, ("job",), frozenset({"job"}))


def page_named(live: Live, name: str, about: str, query: Query) -> Page:
    """The page that a stream belongs to; `about`: its worker or job."""
    if name in OF_FLEET:
        return OF_FLEET[name](live, query)
    if name in ("worker", "review"):
        return (worker if name == "worker" else review)(live, about, query)
    if name == "job_page":
        return job(live, about)
    raise NotFound(f"no page {name[:40]!r}")


def shared(live: Live, page: str, home: str, *, read_only: bool) -> Context:
    """The context that all pages share. `home`: the prefix of the browser's URLs."""
    return {
        "fleet": live.fleet,
        "trouble": live.trouble,
        "page_name": page,
        "read_only": read_only,
        "now": now_unix(),
        "home": home,
        "at": home + address(live),
    }


def address(live: Live) -> str:
    """The URL prefix of a root; quoted, because its name can be any directory name."""
    return f"/r/{quote(live.key, safe='')}" if live.key else ""

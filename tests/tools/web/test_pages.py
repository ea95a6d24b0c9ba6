"""Every page, on a root with hostile agents, files and tasks: it answers, and none of that becomes markup."""

import re

import pytest
from msgspec.structs import replace
from starlette.websockets import WebSocketDisconnect

from llmc.api import goal_views, workers
from llmc.api.other_nodes import others_of
from llmc.api.subscription import FleetSeen
from llmc.base.clock import now_unix
from llmc.base.text import visible
from llmc.cli.commands import COMMANDS
from llmc.fleet.rules import Need, Node, Sighting
from llmc.web import pages
from tests.support.repos import Mold, add_worker, project_at
from tests.support.waiting import wait_until
from tests.support.web import Place, Read, Web, faults, hostile_root, plain_root, routes

FLEET = [
    "/",
    "/roots",
    "/board",
    "/tasks",
    "/goals",
    "/night",
    "/night?since=24h",
    "/events",
    "/events?worker=w1",
]
WORKER = [
    "/w/w1",
    "/w/w1?tab=talk",
    "/w/w1?tab=task",
    "/w/w1?tab=log",
    "/w/w1/review",
    "/w/w1/review?view=split",
    "/w/w1/review/files/0",
    "/w/w1/review/form?path=f.py&row=1",
    "/w/w1/take",
    "/w/take",
]
STREAMS = [
    "attention",
    "board",
    "tasks",
    "goals",
    "events",
    "worker&about=w1",
    "worker&about=w1&tab=log",
    "review&about=w1",
]


@pytest.mark.parametrize("path", [*FLEET, *WORKER])
def test_a_page_shows_hostile_text_as_text(hostile: Web, path: str) -> None:
    """Break: `| safe` in a template; Markup in a filter;
    an attribute without quotes; a page without escaping.
    """
    shown = hostile.get(path)
    assert shown.status_code == 200, shown.text
    assert faults(shown.text) == []
    assert shown.headers["content-type"] == "text/html; charset=utf-8"
    if path not in ("/w/w1/take", "/w/take", "/w/w1/review/form?path=f.py&row=1"):
        assert "<pwn-el pwn-attr=1>" in Read(shown.text).text


@pytest.mark.parametrize("page", STREAMS)
def test_a_stream_swaps_in_the_same_text(hostile: Web, page: str) -> None:
    """Break: leave a carriage return in a message: it starts a new field of an event."""
    shown = hostile.streamed(f"/stream?page={page}")
    assert faults(shown) == []
    assert "<pwn-el pwn-attr=1>" in Read(shown).text or page.startswith("review")
    assert set(re.findall(r'<hx-partial hx-target="#(\w+)"', shown)) >= {"nav", "health", "said"}


def test_the_screen_of_an_agent_comes_by_the_stream(hostile: Web) -> None:
    """Its colors are classes, and nothing else in it acts.

    Break: show its title or reversed text as they are.
    """
    hostile.place.live._looks.update(["w1"])
    shown = hostile.get("/w/w1").text
    assert faults(shown) == []
    assert '<span class="fg1">red' in shown
    assert "{{7*7}}" in Read(shown).text


def test_a_goal_and_a_plan_item_are_explained(hostile: Web) -> None:
    """As `llmc goal why` says it, under the item, and live.

    Break: explain by the item alone: two goals have an S1.1.1.
    """
    (goal,) = goal_views.goals(hostile.place.project).views
    goal_id = goal.goal.goal_id
    links = [one["href"] for tag, one in Read(hostile.get("/goals").text).tags if one.get("class") == "why"]
    items = [goal_id, "P1", "T1.1", "S1.1.1"]
    assert links == [f"{hostile.home}/goals?goal={goal_id}&why={item}#why" for item in items]
    for link, item in zip(links, items, strict=True):
        shown = hostile.get(link)
        assert (shown.status_code, faults(shown.text)) == (200, [])
        lines = goal_views.why(hostile.place.project, item, goal_id).lines
        assert visible(lines[0]) in Read(shown.text).text
        assert (
            visible(lines[-1]) in Read(hostile.streamed(f"/stream?page=goals&goal={goal_id}&why={item}")).text
        )
        assert shown.text.count('id="why"') == 1
    other = hostile.get(f"/goals?goal=another&why={goal_id}")
    assert 'id="why"' not in other.text
    assert hostile.get("/goals?why=S9.9.9").status_code == 404


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/nothing", "no page"),
        ("/w/nobody", "no worker"),
        ("/w/nobody/review", "no worker"),
        ("/w/nobody/take", "no worker"),
        ("/w/nobody/review/files/0", "no worker"),
        ("/w/w1?tab=x", "no tab"),
        ("/w/w1/review/files/99", "no longer in the diff"),
        ("/w/w1/review?since=7", "no review round 7"),
        ("/jobs/nojob", "no job"),
        ("/r/nowhere/", "no root"),
        ("/r/nowhere/board", "no root"),
        ("/stream?page=x", "no page"),
        ("/stream?page=job_page&about=x", "no job"),
        ("/a/b/c/d", "no page"),
        ("/static/nothing.js", "no page"),
    ],
)
def test_what_is_not_there_is_said(hostile: Web, path: str, says: str) -> None:
    shown = hostile.get(path)
    assert shown.status_code == 404
    assert says in Read(shown.text).text


@pytest.mark.parametrize(
    "evil", ["<pwn-el>", '"><pwn-el pwn-attr=1>', "%00", "..%2f..%2fetc", "\u202e", "x" * 3000, "%ff"]
)
@pytest.mark.parametrize(
    "path",
    [
        "/{}",
        "/w/{}",
        "/w/{}/review",
        "/jobs/{}",
        "/r/{}/",
        "/events?worker={}&action={}",
        "/w/w1?tab={}",
        "/login?link={}&next={}",
    ],
)
def test_hostile_words_in_an_address(hostile: Web, path: str, evil: str) -> None:
    shown = hostile.get(path.replace("{}", evil))
    assert shown.status_code in (200, 400, 404)
    assert faults(shown.text) == []


@pytest.mark.parametrize(
    "path",
    [
        "/w/w1/review?since=99999999999999999999",
        "/w/w1/review?since=-1",
        "/w/w1/review/files/x",
        "/w/w1/review/files/-1",
        f"/w/w1/review/files/{'9' * 5000}",
        "/w/w1/review?since=²",
        "/night?since=x",
        f"/night?since={'9' * 400}d",
    ],
)
def test_a_number_that_is_none(hostile: Web, path: str) -> None:
    """Break: call `int` on what a browser sent."""
    assert hostile.get(path).status_code in (400, 404)


@pytest.mark.parametrize("since", ["20000d", "99999999d"])
def test_a_night_of_any_length(hostile: Web, since: str) -> None:
    """And its times show their day. Break: show only the hour; a time before the calendar."""
    shown = hostile.get(f"/night?since={since}")
    assert (shown.status_code, faults(shown.text)) == (200, [])
    assert re.search(r"From \d{4}-\d\d-\d\d \d\d:\d\d to \d{4}-", Read(shown.text).text)


def test_what_breaks_is_a_page(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a link back, and without the text of the error. Break: starlette's own answer."""

    def broken(*args: object, **more: object) -> object:
        raise ValueError("a secret")

    monkeypatch.setattr(pages.tasks, "board", broken)
    shown = web.get("/tasks")
    assert (shown.status_code, faults(shown.text)) == (500, [])
    assert "unexpected error: ValueError" in Read(shown.text).text
    assert "Back to the list" in shown.text
    assert "a secret" not in shown.text
    assert web.get("/board").status_code == 200


def test_a_removed_worker_is_told_with_where_it_is(web: Web) -> None:
    """On a page that still shows it. Break: print the error without its hint."""
    web.get("/w/w1")
    live = web.place.live
    live.fleet = replace(live.fleet, rows={})
    page = pages.Page("worker", lambda: {"row": pages.row_of(live, "w1")}, ("worker_head",))
    assert (
        "no worker 'w1'. If the worker was removed, its work is in the trash: llmc trash list"
        in Read(web.place.site._made_parts(live, page)["health"]).text
    )


def test_only_the_take_over_page_allows_styles_of_its_own(hostile: Web) -> None:
    """xterm.js needs them; a worker may be named `take`. Break: decide by the end of the path."""
    policies = {
        path: hostile.get(path).headers["content-security-policy"] for path in (*FLEET, *WORKER, "/x/take")
    }
    assert [path for path, policy in policies.items() if "unsafe-inline" in policy] == ["/w/w1/take"]
    assert all("script-src 'self';" in policy for policy in policies.values())


def test_every_answer_carries_its_headers(hostile: Web) -> None:
    """Break: set them in a page instead of in the middleware."""
    for method, path in routes(hostile.place.site):
        if method == "WS" or path.endswith(("/stream", "/logout")):
            continue
        headers = hostile.request(method, path).headers
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["referrer-policy"] == "same-origin", path
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert headers["cross-origin-resource-policy"] == "same-origin", path
        assert headers.get("cache-control") == (None if path.startswith("/static/") else "no-store"), path
        assert "server" not in headers


def test_a_page_needs_no_script_to_show_or_to_order(web: Web) -> None:
    """Every form has its own address and method. Break: use only hx-post."""
    for path in ("/", "/board", "/tasks", "/w/w1", "/w/w1/review"):
        page = Read(web.get(path).text)
        ordering = [
            one
            for tag, one in page.tags
            if tag == "form" and "hx-post" in one and one.get("class") != "viewed"
        ]
        assert all((one.get("method"), one.get("action")) == ("post", one["hx-post"]) for one in ordering), (
            path
        )
    assert web.order("/w/w1/hold").said.outcome == "w1: on hold"


@pytest.mark.parametrize("make", [plain_root, hostile_root])
def test_a_read_only_page_has_no_form_and_changes_nothing(mold: Mold, make: object) -> None:
    """And says so.

    Break: leave `read_only` out of a template or of the middleware; count a view as a review.
    """
    project = project_at(mold.place(make) / "root")  # type: ignore[arg-type]
    place = Place(project, read_only=True)
    with place.served() as web:
        web.get("/")  # the first read of a root without a daemon does the daemon's pending work
        before = project.root.events.read_bytes()
        for path in [*FLEET, *WORKER]:
            shown = web.get(path)
            if path == "/w/w1/take" or path.startswith("/w/w1/review/form"):
                assert (shown.status_code, "<form" in shown.text) == (409, False)
                continue
            page = Read(shown.text)
            assert "Read-only" in page.text or path.startswith("/w/w1/review/files"), path
            changing = [
                one for tag, one in page.tags if tag == "form" and one.get("method") not in ("get", "dialog")
            ]
            changing += [one for _, one in page.tags if {"hx-post", "hx-put", "hx-delete"} & set(one)]
            assert changing == [], (path, changing)
        for page in STREAMS:
            assert "<form" not in web.streamed(f"/stream?page={page}")
        for method, path in routes(place.site):
            if method not in ("GET", "HEAD", "WS") and path not in ("/login", "/logout"):
                assert web.request(method, path).status_code == 403, (method, path)
        assert project.root.events.read_bytes() == before


def test_a_root_may_have_any_name(mold: Mold) -> None:
    """Break: put its name into an address as it is."""
    folder = mold.place(plain_root)
    project = project_at(folder / "root")
    place = Place(project)
    place.site.unserved = ("llmc --root '/a b' web",)
    place.site.lives = {"root": place.live, 'a ?#"<b>%': type(place.live)('a ?#"<b>%', project)}
    with place.served() as web:
        page = Read(web.get("/").text)
        (address,) = {one["href"] for tag, one in page.tags if tag == "a" and "/r/" in one["href"]}
        other = web.get(address)  # waits for the first read of that root
        every = Read(web.get("/roots").text)
        assert faults(web.get("/roots").text) == []
        assert address in [one["href"] for tag, one in every.tags if tag == "a"]
        assert (
            every.text.count("2 offline") == 3
        )  # for this root in the head of the page, and for both in the list
        assert "llmc --root '/a b' web" in every.text
        assert "2 offline" in web.streamed("/stream?page=roots").partition('id="roots"')[2]
        assert (other.status_code, faults(other.text)) == (200, [])
        links = {one["href"] for tag, one in Read(other.text).tags if tag == "a" and "board" in one["href"]}
        assert [web.get(link).status_code for link in links] == [200]
        for wrong in ("nothing", "w/nobody", "w/w1/hold"):
            (back,) = (one["href"] for tag, one in Read(web.get(address + wrong).text).tags if tag == "a")
            assert back == address, wrong
        moved = web.post(f"{address}w/w1/hold").headers["location"]
        assert web.get(moved).status_code == 200


def test_every_command_on_the_page_of_another_root_names_it(mold: Mold) -> None:
    """So it works from any directory. Break: use `| line` for a command, a hint or an outcome."""
    project = project_at(mold.place(plain_root) / "root")
    with project.store.transaction() as tx:
        tx.emit("web_ordered", worker="w1", command="llmc hold w1", by="Firefox, ::1")
    workers.switch_hold(project, "w1", True)
    place = Place(project)
    place.site.lives = {"root": place.live, "other": type(place.live)("other", project)}
    with place.served() as web:
        shown = [web.get(f"/r/other{path}").text for path in (*FLEET, *WORKER, "/w/nobody", "/w/w1?tab=x")]
        shown += [web.streamed(f"/r/other/stream?page={page}") for page in STREAMS]
        htmx = {"hx-request": "true"}
        orders = [("/w/w1/message", {"text": "x"}), ("/tasks/approve", {"task": "7"}), ("/fleet/undo", {})]
        for path, fields in orders:
            shown.append(web.post(f"/r/other{path}", data=fields, headers=htmx).text)
        jobs = place.site.lives["other"].jobs
        wait_until(lambda: all(job.said for job in jobs.recent(9)))
        shown += [web.get(f"/r/other/jobs/{job.id}").text for job in jobs.recent(9)]
        with (
            pytest.raises(WebSocketDisconnect) as closed,
            web.websocket_connect("/r/other/w/w1/terminal") as socket,
        ):
            socket.receive_text()
        shown.append(closed.value.reason)
        said = [word for text in shown for word in re.findall(r"(?<![\w.])llmc ([a-z-]+)", Read(text).text)]
        assert set(said) & {*COMMANDS, "--root"} == {"--root"}
        text = "".join(Read(one).text for one in shown)
        for command in (
            "up --detach",
            "hold w1",
            "trash list",
            "message w1 x",
            "tasks approve 7",
            "release w1",
        ):
            assert f"llmc --root {project.root.path} {command}" in text, command
        own = Read(web.get("/").text).text
        assert "llmc up --detach" in own
        assert "--root" not in own


def test_a_worker_that_was_just_added_has_its_page(web: Web) -> None:
    """Break: rely on the last read of the root."""
    web.get("/")
    add_worker(web.place.project, "new")
    assert web.get("/w/new").status_code == 200
    add_worker(web.place.project, "newer")
    assert web.order("/w/newer/hold").said.outcome == "newer: on hold"


def test_the_board_counts_who_is_offline_apart(web: Web) -> None:
    """Like the head of every page. Break: count them as idle."""
    shown = Read(web.get("/board").text).text
    assert "Idle 0 · 2 offline" in shown


def test_the_board_shows_the_other_nodes(web: Web) -> None:
    """Break: leave out the commands; treat a node's text as markup; or answer what the page did not show."""
    asks = Need("waiting", "auto-2", "auto-2 asks: <pwn-el>?", "llmc answer auto-2")
    node = Node("far", "far.lan:/home/me/far", "up", 1.0, "1.2", "2.1", {"auto-2": "needs_input"}, 0, [asks])
    others = others_of(Sighting(now_unix(), "here", [node], more=3), now_unix(), 60)
    assert "Other nodes" not in web.get("/board").text, "this root works alone"
    live = web.place.live
    live.stop()  # it would check again, and find no nodes
    assert web.portal is not None
    assert live.fleet is not None
    web.portal.call(live._apply, FleetSeen(replace(live.fleet, others=others)))
    shown = web.get("/board").text
    assert faults(shown) == []
    told = Read(shown).text
    given = {
        one["name"]: one.get("value") for tag, one in Read(shown).tags if tag == "input" and "name" in one
    }
    assert given["worker"] == "far/auto-2"
    assert given["asked"] == asks.text
    assert "Other nodes 1 and 3 more" in told
    assert "auto-2 asks: <pwn-el>?" in told
    assert "llmc answer far/auto-2" in told
    assert "ssh far.lan -t 'cd /home/me/far && llmc attach auto-2'" in told
    assert "1 more on other nodes" in Read(web.get("/").text).text

"""The web page on starlette's test client: a browser, a root full of hostile text, and checks of answers."""

import asyncio
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.testclient import TestClient

from llmc.api import commenting, tasks
from llmc.api.sign_ins import SignIns
from llmc.api.subscription import Screen, ScreenSeen
from llmc.cli.commands import COMMANDS
from llmc.config.edit import set_value
from llmc.goals.model import AssignmentStatus, Change, Event
from llmc.goals.store.goal_store import GoalStore
from llmc.repo.project import Project
from llmc.web.html import HERE
from llmc.web.rules import access
from llmc.web.server import Site
from tests.support.goal_records import BLOCKED, assignment, goal, node
from tests.support.repos import Repo, add_worker, make_project, project_at, run_git
from tests.support.waiting import wait_until

PORT = 8765
HOST = f"127.0.0.1:{PORT}"
HERE_URL = f"http://{HOST}"
COOKIE = f"llmc-{PORT}"
#: an element, an attribute from each kind of quotes, a script, and terminal escapes
EVIL = (
    "\"'><pwn-el pwn-attr=1>' pwn-attr='1\" pwn-attr=\"1</pre></textarea><script>pwn()</script>"
    "\x1b]0;title\x07\x1b[31mred\u202ederut {{7*7}} data: x\r\rdata: <pwn-el>"
)
#: the same in a file name: a byte that is not UTF-8, no slash, and not too long
EVIL_NAME = "\"'><pwn-el pwn-attr=1>\x1b[31m\u202e\udcff\n<script>pwn()<script>"


class Place:
    """A site on a root, and who may use it."""

    def __init__(self, project: Project, *, read_only: bool = False) -> None:
        self.project = project
        self.sign_ins = SignIns(project.root)
        self.site = Site(
            {"root": project},
            self.sign_ins,
            hosts=access.hosts_of("127.0.0.1", PORT, ()),
            cookie=COOKIE,
            commands=COMMANDS,
            read_only=read_only,
        )

    @property
    def live(self) -> Any:
        return self.site.lives["root"]

    @contextmanager
    def served(self) -> Iterator["Web"]:
        """Its test client, signed in."""
        with Web(self) as client:
            client.sign_in()
            yield client


class Web(TestClient):
    """A browser that has opened a page: it sends the page's Origin with every request."""

    def __init__(self, place: Place) -> None:
        super().__init__(
            place.site.app,
            base_url=HERE_URL,
            headers={"origin": HERE_URL},
            follow_redirects=False,
            raise_server_exceptions=False,
        )
        self.place = place
        #: prefix of its addresses; tests leave it out of a path
        self.home = ""

    def sign_in(self) -> None:
        done = self.post("/login", data={"link": self.place.sign_ins.new_link()})
        assert done.status_code == 303, done.text
        self.home = done.headers["location"].rpartition("/")[0]
        assert len(self.home) == 44

    def _merge_url(self, url: Any) -> Any:
        path = str(url)
        is_theirs = "://" in path or (self.home and path.startswith(self.home))
        return super()._merge_url(path if is_theirs else self.home + path)

    def stranger(self) -> "Web":
        """Another browser on the same server, without a cookie."""
        other = Web(self.place)
        other.portal = self.portal
        return other

    def websocket_connect(self, url: str, *args: Any, **more: Any) -> Any:
        return super().websocket_connect(f"ws://{HOST}{self.home}{url}", *args, **more)

    def order(self, path: str, **fields: str) -> Any:
        """Give an order, and wait for its end; returns the job."""
        done = self.post(path, data=fields)
        assert done.status_code == 303, done.text
        return self.ended(done.headers["location"].rpartition("/")[2])

    def ended(self, job_id: str) -> Any:
        job = self.place.live.jobs.get(job_id)
        wait_until(lambda: job.said is not None)
        return job

    def events(self, action: str) -> list[dict[str, Any]]:
        rows = (json.loads(line) for line in self.place.project.root.events.read_text().splitlines())
        return [row for row in rows if row["action"] == action]

    def streamed(self, path: str, cookie: str = "") -> str:
        """The first message of a stream: the HTML that it swaps in."""
        assert self.portal is not None
        path = self.home + path.removeprefix(self.home)
        return self.portal.call(_first_message, self.place.site.app, path, cookie or self.cookies[COOKIE])


async def _first_message(app: Any, path: str, cookie: str) -> str:
    path, _, query = path.partition("?")
    got: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    headers = [(b"host", HOST.encode()), (b"cookie", f"{COOKIE}={cookie}".encode())]
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": query.encode(),
        "headers": headers,
    }
    given = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> dict[str, Any]:
        for one in given:
            return one
        await asyncio.Event().wait()
        raise AssertionError

    running = asyncio.ensure_future(
        app({**scope, "root_path": "", "client": ("127.0.0.1", 1), "app_state": {}}, receive, got.put)
    )
    try:
        async with asyncio.timeout(20):
            start = await got.get()
            body = (await got.get())["body"].decode()
    finally:
        running.cancel()
    assert start["status"] == 200, body
    *lines, end, nothing = body.split("\n")
    assert (end, nothing) == ("", "")
    assert all(line.startswith("data: ") for line in lines), lines
    return "\n".join(line.removeprefix("data: ") for line in lines)


class Read(HTMLParser):
    """Every element of a page with its attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data


def _written() -> tuple[set[str], set[str]]:
    """The elements and attributes that the templates, and the code they call, write."""
    sources = [path.read_text() for path in (HERE / "templates").rglob("*.html")]
    sources.append(
        " ".join(re.findall(r"<[^>]*>", (HERE / "html.py").read_text() + (HERE / "stream.py").read_text()))
    )
    tags, names = {"ins", "del"}, set()
    for source in sources:
        plain = re.sub(r"\{%.*?%\}", " ", re.sub(r"\{\{.*?\}\}", "x", source, flags=re.S), flags=re.S)
        for tag, attributes in Read(plain).tags:
            tags.add(tag)
            names |= set(attributes)
    return tags, names


TAGS, ATTRIBUTES = _written()
_ADDRESSES = {
    "href",
    "src",
    "action",
    "hx-get",
    "hx-post",
    "hx-put",
    "hx-delete",
    "hx-sse:connect",
    "data-socket",
}


def faults(html: str) -> list[str]:
    """What in a page no template wrote, or a browser would run or fetch from elsewhere."""
    found = []
    for tag, attributes in Read(html).tags:
        found += [f"element {tag}"] if tag not in TAGS else []
        found += [
            f"{name} of {tag}" for name in attributes if name not in ATTRIBUTES or name.startswith("on")
        ]
        found += [
            f"{name}={value!r}"
            for name, value in attributes.items()
            if name in _ADDRESSES and (not value.startswith(("/", "?", "#")) or value.startswith("//"))
        ]
        if tag == "script" and not re.fullmatch(r"/static/[a-z./-]+\.js", attributes.get("src", "")):
            found.append(f"script {attributes}")
        found += ["style"] if "style" in attributes or tag == "style" else []
    odd = sorted(set(re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", html)))
    return found + ([f"characters {odd}"] if odd else [])


def routes(site: Site) -> list[tuple[str, str]]:
    """Every method and path of the application, with sample names of a root,
    a worker and so on; a WebSocket is `WS`.
    """
    app = site.app._app
    assert isinstance(app, Starlette)
    return sorted({(method, _filled(path)) for method, path in _walk(app.routes, "")})


def _walk(found: Any, before: str) -> Iterator[tuple[str, str]]:
    for route in found:
        if isinstance(route, WebSocketRoute):
            yield "WS", before + route.path
        elif isinstance(route, Route):
            for method in route.methods or ():
                yield method, before + route.path
        elif isinstance(route, Mount) and route.routes:
            yield from _walk(route.routes, before + route.path)
        else:
            assert isinstance(route, Mount), route
            yield "GET", f"{before}{route.path}/llmc.css"


PARAMETERS = {
    "root": "root", "worker": "w1", "job": "nojob", "verb": "hold", "page": "board", "number": "0", "comment": "c1",
    "path": "",
}  # fmt: skip


def _filled(path: str) -> str:
    return re.sub(r"\{(\w+)(:\w+)?\}", lambda found: PARAMETERS[found[1]], path)


def plain_root(folder: Path) -> None:
    """A root with two workers and a change by one of them, without agents."""
    source = Repo(folder / "src")
    source.commit("README.md", "sample\n")
    project = make_project(str(source.path), folder / "root")
    add_worker(project, "take")
    _, worktree = add_worker(project, "w1")
    worktree.commit("f.py", "".join(f"line {number}\n" for number in range(30)), "Work")
    set_value(project.root.path / "config.toml", "auto.task_list_id", "l")
    set_value(project.root.path / "config.toml", "auto.tasks_root", str(folder / "tasks"))


def hostile_root(folder: Path) -> None:
    """The same, with hostile text wherever others can put it."""
    plain_root(folder)
    project = project_at(folder / "root")
    worktree = project.root.path / ".worktrees/w1"
    for name in (EVIL_NAME, "g.py"):
        Path(os.fsdecode(os.fsencode(worktree / name))).write_bytes(os.fsencode(f"{EVIL}\n" * 3))
    run_git(worktree, "add", "-A")
    run_git(worktree, "commit", "-q", "-m", f"{EVIL.replace(chr(13), '')}\n\n{EVIL}")
    first = tasks.add(project, "First", None, {})
    second = tasks.add(project, "Second", None, {"after": [first.id]})
    for task in (first, second):
        file = folder / f"tasks/l/{task.id}.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "subject": EVIL, "description": EVIL}))
    with project.store.transaction() as tx:
        tx.update("w1", error_reason=EVIL, reason=EVIL, current_prompt=f"{EVIL}\n{EVIL}")
        tx.emit("agent_reported", worker="w1", reason=EVIL, subject=EVIL, text=EVIL)
        tx.emit("accepted", worker="w1", commit=run_git(worktree, "rev-parse", "HEAD"), subject=EVIL)
    commenting.add(project, "w1", None, None, EVIL)
    _hostile_goal(project)


def _hostile_goal(project: Project) -> None:
    nodes = [replace(node(name), name=EVIL, objective=EVIL) for name in ("P1", "T1.1", "S1.1.1")]
    asks = replace(BLOCKED, text=EVIL, question=EVIL, options=(EVIL, "b"))
    one = replace(assignment(), work_node_id="S1.1.1", status=AssignmentStatus.BLOCKED, blocked_reason=asks)
    told = Event(ts=2.0, type="plan.generated", goal_id=goal().goal_id, data={"reason": EVIL})
    store = GoalStore(project.root.private / "overseer")
    store.apply(Change(goal=goal(title=EVIL), nodes=tuple(nodes), events=(told,)))
    store.apply(Change(assignments=(one,)))


def hostile_screen(worker: str) -> ScreenSeen:
    return ScreenSeen(Screen(worker, time.time(), (EVIL, f"\x1b[1;31m{EVIL}", f"\x1b[38;5;{EVIL}"), EVIL))


def copy_of(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to, symlinks=True)
    return to

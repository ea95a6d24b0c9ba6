"""Orders from a browser: each reaches its operation, is logged with author and address, and is one job."""

import re
import threading
from typing import Any

import pytest
from msgspec.structs import replace

from llmc.api import acceptance, commenting, tasks
from llmc.api.said import Said
from llmc.reviews import comments
from llmc.reviews.rules.talk import Round
from llmc.web import acts
from tests.support.repos import run_git
from tests.support.waiting import wait_until
from tests.support.web import COOKIE, Read, Web, faults

#: all except those that start an agent (see tests/e2e/test_web_orders.py)
ORDERS: list[tuple[str, dict[str, str], str, str]] = [
    ("/w/w1/hold", {}, "llmc hold w1", "w1: on hold"),
    ("/w/w1/hold", {}, "llmc hold w1", "w1: already on hold"),
    ("/w/w1/release", {}, "llmc release w1", "w1: released"),
    ("/w/w1/message", {"text": "hello"}, "llmc message w1 hello", "status is offline"),
    ("/w/w1/answer", {"text": "2"}, "llmc answer w1 2", "w1"),
    ("/w/w1/reject", {"text": "no"}, "llmc reject w1 no --comments", "w1"),
    ("/w/w1/accept", {"commit": "0" * 40}, "llmc accept w1 --yes", "nothing landed"),
    (
        "/fleet/answer",
        {"worker": "far/w1", "text": "2", "asked": "Which color?"},
        "llmc answer far/w1 2",
        "this root is not in a fleet",
    ),
    ("/fleet/add", {"name": "w9"}, "llmc add w9", "added w9"),
    ("/tasks/add", {"text": "A task\r\nwith detail"}, "llmc tasks add 'A task\nwith detail'", "added task 1"),
    ("/tasks/approve", {"task": "7"}, "llmc tasks approve 7", "no task 7"),
    (
        "/tasks/edit",
        {"task": "1", "priority": "0"},
        "llmc tasks edit 1 --priority 0",
        "task 1 has priority 0",
    ),
    ("/tasks/requeue", {"task": "7"}, "llmc tasks requeue 7", "no task 7"),
    ("/goals/answer", {"question": "S1.1.1", "text": "yes"}, "llmc answer S1.1.1 yes", "S1.1.1"),
    (
        "/goals/answer",
        {"question": "S1.1.1", "text": "yes", "goal": "goal_x"},
        "llmc answer S1.1.1 yes --goal goal_x",
        "S1.1.1",
    ),
    ("/goals/plan", {"goal": "goal_x"}, "llmc goal plan goal_x", "no goal 'goal_x'"),
    (
        "/goals/replan",
        {"goal": "goal_x", "text": "too big"},
        "llmc goal plan goal_x --replan --why 'too big'",
        "no goal 'goal_x'",
    ),
]


def test_every_order_is_one_job_and_in_the_event_log(web: Web) -> None:
    """Break: log an order after it was done; leave out the address; `with_options` without its options."""
    for number, (path, fields, command, outcome) in enumerate(ORDERS):
        job = web.order(path, **fields)
        assert (job.command, outcome in job.said.outcome) == (command, True), (path, job.said)
        assert "unexpected error" not in job.said.outcome, job.said
        noted = web.events("web_ordered")
        assert len(noted) == number + 1
        assert noted[-1]["command"] == command.replace("\n", " ")
        assert (noted[-1]["by"], noted[-1]["worker"]) == (
            "browser, testclient",
            "w1" if "/w/" in path else None,
        )
        page = web.get(f"/jobs/{job.id}")
        assert command.split("\n")[0] in Read(page.text).text
    covered = {path.split("/")[-1] for path, *_ in ORDERS}
    every = {*acts.OF_WORKER, *acts.OF_FLEET, *acts.OF_TASKS, *acts.OF_GOALS}
    assert covered == every - {"start", "undo"}
    (task,) = tasks.board(web.place.project, recent=9).found.tasks.values()
    assert (task.subject, task.description) == ("A task", "with detail")
    assert "w9" in web.place.project.store.read().workers


@pytest.mark.parametrize(
    ("path", "fields", "status", "says"),
    [
        ("/w/w1/message", {"text": "  "}, 400, "text is empty"),
        ("/w/w1/accept", {}, 400, "commit is empty"),
        ("/fleet/undo", {"commit": "x"}, 404, "nothing to undo"),
        ("/w/w1/nothing", {}, 404, "no action"),
        ("/fleet/nothing", {}, 404, "no action"),
        ("/tasks/nothing", {}, 404, "no action"),
        ("/w/nobody/hold", {}, 404, "no worker"),
        ("/tasks/edit", {"task": "1", "priority": "99"}, 400, "'99' is not a priority"),
        ("/tasks/edit", {"task": "1"}, 400, "'' is not a priority"),
        ("/w/..%2f..%2fx/hold", {}, 404, ""),
        ("/w/w1/message", {f"field{n}": "x" for n in range(101)}, 400, "more than 100 fields"),
    ],
)
def test_what_cannot_be_ordered_is_said_and_makes_no_job(
    web: Web, path: str, fields: dict[str, str], status: int, says: str
) -> None:
    """Break: make a job for an unknown worker: its name, of any length, would be in the event log."""
    web.get("/")
    done = web.post(path, data=fields)
    assert done.status_code == status, done.text
    assert says in Read(done.text).text
    assert (web.place.live.jobs.recent(9), web.events("web_ordered")) == ([], [])
    short = web.post(path, data=fields, headers={"hx-request": "true"})
    assert says in Read(short.text).text
    assert faults(short.text) == []
    assert "<code>llmc" not in short.text  # no command was made of it


def test_a_page_knows_its_order_and_whether_it_ended_well(web: Web) -> None:
    """So that a text is dropped only after delivery. Break: use the latest order instead of the one given."""
    done = []
    for path, fields in (
        ("/w/w1/hold", {}),
        ("/w/w1/message", {"text": "hello"}),
        ("/fleet/add", {"name": "w9"}),
    ):
        answer = web.post(path, data=fields, headers={"hx-request": "true"})
        assert answer.status_code == 202
        job = web.ended(answer.headers["x-job"])
        assert job.command.split()[-1] in (*fields.values(), "w1")
        done = [job.id, *done] if job.said.tone != "bad" else done
    assert len(done) == 2
    (said,) = [one for tag, one in Read(web.get("/tasks").text).tags if one.get("id") == "said"]
    assert said["data-done"].split() == done


class Slow:
    """Orders that block until they are released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.ran = threading.Event(), 0
        monkeypatch.setitem(acts.OF_WORKER, "message", self.order)

    def of_worker(self, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
        """This verb, too: with the same target, and as slow."""
        make = acts.OF_WORKER[verb]
        monkeypatch.setitem(acts.OF_WORKER, verb, lambda *args: replace(make(*args), act=self.wait))

    def of_tasks(self, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
        make = acts.OF_TASKS[verb]
        monkeypatch.setitem(acts.OF_TASKS, verb, lambda *args: replace(make(*args), act=self.wait))

    def wait(self, show: Any) -> Said:
        assert self.go.wait(10)
        return Said("llmc", "done", 1.0)

    def order(self, project: Any, worker: str, form: acts.Form) -> acts.Order:
        def act(show: Any) -> Said:
            self.ran += 1
            show("half <b>way</b>")
            assert self.go.wait(10)
            if form["text"] == "fails":
                raise ValueError("<pwn-el> broke")
            return Said("llmc message", "done", 1.0)

        return acts.Order(worker, f"llmc message {worker} {form['text']}", act)


def test_two_equal_orders_are_one_job_and_another_one_is_refused(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two browsers, or a second tap. Break: make a job for each; or let one wait behind the other."""
    slow = Slow(monkeypatch)
    first = web.post("/w/w1/message", data={"text": "a"}).headers["location"].removeprefix(web.home)
    other = web.stranger()
    other.sign_in()
    again = other.post("/w/w1/message", data={"text": "a"}).headers["location"]
    assert again == other.home + first
    refused = other.post("/w/w1/message", data={"text": "b"})
    assert (refused.status_code, "w1 is busy: llmc message w1 a" in Read(refused.text).text) == (409, True)
    said = other.post("/w/w1/message", data={"text": "b"}, headers={"hx-request": "true"})
    assert "w1 is busy" in Read(said.text).text
    taken = web.post("/w/take/message", data={"text": "b"})  # another worker need not wait
    assert taken.status_code == 303
    slow.go.set()
    web.ended(first.rpartition("/")[2])
    web.ended(taken.headers["location"].rpartition("/")[2])
    assert slow.ran == 2
    assert web.post("/w/w1/message", data={"text": "b"}).headers["location"] != web.home + first


def test_orders_about_different_things_run_side_by_side(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long accept blocks no message, and one task no other.

    Break: use one lane for the fleet, or per worker.
    """
    slow = Slow(monkeypatch)
    slow.of_worker(monkeypatch, "accept")
    slow.of_tasks(monkeypatch, "requeue")
    running = [
        web.post(path, data=fields)
        for path, fields in (
            ("/w/w1/accept", {"commit": "0" * 40}),
            ("/tasks/requeue", {"task": "1"}),
            ("/w/w1/message", {"text": "a"}),
        )
    ]
    assert [one.status_code for one in running] == [303] * 3
    assert web.order("/w/w1/hold").said.outcome == "w1: on hold"
    assert "no task 2" in web.order("/tasks/approve", task="2").said.outcome
    refused = web.post("/tasks/approve", data={"task": "1"})
    assert (refused.status_code, "task 1 is busy" in Read(refused.text).text) == (409, True)
    # The worker's page shows what is still running, not the last order.
    assert web.place.live.job_of("w1").command == "llmc message w1 a"
    slow.go.set()
    for one in running:
        web.ended(one.headers["location"].rpartition("/")[2])


def test_an_order_that_breaks_ends_with_what_it_said(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: let the thread die: the worker would be busy forever."""
    slow = Slow(monkeypatch)
    slow.go.set()
    job = web.order("/w/w1/message", text="fails")
    assert (job.said.outcome, job.said.tone) == ("unexpected error: ValueError: <pwn-el> broke", "bad")
    page = web.get(f"/jobs/{job.id}").text
    assert faults(page) == []
    assert "half <b>way</b>" in Read(page).text
    assert web.order("/w/w1/message", text="x").said.outcome == "done"


def test_the_page_of_an_order_goes_on_showing_that_order(web: Web) -> None:
    """Break: stream the latest order of all: another order's outcome would appear as this one's."""
    first = web.order("/w/w1/hold")
    web.order("/fleet/add", name="w8")
    page = web.get(f"/jobs/{first.id}").text
    (address,) = (one["hx-sse:connect"] for _, one in Read(page).tags if "hx-sse:connect" in one)
    shown = web.streamed(address)
    job = shown[shown.index('<section id="job"') :]
    assert "llmc hold w1" in job
    assert "w8" not in job


def test_an_event_says_who_ordered_it_and_from_where(web: Web) -> None:
    """On the events page and in the worker's log.

    Break: leave its command or its author out of an event line.
    """
    web.order("/w/w1/hold")
    for path in ("/events", "/w/w1?tab=log"):
        wait_until(lambda path=path: "llmc hold w1" in _list(web, path))
        assert "llmc hold w1 by browser, testclient" in _list(web, path)
    assert "web_signed_in by browser, testclient" in _list(web, "/events")


def _list(web: Web, path: str) -> str:
    """The events of a page, with single spaces."""
    return " ".join(
        Read(web.get(path).text.partition('<ul class="rows">')[2].partition("</ul>")[0]).text.split()
    )


def undo_forms(html: str) -> list[tuple[str, str]]:
    """The commit that each Undo would revert, and its confirmation."""
    tags = Read(html).tags
    asks = [
        one["hx-confirm"]
        for tag, one in tags
        if tag == "form" and one.get("action", "").endswith("/fleet/undo")
    ]
    commits = [one["value"] for _, one in tags if one.get("name") == "commit"]
    return list(zip(commits, asks, strict=True))


def test_the_change_that_landed_last_can_be_undone(web: Web) -> None:
    """And no other one. Break: show a button at each, or at one that was undone."""
    project = web.place.project
    first, last = (
        run_git(project.root.path / where, "rev-parse", "HEAD") for where in (".", ".worktrees/w1")
    )
    for commit in (first, last):
        with project.store.transaction() as tx:
            tx.emit("accepted", worker="w1", commit=commit, prompt="Work")
    for offered in (last, first):
        assert acceptance.undo_target(project).commit == offered
        for path in ("/", "/night?since=1h"):
            shown = wait_until(lambda path=path, offered=offered: undo_of(web, path, offered))
            assert shown.startswith(f"Revert {offered[:9]} from w1? Its task can then run again."), path
        with project.store.transaction() as tx:
            tx.emit("undone", worker="w1", commit=offered)
    assert wait_until(lambda: undo_forms(web.get("/").text) == [])
    assert undo_forms(web.get("/night?since=1h").text) == []


def undo_of(web: Web, path: str, commit: str) -> str:
    forms = dict(undo_forms(web.get(path).text))
    return forms[commit] if list(forms) == [commit] else ""


def test_a_review_is_in_the_event_log_once_for_each_browser_and_commit(web: Web) -> None:
    """Break: log an event per load; none for another commit; none if only the changes since were seen."""

    def seen() -> list[str]:
        return [row["commit"] for row in web.events("reviewed")]

    for path in ("/w/w1/review", "/w/w1/review?view=split", "/w/w1/review"):
        assert web.get(path).status_code == 200
    (first,) = seen()
    other = web.stranger()
    other.sign_in()
    other.get("/w/w1/review")
    assert seen() == [first, first]
    worktree = web.place.project.root.path / ".worktrees/w1"
    (worktree / "g.py").write_text("1\n")
    run_git(worktree, "add", "-A")
    run_git(worktree, "commit", "-q", "-m", "More")
    for _ in range(2):
        web.get("/w/w1/review")
    assert seen() == [first, first, run_git(worktree, "rev-parse", "HEAD")]


def test_a_filter_holds_for_what_comes_later(web: Web) -> None:
    """Break: use `worker` of the filter as the worker of the page."""
    web.order("/w/w1/hold")
    web.order("/w/take/hold")
    page = web.get("/events?worker=take").text
    (address,) = (one["hx-sse:connect"] for _, one in Read(page).tags if "hx-sse:connect" in one)
    shown = web.streamed(address)
    events = shown[shown.index('<section id="events"') :]
    assert ">take</a>" in events
    assert ">w1</a>" not in events
    other = Read(web.get("/w/w1?worker=take&page=board&about=take").text)
    (address,) = (one["hx-sse:connect"] for _, one in other.tags if "hx-sse:connect" in one)
    assert "about=w1" in address
    assert "page=worker" in address


# Comments of a review.


def drawn(web: Web, path: str = "f.py", page: str = "/w/w1/review") -> dict[str, str]:
    """What the page sends with a comment on a file, besides the row."""
    files = [one for tag, one in Read(web.get(page).text).tags if tag == "section" and "data-diff" in one]
    return next(
        {"path": one["data-path"], "diff": one["data-diff"]} for one in files if one["data-path"] == path
    )


def row_with(web: Web, text: str, page: str = "/w/w1/review") -> str:
    """The number of the row with this text, as the page has it."""
    page = web.get(page).text
    found = re.findall(r"review/form\?row=(\d+)[^>]*>\+</button><span[^>]*>.</span>(.*?)</td>", page)
    return next(row for row, shown in found if Read(shown).text == text)


def commented(web: Web) -> tuple[int | None, str]:
    """The line of the newest comment in the diff of now, and the code it is about."""
    anchor = commenting.page(web.place.project, "w1").comments[-1].anchor
    assert anchor is not None
    return anchor.line, anchor.quote[-1]


def amend(web: Web, lines: list[str]) -> None:
    worktree = web.place.project.root.path / ".worktrees/w1"
    (worktree / "f.py").write_text("\n".join(lines) + "\n")
    run_git(worktree, "commit", "-q", "-a", "--amend", "-m", "Work")


def after_a_round(web: Web) -> list[str]:
    """The worker's file after it changed one line since round 1."""
    project = web.place.project
    shown = commenting.page(project, "w1").review
    sent = Round(
        number=1, base=shown.base, head=shown.head, ref="refs/llmc/none", at_unix=1.0, prompt_id="pr_1"
    )
    comments.change(project, project.store.worker("w1"), lambda said: replace(said, rounds=(sent,)))
    lines = (web.place.project.root.path / ".worktrees/w1/f.py").read_text().splitlines()
    lines[20] = "line TWENTY changed"
    amend(web, lines)
    return lines


def test_a_comment_stays_on_the_line_where_it_was_made(web: Web) -> None:
    """Break: look up the row in the newest diff: the page may show another one."""
    since = "/w/w1/review?since=1"
    lines = after_a_round(web)
    fields = {**drawn(web, page=since), "row": row_with(web, "line TWENTY changed", since), "text": "Why?"}
    assert web.post("/w/w1/review/drafts", data=fields).status_code == 200
    assert commented(web) == (21, "line TWENTY changed")

    fields = {**drawn(web), "row": row_with(web, "line 10"), "text": "And this?"}
    amend(web, ["new first", "new second", *lines])
    assert web.post("/w/w1/review/drafts", data=fields).status_code == 200
    assert commented(web) == (13, "line 10")  # it moved, as the line did

    gone = {**fields, "diff": f"{'0' * 40}..{'0' * 40}"}
    assert web.post("/w/w1/review/drafts", data=gone).status_code == 404
    assert len(commenting.page(web.place.project, "w1").drafts) == 2


def test_a_file_is_marked_as_viewed_as_the_page_showed_it(web: Web) -> None:
    """Break: find the file by its number; mark a file that has changed since."""
    after_a_round(web)
    (web.place.project.root.path / ".worktrees/w1/a.py").write_text(
        "x\n"
    )  # before f.py, and not since round 1
    run_git(web.place.project.root.path / ".worktrees/w1", "add", "-A")
    lines = (web.place.project.root.path / ".worktrees/w1/f.py").read_text().splitlines()
    amend(web, lines)
    fields = {**drawn(web, page="/w/w1/review?since=1"), "viewed": "yes"}
    assert web.post("/w/w1/review/viewed", data=fields).status_code == 204
    assert commenting.page(web.place.project, "w1").viewed == {"f.py"}
    amend(web, ["first", *lines])
    assert commenting.page(web.place.project, "w1").viewed == frozenset()
    assert web.post("/w/w1/review/viewed", data=fields).status_code == 404
    assert commenting.page(web.place.project, "w1").viewed == frozenset()


def test_drafts_are_kept_changed_and_deleted(web: Web) -> None:
    """Break: allow an edit without its revision; let a stale one win."""
    at = "/w/w1/review"
    made = web.post(f"{at}/drafts", data={**drawn(web), "row": "3", "text": "Why\r\n<b>this</b>?"})
    assert made.status_code == 200, made.text
    assert faults(made.text) == []
    (draft,) = commenting.page(web.place.project, "w1").drafts
    assert (draft.text, draft.rev) == ("Why\n<b>this</b>?", 1)
    assert draft.anchor is not None
    web.post(f"{at}/drafts", data={"text": "On the whole"})
    web.post(f"{at}/drafts", data={**drawn(web), "text": "On the file"})

    assert web.put(f"{at}/drafts/{draft.id}", data={"text": "Second", "rev": "1"}).status_code == 200
    stale = web.put(f"{at}/drafts/{draft.id}", data={"text": "Stale", "rev": "1"})
    assert (stale.status_code, "changed elsewhere" in stale.text) == (409, True)
    for rev in ("", "x", "-1", "²"):
        assert web.put(f"{at}/drafts/{draft.id}", data={"text": "No revision", "rev": rev}).status_code == 400
    texts = [one.text for one in commenting.page(web.place.project, "w1").drafts]
    assert texts == ["Second", "On the whole", "On the file"]
    shown = Read(web.get(at).text).text
    assert all(text in shown for text in texts)
    form = web.get(f"{at}/form?comment={draft.id}")
    assert 'data-rev="2"' in form.text

    assert web.delete(f"{at}/drafts/{draft.id}").status_code == 200
    assert web.delete(f"{at}/drafts/{draft.id}").status_code == 404
    assert web.post(f"{at}/closed/c2", data={}).status_code == 409  # a draft is not sent yet
    assert len(commenting.page(web.place.project, "w1").drafts) == 2


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"path": "nothing.py", "row": "1", "text": "x"}, 404),
        ({"path": "f.py", "row": "999", "text": "x"}, 404),
        ({"path": "f.py", "row": "-1", "text": "x"}, 400),
        ({"path": "f.py", "row": "9" * 5000, "text": "x"}, 400),
        ({"path": "f.py", "row": "²", "text": "x"}, 400),
        ({"path": "f.py", "row": "1", "text": ""}, 400),
        ({"path": "../../f.py", "text": "x"}, 404),
        ({"text": "x" * 30_000}, 400),
    ],
)
def test_a_comment_on_nothing_is_refused(web: Web, fields: dict[str, str], status: int) -> None:
    given = {**drawn(web), **fields} if "path" in fields else fields
    assert web.post("/w/w1/review/drafts", data=given).status_code == status
    assert commenting.page(web.place.project, "w1").drafts == []


def test_a_file_with_any_name_can_be_marked_and_commented(web: Web) -> None:
    """Break: put the name into a form as it is: bytes that are not UTF-8 come back changed."""
    worktree = web.place.project.root.path / ".worktrees/w1"
    (worktree / "a\udcff\n\"'<b>").write_text("x\n")
    run_git(worktree, "add", "-A")
    run_git(worktree, "commit", "-q", "-m", "A name")
    page = Read(web.get("/w/w1/review").text)
    keys = [one["value"] for tag, one in page.tags if tag == "input" and one.get("name") == "path"]
    assert len(keys) == 2
    for key in keys:
        marked = web.post("/w/w1/review/viewed", data={**drawn(web, key), "viewed": "yes"})
        assert marked.status_code == 204, marked.text
        made = web.post("/w/w1/review/drafts", data={**drawn(web, key), "row": "1", "text": "x"})
        assert made.status_code == 200
    other = {**drawn(web, keys[1]), "path": keys[1] + "x", "viewed": "yes"}
    assert web.post("/w/w1/review/viewed", data=other).status_code == 404
    shown = commenting.page(web.place.project, "w1")
    assert shown.viewed == {file.path for file in shown.files}


def test_author_and_message_of_what_lands_are_shown(web: Web) -> None:
    """Break: show only the diff. A message can do more than a file: close issues, start deployments."""
    worktree = web.place.project.root.path / ".worktrees/w1"
    author = ["--author", "Linus\u202e <linus@example.com>"]
    run_git(worktree, "commit", "-q", "--amend", *author, "-m", "Work", "-m", "<b>Fixes 1</b>")
    shown = Read(web.get("/w/w1/review").text).text
    assert "Author: Linus<U+202E> <linus@example.com>" in shown
    assert "Work\n\n<b>Fixes 1</b>" in shown


def test_a_diff_hides_nothing(web: Web) -> None:
    """Text that reverses or hides other text is escaped.

    Break: `printable` for a diff line, which leaves it out.
    """
    worktree = web.place.project.root.path / ".worktrees/w1"
    (worktree / "t.py").write_text("if a:\u202e # yes\u2066\n\tok\u200b\x1b[8m\n")
    run_git(worktree, "add", "-A")
    run_git(worktree, "commit", "-q", "-m", "Hidden")
    for view in ("unified", "split"):
        shown = Read(web.get(f"/w/w1/review?view={view}").text).text
        assert "if a:<U+202E> # yes<U+2066>" in shown
        assert "\tok<U+200B>^[[8m" in shown


def test_a_browser_is_named_by_what_it_says_and_its_address_by_the_connection(web: Web) -> None:
    other = web.stranger()
    other.headers["user-agent"] = "Mozilla/5.0 (iPhone; <script>) Safari/604.1"
    other.sign_in()
    job = other.ended(other.post("/w/w1/hold").headers["location"].rpartition("/")[2])
    assert job.by == "Safari on iPhone, testclient"
    assert [row["by"] for row in web.events("web_signed_in")] == ["browser, testclient", job.by]
    assert web.cookies[COOKIE] != other.cookies[COOKIE]
